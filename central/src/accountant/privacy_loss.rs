//! The privacy loss of one Gaussian step, as a dominating pair of one-dimensional distributions.
//!
//! A step adds `N(0, z²)` noise to a sum of contributions of norm ≤ 1. The loss is `L = ln dP/dQ`, drawn under P;
//! `δ(ε) = E_P (1 − e^{ε−L})₊`. By neighbouring relation and sampling rate q, with φ the distribution `N(0, z²)` and
//! φ_m its shift by m:
//!
//! | | P | Q |
//! |---|---|---|
//! | zero-out, the row against the zero row | (1−q)φ₀ + qφ₁ | φ₀ |
//! | zero-out, the zero row against the row | φ₀ | (1−q)φ₀ + qφ₁ |
//! | replace | (1−q)φ₀ + qφ₁ | (1−q)φ₀ + qφ₋₁ |
//! | all rows, each release moved by Δ = 1 | φ₁ | φ₀ |
//!
//! The first two dominate the Poisson-subsampled Gaussian (Zhu, Dong & Wang 2022, Theorem 11). The third does under
//! replacement of g by g', ‖g‖, ‖g'‖ ≤ 1: dividing by φ₀, the hockey-stick divergence at γ is `E (c + a e^U − b e^V)₊`
//! with (U, V) jointly Gaussian of covariance ⟨g,g'⟩/z² and e^U, e^V of mean 1. Its derivative in the covariance is
//! `−E ab e^{U+V} δ(c + a e^U − b e^V) ≤ 0` (Plackett's identity), so it is largest for g, g' opposite; and by Jensen
//! (independent noise added to U or V) it rises with ‖g‖ and ‖g'‖. So it is largest at 1 and −1.

/// Standard deviations of the noise beyond which mass counts as infinite loss (tail 8e-24).
const REACH: f64 = 10.0;
/// Width of a panel of the quadrature, in standard deviations.
const PANEL: f64 = 0.25;
/// Nodes and weights of the six-point Gauss–Legendre rule on [0, 1].
const RULE: [(f64, f64); 6] = [
    (0.033_765_242_898_423_99, 0.085_662_246_189_585_18),
    (0.169_395_306_766_867_74, 0.180_380_786_524_069_3),
    (0.380_690_406_958_401_56, 0.233_956_967_286_345_52),
    (0.619_309_593_041_598_4, 0.233_956_967_286_345_52),
    (0.830_604_693_233_132_2, 0.180_380_786_524_069_3),
    (0.966_234_757_101_576, 0.085_662_246_189_585_18),
];

/// A dominating pair: a row of the table above.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum DominatingPair {
    /// The row against the zero row.
    Remove,
    /// The zero row against the row.
    Add,
    /// The row against another row.
    Replace,
}

/// One step: a pair, the sampling rate q and the multiplier z.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Step {
    pub(super) pair: DominatingPair,
    pub(super) rate: f64,
    pub(super) multiplier: f64,
}

/// A discrete privacy loss distribution (PLD) that dominates the step: P-masses of losses on the grid `h·i`,
/// `first ≤ i`. Whatever mass they lack of a total of 1 has infinite loss.
pub(super) struct DiscretePld {
    pub(super) first: i64,
    pub(super) masses: Vec<f64>,
    pub(super) infinite_mass: f64,
}

impl Step {
    /// ln dP/dQ at x; increases with x. (`Add` is read from right to left, so that its loss increases too.)
    pub(super) fn loss(&self, x: f64) -> f64 {
        let (rate, z2) = (self.rate, self.multiplier * self.multiplier);
        match self.pair {
            DominatingPair::Remove => ln_mixture(rate, (x - 0.5) / z2),
            DominatingPair::Add => -ln_mixture(rate, (-x - 0.5) / z2),
            DominatingPair::Replace => {
                ln_mixture(rate, (x - 0.5) / z2) - ln_mixture(rate, (-x - 0.5) / z2)
            }
        }
    }

    /// The x of this loss; infinite outside the range of losses.
    fn position(&self, loss: f64) -> f64 {
        let (rate, z2) = (self.rate, self.multiplier * self.multiplier);
        match self.pair {
            DominatingPair::Remove => z2 * inverse_ln_mixture(rate, loss) + 0.5,
            DominatingPair::Add => -(z2 * inverse_ln_mixture(rate, -loss) + 0.5),
            DominatingPair::Replace => {
                // r w² + (1−q)(1−α) w − α r = 0 with w = e^{x/z²}, r = q e^{−1/2z²}, α = e^loss; for a loss < 0
                // by symmetry. Divided by α: no overflow.
                let size = loss.abs();
                let r = rate.ln() - 0.5 / z2;
                let half_linear = 0.5 * (1.0 - rate) * -(-size).exp_m1();
                // w = α(s + √(s² + r²/α))/r, s = half_linear.
                let root = (half_linear * half_linear + (2.0 * r - size).exp()).sqrt();
                let x = z2 * (size - r + (half_linear + root).ln());
                x.copysign(loss)
            }
        }
    }

    fn density(&self, x: f64) -> f64 {
        let z = self.multiplier;
        let normal = |x: f64| (-0.5 * (x / z).powi(2)).exp() / (z * SQRT_TWO_PI);
        match self.pair {
            DominatingPair::Remove | DominatingPair::Replace => {
                (1.0 - self.rate) * normal(x) + self.rate * normal(x - 1.0)
            }
            DominatingPair::Add => normal(x),
        }
    }

    /// ln of the density of P at x, also where it underflows.
    pub(super) fn ln_density(&self, x: f64) -> f64 {
        let z = self.multiplier;
        let base = -0.5 * (x / z).powi(2) - (z * SQRT_TWO_PI).ln();
        match self.pair {
            DominatingPair::Remove | DominatingPair::Replace => {
                base + ln_mixture(self.rate, (x - 0.5) / (z * z))
            }
            DominatingPair::Add => base,
        }
    }

    /// The range that holds all but 1e-23 of P's mass.
    fn range(&self) -> (f64, f64) {
        let reach = REACH * self.multiplier;
        match self.pair {
            DominatingPair::Add => (-reach, reach),
            _ if self.rate >= 1.0 => (1.0 - reach, 1.0 + reach),
            DominatingPair::Remove | DominatingPair::Replace => (-reach, 1.0 + reach),
        }
    }

    /// Smallest and largest loss in that range.
    pub(super) fn losses(&self) -> (f64, f64) {
        let (low, high) = self.range();
        (self.loss(low), self.loss(high))
    }

    pub(super) fn nodes(&self) -> Vec<(f64, f64)> {
        let (low, high) = self.range();
        let mut nodes = Vec::new();
        self.panels(low, high, |mass, loss| nodes.push((mass, loss)));
        nodes
    }

    /// Calls `each` with (mass, loss) of a quadrature of P between two positions.
    fn panels(&self, low: f64, high: f64, mut each: impl FnMut(f64, f64)) {
        let count = ((high - low) / (PANEL * self.multiplier)).ceil().max(1.0);
        let width = (high - low) / count;
        for panel in 0..count as u64 {
            let start = low + width * panel as f64;
            for (node, weight) in RULE {
                let x = start + width * node;
                each(weight * width * self.density(x), self.loss(x));
            }
        }
    }

    /// Discretises the step on a grid of this width. Each loss is split between its two neighbouring grid points so
    /// that its masses under P and Q are unchanged ("connect the dots", Doroshenko et al. 2022): the smallest PLD on
    /// the grid that dominates the step.
    pub(super) fn on_grid(&self, width: f64) -> DiscretePld {
        let (low, high) = self.range();
        let first = (self.loss(low) / width).floor() as i64;
        let last = ((self.loss(high) / width).ceil() as i64).max(first + 1);
        let mut masses = vec![0.0; (last - first + 1) as usize];
        let whole = (-width).exp_m1();
        let mut start = low;
        for cell in 0..masses.len() - 1 {
            let bottom = width * (first + cell as i64) as f64;
            let end = self
                .position(width * (first + cell as i64 + 1) as f64)
                .clamp(start, high);
            let end = if cell + 2 == masses.len() { high } else { end };
            if end > start {
                let (mut below, mut above) = (0.0, 0.0);
                self.panels(start, end, |mass, loss| {
                    let upper = ((bottom - loss).exp_m1() / whole).clamp(0.0, 1.0);
                    above += mass * upper;
                    below += mass * (1.0 - upper);
                });
                masses[cell] += below;
                masses[cell + 1] += above;
                start = end;
            }
        }
        // Mass below the range has at most the loss of the first point; mass above may have any.
        let infinite_mass = 1e-23;
        let total: f64 = masses.iter().sum();
        for mass in &mut masses {
            *mass *= (1.0 - infinite_mass) / total;
        }
        DiscretePld {
            first,
            masses,
            infinite_mass,
        }
    }
}

const SQRT_TWO_PI: f64 = 2.506_628_274_631_000_7;

/// ln(1 − q + q eᵗ).
fn ln_mixture(rate: f64, t: f64) -> f64 {
    if rate >= 1.0 {
        return t;
    }
    if t > 30.0 {
        // So that eᵗ does not overflow.
        return t + (rate + (1.0 - rate) * (-t).exp()).ln();
    }
    (rate * t.exp_m1()).ln_1p()
}

/// The t with ln(1 − q + q eᵗ) = loss; −∞ where there is none.
fn inverse_ln_mixture(rate: f64, loss: f64) -> f64 {
    if rate >= 1.0 {
        return loss;
    }
    if loss > 30.0 {
        return loss - rate.ln() + (-(1.0 - rate) * (-loss).exp()).ln_1p();
    }
    let argument = loss.exp_m1() / rate;
    if argument <= -1.0 {
        f64::NEG_INFINITY
    } else {
        argument.ln_1p()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn steps() -> Vec<Step> {
        let mut steps = Vec::new();
        for rate in [1.0, 0.3, 0.01, 0.0005] {
            for multiplier in [0.5, 1.0, 4.0] {
                for pair in [
                    DominatingPair::Remove,
                    DominatingPair::Add,
                    DominatingPair::Replace,
                ] {
                    steps.push(Step {
                        pair,
                        rate,
                        multiplier,
                    });
                }
            }
        }
        steps
    }

    #[test]
    fn position_is_the_inverse_of_loss() {
        for step in steps() {
            let (low, high) = step.range();
            for part in 1..50 {
                let x = low + (high - low) * f64::from(part) / 50.0;
                let loss = step.loss(x);
                // Where the loss is flat (far from the row's shift) an x cannot be distinguished from its neighbours.
                let slope = (step.loss(x + 1e-4) - loss) / 1e-4;
                if slope < 1e-6 {
                    continue;
                }
                let back = step.position(loss);
                assert!((back - x).abs() < 1e-7, "{step:?} {x} {back}");
            }
        }
    }

    #[test]
    fn discretization_keeps_the_masses_and_both_distributions() {
        for step in steps() {
            let nodes = step.nodes();
            let mass: f64 = nodes.iter().map(|(mass, _)| mass).sum();
            assert!((mass - 1.0).abs() < 1e-13, "{step:?} {mass}");
            // E_P e^{−L} is the mass of Q: 1, wherever the reach of P covers Q.
            let other: f64 = nodes.iter().map(|(mass, loss)| mass * (-loss).exp()).sum();
            let pld = step.on_grid(1e-2);
            let grid: f64 = pld
                .masses
                .iter()
                .zip(pld.first..)
                .map(|(mass, index)| mass * (-1e-2 * index as f64).exp())
                .sum();
            assert!(
                (grid / other - 1.0).abs() < 1e-10,
                "{step:?} {grid} {other}"
            );
        }
    }
}
