//! ADMM for the Fantope problem, with a duality gap as certificate.
//!
//! Scaled form, over-relaxed by α = 1.6 (Boyd et al. 2011, §3.4.3):
//!
//! ```text
//! X ← P_F(Y − U + S/ρ)        X̂ = αX + (1−α)Y
//! Y ← soft(X̂ + U, λ/ρ)        U ← X̂ + U − Y  =  clip(X̂ + U, ±λ/ρ)
//! ```
//!
//! off the diagonal; the diagonal is not penalised (see the [module above](super)), so `Yᵢᵢ = X̂ᵢᵢ` and
//! `Uᵢᵢ = 0`, which is the dual choice `Zᵢᵢ = λ`, the best one on the diagonal. `Z = ρU` obeys
//! `|Zᵢⱼ| ≤ λ` by construction, with over-relaxation and after a change of ρ too: it is dual feasible at
//! every iteration, so the gap at the feasible X is a proof of optimality at every iteration.

use eigenveil_shared::{
    Error, Result,
    api::{Lambda, SparseSettings},
};
use nalgebra::DMatrix;

use super::{
    anderson::Anderson,
    elementwise::{PANEL, Sums, dual_matrix, elementwise_pass, rescale_dual, retarget},
    lambda::max_useful_lambda,
    problem::{ScaledProblem, ScaledSolution, Solution, Stop},
    screening::Screen,
    spectrum::{Bound, Factor, FullSpectrum, SpectralSolver, WarmSpectrum},
};
use crate::cancel::Cancel;
use crate::linalg::{add_outer_lower, outer_scaled, require_rank, require_square_and_finite};

/// Boyd et al. §3.4.1: ρ changes when one relative residual is this many times the other. Their 10
/// took 1.5 times the iterations on eight sparse problems (p = 40–200).
const IMBALANCE: f64 = 3.0;
/// First ρ, as a multiple of the mean leading eigenvalue: of 0.5, 1, 2, 5 and 20 this value or a neighbour needed the
/// fewest iterations on seven problems (p = 100 to 400, gap 1e-4 and 1e-6), from a clear signal, where 20 took twice
/// as many, to pure noise.
const START_RHO: f64 = 1.0;
/// After every change ρ stays fixed longer by this factor. Convergence is proved for a fixed ρ, so with ever longer
/// stretches of fixed ρ the changes cannot prevent convergence.
const REST_GROWTH: f64 = 1.1;
/// The gap costs a factorisation or an eigenvalue computation: it is computed when the residuals are small, and this
/// often.
const GAP_EVERY: usize = 20;
/// Relative residuals must be below this multiple of the tolerance of the gap.
const RESIDUAL_FACTOR: f64 = 10.0;
/// Anderson acceleration starts at this iteration: easy problems have converged by then.
const ACCELERATE_FROM: usize = 20;
/// Minimum number of iterations with ρ fixed under acceleration, which restarts at every change.
const ACCELERATED_RESIDUAL: f64 = 10.0;
/// Iterations before a small gap is enough, whatever the residuals: within the tolerance, or within the noise.
const FULL_RATE_ITERATIONS: usize = 200;

/// How the solver runs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AdmmSettings {
    /// Initial ρ in units of the moment's entries (> 0); `None`: chosen from the spectrum.
    pub rho: Option<f64>,
    /// Iteration cap (≥ 1).
    pub max_iterations: usize,
    /// Relative duality gap at which to stop (> 0); the residuals must be below ten times that, for the first 200
    /// iterations.
    pub tolerance: f64,
    /// A gap, in units of the moment's entries, that is far below what the noise of the moment does to the
    /// objective. A solver that has not converged after 200 iterations stops there, with
    /// [`Stop::WithinNoise`]; `None`: it goes on.
    pub noise_gap: Option<f64>,
}

impl Default for AdmmSettings {
    fn default() -> Self {
        Self::from(&SparseSettings::default())
    }
}

impl From<&SparseSettings> for AdmmSettings {
    fn from(settings: &SparseSettings) -> Self {
        Self {
            rho: settings.rho,
            max_iterations: settings.max_iterations,
            tolerance: settings.tolerance,
            noise_gap: None,
        }
    }
}

const MAX_ITERATIONS: usize = 1_000_000;

/// Checks the settings of a row-sparse estimate, before anything is computed.
///
/// # Errors
/// `invalid-request` naming the setting that is out of range.
pub fn check_settings(settings: &SparseSettings) -> Result<()> {
    settings.lambda.check()?;
    AdmmSettings::from(settings).check()
}

impl AdmmSettings {
    /// # Errors
    /// `invalid-request` naming the setting that is out of range.
    pub fn check(&self) -> Result<()> {
        let (rho, gap) = (self.rho.unwrap_or(1.0), self.noise_gap.unwrap_or(0.0));
        let (field, wrong) = if !(rho.is_finite() && rho > 0.0) {
            ("rho", format!("{rho}; it must be a number > 0, or null"))
        } else if !(1..=MAX_ITERATIONS).contains(&self.max_iterations) {
            let n = self.max_iterations;
            let wrong = format!("{n}; it must be 1 to {MAX_ITERATIONS}");
            ("max_iterations", wrong)
        } else if !(self.tolerance > 0.0 && self.tolerance < 1.0) {
            let tolerance = self.tolerance;
            let wrong = format!("{tolerance}; it must be between 0 and 1, such as 1e-6");
            ("tolerance", wrong)
        } else if !(gap.is_finite() && gap >= 0.0) {
            (
                "noise_gap",
                format!("{gap}; it must be a finite number ≥ 0"),
            )
        } else {
            return Ok(());
        };
        Err(Error::invalid_request(format!("{field} is {wrong}")).with_field(field))
    }
}

/// A warm start: Z and ρ at the end of a solve at a nearby λ. Y is computed from Z as in a cold start: over the path of
/// a cross-validation (p = 60, about 900 solves) this took 3,092 iterations, with the old Y 4,037, from a cold start
/// 4,637.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Start {
    dual: DMatrix<f64>,
    rho: Option<f64>,
}

impl Solution {
    pub(super) fn into_start(self) -> Start {
        Start {
            dual: self.dual,
            // A closed-form solution has no ρ.
            rho: (self.iterations > 0).then_some(self.rho),
        }
    }
}

/// Solves the Fantope problem for the symmetric `moment` (`p × p`, any scale) at penalty `lambda`.
///
/// `cancel` is checked after every iteration.
///
/// # Errors
/// `invalid-request` unless `1 ≤ k ≤ p`, λ ≥ 0 and the settings are in range; `estimate-failed` when an entry is not
/// finite, and when it was cancelled. Reaching the iteration cap is not an error: see [`Solution::stop`].
///
/// ```
/// use eigenveil_estimation::{Cancel, fantope::{AdmmSettings, solve}};
/// use nalgebra::dmatrix;
/// let moment = dmatrix![2.0, 0.9, 0.05; 0.9, 2.0, -0.05; 0.05, -0.05, 1.0];
/// let solution = solve(&moment, 1, 0.1, &AdmmSettings::default(), Cancel::NEVER)?;
/// assert!(solution.converged());
/// assert_eq!(solution.support, [0, 1]);
/// assert_eq!(solution.vectors[2], 0.0);
/// # Ok::<(), eigenveil_shared::Error>(())
/// ```
pub fn solve(
    moment: &DMatrix<f64>,
    k: usize,
    lambda: f64,
    settings: &AdmmSettings,
    cancel: Cancel<'_>,
) -> Result<Solution> {
    solve_from(moment, k, lambda, settings, None, cancel)
}

/// Solves like [`solve`], from where another solver of a problem of this size ended.
pub(super) fn solve_from(
    moment: &DMatrix<f64>,
    k: usize,
    lambda: f64,
    settings: &AdmmSettings,
    start: Option<&Start>,
    cancel: Cancel<'_>,
) -> Result<Solution> {
    solve_by(moment, k, lambda, settings, start, cancel, Method::Fast)
}

/// [`solve`] on all rows, with a full decomposition in every iteration: what the screening and the
/// partial projections are measured and tested against.
pub fn solve_by_full_projections(
    moment: &DMatrix<f64>,
    k: usize,
    lambda: f64,
    settings: &AdmmSettings,
    cancel: Cancel<'_>,
) -> Result<Solution> {
    solve_by(moment, k, lambda, settings, None, cancel, Method::Plain)
}

/// Which shortcuts are taken; the solution is the same.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Method {
    /// Leaves out the rows that λ rules out, and uses partial projections where they are faster.
    Fast,
    /// None.
    Plain,
}

fn solve_by(
    moment: &DMatrix<f64>,
    k: usize,
    lambda: f64,
    settings: &AdmmSettings,
    start: Option<&Start>,
    cancel: Cancel<'_>,
    method: Method,
) -> Result<Solution> {
    require_square_and_finite(moment)?;
    settings.check()?;
    let p = moment.nrows();
    require_rank(k, p)?;
    Lambda::Fixed(lambda).check()?;
    let screen = match method {
        Method::Fast => Screen::new(moment, k, lambda),
        Method::Plain => Screen {
            joined: lambda < max_useful_lambda(moment),
            ..Screen::keep_every_row(p)
        },
    };
    let problem = ScaledProblem::new(moment, k, lambda, screen);
    let solution = match problem.closed_form() {
        Some(solution) => solution,
        None => {
            let partial = WarmSpectrum::is_worthwhile(problem.s.nrows(), k);
            let spectrum: &mut dyn SpectralSolver = if partial && method == Method::Fast {
                &mut WarmSpectrum::new()
            } else {
                &mut FullSpectrum
            };
            Solver::new(&problem, settings, start, spectrum)?.run(cancel)?
        }
    };
    problem.finish(moment, solution)
}

/// The iteration. Y and U are both in one matrix `W = Y + U`: U is W clipped to ±λ/ρ, Y the rest. All
/// matrices hold their lower triangle only; what is above it means nothing.
struct Solver<'a> {
    problem: &'a ScaledProblem,
    settings: &'a AdmmSettings,
    spectrum: &'a mut dyn SpectralSolver,
    /// Unit of the relative gap.
    unit: f64,
    rho: f64,
    w: DMatrix<f64>,
    /// Matrix to project next: `Y − U + S/ρ`.
    target: DMatrix<f64>,
    panel: DMatrix<f64>,
    /// X, where it is known without a projection.
    first: Option<Factor>,
    best_bound: f64,
    anderson: Anderson,
    /// Iteration from which ρ may change, and for how many iterations it then stays fixed.
    adapt_from: usize,
    patience: f64,
}

impl<'a> Solver<'a> {
    fn new(
        problem: &'a ScaledProblem,
        settings: &'a AdmmSettings,
        start: Option<&Start>,
        spectrum: &'a mut dyn SpectralSolver,
    ) -> Result<Self> {
        let ScaledProblem { k, s, lambda, .. } = problem;
        let (k, lambda, m) = (*k, *lambda, s.nrows());
        // Dual warm start: Z₀ = clip(S, ±λ) off the diagonal takes the noise out at once. The projector
        // Y₀ of what is left then has X₁ = Y₀ exactly, whatever ρ is, and the rank stays near k.
        // A given Z is dual feasible once it is clipped to this λ.
        let mut w = match start {
            Some(start) => {
                let rows = &problem.screen.rows;
                let mut z = DMatrix::from_fn(m, m, |i, j| {
                    (start.dual[(rows[i], rows[j])] / problem.scale).clamp(-lambda, lambda)
                });
                z.fill_diagonal(0.0);
                z
            }
            None => problem.clipped(),
        };
        let mut target = s - &w;
        let shrunk = spectrum.leading(&target, k, settings.tolerance)?;
        // The mean of all eigenvalues is zero, so this is positive unless the problem is.
        let level = shrunk.values.iter().sum::<f64>() / k as f64;
        // Ritz values would understate it, and so overstate the relative gap: the safe side.
        let unit: f64 = spectrum.leading(s, k, 1e-2)?.values.iter().sum();
        let rho = match start.and_then(|start| start.rho).or(settings.rho) {
            Some(rho) => (rho / problem.scale).clamp(1e-6, 1e6),
            None => (START_RHO * level).max(1e-3),
        };
        let first = Factor {
            weights: vec![1.0; k],
            vectors: shrunk.vectors,
        };
        w /= rho;
        add_outer_lower(&mut w, &first.vectors, &first.weights);
        target.fill(0.0);
        Ok(Self {
            problem,
            settings,
            spectrum,
            unit: unit.max(f64::MIN_POSITIVE),
            rho,
            w,
            target,
            panel: DMatrix::zeros(m, PANEL.min(m)),
            first: Some(first),
            best_bound: f64::INFINITY,
            anderson: Anderson::new(m),
            adapt_from: 0,
            patience: 1.0,
        })
    }

    fn run(mut self, cancel: Cancel<'_>) -> Result<ScaledSolution> {
        let (k, tolerance) = (self.problem.k, self.settings.tolerance);
        let allowed = tolerance * self.unit;
        let enough = self.settings.noise_gap.map(|gap| gap / self.problem.scale);
        let root_k = (k as f64).sqrt();
        let mut iterations = 0;
        // An error of X small enough not to affect the residuals.
        let mut accuracy = tolerance * root_k;
        loop {
            iterations += 1;
            let x = match self.first.take() {
                Some(first) => first,
                None => self.spectrum.project(&self.target, k, accuracy)?,
            };
            let accelerating = iterations >= ACCELERATE_FROM;
            if accelerating {
                self.anderson.before(&self.w);
            }
            let sums = self.elementwise_pass(&x);
            let primal = sums.primal.sqrt();
            let moved = sums.dual_change.sqrt();
            let dual = self.rho * moved;
            let relative_primal = primal / sums.x.max(sums.y).sqrt();
            let relative_dual = dual / (self.rho * sums.u.sqrt()).max(self.unit / root_k);
            accuracy = (0.1 * primal.min(moved)).clamp(0.01 * tolerance, 1e-2);
            let objective = sums.linear - self.problem.lambda * sums.penalty;
            let small = relative_primal.max(relative_dual) <= RESIDUAL_FACTOR * tolerance;
            let last = iterations >= self.settings.max_iterations;
            let mut gap = f64::INFINITY;
            if small || last || iterations % GAP_EVERY == 0 {
                // If only convergence is tested, a bound that cannot pass need not be proved.
                let hopeless = if last || !small {
                    f64::INFINITY
                } else {
                    objective + allowed
                };
                self.improve_bound(allowed, hopeless)?;
                if self.best_bound.is_finite() {
                    gap = self.best_bound - objective;
                }
            }
            let patient = iterations >= FULL_RATE_ITERATIONS;
            cancel.check()?;
            // The gap is the proof; the residuals only make the support sharper.
            let stop = if gap <= allowed && (small || patient) {
                Some(Stop::Converged)
            } else if last {
                Some(Stop::IterationCap)
            } else if patient && enough.is_some_and(|enough| gap <= enough) {
                Some(Stop::WithinNoise)
            } else {
                None
            };
            if let Some(stop) = stop {
                if gap.is_infinite() {
                    self.improve_bound(allowed, f64::INFINITY)?;
                }
                return Ok(self.solution(&x, [primal, dual], iterations, stop));
            }
            if small {
                // Small residuals with a large gap suggest that a direction was missed.
                self.spectrum.request_certificate();
            }
            if self.adapt(iterations, relative_primal, relative_dual) {
                self.anderson.forget();
            } else if accelerating && self.anderson.after(&mut self.w) {
                self.retarget();
            }
        }
    }

    /// Bound on the entries of U.
    fn step(&self) -> f64 {
        self.problem.lambda / self.rho
    }

    /// Writes `Y − U + S/ρ` of the current W into `target`.
    fn retarget(&mut self) {
        let step = self.step();
        retarget(&self.w, &self.problem.s, step, self.rho, &mut self.target);
    }

    fn elementwise_pass(&mut self, x: &Factor) -> Sums {
        let (step, rho) = (self.step(), self.rho);
        elementwise_pass(
            x,
            &self.problem.s,
            &mut self.w,
            &mut self.target,
            &mut self.panel,
            step,
            rho,
        )
    }

    /// Writes a bound at the current Z into `best_bound`, if it is below `hopeless`.
    fn improve_bound(&mut self, allowed: f64, hopeless: f64) -> Result<()> {
        let ScaledProblem { k, s, .. } = self.problem;
        let (k, step) = (*k, self.step());
        dual_matrix(&self.w, s, step, self.rho, &mut self.target);
        let slack = 0.02 * allowed / k as f64;
        if let Bound::Proved(bound) = self.spectrum.bound(&self.target, k, slack, hopeless)? {
            self.best_bound = self.best_bound.min(bound);
        }
        self.retarget();
        Ok(())
    }

    /// Whether ρ was changed.
    fn adapt(&mut self, iterations: usize, relative_primal: f64, relative_dual: f64) -> bool {
        if iterations < self.adapt_from {
            return false;
        }
        let factor = if relative_primal > IMBALANCE * relative_dual {
            2.0
        } else if relative_dual > IMBALANCE * relative_primal {
            0.5
        } else {
            return false;
        };
        let adapted = (self.rho * factor).clamp(1e-8, 1e8);
        if adapted == self.rho {
            return false;
        }
        // Z = ρU is what stays.
        let step = self.step();
        rescale_dual(&mut self.w, step, self.rho / adapted);
        self.rho = adapted;
        self.retarget();
        self.patience *= REST_GROWTH;
        let rest = if iterations >= ACCELERATE_FROM {
            self.patience.max(ACCELERATED_RESIDUAL)
        } else {
            self.patience
        };
        self.adapt_from = iterations + rest as usize;
        true
    }

    /// The iterate as full matrices; `residuals` are the primal and the dual one.
    fn solution(
        self,
        x: &Factor,
        residuals: [f64; 2],
        iterations: usize,
        stop: Stop,
    ) -> ScaledSolution {
        let (step, rho) = (self.step(), self.rho);
        let mut z = self.w.map(|w| rho * w.clamp(-step, step));
        z.fill_diagonal(0.0);
        z.fill_upper_triangle_with_lower_triangle();
        let mut y = self.w;
        for j in 0..y.ncols() {
            let below = j * y.nrows() + j + 1..(j + 1) * y.nrows();
            for entry in &mut y.as_mut_slice()[below] {
                *entry -= entry.clamp(-step, step);
            }
        }
        y.fill_upper_triangle_with_lower_triangle();
        let [primal_residual, dual_residual] = residuals;
        ScaledSolution {
            x: outer_scaled(&x.vectors, &x.weights),
            y,
            z,
            bound: Some(self.best_bound),
            unit: self.unit,
            primal_residual,
            dual_residual,
            iterations,
            rho,
            stop,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A warm start ends where a cold one does, with a gap that is a proof.
    #[test]
    fn a_warm_start_gives_the_same_solution() {
        let p = 30;
        let moment = DMatrix::from_fn(p, p, |i, j| {
            let (a, b) = (i.min(j) as f64, i.max(j) as f64);
            let signal = if i.max(j) < 4 { 1.0 } else { 0.0 };
            signal + 0.2 * (a * 3.7 + b * 1.3 + a * b).sin()
        });
        let settings = AdmmSettings::default();
        let mut start = None;
        for step in 0..8 {
            let lambda = 1.3 * 0.75_f64.powi(step);
            let cold = solve(&moment, 2, lambda, &settings, Cancel::NEVER).unwrap();
            let warm =
                solve_from(&moment, 2, lambda, &settings, start.as_ref(), Cancel::NEVER).unwrap();
            assert!(cold.converged() && warm.converged());
            let apart = (cold.objective - warm.objective).abs();
            assert!(apart <= cold.gap + warm.gap + 1e-9, "{apart}");
            assert!(warm.dual.amax() <= lambda * (1.0 + 1e-12));
            start = Some(warm.into_start());
        }
    }
}
