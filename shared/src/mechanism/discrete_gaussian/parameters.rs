//! Grid, noise and guarantee of `discrete-gaussian`.

use std::f64::consts::{PI, SQRT_2};

use serde::{Deserialize, Serialize};

use crate::{
    error::{Error, Result, error},
    mechanism::payload::MAX_DENSE_DIMENSION,
    packed::packed_len,
    privacy::{
        Budget, gaussian,
        search::{is_valid_delta, smallest_epsilon},
    },
};

/// Smallest σ, in grid steps, that a study may have: below it the discrete Gaussian is too far from the
/// continuous one (`docs/derivations/discrete-gaussian.md`, "Guarantee").
pub const MIN_SIGMA_GRID: u64 = 1 << 10;
/// Largest σ in grid steps: 16σ must fit the payload's integers.
pub const MAX_SIGMA_GRID: u64 = 1 << 26;
/// Finest grid, 2⁻²⁴: [`DiscreteGaussianParameters::derive`] never needs more than 2⁻¹⁸.
pub const MAX_GRID_BITS: u8 = 24;

/// σ in grid steps from which that bound is within 1e-5 of the analytic δ (ε ≤ 8,
/// δ ≥ 1e-20).
const FINE_SIGMA_GRID: u64 = 1 << 12;
/// τ² of that bound: any value is valid, and from σ = 2¹⁰ on this one costs below 1.5e-6 of σ.
const TAU_SQUARED: f64 = 3.0;
/// Share of δ that the analytic formula is given; the rest pays for the discrete law.
const ANALYTIC_SHARE: f64 = 0.9999;
/// The device clamps the noise at so many σ.
const CLAMP_SIGMAS: u64 = 16;
/// Upper bound on the relative error of a few roundings.
const ROUNDING: f64 = 1.0 / (1_u64 << 48) as f64;

/// The frozen constants of a study with `discrete-gaussian`: the grid 2⁻ᵇ and the noise σ in steps of it.
///
/// Always within [`MAX_GRID_BITS`] and [`MIN_SIGMA_GRID`] to [`MAX_SIGMA_GRID`], also when read by serde;
/// [`check`](Self::check) decides whether they satisfy a budget.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(try_from = "Unchecked")]
pub struct DiscreteGaussianParameters {
    grid_bits: u8,
    sigma_grid: u64,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Unchecked {
    grid_bits: u8,
    sigma_grid: u64,
}

impl TryFrom<Unchecked> for DiscreteGaussianParameters {
    type Error = Error;

    fn try_from(unchecked: Unchecked) -> Result<Self> {
        Self::new(unchecked.grid_bits, unchecked.sigma_grid)
    }
}

/// Coarsest grid of a study whose reports have dimension p: b = ⌈log₂(50p)⌉, which keeps the price of
/// rounding, √(p(p+1)/2) in Δ_grid, near or below 1 % of σ.
const fn min_grid_bits(report_dimension: usize) -> u8 {
    // At most 18: p was checked.
    (50 * report_dimension as u64).next_power_of_two().ilog2() as u8
}

/// L2 sensitivity of the rounded `2ᵇ·svec(xxᵀ)` under replacement of a row of the unit ball:
/// Δ_grid = (√2·2ᵇ + √(p(p+1)/2))(1 + 2⁻⁴⁰) (`docs/derivations/discrete-gaussian.md`, "Sensitivity on the grid").
pub fn grid_sensitivity(report_dimension: usize, grid_bits: u8) -> f64 {
    const SLACK: f64 = 1.0 / (1_u64 << 40) as f64;
    let rounding = (packed_len(report_dimension) as f64).sqrt();
    (SQRT_2 * f64::from(grid_bits).exp2() + rounding) * (1.0 + SLACK)
}

impl DiscreteGaussianParameters {
    /// Validates constants from an untrusted source.
    ///
    /// # Errors
    /// `invalid-mechanism` when the grid is finer than 2⁻²⁴ or σ is not 2¹⁰ to 2²⁶ grid steps.
    pub fn new(grid_bits: u8, sigma_grid: u64) -> Result<Self> {
        if grid_bits > MAX_GRID_BITS {
            return Err(error!(
                InvalidMechanism,
                "the grid has {grid_bits} bits; discrete-gaussian takes at most {MAX_GRID_BITS}"
            ));
        }
        if !(MIN_SIGMA_GRID..=MAX_SIGMA_GRID).contains(&sigma_grid) {
            return Err(error!(
                InvalidMechanism,
                "the noise has standard deviation {sigma_grid} grid steps; discrete-gaussian takes {MIN_SIGMA_GRID} to {MAX_SIGMA_GRID}, choose another grid"
            ));
        }
        Ok(Self {
            grid_bits,
            sigma_grid,
        })
    }

    /// The constants for reports of dimension p and this budget: the coarsest grid with b ≥ ⌈log₂(50p)⌉
    /// and σ ≥ 2¹² grid steps, and the σ of the analytic formula (Balle & Wang 2018) for Δ_grid at
    /// 0.9999·δ, rounded up, and raised where [`true_delta`](Self::true_delta) asks for more.
    ///
    /// # Errors
    /// `invalid-dimension` unless 2 ≤ p ≤ 4,096; `invalid-budget` for a pure budget, ε > 16, or one so
    /// small that its noise does not fit the payload.
    pub fn derive(report_dimension: usize, budget: Budget) -> Result<Self> {
        check_dimension(report_dimension)?;
        Self::derive_from(min_grid_bits(report_dimension), report_dimension, budget)
    }

    /// [`derive`](Self::derive) with a grid of at least so many bits.
    pub(in crate::mechanism) fn derive_from(
        coarsest: u8,
        report_dimension: usize,
        budget: Budget,
    ) -> Result<Self> {
        check_dimension(report_dimension)?;
        budget.check_study_limit()?;
        // σ in grid steps doubles with every bit.
        for grid_bits in coarsest..=MAX_GRID_BITS {
            let sigma_grid = required_sigma_grid(report_dimension, grid_bits, budget)?;
            if sigma_grid >= FINE_SIGMA_GRID {
                return Self::new(grid_bits, sigma_grid);
            }
        }
        Err(error!(
            InvalidBudget,
            "({}, {}) needs a grid finer than {MAX_GRID_BITS} bits; choose a smaller epsilon or delta",
            budget.epsilon(),
            budget.delta()
        ))
    }

    /// Checks, on the device too, that the constants give what the study claims. By the bound itself,
    /// not by repeating [`derive`](Self::derive): another implementation may end its search elsewhere.
    ///
    /// # Errors
    /// `invalid-dimension` and `invalid-budget` as [`derive`](Self::derive); `invalid-mechanism` when the
    /// grid is too coarse, or σ is less than the budget needs or over 1 % more.
    pub fn check(&self, report_dimension: usize, budget: Budget) -> Result<()> {
        check_dimension(report_dimension)?;
        budget.check_study_limit()?;
        let coarsest = min_grid_bits(report_dimension);
        if self.grid_bits < coarsest {
            return Err(error!(
                InvalidMechanism,
                "the study's grid has {} bits but dimension {report_dimension} needs {coarsest}; do not take part",
                self.grid_bits
            ));
        }
        let needed = required_sigma_grid(report_dimension, self.grid_bits, budget)?;
        let enough = self.true_delta(report_dimension, budget.epsilon()) <= budget.delta();
        if enough && 100 * self.sigma_grid <= 101 * needed {
            return Ok(());
        }
        Err(error!(
            InvalidMechanism,
            "the study's noise has standard deviation {} grid steps but ({}, {}) with {} bits needs {needed}; do not take part",
            self.sigma_grid,
            budget.epsilon(),
            budget.delta(),
            self.grid_bits
        ))
    }

    /// b: the grid has 2ᵇ steps per unit of an entry.
    pub fn grid_bits(&self) -> u8 {
        self.grid_bits
    }

    /// σ in grid steps, an integer.
    pub fn sigma_grid(&self) -> u64 {
        self.sigma_grid
    }

    /// σ in units of the entries of `svec(xxᵀ)`: the standard deviation of a decoded diagonal entry, √2
    /// times that of an off-diagonal one.
    pub fn sigma(&self) -> f64 {
        self.sigma_grid as f64 * self.diagonal_step()
    }

    /// 2⁻ᵇ: what one unit of a payload's integer is worth on the diagonal.
    pub fn diagonal_step(&self) -> f64 {
        (-f64::from(self.grid_bits)).exp2()
    }

    /// 2⁻ᵇ/√2: what one unit of a payload's integer is worth off the diagonal.
    pub fn off_diagonal_step(&self) -> f64 {
        self.diagonal_step() * std::f64::consts::FRAC_1_SQRT_2
    }

    /// M = 2ᵇ⁺¹ + 16σ < 2³¹, the magnitude at which the device clamps an integer. Entries of the rounded
    /// svec stay below 2ᵇ + 1, and the noise of one entry passes 16σ with probability below 2e⁻¹²⁸ < 1e-55. So at
    /// least 2⁵³/M, eight million, reports add up exactly in f64, in any order; in i64 a thousand times as many.
    pub fn payload_bound(&self) -> i32 {
        // At most 2^25 + 2^30.
        let bound = (2_u64 << self.grid_bits) + CLAMP_SIGMAS * self.sigma_grid;
        i32::try_from(bound).unwrap_or(i32::MAX)
    }

    /// A δ for which reports of dimension p are (`epsilon`, δ)-LDP: the bound of
    /// `docs/derivations/discrete-gaussian.md`, "Guarantee",
    /// above the smallest one by a few millionths at σ ≥ 2¹², rounded against us. 1 for a negative ε.
    pub fn true_delta(&self, report_dimension: usize, epsilon: f64) -> f64 {
        delta_bound(report_dimension, self.grid_bits, self.sigma_grid, epsilon)
    }

    /// An ε ≥ 0 for which reports of dimension p are (ε, `delta`)-LDP, by the same bound; `None` when no finite ε
    /// exists or `delta` is not in (0, 1).
    pub fn true_epsilon(&self, report_dimension: usize, delta: f64) -> Option<f64> {
        if !is_valid_delta(delta) {
            return None;
        }
        smallest_epsilon(
            |epsilon| self.true_delta(report_dimension, epsilon),
            delta,
            2.0 * f64::EPSILON,
        )
    }

    /// An ε ≥ 0 that holds at this δ for whole numbers whose squared distance is `times` Δ_grid², in one report or in
    /// `times` of them together, by the same bound.
    pub(in crate::mechanism) fn epsilon_of(
        &self,
        report_dimension: usize,
        times: u32,
        delta: f64,
    ) -> Option<f64> {
        if !is_valid_delta(delta) {
            return None;
        }
        let distance = grid_sensitivity(report_dimension, self.grid_bits)
            * (f64::from(times).sqrt() * (1.0 + ROUNDING));
        let entries = packed_len(report_dimension).saturating_mul(times as usize);
        let sigma = self.sigma_grid as f64;
        smallest_epsilon(
            |epsilon| profile_bound(distance, sigma, entries, TAU_SQUARED, epsilon),
            delta,
            2.0 * f64::EPSILON,
        )
    }

    /// ρ = Δ_grid²/2σ² of zero-concentrated differential privacy (Canonne, Kamath & Steinke 2020, the
    /// multivariate case): adds up over studies.
    pub fn zcdp_rho(&self, report_dimension: usize) -> f64 {
        let mu = grid_sensitivity(report_dimension, self.grid_bits) / self.sigma_grid as f64;
        0.5 * mu * mu * (1.0 + ROUNDING)
    }

    /// σ in grid steps for the sampler.
    pub(super) fn sigma_grid_u32(&self) -> u32 {
        // At most 2^26.
        u32::try_from(self.sigma_grid).unwrap_or(u32::MAX)
    }
}

fn check_dimension(report_dimension: usize) -> Result<()> {
    if (2..=MAX_DENSE_DIMENSION).contains(&report_dimension) {
        return Ok(());
    }
    Err(error!(
        InvalidDimension,
        "the dimension is {report_dimension}; discrete-gaussian takes 2 to {MAX_DENSE_DIMENSION}"
    ))
}

/// The σ in grid steps that a study with this grid takes: analytic at 0.9999·δ, rounded up, or the
/// smallest above it that the bound accepts.
fn required_sigma_grid(report_dimension: usize, grid_bits: u8, budget: Budget) -> Result<u64> {
    let sensitivity = grid_sensitivity(report_dimension, grid_bits);
    let share = Budget::new(budget.epsilon(), ANALYTIC_SHARE * budget.delta())?;
    let analytic = gaussian::analytic_sigma(share, sensitivity)?;
    let too_large = || {
        error!(
            InvalidBudget,
            "({}, {}) at dimension {report_dimension} needs noise of {analytic:e} grid steps, above {MAX_SIGMA_GRID}; choose a larger epsilon or delta, or isotropic-gaussian",
            budget.epsilon(),
            budget.delta()
        )
    };
    if analytic > MAX_SIGMA_GRID as f64 {
        return Err(too_large());
    }
    #[allow(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "positive and at most 2^26"
    )]
    let start = analytic.ceil() as u64;
    let enough = |sigma_grid: u64| {
        delta_bound(report_dimension, grid_bits, sigma_grid, budget.epsilon()) <= budget.delta()
    };
    if enough(start) {
        return Ok(start);
    }
    let (mut low, mut step) = (start, 1);
    while !enough(low + step) {
        low += step;
        step *= 2;
        if low + step > MAX_SIGMA_GRID {
            return Err(too_large());
        }
    }
    let mut high = low + step;
    while high - low > 1 {
        let middle = low + (high - low) / 2;
        match enough(middle) {
            true => high = middle,
            false => low = middle,
        }
    }
    Ok(high)
}

fn delta_bound(report_dimension: usize, grid_bits: u8, sigma_grid: u64, epsilon: f64) -> f64 {
    let sigma = sigma_grid as f64;
    profile_bound(
        grid_sensitivity(report_dimension, grid_bits),
        sigma,
        packed_len(report_dimension),
        TAU_SQUARED,
        epsilon,
    )
}

/// δ of the bound of `docs/derivations/discrete-gaussian.md`, "Guarantee", for d independent `N_Z(0, σ²)` on integers whose L2
/// sensitivity is Δ: `(1+η)^d·[e^{ξμ²/2}Φ(d₁) − e^εΦ(d₂)]`.
///
/// With v = μ√(1+ξ) and ε' = ε − ξμ²/2 the bracket is `e^{ξμ²/2}` times the analytic δ(ε') of a Gaussian
/// with μ = v, which is how it is computed: nothing cancels. Rounded up.
fn profile_bound(
    sensitivity: f64,
    sigma: f64,
    entries: usize,
    tau_squared: f64,
    epsilon: f64,
) -> f64 {
    if epsilon.is_nan() || epsilon < 0.0 {
        return 1.0;
    }
    let variance = sigma * sigma;
    let mu = sensitivity / sigma;
    let xi = tau_squared / variance;
    let kappa = variance * tau_squared / (variance + tau_squared);
    let first = (-2.0 * PI * PI * kappa * (1.0 - ROUNDING)).exp();
    let eta = 2.0 * first / (1.0 - first * first * first);
    let ln_density = entries as f64 * eta.ln_1p();
    let v = mu * (1.0 + xi).sqrt() * (1.0 + ROUNDING);
    let shift = 0.5 * xi * mu * mu * (1.0 + ROUNDING);
    let shifted = epsilon * (1.0 - f64::EPSILON) - shift;
    let analytic = if shifted >= 0.0 {
        gaussian::true_delta(1.0, v, shifted)
    } else {
        // δ(−ε) = 1 − e^{−ε}(1 − δ(ε)), from the symmetry of the Gaussian's two directions.
        -shifted.exp_m1() + shifted.exp() * gaussian::true_delta(1.0, v, -shifted)
    };
    let bound = analytic * (shift + ln_density).exp() * (1.0 + ROUNDING);
    // Prevents underflow to zero.
    (bound + f64::MIN_POSITIVE).min(1.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::ErrorCode;

    fn budget(epsilon: f64, delta: f64) -> Budget {
        Budget::approximate(epsilon, delta).unwrap()
    }

    /// The smallest bound over τ², on a grid of 400 values.
    fn best_bound(sensitivity: f64, sigma: f64, entries: usize, epsilon: f64) -> f64 {
        (0..400)
            .map(|i| 0.02 * 1.02_f64.powi(i))
            .map(|tau_squared| profile_bound(sensitivity, sigma, entries, tau_squared, epsilon))
            .fold(1.0, f64::min)
    }

    /// δ(ε) of independent `N_Z(0, σ²)` shifted by `v`, by enumeration.
    fn exact_delta(sigma: f64, v: &[i32], epsilon: f64) -> f64 {
        #[allow(clippy::cast_possible_truncation)]
        let reach = (9.0 * sigma).ceil() as i32 + v.iter().map(|c| c.abs()).max().unwrap();
        let weight = |y: i32| (-0.5 * f64::from(y * y) / (sigma * sigma)).exp();
        let total: f64 = (-reach..=reach).map(weight).sum();
        // The law of (Σ z_i v_i) alone matters: the privacy loss is (2⟨z,v⟩ − ‖v‖²)/2σ².
        let mut law = std::collections::BTreeMap::from([(0, 1.0)]);
        for &c in v {
            let mut next = std::collections::BTreeMap::new();
            for (&at, &p) in &law {
                for y in -reach..=reach {
                    *next.entry(at + c * y).or_insert(0.0) += p * weight(y) / total;
                }
            }
            law = next;
        }
        let squared: i32 = v.iter().map(|c| c * c).sum();
        law.iter()
            .map(|(&at, &p)| {
                let loss = f64::from(2 * at - squared) / (2.0 * sigma * sigma);
                p * (loss.exp() - epsilon.exp()).max(0.0)
            })
            .sum()
    }

    #[test]
    fn the_bound_has_the_independent_values() {
        // σ = 8, v = (5, 6, 1), ε = 4: exact 3.496e-5, bound 3.753e-5.
        let norm = 62.0_f64.sqrt();
        let exact = exact_delta(8.0, &[5, 6, 1], 4.0);
        let bound = best_bound(norm, 8.0, 3, 4.0);
        assert!((exact / 3.496e-5 - 1.0).abs() < 2e-4, "{exact:e}");
        assert!((bound / 3.753e-5 - 1.0).abs() < 2e-3, "{bound:e}");
        // σ = 1, v = 1: exact 0.1414, bound 0.2085, at ε = 1.
        let exact = exact_delta(1.0, &[1], 1.0);
        let bound = best_bound(1.0, 1.0, 1, 1.0);
        assert!((exact / 0.1414 - 1.0).abs() < 1e-3, "{exact}");
        assert!((bound / 0.2085 - 1.0).abs() < 1e-2, "{bound}");
        // The continuous formula is no bound: 1.114, 1.061, 1.013 times too small.
        for (sigma, v, ratio) in [(1.0, 1, 1.114), (2.0, 1, 1.061), (3.0, 3, 1.013)] {
            let continuous = gaussian::true_delta(sigma, f64::from(v), 1.0);
            let found = exact_delta(sigma, &[v], 1.0) / continuous;
            assert!((found - ratio).abs() < 6e-4, "σ={sigma} v={v}: {found}");
        }
    }

    #[test]
    fn the_bound_is_never_below_the_exact_delta() {
        for sigma in [1.0, 2.0, 3.0, 8.0, 20.0] {
            for v in [&[1][..], &[3], &[7], &[1, 1], &[5, 6, 1], &[1, -2, 2]] {
                let norm = f64::from(v.iter().map(|c| c * c).sum::<i32>()).sqrt();
                for epsilon in [0.0, 0.1, 0.5, 1.0, 2.0, 4.0, 8.0] {
                    let exact = exact_delta(sigma, v, epsilon);
                    for tau_squared in [0.1, 0.3, 1.0, 3.0] {
                        let bound = profile_bound(norm, sigma, v.len(), tau_squared, epsilon);
                        // 1e-13: what the enumeration itself may lose.
                        assert!(
                            bound >= exact * (1.0 - 1e-9) - 1e-13,
                            "σ={sigma} v={v:?} ε={epsilon} τ²={tau_squared}: {bound:e} {exact:e}"
                        );
                    }
                }
            }
        }
    }

    #[test]
    fn a_fine_grid_costs_a_few_millionths() {
        for epsilon in [0.1, 0.5, 1.0, 2.0, 4.0, 8.0] {
            // μ is what the budget (ε, 1e-6) takes.
            let sigma = 4_096.0;
            let mu = 1.0 / gaussian::analytic_sigma(budget(epsilon, 1e-6), 1.0).unwrap();
            let bound = profile_bound(mu * sigma, sigma, packed_len(400), TAU_SQUARED, epsilon);
            let excess = bound / gaussian::true_delta(1.0, mu, epsilon) - 1.0;
            assert!(excess > 1e-6 && excess < 4e-6, "ε={epsilon}: {excess:e}");
        }
    }

    #[test]
    fn derived_constants_give_the_budget_at_a_small_price() {
        for p in [2, 3, 40, 400, 1_000, 4_096] {
            for epsilon in [0.1, 1.0, 4.0, 8.0, 12.0, 16.0] {
                for delta in [1e-12, 1e-6, 0.1] {
                    let budget = budget(epsilon, delta);
                    let parameters = DiscreteGaussianParameters::derive(p, budget).unwrap();
                    parameters.check(p, budget).unwrap();
                    assert!(parameters.sigma_grid() >= FINE_SIGMA_GRID);
                    assert!(parameters.grid_bits() <= 18);
                    assert!(parameters.true_delta(p, epsilon) <= delta);
                    let back = parameters.true_epsilon(p, delta).unwrap();
                    assert!(back <= epsilon && back > epsilon * 0.998, "{back}");
                    // At most 2 % above the continuous mechanism, plus one step.
                    let continuous = gaussian::analytic_sigma(budget, gaussian::SENSITIVITY);
                    let price = parameters.sigma() / continuous.unwrap();
                    assert!(price > 1.0 && price < 1.02, "p={p} ε={epsilon}: {price}");
                    let bound = u64::from(parameters.payload_bound().unsigned_abs());
                    assert!(bound > 16 * parameters.sigma_grid());
                }
            }
        }
        for (p, bits) in [(2, 7), (40, 11), (400, 15), (1_000, 16), (4_096, 18)] {
            assert_eq!(min_grid_bits(p), bits);
        }
    }

    /// Where 0.9999·δ is not enough, on a grid coarser than any study's, σ is the smallest that is.
    #[test]
    fn the_analytic_noise_is_raised_where_the_bound_asks_for_it() {
        // mpmath, 60 digits: the analytic σ is 4.809, 11.94, 19.76.
        for (grid_bits, epsilon, delta, expected) in
            [(3, 16.0, 1e-6, 6), (4, 16.0, 1e-12, 13), (6, 16.0, 0.1, 21)]
        {
            let budget = budget(epsilon, delta);
            let needed = required_sigma_grid(2, grid_bits, budget).unwrap();
            assert_eq!(needed, expected);
            assert!(delta_bound(2, grid_bits, needed, epsilon) <= delta);
            assert!(delta_bound(2, grid_bits, needed - 1, epsilon) > delta);
        }
        // With a tiny δ the derived constants still hold.
        let budget = budget(8.0, 1e-300);
        let parameters = DiscreteGaussianParameters::derive(40, budget).unwrap();
        assert!(parameters.true_delta(40, 8.0) <= 1e-300);
    }

    #[test]
    fn zcdp_of_a_known_case() {
        let parameters = DiscreteGaussianParameters::new(15, 1 << 16).unwrap();
        let sensitivity = grid_sensitivity(400, 15);
        // √2·2^15 + √80,200.
        assert!((sensitivity - 46_624.147).abs() < 1e-3, "{sensitivity}");
        let rho = parameters.zcdp_rho(400);
        assert!((rho / (0.5 * (sensitivity / 65_536.0).powi(2)) - 1.0).abs() < 1e-12);
        // Bun & Steinke: ε = ρ + 2√(ρ ln(1/δ)); the bound used here is tighter.
        let converted = rho + 2.0 * (rho * 1e6_f64.ln()).sqrt();
        assert!(parameters.true_epsilon(400, 1e-6).unwrap() < converted);
    }

    #[test]
    fn less_noise_or_much_more_is_refused() {
        let budget = budget(4.0, 1e-6);
        for p in [2, 40, 400] {
            let derived = DiscreteGaussianParameters::derive(p, budget).unwrap();
            let (bits, sigma) = (derived.grid_bits(), derived.sigma_grid());
            let refused = |bits, sigma: u64| {
                let parameters = DiscreteGaussianParameters::new(bits, sigma).unwrap();
                let error = parameters.check(p, budget).unwrap_err();
                assert_eq!(error.code(), ErrorCode::InvalidMechanism);
            };
            refused(bits, sigma / 2);
            refused(bits, sigma * 999 / 1_000);
            refused(bits, sigma * 102 / 100);
            refused(bits + 1, sigma);
            refused(min_grid_bits(p) - 1, sigma);
            // A search that ends within 1 % or uses all of δ is as good.
            for sigma in [sigma + sigma / 200, sigma - sigma / 1_000_000] {
                let other = DiscreteGaussianParameters::new(bits, sigma).unwrap();
                other.check(p, budget).unwrap();
            }
            // A finer grid with its noise is as private.
            let finer = required_sigma_grid(p, bits + 1, budget).unwrap();
            let finer = DiscreteGaussianParameters::new(bits + 1, finer).unwrap();
            finer.check(p, budget).unwrap();
            // A smaller ε than the one it was derived for does not hold.
            let claim = Budget::approximate(3.9, 1e-6).unwrap();
            assert!(derived.check(p, claim).is_err());
        }
    }

    #[test]
    fn out_of_range_is_refused() {
        let fine = budget(1.0, 1e-6);
        for p in [0, 1, 4_097] {
            let error = DiscreteGaussianParameters::derive(p, fine).unwrap_err();
            assert_eq!(error.code(), ErrorCode::InvalidDimension);
        }
        let pure = Budget::pure(1.0).unwrap();
        let others = [16.1, 1e-3, 1e-300].map(|epsilon| budget(epsilon, 1e-6));
        for bad in others.into_iter().chain([pure]) {
            let error = DiscreteGaussianParameters::derive(4_096, bad).unwrap_err();
            assert_eq!(error.code(), ErrorCode::InvalidBudget, "{error}");
        }
        let sigmas = [1_023, 0, (1 << 26) + 1, u64::MAX].map(|sigma| (15, sigma));
        for (bits, sigma) in sigmas.into_iter().chain([(25, 4_096), (255, 4_096)]) {
            let error = DiscreteGaussianParameters::new(bits, sigma).unwrap_err();
            assert_eq!(error.code(), ErrorCode::InvalidMechanism);
            let json = format!(r#"{{"grid_bits":{bits},"sigma_grid":{sigma}}}"#);
            assert!(serde_json::from_str::<DiscreteGaussianParameters>(&json).is_err());
        }
        let largest = DiscreteGaussianParameters::new(MAX_GRID_BITS, MAX_SIGMA_GRID).unwrap();
        assert_eq!(largest.payload_bound(), (1 << 25) + (1 << 30));
        assert!((1 << 53) / i64::from(largest.payload_bound()) > 8_000_000);
        let json = serde_json::to_value(largest).unwrap();
        let read: DiscreteGaussianParameters = serde_json::from_value(json).unwrap();
        assert_eq!(read, largest);
        assert_eq!(largest.true_epsilon(40, 0.0), None);
        assert_eq!(largest.true_delta(40, f64::NAN), 1.0);
    }
}
