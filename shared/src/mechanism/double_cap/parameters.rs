//! Threshold, cap probability, scale and moments of `double-cap`.

use super::beta_tail::upper_tails;
use crate::{
    error::{Result, error},
    privacy::MAX_EPSILON,
};

/// Largest dimension of the mechanism.
pub const MAX_DIMENSION: usize = 65_536;

/// The frozen constants of a study with `double-cap`: computed once at creation, never on a device.
///
/// The double cap of a unit vector u is C(u) = {g on the unit sphere : (gᵀu)² > τ}. Any common τ gives
/// the guarantee; this one maximises the signal `m = E (gᵀu)² − 1/p` of a released g.
///
/// ```
/// use eigenveil_shared::mechanism::double_cap::DoubleCapParameters;
/// let parameters = DoubleCapParameters::derive(40, 4.0)?;
/// // docs/mechanisms.md: one participant moves the mean by at most c/n; c is about 12 here.
/// assert!((parameters.scale - 12.13).abs() < 0.01);
/// # Ok::<(), eigenveil_shared::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct DoubleCapParameters {
    /// Dimension p of the reports.
    pub dimension: usize,
    /// ε.
    pub epsilon: f64,
    /// Threshold τ.
    pub threshold: f64,
    /// q = P(g ∈ C(u)) for a uniformly random g.
    pub cap_probability: f64,
    /// m = E (gᵀu)² − 1/p for a released g; equal to τ − 1/p at the optimum.
    pub signal: f64,
    /// c = (p−1)/(p·m): D = c(ggᵀ − I/p) has mean xxᵀ − (r²/p)I.
    pub scale: f64,
}

/// The exact variance constants, built from the moments of B = (gᵀu)² of a released g
/// (`docs/derivations/double-cap.md`, "Variance").
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct DoubleCapMoments {
    /// a₀: variance outside the signal, in units of c².
    pub a0: f64,
    /// a₁: what the signal in one direction adds.
    pub a1: f64,
    /// a₂: what the signal in both directions adds.
    pub a2: f64,
}

impl DoubleCapParameters {
    /// The constants for dimension p and this ε: τ solves `(τ − 1/p)(1 + q(e^ε−1)) = (e^ε−1)(A − q/p)` with
    /// `A = P(Beta(3/2, (p−1)/2) > τ)/p`.
    ///
    /// # Errors
    /// `invalid-dimension` unless 2 ≤ p ≤ 65,536; `invalid-budget` unless 0 < ε ≤ 16.
    pub fn derive(dimension: usize, epsilon: f64) -> Result<Self> {
        if !(2..=MAX_DIMENSION).contains(&dimension) {
            return Err(error!(
                InvalidDimension,
                "the dimension is {dimension}; double-cap takes 2 to {MAX_DIMENSION}"
            ));
        }
        if !(epsilon.is_normal() && epsilon > 0.0 && epsilon <= MAX_EPSILON) {
            return Err(error!(
                InvalidBudget,
                "epsilon is {epsilon}; for double-cap it must be positive and at most {MAX_EPSILON}"
            ));
        }
        let p = dimension as f64;
        let b = 0.5 * (p - 1.0);
        let odds = epsilon.exp_m1();
        // The left side minus the right one rises in τ with slope 1 + q(e^ε−1), from below zero at 1/p
        // to above it at 1: Newton steps, halved back into the bracket where they leave it.
        let (mut low, mut high) = (1.0 / p, 1.0);
        let mut tau = 0.5 * (low + high);
        for _ in 0..200 {
            let tails = upper_tails(tau, b);
            let slope = 1.0 + tails.half * odds;
            let excess = (tau - 1.0 / p) * slope - odds * (tails.three_halves - tails.half) / p;
            match excess > 0.0 {
                true => high = tau,
                false => low = tau,
            }
            let newton = tau - excess / slope;
            let next = match newton > low && newton < high {
                true => newton,
                false => 0.5 * (low + high),
            };
            if (next - tau).abs() <= f64::EPSILON * tau {
                break;
            }
            tau = next;
        }
        let tails = upper_tails(tau, b);
        let signal = odds * (tails.three_halves - tails.half) / (p * (1.0 + tails.half * odds));
        Ok(Self {
            dimension,
            epsilon,
            threshold: tau,
            cap_probability: tails.half,
            signal,
            scale: (p - 1.0) / (p * signal),
        })
    }

    /// Z = 1 + q(e^ε − 1): the density of a released g is e^ε/Z inside the cap and 1/Z outside.
    pub fn normalizer(&self) -> f64 {
        1.0 + self.cap_probability * self.epsilon.exp_m1()
    }

    /// Tries the device makes on average, e^ε/Z, the same for every row.
    pub fn expected_attempts(&self) -> f64 {
        self.epsilon.exp() / self.normalizer()
    }

    /// The exact moments.
    pub fn moments(&self) -> DoubleCapMoments {
        let p = self.dimension as f64;
        let tails = upper_tails(self.threshold, 0.5 * (p - 1.0));
        // E B and E B².
        let alpha = 1.0 / p + self.signal;
        let mu4 = 3.0 * (1.0 + self.epsilon.exp_m1() * tails.five_halves)
            / (p * (p + 2.0) * self.normalizer());
        let a0 = (1.0 - 2.0 * alpha + mu4) / ((p - 1.0) * (p + 1.0));
        let a1 = (alpha - mu4) / (p - 1.0) - a0;
        DoubleCapMoments {
            a0,
            a1,
            a2: mu4 - 3.0 * a0 - 6.0 * a1,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::ErrorCode;

    /// `docs/derivations/double-cap.md`, "Independent values": p, ε, τ*, a₀, a₁, a₂.
    #[rustfmt::skip]
    const INDEPENDENT: [[f64; 6]; 25] = [
        [2.0, 0.1, 0.515910296236, 0.1197387575, 0.005134673728, 0.001012550105],
        [2.0, 1.0, 0.654143564952, 0.07757885145, 0.03554102924, 0.09504095446],
        [2.0, 2.0, 0.782163919776, 0.04421477301, 0.04097698818, 0.3184659105],
        [2.0, 4.0, 0.929439903175, 0.01258980401, 0.02020088077, 0.7376745218],
        [2.0, 8.0, 0.99465378353, 0.00089579975, 0.001763017469, 0.9787294622],
        [3.0, 0.1, 0.346259744443, 0.06474023691, 0.003168943238, -0.002792986004],
        [3.0, 1.0, 0.468447038091, 0.04776878944, 0.02693253373, 0.014142821],
        [3.0, 2.0, 0.603766583052, 0.0315867399, 0.04018300897, 0.1243688118],
        [3.0, 4.0, 0.813740819097, 0.01191489523, 0.0335551143, 0.4857254286],
        [3.0, 8.0, 0.97081934339, 0.001522896135, 0.006975847633, 0.9073980817],
        [10.0, 0.1, 0.10465432666, 0.008255160012, 0.0004209324482, -0.0007215802083],
        [10.0, 1.0, 0.152850196416, 0.007467110694, 0.004522427628, -0.004591546324],
        [10.0, 2.0, 0.218181995541, 0.006461304655, 0.009333011305, 0.0006511701126],
        [10.0, 4.0, 0.369403685614, 0.004408846587, 0.0171600981, 0.059096055],
        [10.0, 8.0, 0.644836164906, 0.001659714788, 0.01954607089, 0.3317285241],
        [40.0, 0.1, 0.0262156668051, 0.000593790848, 2.961344063e-05, -5.615363891e-05],
        [40.0, 1.0, 0.0391045910496, 0.0005785549048, 0.0003390378183, -0.0004514167728],
        [40.0, 2.0, 0.0575268914182, 0.0005571215437, 0.0007668723069, -0.0003814672275],
        [40.0, 4.0, 0.105315591914, 0.0005034065401, 0.001797551165, 0.003282714816],
        [40.0, 8.0, 0.222426318618, 0.0003832749719, 0.003840237883, 0.03351806507],
        [400.0, 0.1, 0.00262304399816, 6.217375159e-06, 3.068050384e-07, -5.968563974e-07],
        [400.0, 1.0, 0.00393624312291, 6.201054469e-06, 3.576496655e-06, -5.061918922e-06],
        [400.0, 2.0, 0.00584123800398, 6.177416954e-06, 8.304354496e-06, -5.347182376e-06],
        [400.0, 4.0, 0.0109451151387, 6.114309606e-06, 2.088183646e-05, 3.001890921e-05],
        [400.0, 8.0, 0.0245833982715, 5.947267456e-06, 5.385161981e-05, 0.0003826907294],
    ];

    #[test]
    fn the_moments_have_the_independent_values_to_1e_8() {
        for [p, epsilon, tau, a0, a1, a2] in INDEPENDENT {
            let parameters = DoubleCapParameters::derive(p as usize, epsilon).unwrap();
            let moments = parameters.moments();
            for (name, ours, theirs) in [
                ("tau", parameters.threshold, tau),
                ("a0", moments.a0, a0),
                ("a1", moments.a1, a1),
                ("a2", moments.a2, a2),
            ] {
                let off = (ours / theirs - 1.0).abs();
                assert!(off < 1e-8, "p={p} ε={epsilon} {name}: {ours} {theirs}");
            }
            // At the optimum E B = τ, and the variance averaged over directions is (c² − 1)/(p(p+2)).
            let alpha = 1.0 / p + parameters.signal;
            assert!((alpha / parameters.threshold - 1.0).abs() < 1e-12);
        }
    }

    #[test]
    fn the_threshold_is_the_best_one() {
        let large = 65_536;
        for (p, epsilon) in [
            (2, 0.1),
            (3, 8.0),
            (40, 1.0),
            (400, 4.0),
            (large, 8.0),
            (large, 0.01),
        ] {
            let best = DoubleCapParameters::derive(p, epsilon).unwrap();
            let signal = |tau: f64| {
                let tails = upper_tails(tau, 0.5 * (p as f64 - 1.0));
                let odds = epsilon.exp_m1();
                odds * (tails.three_halves - tails.half) / (p as f64 * (1.0 + tails.half * odds))
            };
            let tau = best.threshold;
            for other in [tau * 0.99, tau + 0.01 * (1.0 - tau)] {
                assert!(signal(other) < best.signal);
            }
            assert!((1.0..=epsilon.exp()).contains(&best.expected_attempts()));
        }
    }

    #[test]
    fn out_of_range_is_refused() {
        let code = |p, epsilon| DoubleCapParameters::derive(p, epsilon).unwrap_err().code();
        for p in [0, 1, 65_537] {
            assert_eq!(code(p, 1.0), ErrorCode::InvalidDimension);
        }
        for epsilon in [0.0, -1.0, 16.1, f64::NAN, f64::INFINITY] {
            assert_eq!(code(40, epsilon), ErrorCode::InvalidBudget);
        }
    }
}
