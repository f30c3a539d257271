//! Empirical lower bounds on ε: a test that would catch a mechanism that lies.
//!
//! Black box: outputs under each of two rows through the device's own path, from the raw row to the bytes on
//! the wire and the work they took; a threshold event is chosen on one half of them and judged on the other, so
//! that the bound is valid whatever the choice. [`audit()`] does that for the mechanisms of this workspace,
//! [`audit_devices`] for any [`Device`], also one that is broken on purpose; [`Subject`], [`observe`] and
//! [`event_bound`] do it for any randomizer seen through one number.
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
mod finding;
mod pairs;
mod sampling;
mod statistic;
mod transcript;

pub use attempts::{AttemptsTest, AttemptsVerdict, attempts_test};
pub use audit::{
    AuditReport, AuditSettings, AuditVerdict, CONFIDENCE, MAX_TRIALS, MIN_TRIALS, Method, Observed,
    PairReport, audit, audit_devices,
};
pub use bounds::{Bound, event_bound, mu_bound};
pub use clopper_pearson::{lower_limit, upper_limit};
pub use device::{Device, DeviceOutput, Randomness, SdkDevice, SeededDevice, prepare, wire};
pub use pairs::PairKind;
pub use sampling::{Samples, Sampling, Side, Subject, observe};
pub use statistic::{CapStatistic, LinearStatistic, Statistic};
