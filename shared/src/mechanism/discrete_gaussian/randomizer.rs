//! The randomizer of `discrete-gaussian`.

use rand::Rng;
use serde::{Deserialize, Serialize};

use super::{DiscreteGaussianParameters, grid_sensitivity, sampler::DiscreteGaussianSampler};
use crate::{
    error::{Result, error},
    mechanism::{
        AuditStatistic, Calibration, Decoding, NoiseModel, NormBound, PayloadKind,
        payload::check_dense_dimension, randomizer::LocalRandomizer,
    },
    packed::packed_len,
    preprocess::BoundedRow,
    privacy::{Budget, accountant::Guarantee, gaussian},
};

/// `discrete-gaussian`: `2ᵇ·svec(xxᵀ)` rounded to integers, plus independent `N_Z(0, σ²)` on every entry.
///
/// * Neighbours: any two rows of the unit ball (replacement). Norm: L2 on the rounded, scaled svec.
/// * Sensitivity: Δ_grid = (√2·2ᵇ + √(p(p+1)/2))(1 + 2⁻⁴⁰) ([`super::grid_sensitivity`]): √2·2ᵇ before
///   rounding, and rounding moves the difference of two rows by at most one per entry. The last factor
///   covers the f64 arithmetic: ‖x‖² ≤ 1 + 2⁻⁴¹ for p ≤ 4,096, and an entry errs by three roundings.
/// * Guarantee: (ε, δ)-LDP by the bound of `docs/derivations/discrete-gaussian.md`, "Guarantee"
///   ([`DiscreteGaussianParameters::true_delta`]), and Δ_grid²/2σ²-zCDP
///   ([`DiscreteGaussianParameters::zcdp_rho`]), which composes.
/// * Source: Canonne, Kamath & Steinke 2020, Algorithms 1 to 3 and its zCDP of the multivariate case.
/// * Rounding: to the nearest integer, ties to even, before the noise; the noise is exact, in integers.
///   Clamping to ±[`payload_bound`](DiscreteGaussianParameters::payload_bound) is post-processing.
/// * Time: what the sampler takes depends on its noise alone. It does depend on that: whoever times a
///   single device exactly *and* sees its report learns a little about the noise, hence about the row.
///   The share vanishes with the p(p+1)/2 samples a report sums up; send later, not when ready.
///
/// Payload: p(p+1)/2 little-endian i32, the upper triangle row by row. An integer k decodes to k/2ᵇ on
/// the diagonal and to k/(2ᵇ√2) off it ([`DiscreteGaussianParameters::diagonal_step`],
/// [`DiscreteGaussianParameters::off_diagonal_step`]); the noise of one decoded report has standard deviation
/// [`sigma`](DiscreteGaussianParameters::sigma) on the diagonal and `sigma/√2` off it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[cfg_attr(
    feature = "openapi",
    schema(description = "What is frozen in a study.")
)]
#[serde(deny_unknown_fields)]
pub struct DiscreteGaussian {
    dimension: usize,
    #[serde(flatten)]
    parameters: DiscreteGaussianParameters,
}

impl DiscreteGaussian {
    /// The randomizer of reports of this dimension with these parameters. What it guarantees for a budget
    /// is for [`Mechanism::check`](crate::mechanism::Mechanism::check) to say.
    pub fn new(dimension: usize, parameters: DiscreteGaussianParameters) -> Self {
        Self {
            dimension,
            parameters,
        }
    }

    /// Its parameters.
    pub fn parameters(&self) -> DiscreteGaussianParameters {
        self.parameters
    }

    /// The sampler of its noise, in grid steps.
    pub(in crate::mechanism) fn sampler(&self) -> DiscreteGaussianSampler {
        DiscreteGaussianSampler::new(self.parameters.sigma_grid_u32())
    }
}

impl LocalRandomizer for DiscreteGaussian {
    const NAME: &'static str = "discrete-gaussian";
    const SUMMARY: &'static str = "(ε, δ), exact noise in integers";
    const NUMBER: u8 = 4;

    fn derive(_calibration: Calibration, dimension: usize, budget: Budget) -> Result<Self> {
        check_dense_dimension(dimension)?;
        let parameters = DiscreteGaussianParameters::derive(dimension, budget)?;
        Ok(Self::new(dimension, parameters))
    }

    fn from_constants(
        _calibration: Calibration,
        dimension: usize,
        _epsilon: f64,
        constants: &[f64],
    ) -> Option<Self> {
        let [grid_bits, sigma_grid] = constants.try_into().ok()?;
        let parameters = DiscreteGaussianParameters::new(
            u8::try_from(exact_integer(grid_bits)?).ok()?,
            exact_integer(sigma_grid)?,
        );
        Some(Self::new(dimension, parameters.ok()?))
    }

    fn constants(&self) -> Vec<f64> {
        // At most 2²⁶: exact.
        vec![
            f64::from(self.parameters.grid_bits()),
            self.parameters.sigma_grid() as f64,
        ]
    }

    fn check(&self, dimension: usize, budget: Budget) -> Result<()> {
        check_dense_dimension(dimension)?;
        if self.dimension != dimension {
            return Err(error!(
                InvalidMechanism,
                "the mechanism's dimension is {} but the study's reports have {dimension}; do not take part",
                self.dimension
            ));
        }
        self.parameters.check(dimension, budget)
    }

    fn guarantee(&self) -> Result<Guarantee> {
        Guarantee::zcdp(self.parameters.zcdp_rho(self.dimension))
    }

    fn true_epsilon(&self, delta: f64) -> Option<f64> {
        self.parameters.true_epsilon(self.dimension, delta)
    }

    fn true_delta(&self, epsilon: f64) -> f64 {
        self.parameters.true_delta(self.dimension, epsilon)
    }

    /// Whole numbers miss the threshold by half a step at most
    /// (docs/derivations/discrete-gaussian.md, "The two-sided probability").
    fn privacy_loss_tail(&self, epsilon: f64) -> f64 {
        let sensitivity = grid_sensitivity(self.dimension, self.parameters.grid_bits());
        let sigma = self.parameters.sigma_grid() as f64;
        let half_step = 0.5 * sensitivity / (sigma * sigma);
        gaussian::privacy_loss_tail(sigma, sensitivity, epsilon - half_step)
    }

    fn arithmetic_slack(&self, _dimension: usize) -> f64 {
        0.0
    }

    fn assumption(&self, _dimension: usize) -> String {
        "The noise is exact, in integers. The time one report takes depends on its noise: send it later, not when it is ready.".to_owned()
    }

    fn perturb<R: Rng + ?Sized>(&self, row: &BoundedRow, rng: &mut R) -> (Vec<u8>, u64) {
        let bound = i64::from(self.parameters.payload_bound());
        let sampler = self.sampler();
        let mut payload = Vec::with_capacity(4 * packed_len(row.dimension()));
        for entry in on_grid(row, self.parameters.grid_bits()) {
            let noisy = (entry + sampler.sample(rng)).clamp(-bound, bound);
            #[allow(clippy::cast_possible_truncation, reason = "the bound is below 2^31")]
            payload.extend_from_slice(&(noisy as i32).to_le_bytes());
        }
        (payload, 1)
    }

    fn payload_kind(&self) -> PayloadKind {
        PayloadKind::Integers {
            bound: self.parameters.payload_bound(),
        }
    }

    /// In steps of svec's grid; rounding to it moves each entry by at most one half.
    fn norm_bound(&self, dimension: usize) -> Option<NormBound> {
        let entries = packed_len(dimension) as f64;
        let signal = self.parameters.diagonal_step().recip() + 0.5 * entries.sqrt();
        let sigma = self.parameters.sigma_grid() as f64;
        Some(NormBound::from_noise(dimension, 1.0, signal, sigma))
    }

    /// Twice the longest report that the norm test lets through: svec's length is the Frobenius norm.
    fn report_influence(&self, dimension: usize) -> f64 {
        let limit = LocalRandomizer::norm_bound(self, dimension).map_or(0.0, |bound| bound.limit());
        2.0 * limit * self.parameters.diagonal_step()
    }

    fn decoding(&self) -> Decoding {
        Decoding::Grid {
            diagonal_step: self.parameters.diagonal_step(),
            off_diagonal_step: self.parameters.off_diagonal_step(),
        }
    }

    fn noise_model(&self) -> NoiseModel {
        NoiseModel::Gaussian {
            off_diagonal_sd: self.parameters.sigma() * std::f64::consts::FRAC_1_SQRT_2,
            diagonal_sd: self.parameters.sigma(),
        }
    }

    /// svec on a grid, where the noise is the same for every entry. Its tails are a Gaussian's to far below what any
    /// number of trials resolves, as σ ≥ 2¹⁰ steps (`docs/derivations/discrete-gaussian.md`, "Guarantee").
    fn audit_statistic(&self) -> AuditStatistic {
        AuditStatistic::Linear {
            weights: [1.0, std::f64::consts::SQRT_2],
            gaussian: true,
        }
    }
}

/// A constant that must be a whole number no `f64` has rounded.
fn exact_integer(constant: f64) -> Option<u64> {
    let fits = constant.fract() == 0.0 && (0.0..=(1_u64 << 53) as f64).contains(&constant);
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a whole number between 0 and 2^53"
    )]
    fits.then_some(constant as u64)
}

/// 1.5·2⁵²: near it every f64 is an integer, so adding and subtracting it rounds to the nearest integer.
const ROUNDING_OFFSET: f64 = 1.5 * (1_u64 << 52) as f64;

/// `2ᵇ·svec(xxᵀ)`, rounded to the nearest integers, row by row.
fn on_grid(row: &BoundedRow, grid_bits: u8) -> impl Iterator<Item = i64> {
    let x = row.as_slice();
    let diagonal = f64::from(1_u32 << grid_bits);
    let off_diagonal = diagonal * std::f64::consts::SQRT_2;
    x.iter().enumerate().flat_map(move |(i, &xi)| {
        x[i..].iter().enumerate().map(move |(step, &xj)| {
            let scale = if step == 0 { diagonal } else { off_diagonal };
            // To the nearest, ties to even, without the branches of a library's rounding.
            #[allow(clippy::cast_possible_truncation, reason = "at most 2^25")]
            {
                ((xi * xj * scale + ROUNDING_OFFSET) - ROUNDING_OFFSET) as i64
            }
        })
    })
}

#[cfg(test)]
mod tests {
    use rand::{SeedableRng, rngs::ChaCha20Rng};
    use rand_distr::{Distribution, StandardNormal};

    use super::{super::grid_sensitivity, *};
    use crate::{
        packed::packed_index,
        preprocess::{Norm, bounded},
        privacy::Budget,
    };

    fn decode(payload: &[u8]) -> Vec<i32> {
        let (numbers, _) = payload.as_chunks();
        numbers.iter().map(|b| i32::from_le_bytes(*b)).collect()
    }

    fn mechanism(p: usize, epsilon: f64) -> DiscreteGaussian {
        let budget = Budget::approximate(epsilon, 1e-6).unwrap();
        DiscreteGaussian::derive(Calibration::Analytic, p, budget).unwrap()
    }

    #[test]
    fn svec_is_rounded_in_packed_order() {
        let row = bounded(vec![0.6, 0.0, -0.8], Norm::Require { radius: 1.0 });
        // 1024·(0.36, 0, −0.48√2, 0, 0, 0.64), rounded.
        assert!(on_grid(&row, 10).eq([369, 0, -695, 0, 0, 655]));
        assert_eq!(packed_index(3, 0, 2), 2);
    }

    #[test]
    fn no_pair_moves_further_than_the_sensitivity() {
        let mut rng = ChaCha20Rng::seed_from_u64(31);
        let mut furthest = 0.0_f64;
        let bound = grid_sensitivity(3, 3);
        for _ in 0..100_000 {
            let mut draw = || {
                let values = (0..3).map(|_| StandardNormal.sample(&mut rng)).collect();
                on_grid(&bounded(values, Norm::Normalize), 3).collect::<Vec<_>>()
            };
            let (a, b) = (draw(), draw());
            let squared: i64 = a.iter().zip(&b).map(|(a, b)| (a - b) * (a - b)).sum();
            furthest = furthest.max((squared as f64).sqrt());
        }
        assert!(furthest <= bound, "{furthest} is above {bound}");
        // Without the rounding term the bound would be false: another search found 12.88.
        assert!(furthest > 8.0 * std::f64::consts::SQRT_2, "{furthest}");
    }

    #[test]
    fn no_integer_reaches_the_clamp() {
        let mut rng = ChaCha20Rng::seed_from_u64(34);
        for (p, epsilon) in [(2, 16.0), (40, 1.0), (400, 4.0)] {
            let mechanism = mechanism(p, epsilon);
            let mut axis = vec![0.0; p];
            axis[0] = 1.0;
            let row = bounded(axis, Norm::Normalize);
            let bound = mechanism.parameters().payload_bound();
            for _ in 0..5 {
                for k in decode(&mechanism.perturb(&row, &mut rng).0) {
                    // The noise stays below half of the clamp's 16σ too.
                    assert!(k.unsigned_abs() < bound.unsigned_abs() / 2, "{k} {bound}");
                }
            }
        }
    }
}
