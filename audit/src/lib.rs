//! Empirical lower bounds on ε: a test that can catch a mechanism with a false claim.
//!
//! The audit is black box: it runs the device's own path under each of two rows, or of two tables of a site, from the
//! raw row to the bytes on the wire and the work they took. A threshold event is chosen on one half of the outputs and
//! tested on the other, so that the bound is valid for any choice. [`audit()`] does this for the mechanisms of this
//! workspace, [`audit_devices`] and [`audit_sites`] for any [`Device`], including deliberately broken ones; [`observe`]
//! and [`event_bound`] do it for any randomizer observed through one number.
//!
//! ```
//! use eigenveil_audit::{Sampling, Side, event_bound, observe};
//! use rand::{Rng, rngs::ChaCha20Rng};
//! // Randomized response that tells the truth 9 times in 10: ε = ln 9 = 2.197.
//! let response = |side: Side, rng: &mut ChaCha20Rng| {
//!     let truth = rng.next_u32() % 10 != 0;
//!     Ok(f64::from(u8::from((side == Side::A) == truth)))
//! };
//! let samples = observe(&response, 0, &Sampling::quiet(20_000, 1))?;
//! let bound = event_bound(&samples, 0.0, 0.95)?.epsilon_lower_bound;
//! assert!(bound > 2.0 && bound < 9.0_f64.ln());
//! # Ok::<(), eigenveil_shared::Error>(())
//! ```

mod attempts;
mod audit;
mod bounds;
mod clopper_pearson;
mod device;
mod pairs;
mod sampling;
mod settings;
mod statistic;
mod table;
mod table_pairs;
mod transcript;
mod trials;

pub use attempts::{AttemptsTest, AttemptsVerdict, attempts_test};
pub use audit::{
    AuditReport, AuditVerdict, Observed, PairReport, audit, audit_devices, audit_sites, run,
};
pub use bounds::{Bound, event_bound, mu_bound};
pub use clopper_pearson::{lower_limit, upper_limit};
pub use device::{
    Device, DeviceOutput, Participant, Randomness, SdkDevice, SeededDevice, SiteDevice,
    encode_with_random_id, prepare,
};
pub use pairs::PairKind;
pub use sampling::{Samples, Sampling, Side, observe};
pub use settings::{AuditSettings, CONFIDENCE, MAX_TRIALS, MIN_TRIALS, Method, TRIALS};
pub use statistic::{CapStatistic, Statistic, TableStatistic};
pub use table::Table;
