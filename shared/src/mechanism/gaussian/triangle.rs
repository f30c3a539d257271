//! What the two Gaussian mechanisms have in common: independent noise on the entries of the triangle.

use rand::Rng;

use super::{GaussianNoise, rounded::RoundedGaussian};
use crate::{
    error::{Result, error},
    mechanism::{
        AuditStatistic, Calibration, Decoding, NoiseModel, NormBound, PayloadKind,
        payload::check_dense_dimension, randomizer::LocalRandomizer,
    },
    packed::packed_len,
    preprocess::BoundedRow,
    privacy::{
        Budget,
        accountant::Guarantee,
        format_rounded_up,
        gaussian::{self, SENSITIVITY},
    },
};

/// Largest share of ε that floating point may add: a study beyond it is refused.
const MAX_ARITHMETIC_SHARE: f64 = 0.01;

/// `tri(xxᵀ)` plus independent Gaussians; the two mechanisms differ in their standard deviation off the diagonal.
pub(super) trait PackedGaussian: Sized {
    const NAME: &'static str;
    const SUMMARY: &'static str;
    const NUMBER: u8;

    fn new(noise: GaussianNoise) -> Self;

    fn noise(&self) -> GaussianNoise;

    /// The noise of the entries.
    fn rounded(&self) -> RoundedGaussian;

    /// How long an honest report is. Rounding to the grid moves each entry by at most one half of its step.
    fn norm_bound(&self, dimension: usize) -> NormBound;

    /// The largest spectral norm of a report as long as this.
    fn spectral_norm(&self, length: f64, dimension: usize) -> f64;
}

impl<T: PackedGaussian> LocalRandomizer for T {
    const NAME: &'static str = T::NAME;
    const SUMMARY: &'static str = T::SUMMARY;
    const NUMBER: u8 = T::NUMBER;
    const CALIBRATED: bool = true;

    fn derive(calibration: Calibration, dimension: usize, budget: Budget) -> Result<Self> {
        let noise = GaussianNoise::derive(calibration, budget)?;
        check_dense_dimension(dimension)?;
        Ok(T::new(noise))
    }

    fn from_constants(
        calibration: Calibration,
        _dimension: usize,
        _epsilon: f64,
        constants: &[f64],
    ) -> Option<Self> {
        let [sigma] = constants.try_into().ok()?;
        Some(T::new(GaussianNoise::from_constants(calibration, sigma)))
    }

    fn constants(&self) -> Vec<f64> {
        vec![self.noise().sigma()]
    }

    fn check(&self, dimension: usize, budget: Budget) -> Result<()> {
        self.noise().check(dimension, budget)?;
        let slack = self.arithmetic_slack(dimension);
        if slack <= MAX_ARITHMETIC_SHARE * budget.epsilon() {
            return Ok(());
        }
        Err(error!(
            InvalidBudget,
            "epsilon is {:e} and floating point could add {slack:.1e} to it at dimension {dimension}; take epsilon = {:.1e} or more, or discrete-gaussian",
            budget.epsilon(),
            1.05 * slack / MAX_ARITHMETIC_SHARE
        ))
    }

    fn gaussian_noise(&self) -> Option<GaussianNoise> {
        Some(self.noise())
    }

    fn guarantee(&self) -> Result<Guarantee> {
        Guarantee::gaussian(self.noise().sigma(), SENSITIVITY)
    }

    fn true_epsilon(&self, delta: f64) -> Option<f64> {
        gaussian::true_epsilon(self.noise().sigma(), SENSITIVITY, delta)
    }

    fn true_delta(&self, epsilon: f64) -> f64 {
        gaussian::true_delta(self.noise().sigma(), SENSITIVITY, epsilon)
    }

    /// A released number is known to half a cell of the grid, so that it misses the threshold by no more
    /// (docs/derivations/gaussian.md, "The two-sided statement").
    fn privacy_loss_tail(&self, epsilon: f64) -> f64 {
        let sigma = self.noise().sigma();
        let missed = self.rounded().half_cell() * SENSITIVITY / sigma;
        gaussian::privacy_loss_tail(sigma, SENSITIVITY, epsilon - missed)
    }

    fn arithmetic_slack(&self, dimension: usize) -> f64 {
        self.rounded().arithmetic_slack(dimension)
    }

    /// (ε + slack, δ(1 + slack)): `rounded.rs`.
    fn epsilon_with_rounding(&self, dimension: usize, delta: f64) -> Option<f64> {
        let slack = self.arithmetic_slack(dimension);
        let epsilon = self.true_epsilon(delta / (1.0 + slack))?;
        Some((epsilon + slack).next_up())
    }

    fn assumption(&self, dimension: usize) -> String {
        format!(
            "The Gaussian noise is drawn in floating point and released on a grid of one 64th of its standard deviation or less: arithmetic adds at most {} to epsilon, which the stated epsilon includes, and less than that share to delta.",
            format_rounded_up(self.arithmetic_slack(dimension), 2)
        )
    }

    /// `tri(xxᵀ)` plus independent Gaussians on their grid, as little-endian f32. Products and sums stay in registers:
    /// nothing of them is left in memory of ours.
    fn perturb<R: Rng + ?Sized>(&self, row: &BoundedRow, rng: &mut R) -> (Vec<u8>, u64) {
        let noise = self.rounded();
        let mut payload = Vec::with_capacity(4 * packed_len(row.dimension()));
        let mut rest = row.as_slice();
        while let [xi, right @ ..] = rest {
            payload.extend_from_slice(&noise.on_diagonal(xi * xi, rng).to_le_bytes());
            for xj in right {
                payload.extend_from_slice(&noise.off_diagonal(xi * xj, rng).to_le_bytes());
            }
            rest = right;
        }
        (payload, 1)
    }

    fn payload_kind(&self) -> PayloadKind {
        PayloadKind::Floats
    }

    fn norm_bound(&self, dimension: usize) -> Option<NormBound> {
        Some(PackedGaussian::norm_bound(self, dimension))
    }

    /// Twice the longest report that the norm test lets through.
    fn report_influence(&self, dimension: usize) -> f64 {
        let limit = PackedGaussian::norm_bound(self, dimension).limit();
        self.spectral_norm(2.0 * limit, dimension)
    }

    fn decoding(&self) -> Decoding {
        Decoding::Entries
    }

    fn noise_model(&self) -> NoiseModel {
        let [diagonal_sd, off_diagonal_sd] = self.rounded().standard_deviations();
        NoiseModel::Gaussian {
            off_diagonal_sd,
            diagonal_sd,
        }
    }

    fn audit_statistic(&self) -> AuditStatistic {
        let [diagonal_sd, off_diagonal_sd] = self.rounded().standard_deviations();
        AuditStatistic::Linear {
            weights: [diagonal_sd.powi(-2), off_diagonal_sd.powi(-2)],
            gaussian: true,
        }
    }
}
