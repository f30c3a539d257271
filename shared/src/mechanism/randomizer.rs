//! All that the rest of the system asks of a mechanism.

use rand::Rng;

use super::{
    Calibration, GaussianNoise, NoiseModel, NormBound, PayloadKind,
    decoding::{AuditStatistic, Decoding},
    payload::MAX_DENSE_DIMENSION,
};
use crate::{
    error::Result,
    preprocess::BoundedRow,
    privacy::{Budget, accountant::Guarantee},
};

/// A local randomizer with the constants that a study freezes: one bounded row in, one payload out, and what follows
/// from the constants. Private to this crate, as the set is closed; [`Mechanism`](super::Mechanism) documents the
/// methods in public.
pub(crate) trait LocalRandomizer: Sized {
    /// The name in JSON and on the command line.
    const NAME: &'static str;
    /// For whoever chooses one: half a line, in forms and help.
    const SUMMARY: &'static str;
    /// The number in a study's canonical bytes (`docs/protocol.md`).
    const NUMBER: u8;
    /// Whether it promises δ = 0.
    const PURE: bool = false;
    /// Whether there is a choice of calibration.
    const CALIBRATED: bool = false;
    /// Whether reports show the trace of `xxᵀ`.
    const SHOWS_TRACE: bool = true;
    /// Largest dimension of a report.
    const MAX_DIMENSION: usize = MAX_DENSE_DIMENSION;

    /// The constants of this budget, which is within the limits of a study; `calibration` is analytic unless there is
    /// a choice.
    fn derive(calibration: Calibration, dimension: usize, budget: Budget) -> Result<Self>;

    /// Constants as they arrive on the wire, unchecked; `None` if their number is wrong.
    fn from_constants(
        calibration: Calibration,
        dimension: usize,
        epsilon: f64,
        constants: &[f64],
    ) -> Option<Self>;

    fn constants(&self) -> Vec<f64>;

    /// Refuses constants that do not give what the study claims.
    fn check(&self, dimension: usize, budget: Budget) -> Result<()>;

    fn gaussian_noise(&self) -> Option<GaussianNoise> {
        None
    }

    fn guarantee(&self) -> Result<Guarantee>;
    fn true_epsilon(&self, delta: f64) -> Option<f64>;
    fn true_delta(&self, epsilon: f64) -> f64;
    fn privacy_loss_tail(&self, epsilon: f64) -> f64;
    fn arithmetic_slack(&self, dimension: usize) -> f64;

    fn epsilon_with_rounding(&self, _dimension: usize, delta: f64) -> Option<f64> {
        self.true_epsilon(delta)
    }

    fn assumption(&self, dimension: usize) -> String;

    /// The payload of one row, and how many attempts it took.
    fn perturb<R: Rng + ?Sized>(&self, row: &BoundedRow, rng: &mut R) -> (Vec<u8>, u64);
    fn payload_kind(&self) -> PayloadKind;
    fn norm_bound(&self, dimension: usize) -> Option<NormBound>;
    fn report_influence(&self, dimension: usize) -> f64;
    fn decoding(&self) -> Decoding;
    fn noise_model(&self) -> NoiseModel;
    fn audit_statistic(&self) -> AuditStatistic;
}
