//! Before a study: how many participants it needs ([`plan()`]), and the public constants of its features
//! ([`prepare()`]).
//!
//! Numbers come from the floor's formulas ([`crate::floor`]) and a spectrum: typed in, or the one that a pilot or public
//! rows show.

mod choices;
mod columns;
mod correlations;
mod missing;
mod moments;
mod plan;
mod prepare;
mod sample;
mod tables;
mod target;
mod unknown_error;

pub use choices::{Choice, PrepareRequest};
pub use columns::{Column, ColumnDescription};
pub(crate) use columns::{round_to_scale, rounded};
pub use correlations::{CorrelationOutlook, MovedCorrelation};
pub use plan::{
    DEFAULT_COMPONENTS, ErrorPlan, PlanAnswer, PlanRequest, PlanRow, PlanSetting, SizePlan,
    SizeRow, plan, slow_report_note,
};
pub use prepare::{PrepareAnswer, describe, prepare};
pub use sample::{PublicColumn, PublicRows};
pub use tables::Tables;
pub use target::{
    PlanResult, PlanTarget, assumed_of_pilot, error_curve, evenly_spaced, meet, pilot_mean_length,
    spectrum_from_eigenvalues, spectrum_from_pilot,
};
pub use unknown_error::{
    RANDOM, UnknownError, error_in_words, is_guess, known_error, known_spectrum,
};
