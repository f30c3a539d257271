//! Composition of privacy losses: convolution on a grid by FFT.
//!
//! The privacy loss distribution (PLD) of the sum is tilted by `e^{λL}` (λ half the Chernoff exponent at the δ of
//! interest) before the transform and back after it, so that a δ of 1e-12 keeps as many digits as one of 0.1.
//! Everything lost on the way is added to δ: mass outside the window (Chernoff's bound on the discrete PLD), infinite
//! losses, and a bound on the transform's rounding error.

use eigenveil_shared::{Result, error};
use realfft::{RealFftPlanner, num_complex::Complex64};

use super::privacy_loss::{DiscretePld, Step};

const POINTS: usize = 1 << 17;
/// Maximum grid points of one step.
const MAX_CELLS: f64 = 4.0 * POINTS as f64;
const MIN_EXPONENT: f64 = 1e-6;
/// Tilted mass that may fall outside the window on each side.
const LN_OUTSIDE: f64 = -25.0;

/// Where the composed loss needs full precision.
#[derive(Clone, Copy, Debug)]
pub(super) enum Target {
    /// Around the ε of this δ.
    Delta(f64),
    /// Around this ε.
    Epsilon(f64),
}

/// The composed privacy loss distribution (PLD) of several steps, on a window around the losses that decide the
/// requested δ.
pub(super) struct ComposedPld {
    width: f64,
    /// Grid index of the first point of the window.
    first: i64,
    tilted: Vec<f64>,
    lambda: f64,
    /// `ln E e^{λL}` of the discrete PLD.
    ln_moment: f64,
    infinite_mass: f64,
    /// Tilted mass above the window.
    above: f64,
    /// Bound on the rounding error of one tilted mass, and of all masses together.
    rounding: f64,
}

impl ComposedPld {
    /// Composes steps, each with its number of repetitions.
    pub(super) fn new(steps: &[(Step, u64)], focus: Target) -> Result<Self> {
        let nodes: Vec<(Vec<(f64, f64)>, f64)> = steps
            .iter()
            .map(|(step, times)| (step.nodes(), *times as f64))
            .collect();
        let cumulant = |s: f64| -> f64 {
            nodes
                .iter()
                .map(|(nodes, times)| times * ln_moment(nodes.iter().copied(), s))
                .sum()
        };
        let spread: f64 = steps
            .iter()
            .map(|(step, _)| {
                let (low, high) = step.losses();
                high - low
            })
            .sum();
        // Half the exponent: the whole one would lift rare large losses so far that the window would have to include
        // them.
        let mut lambda = 0.5 * chernoff_exponent(&cumulant, focus);
        let (first, width) = loop {
            let (bottom, top) = window(&cumulant, lambda, cumulant(lambda));
            // A little wider than the quadrature says, because the discrete PLD is.
            let centre = 0.5 * (bottom + top);
            let half = 0.55 * (top - bottom) + 1e-9;
            let width = 2.0 * half / POINTS as f64;
            if spread < width * MAX_CELLS {
                break (((centre - half) / width).floor() as i64, width);
            }
            // Losses are bounded and the exponent has reached their upper end: tilt less.
            lambda *= 0.5;
            if lambda < MIN_EXPONENT || width.is_nan() {
                return Err(error!(
                    InvalidBudget,
                    "the noise is too small to account for these steps; use more noise, fewer steps or a larger epsilon"
                ));
            }
        };
        Self::transform(steps, lambda, width, first)
    }

    fn transform(steps: &[(Step, u64)], lambda: f64, width: f64, first: i64) -> Result<Self> {
        let mut planner = RealFftPlanner::<f64>::new();
        let forward = planner.plan_fft_forward(POINTS);
        let backward = planner.plan_fft_inverse(POINTS);
        let failed = |_| error!(Internal, "the Fourier transform rejected its input");
        let mut product = vec![Complex64::new(1.0, 0.0); POINTS / 2 + 1];
        // Σ over steps of times/|f|: how the relative rounding of each factor adds up.
        let mut amplification = vec![0.0; POINTS / 2 + 1];
        let (mut total_moment, mut infinite_mass) = (0.0, 0.0);
        let mut plds = Vec::with_capacity(steps.len());
        for (step, times) in steps {
            let pld = step.on_grid(width);
            let moment = ln_moment(points(&pld, width), lambda);
            let mut signal = vec![0.0; POINTS];
            for (mass, index) in pld.masses.iter().zip(pld.first..) {
                let tilted = mass * (lambda * width * index as f64 - moment).exp();
                signal[index.rem_euclid(POINTS as i64) as usize] += tilted;
            }
            let mut spectrum = forward.make_output_vec();
            forward
                .process(&mut signal, &mut spectrum)
                .map_err(failed)?;
            for ((product, amplification), value) in
                product.iter_mut().zip(&mut amplification).zip(&spectrum)
            {
                let (radius, angle) = value.to_polar();
                *product *= Complex64::from_polar(
                    radius.powf(*times as f64),
                    (angle * *times as f64) % std::f64::consts::TAU,
                );
                *amplification += *times as f64 / radius.max(1e-12);
            }
            total_moment += *times as f64 * moment;
            infinite_mass += *times as f64 * pld.infinite_mass;
            plds.push((pld, *times as f64));
        }
        let one = 8.0 * f64::EPSILON * (POINTS as f64).log2();
        let rounding = 2.0 * one / POINTS as f64
            * product
                .iter()
                .zip(&amplification)
                .map(|(product, amplification)| product.norm() * (1.0 + amplification))
                .sum::<f64>();
        // The first and last coefficients of a real signal are real.
        product[0].im = 0.0;
        product[POINTS / 2].im = 0.0;
        let mut sums = vec![0.0; POINTS];
        backward.process(&mut product, &mut sums).map_err(failed)?;
        sums.rotate_left(first.rem_euclid(POINTS as i64) as usize);
        for sum in &mut sums {
            *sum = (*sum / POINTS as f64).max(0.0);
        }
        // Chernoff's bound on the tilted mass above the window, for the discrete PLD itself.
        let top = width * (first + POINTS as i64) as f64;
        let ln_mass = |more: f64| {
            let cumulants = plds
                .iter()
                .map(|(pld, times)| times * ln_moment(points(pld, width), lambda + more));
            cumulants.sum::<f64>() - total_moment - more * top
        };
        let above = (0..40)
            .map(|power| ln_mass(lambda.max(1e-3) * 1.5_f64.powi(power - 20)))
            .fold(0.0, f64::min)
            .exp();
        Ok(Self {
            width,
            first,
            tilted: sums,
            lambda,
            ln_moment: total_moment,
            infinite_mass,
            above,
            rounding,
        })
    }

    /// A δ that holds at this ε, rounded up.
    pub(super) fn delta(&self, epsilon: f64) -> f64 {
        let bottom = self.width * self.first as f64;
        // Nothing is known below the window.
        if epsilon < bottom {
            return 1.0;
        }
        let start = ((epsilon - bottom) / self.width).floor().max(0.0) as usize;
        let scale = (self.ln_moment - self.lambda * epsilon).exp();
        let sum: f64 = self
            .tilted
            .iter()
            .enumerate()
            .skip(start)
            .map(|(index, tilted)| {
                let over = self.width * (self.first + index as i64) as f64 - epsilon;
                if over > 0.0 {
                    (tilted + self.rounding) * (-self.lambda * over).exp() * -(-over).exp_m1()
                } else {
                    0.0
                }
            })
            .sum();
        (scale * (sum + self.above) + self.infinite_mass).min(1.0)
    }
}

fn points(pld: &DiscretePld, width: f64) -> impl Iterator<Item = (f64, f64)> + Clone {
    pld.masses
        .iter()
        .zip(pld.first..)
        .map(move |(mass, index)| (*mass, width * index as f64))
}

/// `ln Σ mass·e^{s·loss}` without overflow.
fn ln_moment(points: impl Iterator<Item = (f64, f64)> + Clone, s: f64) -> f64 {
    let largest = points
        .clone()
        .filter(|(mass, _)| *mass > 0.0)
        .fold(f64::NEG_INFINITY, |largest, (mass, loss)| {
            largest.max(mass.ln() + s * loss)
        });
    let sum: f64 = points
        .map(|(mass, loss)| {
            if mass > 0.0 {
                (mass.ln() + s * loss - largest).exp()
            } else {
                0.0
            }
        })
        .sum();
    largest + sum.ln()
}

/// The λ > 0 that minimises Chernoff's bound: of ε, `(K(λ) + ln 1/δ)/λ`, or of δ, `K(λ) − λε`.
fn chernoff_exponent(cumulant: &impl Fn(f64) -> f64, focus: Target) -> f64 {
    let bound = |ln_lambda: f64| {
        let lambda = ln_lambda.exp();
        match focus {
            Target::Delta(delta) => (cumulant(lambda) - delta.ln()) / lambda,
            Target::Epsilon(epsilon) => cumulant(lambda) - lambda * epsilon,
        }
    };
    let (mut low, mut high) = (1e-4_f64.ln(), 1e5_f64.ln());
    for _ in 0..60 {
        let (left, right) = (low + (high - low) * 0.382, low + (high - low) * 0.618);
        if bound(left) < bound(right) {
            high = right;
        } else {
            low = left;
        }
    }
    (0.5 * (low + high)).exp()
}

/// An interval outside which the tilted sum has at most `e^LN_OUTSIDE` on each side (Chernoff).
fn window(cumulant: &impl Fn(f64) -> f64, lambda: f64, at: f64) -> (f64, f64) {
    let side = |sign: f64| {
        (-60..60)
            .map(|power| 1.4_f64.powi(power))
            .filter_map(|s| {
                let edge = (cumulant(lambda + sign * s) - at - LN_OUTSIDE) / s;
                edge.is_finite().then_some(edge)
            })
            .fold(f64::INFINITY, f64::min)
    };
    (-side(-1.0), side(1.0))
}
