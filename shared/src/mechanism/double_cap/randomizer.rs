//! The device's side: a seed that leans towards the row.

use std::hint::black_box;

use pulp::Arch;
use rand::Rng;
use serde::{Deserialize, Serialize};
use zeroize::Zeroizing;

use super::{
    DoubleCapParameters, MAX_DIMENSION, SEED_LEN, Seed,
    expansion::{NORMAL_LANES, Workspace, expand_in, project},
};
use crate::{
    dot::dot,
    error::{Result, error},
    mechanism::{
        AuditStatistic, Calibration, Decoding, NoiseModel, NormBound, PayloadKind,
        randomizer::LocalRandomizer,
    },
    preprocess::BoundedRow,
    privacy::{
        Budget,
        accountant::{Guarantee, Pure},
    },
};

/// Upper bound on what the finite seeds and the rounding of `double-cap` add to its ε: 2⁻²⁰, some 10⁴ times what was
/// bounded (`docs/derivations/double-cap.md`, "What the arithmetic adds").
pub const GENERATOR_SLACK: f64 = 1.0 / (1_u32 << 20) as f64;

/// A row shorter than this counts as zero: its square would not be a normal number.
const MIN_ROW_NORM: f64 = 1e-150;

/// `double-cap`: releases a seed whose direction g has density proportional to e^ε in the double cap
/// C(u) = {g : (gᵀu)² > τ} of the row's direction and to 1 outside.
///
/// * Neighbours: any two rows of the unit ball (replacement). Norm: none; the ratio of densities is
///   bounded for every pair, so there is no sensitivity to calibrate to.
/// * Guarantee: pure ε-LDP, δ = 0, for any common τ. Unit rows have densities in {1, e^ε}/Z with
///   Z = 1 + q(e^ε − 1) the same for all; a row of length r is replaced by a fresh random direction with
///   probability 1 − r², which makes its law a mixture with the uniform one, and 1 ≤ Z ≤ e^ε.
/// * Rounding: reported as ε + 2⁻²⁰; never worse than 2ε for any generator.
/// * Side channels: each attempt draws seed and coin first, runs the same instructions for every seed, computes the
///   whole dot product, and decides without a branch on the row; the number of attempts has the same distribution for
///   every row. Direction, normals and products are wiped afterwards.
/// * Source: `docs/mechanisms.md`, after the bounded-query mechanisms of Duchi, Jordan & Wainwright and
///   PrivUnit (Bhowmick et al. 2018), for the rank-one matrix.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct DoubleCap {
    dimension: usize,
    epsilon: f64,
    threshold: f64,
    cap_probability: f64,
    scale: f64,
}

impl DoubleCap {
    /// The ε stated for each report: ε + [`GENERATOR_SLACK`], rounded up.
    pub fn reported_epsilon(&self) -> f64 {
        (self.epsilon + GENERATOR_SLACK).next_up()
    }

    /// The constants with what follows from them: signal, normalizer, moments.
    pub fn parameters(&self) -> DoubleCapParameters {
        let p = self.dimension as f64;
        DoubleCapParameters {
            dimension: self.dimension,
            epsilon: self.epsilon,
            threshold: self.threshold,
            cap_probability: self.cap_probability,
            signal: (p - 1.0) / (p * self.scale),
            scale: self.scale,
        }
    }

    /// Draws one report and counts the attempts, **for simulation and audit only**: the count must have the same
    /// distribution for every row.
    pub fn draw_counting_attempts<R: Rng + ?Sized>(
        &self,
        row: &BoundedRow,
        rng: &mut R,
    ) -> (Seed, u64) {
        let x = row.as_slice();
        let mut workspace = Zeroizing::new(Workspace::new());
        let u = self.direction(x, rng, &mut workspace);
        let coin_limit = coin_limit(self.epsilon);
        let mut attempts = 0;
        loop {
            attempts += 1;
            let seed = fresh_seed(rng);
            let coin = u128::from(rng.next_u64()) < coin_limit;
            let mut projected =
                Zeroizing::new(project(&seed, u.as_chunks().0, x.len(), &mut workspace));
            let [squared_length, product] = &mut *projected;
            *product *= *product;
            let inside = *product > self.threshold * *squared_length;
            // Bitwise on values the optimiser cannot see through: no branch reveals whether cap or coin accepted.
            let accept = black_box(u8::from(inside)) | black_box(u8::from(coin));
            if accept != 0 {
                return (seed, attempts);
            }
        }
    }

    /// The row's direction, or with probability 1 − r² a fresh random one. Both are always made, and one is selected
    /// without a branch. The result is padded with zeros to a multiple of [`NORMAL_LANES`].
    fn direction<R: Rng + ?Sized>(
        &self,
        x: &[f64],
        rng: &mut R,
        workspace: &mut Workspace,
    ) -> Zeroizing<Vec<f64>> {
        let squared = dot(x, x).min(1.0);
        let length = libm::sqrt(squared);
        let probability = if length < MIN_ROW_NORM { 0.0 } else { squared };
        let uniform = (rng.next_u64() >> 11) as f64 * (0.5 / (1_u64 << 52) as f64);
        let mut selected = Zeroizing::new(vec![0.0; x.len().next_multiple_of(NORMAL_LANES)]);
        let replacement_squared = expand_in(&fresh_seed(rng), &mut selected[..x.len()], workspace);
        let replacement_length = libm::sqrt(replacement_squared);
        let row_length = length.max(MIN_ROW_NORM);
        // All ones to keep the row's own direction, all zeros to replace it.
        let keep = black_box(u64::from(uniform < probability)).wrapping_neg();
        let select = |row: f64, replacement: f64| {
            f64::from_bits((row.to_bits() & keep) | (replacement.to_bits() & !keep))
        };
        let divisor = select(row_length, replacement_length);
        Arch::new().dispatch(|| {
            for (selected, x) in selected.iter_mut().zip(x) {
                *selected = select(*x, *selected) / divisor;
            }
        });
        selected
    }
}

impl LocalRandomizer for DoubleCap {
    const NAME: &'static str = "double-cap";
    const SUMMARY: &'static str = "pure ε, 16 bytes whatever p is";
    const NUMBER: u8 = 3;
    const PURE: bool = true;
    const SHOWS_TRACE: bool = false;
    const MAX_DIMENSION: usize = MAX_DIMENSION;

    fn derive(_calibration: Calibration, dimension: usize, budget: Budget) -> Result<Self> {
        if !budget.is_pure() {
            return Err(error!(
                InvalidBudget,
                "delta is {:e}, but the delta of double-cap is always 0; leave delta out",
                budget.delta()
            )
            .with_field("delta"));
        }
        let parameters = DoubleCapParameters::derive(dimension, budget.epsilon())?;
        Ok(Self {
            dimension,
            epsilon: parameters.epsilon,
            threshold: parameters.threshold,
            cap_probability: parameters.cap_probability,
            scale: parameters.scale,
        })
    }

    fn from_constants(
        _calibration: Calibration,
        dimension: usize,
        epsilon: f64,
        constants: &[f64],
    ) -> Option<Self> {
        let [threshold, cap_probability, scale] = constants.try_into().ok()?;
        Some(Self {
            dimension,
            epsilon,
            threshold,
            cap_probability,
            scale,
        })
    }

    fn constants(&self) -> Vec<f64> {
        vec![self.threshold, self.cap_probability, self.scale]
    }

    /// Refuses wrong constants. Any threshold that is the same for all rows keeps the guarantee, but a wrong threshold
    /// or scale would waste the participants' budget.
    fn check(&self, dimension: usize, budget: Budget) -> Result<()> {
        let expected = Self::derive(Calibration::Analytic, dimension, budget)?;
        let close = |actual: f64, expected: f64| (actual / expected - 1.0).abs() <= 1e-6;
        if self.dimension == expected.dimension
            && self.epsilon == expected.epsilon
            && close(self.threshold, expected.threshold)
            && close(self.cap_probability, expected.cap_probability)
            && close(self.scale, expected.scale)
        {
            return Ok(());
        }
        Err(error!(
            InvalidMechanism,
            "the study's double-cap has threshold {}, cap probability {} and scale {} but p = {dimension}, epsilon = {} needs {}, {} and {}; do not take part",
            self.threshold,
            self.cap_probability,
            self.scale,
            budget.epsilon(),
            expected.threshold,
            expected.cap_probability,
            expected.scale
        ))
    }

    fn guarantee(&self) -> Result<Guarantee> {
        Pure::new(self.epsilon)?;
        Pure::new(self.reported_epsilon()).map(Guarantee::Pure)
    }

    fn true_epsilon(&self, _delta: f64) -> Option<f64> {
        Some(self.reported_epsilon())
    }

    fn true_delta(&self, epsilon: f64) -> f64 {
        if epsilon >= self.epsilon {
            return 0.0;
        }
        // Densities in {1, e^ε'}/Z: the hockey-stick divergence is at most 1 − e^(ε−ε').
        (-(epsilon - self.epsilon - GENERATOR_SLACK).exp_m1()).next_up()
    }

    fn privacy_loss_tail(&self, epsilon: f64) -> f64 {
        if epsilon >= self.epsilon { 0.0 } else { 1.0 }
    }

    fn arithmetic_slack(&self, _dimension: usize) -> f64 {
        GENERATOR_SLACK
    }

    fn assumption(&self, _dimension: usize) -> String {
        "The proof treats the ChaCha generators as random functions; then floating-point arithmetic adds less than one millionth to epsilon, which the stated epsilon includes.".to_owned()
    }

    fn perturb<R: Rng + ?Sized>(&self, row: &BoundedRow, rng: &mut R) -> (Vec<u8>, u64) {
        let (seed, attempts) = self.draw_counting_attempts(row, rng);
        (seed.to_vec(), attempts)
    }

    fn payload_kind(&self) -> PayloadKind {
        PayloadKind::Seed
    }

    fn norm_bound(&self, _dimension: usize) -> Option<NormBound> {
        None
    }

    /// The scale c: two reports differ by `c‖ggᵀ − hhᵀ‖₂ ≤ c`.
    fn report_influence(&self, _dimension: usize) -> f64 {
        self.scale
    }

    fn decoding(&self) -> Decoding {
        Decoding::Direction(self.parameters())
    }

    fn noise_model(&self) -> NoiseModel {
        let moments = self.parameters().moments();
        NoiseModel::DoubleCap {
            dimension: self.dimension,
            scale: self.scale,
            a0: moments.a0,
            a1: moments.a1,
            a2: moments.a2,
            mean_squared_norm: None,
        }
    }

    fn audit_statistic(&self) -> AuditStatistic {
        AuditStatistic::Caps(self.parameters())
    }
}

fn fresh_seed<R: Rng + ?Sized>(rng: &mut R) -> Seed {
    // Word by word: generators hand out words faster than they fill bytes.
    let words = [(); SEED_LEN / 8].map(|()| rng.next_u64().to_le_bytes());
    let mut seed = [0; SEED_LEN];
    seed.copy_from_slice(words.as_flattened());
    seed
}

/// ⌈e^{−ε}·2⁶⁴⌉, rounded up past the error of the exponential: an accepting coin that is too frequent only lowers ε.
fn coin_limit(epsilon: f64) -> u128 {
    const TWO_TO_64: f64 = (1_u128 << 64) as f64;
    let limit = (libm::exp(-epsilon).next_up() * TWO_TO_64).ceil();
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a whole number between 0 and 2^64 + 2^12"
    )]
    let limit = limit as u128;
    limit
}

#[cfg(test)]
mod tests {
    use rand::{SeedableRng, rngs::ChaCha20Rng};

    use super::*;
    use crate::{
        error::ErrorCode,
        preprocess::{Norm, bounded},
    };

    fn pure(epsilon: f64) -> Budget {
        Budget::pure(epsilon).unwrap()
    }

    #[test]
    fn coins_are_never_too_rare() {
        for epsilon in [1e-12, 0.1, 1.0, 4.0, 16.0] {
            let limit = coin_limit(epsilon) as f64 / (1_u128 << 64) as f64;
            assert!(limit >= (-epsilon).exp() && limit <= (-epsilon).exp() * (1.0 + 1e-12));
        }
    }

    #[test]
    fn reported_epsilon_slightly_exceeds_the_designed_one() {
        let cap = DoubleCap::derive(Calibration::Analytic, 10, pure(1.0)).unwrap();
        let reported = cap.reported_epsilon();
        assert!((1.0 + GENERATOR_SLACK..1.0 + 9.6e-7).contains(&reported));
        let guarantee = Guarantee::Pure(Pure::new(reported).unwrap());
        assert_eq!(cap.guarantee().unwrap(), guarantee);
    }

    #[test]
    fn constants_of_another_study_are_refused() {
        let good = DoubleCap::derive(Calibration::Analytic, 10, pure(2.0)).unwrap();
        assert!(good.check(10, pure(2.0)).is_ok());
        let [tau, q, c] = good.constants()[..] else {
            panic!("three constants");
        };
        for (dimension, epsilon, constants) in [
            (10, 2.0, [tau * 1.00001, q, c]),
            (10, 2.0, [tau, q * 0.9999, c]),
            (10, 2.0, [tau, q, -c]),
            (10, 2.0, [tau, q, f64::NAN]),
            (11, 2.0, [tau, q, c]),
            (10, 2.5, [tau, q, c]),
        ] {
            let read = <DoubleCap as LocalRandomizer>::from_constants;
            let wrong = read(Calibration::Analytic, dimension, epsilon, &constants).unwrap();
            let error = wrong.check(10, pure(2.0)).unwrap_err();
            assert_eq!(error.code(), ErrorCode::InvalidMechanism);
        }
        let not_pure = Budget::approximate(2.0, 1e-6).unwrap();
        let error = good.check(10, not_pure).unwrap_err();
        assert_eq!(error.code(), ErrorCode::InvalidBudget);
    }

    #[test]
    fn the_same_randomness_costs_every_row_the_same_draws() {
        // Before the first try every row consumes the same randomness, whatever its length.
        let mechanism = DoubleCap::derive(Calibration::Analytic, 5, pure(1.0)).unwrap();
        let mut ends = Vec::new();
        for row in [[1.0, 0.0, 0.0, 0.0, 0.0], [0.1; 5], [0.0; 5], [1e-200; 5]] {
            let mut rng = ChaCha20Rng::from_seed([5; 32]);
            let row = bounded(row.to_vec(), Norm::Clip { radius: 1.0 });
            let u = mechanism.direction(row.as_slice(), &mut rng, &mut Workspace::new());
            assert!((dot(&u, &u) - 1.0).abs() < 1e-14);
            ends.push(rng.next_u64());
        }
        assert!(ends.windows(2).all(|pair| pair[0] == pair[1]));
    }
}
