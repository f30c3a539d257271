//! In-process experiments with the true subspace known: the whole path from rows to estimate, repeated.
//!
//! Two ways to the noisy sum ([`NoisePath`]): `from-sum` draws the noise of the sum from its exact distribution, once
//! per bucket; `per-report` perturbs, encodes and decodes every participant's report as a device and a server do. Both
//! have the same distribution (a test with a stated false-alarm rate compares them).
//!
//! Noise comes from a seeded generator, so that a run can be repeated: a simulation has nobody to protect.

mod answer;
mod double_cap_direction;
mod example_reports;
mod experiment;
mod noisy_sum;
mod participants;
mod sites;

pub use answer::{SimulateAnswer, Sweep};
pub use example_reports::{ExampleReports, example_reports, has_example_reports};
pub use experiment::{Experiment, Repeat, Summary, run, summarize};
pub use noisy_sum::{NoisePath, noisy_sum};
pub use participants::{RowSource, SimulatedParticipants};
pub use sites::{SimulatedTables, SiteExperiment, draw_tables, run_sites};
