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

use std::ops::ControlFlow;

use eigenveil_shared::{Error, ErrorCode, Result, api::SparseSettings};
use nalgebra::DMatrix;

use super::{
    lambda::largest_useful_lambda,
    refit::embed,
    spectrum::{Bound, FullSpectrum, Spectrum, WarmSpectrum},
    sweep::sweep,
};
use crate::linalg::{
    add_outer_lower, cross_product, fix_signs, product, require_square_and_finite, submatrix,
    symmetric_eigen, top_k,
};

/// Over-relaxation α.
pub(super) const RELAXATION: f64 = 1.6;
/// Boyd et al. §3.4.1: ρ changes when one relative residual is this many times the other. Their 10
/// took 1.5 times the iterations on eight sparse problems (p = 40–200).
const IMBALANCE: f64 = 3.0;
/// First ρ, as a multiple of the mean leading eigenvalue: 20 needed fewest iterations of 1, 8 and 20.
const START_RHO: f64 = 20.0;
/// After every change ρ rests longer by this factor: with ever longer stretches of a fixed ρ, on
/// each of which convergence is proved, the iteration cannot be kept from converging by the changes.
const PATIENCE_GROWTH: f64 = 1.1;
/// The gap costs a factorisation or an eigenvalue computation: it is computed when the residuals are small, and this often.
const GAP_EVERY: usize = 20;
/// Relative residuals must be below this multiple of the tolerance of the gap.
const RESIDUAL_FACTOR: f64 = 10.0;
/// Entries of Y below this share of the largest are round-off.
const PRUNE: f64 = 1e-10;

/// How the solver runs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AdmmSettings {
    /// Initial ρ in units of the moment's entries (> 0); `None`: chosen from the spectrum.
    pub rho: Option<f64>,
    /// Iteration cap (≥ 1).
    pub max_iterations: usize,
    /// Relative duality gap at which to stop (> 0); the residuals must be below ten times that.
    pub tolerance: f64,
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
        }
    }
}

impl AdmmSettings {
    /// # Errors
    /// `InvalidRequest` naming the setting that is out of range.
    pub fn validate(&self) -> Result<()> {
        let refuse = |detail: String| Err(Error::new(ErrorCode::InvalidRequest, detail));
        if let Some(rho) = self.rho
            && !(rho.is_finite() && rho > 0.0)
        {
            return refuse(format!("rho is {rho}; it is a positive finite number"));
        }
        if self.max_iterations == 0 {
            return refuse("max_iterations is 0; at least 1 is needed".to_owned());
        }
        if !(self.tolerance.is_finite() && self.tolerance > 0.0) {
            return refuse(format!(
                "tolerance is {}; it is a positive number",
                self.tolerance
            ));
        }
        Ok(())
    }
}

/// Where a running solver is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Progress {
    /// Iterations made.
    pub iterations: usize,
    /// Relative duality gap when last computed; infinite before that.
    pub relative_gap: f64,
    /// ‖X−Y‖_F relative to the larger of the two.
    pub primal_residual: f64,
    /// ρ‖Y−Y_prev‖_F relative to the dual variable.
    pub dual_residual: f64,
}

/// Why the solver stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// Gap and residuals are within tolerance.
    Converged,
    /// The iteration cap was hit; the gap says how far the answer may be from the optimum.
    IterationCap,
    /// The caller's callback asked for it.
    Cancelled,
}

/// What the solver found.
#[derive(Clone, Debug, PartialEq)]
pub struct Solution {
    /// X: `p × p`, in the Fantope; what objective and gap are evaluated at.
    pub x: DMatrix<f64>,
    /// Y: `p × p`, exactly sparse, equal to X up to the primal residual.
    pub y: DMatrix<f64>,
    /// V: `p × k`, orthonormal, rows outside the support exactly zero. The top-k eigenvectors of Y on
    /// the support (of Y, because X has round-off everywhere), turned within their span so that
    /// `VᵀS̃V` is diagonal and descending: X is close to a projector, whose own eigenvectors are arbitrary.
    pub vectors: DMatrix<f64>,
    /// Rows with a nonzero loading, ascending; at least k of them.
    pub support: Vec<usize>,
    /// Z: `p × p`, the dual point of the gap, zero on the diagonal and at most λ off it; in units of the moment.
    pub dual: DMatrix<f64>,
    /// λ in force.
    pub lambda: f64,
    /// `⟨S̃,X⟩ − λ‖X‖₁,₁`.
    pub objective: f64,
    /// Proved upper bound on the optimum minus `objective`, in its units; ≥ 0 up to rounding.
    pub gap: f64,
    /// The gap relative to `Σ_{i≤k} λᵢ(S̃ − (tr S̃/p)·I)`, which no offset of S̃ changes.
    pub relative_gap: f64,
    /// ‖X−Y‖_F.
    pub primal_residual: f64,
    /// ρ‖Y−Y_prev‖_F, in units of the moment's entries.
    pub dual_residual: f64,
    /// Iterations made.
    pub iterations: usize,
    /// ρ at the end, in units of the moment's entries.
    pub rho: f64,
    /// Why it stopped.
    pub stop: Stop,
}

/// Where a solver goes on from: Z and ρ at the end of one at a nearby λ. Y is made of Z as in a cold start: over the
/// path of a cross-validation (p = 60, some 900 solves) that took 3,092 iterations, with the old Y 4,037, cold 4,637.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Start {
    dual: DMatrix<f64>,
    rho: Option<f64>,
}

impl Solution {
    /// What a solver of a nearby problem of the same size can start from.
    pub(super) fn into_start(self) -> Start {
        Start {
            dual: self.dual,
            // What needed no iteration has no ρ.
            rho: (self.iterations > 0).then_some(self.rho),
        }
    }

    /// Whether gap and residuals are within tolerance.
    pub fn converged(&self) -> bool {
        self.stop == Stop::Converged
    }
}

/// Solves the Fantope problem for the symmetric `moment` (`p × p`, any scale) at penalty `lambda`.
///
/// `watch` is called after every iteration and can stop the solver with [`ControlFlow::Break`]; what
/// was reached is then returned with [`Stop::Cancelled`].
///
/// # Errors
/// `InvalidRequest` unless `1 ≤ k ≤ p`, λ ≥ 0 and the settings are in range; `EstimateFailed` when an
/// entry is not finite. An iteration cap that is hit is not an error: see [`Solution::stop`].
///
/// ```
/// use eigenveil_estimation::fantope::{AdmmSettings, solve};
/// use nalgebra::dmatrix;
/// use std::ops::ControlFlow;
/// let moment = dmatrix![2.0, 0.9, 0.05; 0.9, 2.0, -0.05; 0.05, -0.05, 1.0];
/// let solution = solve(&moment, 1, 0.1, &AdmmSettings::default(), &|_| ControlFlow::Continue(()))?;
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
    watch: &dyn Fn(&Progress) -> ControlFlow<()>,
) -> Result<Solution> {
    solve_from(moment, k, lambda, settings, None, watch)
}

/// As [`solve`], from where another solver of a problem of this size ended.
pub(super) fn solve_from(
    moment: &DMatrix<f64>,
    k: usize,
    lambda: f64,
    settings: &AdmmSettings,
    start: Option<&Start>,
    watch: &dyn Fn(&Progress) -> ControlFlow<()>,
) -> Result<Solution> {
    let spectrum: &mut dyn Spectrum = if WarmSpectrum::pays(moment.nrows(), k) {
        &mut WarmSpectrum::new()
    } else {
        &mut FullSpectrum
    };
    solve_by(moment, k, lambda, settings, start, watch, spectrum)
}

/// [`solve`] with a full decomposition in every iteration: what the partial projections are measured
/// and tested against.
///
/// # Errors
/// As [`solve`].
pub fn solve_by_full_projections(
    moment: &DMatrix<f64>,
    k: usize,
    lambda: f64,
    settings: &AdmmSettings,
    watch: &dyn Fn(&Progress) -> ControlFlow<()>,
) -> Result<Solution> {
    solve_by(moment, k, lambda, settings, None, watch, &mut FullSpectrum)
}

fn solve_by(
    moment: &DMatrix<f64>,
    k: usize,
    lambda: f64,
    settings: &AdmmSettings,
    start: Option<&Start>,
    watch: &dyn Fn(&Progress) -> ControlFlow<()>,
    spectrum: &mut dyn Spectrum,
) -> Result<Solution> {
    require_square_and_finite(moment)?;
    settings.validate()?;
    let p = moment.nrows();
    if k == 0 || k > p {
        return Err(Error::new(
            ErrorCode::InvalidRequest,
            format!("k is {k}; it is between 1 and p = {p}"),
        ));
    }
    if !(lambda.is_finite() && lambda >= 0.0) {
        return Err(Error::new(
            ErrorCode::InvalidRequest,
            format!("lambda is {lambda}; it is a finite number ≥ 0"),
        ));
    }
    let scaled = ScaledProblem::new(moment, k, lambda);
    let found = match scaled.closed_form(moment) {
        Some(found) => found,
        None => iterate(&scaled, settings, start, watch, spectrum)?,
    };
    scaled.finish(found)
}

/// The problem with the mean eigenvalue subtracted and the largest entry brought to 1: every
/// constant of the iteration is then a pure number, and S̃ of size 1e-6 or 1e6 behaves the same.
struct ScaledProblem {
    k: usize,
    s: DMatrix<f64>,
    lambda: f64,
    original_lambda: f64,
    centre: f64,
    scale: f64,
}

/// An (X, Y) pair with its certificate, in scaled units.
struct Found {
    x: DMatrix<f64>,
    y: DMatrix<f64>,
    z: DMatrix<f64>,
    gap: f64,
    relative_gap: f64,
    primal_residual: f64,
    dual_residual: f64,
    iterations: usize,
    rho: f64,
    stop: Stop,
}

impl ScaledProblem {
    fn new(moment: &DMatrix<f64>, k: usize, lambda: f64) -> Self {
        let p = moment.nrows();
        // Summed as shares, so that entries near the largest double do not overflow.
        let centre: f64 = moment.diagonal().iter().map(|x| x / p as f64).sum();
        let mut s = moment.clone();
        for i in 0..p {
            s[(i, i)] -= centre;
        }
        let largest = s.amax();
        let scale = if largest > 0.0 { largest } else { 1.0 };
        // Not `s /= scale`, which multiplies by an inverse that can overflow.
        s.apply(|entry| *entry /= scale);
        Self {
            k,
            s,
            lambda: lambda / scale,
            original_lambda: lambda,
            centre,
            scale,
        }
    }

    /// The answer where it needs no iteration.
    fn closed_form(&self, moment: &DMatrix<f64>) -> Option<Found> {
        let p = self.s.nrows();
        let chosen: Vec<usize> = if self.k == p {
            (0..p).collect()
        } else if self.original_lambda >= largest_useful_lambda(moment) {
            // Z = the off-diagonal of S̃ is dual feasible: the k largest diagonal entries are optimal.
            let mut order: Vec<usize> = (0..p).collect();
            order.sort_by(|&a, &b| self.s[(b, b)].total_cmp(&self.s[(a, a)]).then(a.cmp(&b)));
            order.truncate(self.k);
            order
        } else {
            return None;
        };
        let mut x = DMatrix::zeros(p, p);
        for i in chosen {
            x[(i, i)] = 1.0;
        }
        let mut z = self.s.map(|entry| entry.clamp(-self.lambda, self.lambda));
        z.fill_diagonal(0.0);
        Some(Found {
            y: x.clone(),
            x,
            z,
            gap: 0.0,
            relative_gap: 0.0,
            primal_residual: 0.0,
            dual_residual: 0.0,
            iterations: 0,
            rho: 1.0,
            stop: Stop::Converged,
        })
    }

    /// `⟨S,X⟩ − λ Σ_{i≠j}|Xᵢⱼ|`.
    fn objective(&self, x: &DMatrix<f64>) -> f64 {
        let penalty: f64 = x.iter().map(|v| v.abs()).sum::<f64>()
            - x.diagonal().iter().map(|v| v.abs()).sum::<f64>();
        self.s.dot(x) - self.lambda * penalty
    }

    /// Back to the units of the moment, with loadings and support.
    fn finish(&self, found: Found) -> Result<Solution> {
        let p = self.s.nrows();
        let support = self.support(&found);
        let on_support = top_k(&submatrix(&found.y, &support), self.k)?.vectors;
        let span = embed(&on_support, &support, p);
        let within = symmetric_eigen(&cross_product(&span, &product(&self.s, &span)))?;
        let mut vectors = product(&span, &within.vectors);
        fix_signs(&mut vectors);
        // Σ|Xᵢᵢ| = k times λ is the constant that the scaled problem leaves out.
        let offset = (self.centre - self.original_lambda) * self.k as f64;
        Ok(Solution {
            objective: self.scale * self.objective(&found.x) + offset,
            vectors,
            support,
            lambda: self.original_lambda,
            gap: self.scale * found.gap,
            relative_gap: found.relative_gap,
            primal_residual: found.primal_residual,
            dual_residual: self.scale * found.dual_residual,
            iterations: found.iterations,
            rho: self.scale * found.rho,
            stop: found.stop,
            dual: found.z * self.scale,
            x: found.x,
            y: found.y,
        })
    }

    /// Rows of Y with an off-diagonal entry larger than ‖X−Y‖_F, or a diagonal one ten times that.
    ///
    /// An entry below the primal residual is not told apart from zero: at a gap of 1e-6 the iterates
    /// still carried up to fifty rows of such entries beside the fifteen that matter, and with this
    /// rule the support at 1e-6 was the one at 1e-9 in every case tried. As the residual vanishes
    /// only round-off is pruned. The trace is k and no diagonal entry of X exceeds 1, so at least k
    /// rows carry something; an iterate stopped far from the optimum is filled up with the rows of
    /// largest diagonal.
    fn support(&self, found: &Found) -> Vec<usize> {
        let p = self.s.nrows();
        let off_diagonal = found.primal_residual.max(PRUNE * found.y.amax());
        let diagonal = 1e-6_f64.max(10.0 * found.primal_residual);
        let mut active: Vec<bool> = (0..p)
            .map(|j| {
                let column = found.y.column(j);
                column
                    .iter()
                    .enumerate()
                    .any(|(i, &y)| i != j && y.abs() > off_diagonal)
                    || column[j] > diagonal
            })
            .collect();
        let mut order: Vec<usize> = (0..p).collect();
        order.sort_by(|&a, &b| found.x[(b, b)].total_cmp(&found.x[(a, a)]).then(a.cmp(&b)));
        let mut missing = self
            .k
            .saturating_sub(active.iter().filter(|&&on| on).count());
        for row in order {
            if missing > 0 && !active[row] {
                active[row] = true;
                missing -= 1;
            }
        }
        (0..p).filter(|&row| active[row]).collect()
    }
}

/// The matrices of the iteration hold their lower triangle only; what is above it means nothing.
fn iterate(
    problem: &ScaledProblem,
    settings: &AdmmSettings,
    start: Option<&Start>,
    watch: &dyn Fn(&Progress) -> ControlFlow<()>,
    spectrum: &mut dyn Spectrum,
) -> Result<Found> {
    let ScaledProblem { k, s, lambda, .. } = problem;
    let (k, lambda) = (*k, *lambda);
    let p = s.nrows();
    let root_k = (k as f64).sqrt();
    // Dual warm start: Z₀ = clip(S, ±λ) off the diagonal takes the noise out at once. The projector
    // Y₀ of what is left then has X₁ = Y₀ exactly, whatever ρ is, and the rank stays near k.
    // A given Z is dual feasible once it is clipped to this λ.
    let mut u = match start {
        Some(start) => start
            .dual
            .map(|entry| (entry / problem.scale).clamp(-lambda, lambda)),
        None => s.map(|entry| entry.clamp(-lambda, lambda)),
    };
    u.fill_diagonal(0.0);
    let mut target = s - &u;
    let shrunk = spectrum.leading(&target, k, settings.tolerance)?;
    let mut y = DMatrix::zeros(p, p);
    add_outer_lower(&mut y, &shrunk.vectors, &vec![1.0; k]);
    // The mean of all eigenvalues is zero, so this is positive unless the problem is.
    let level = shrunk.values.iter().sum::<f64>() / k as f64;
    // Ritz values would understate it, and so overstate the relative gap: the safe side.
    let unit: f64 = spectrum
        .leading(s, k, 1e-2)?
        .values
        .iter()
        .sum::<f64>()
        .max(f64::MIN_POSITIVE);
    let mut rho = match start.and_then(|start| start.rho).or(settings.rho) {
        Some(rho) => (rho / problem.scale).clamp(1e-6, 1e6),
        None => (START_RHO * level).max(1e-3),
    };
    u /= rho;
    // Y − U + S/ρ = Y + (S − Z)/ρ.
    target.zip_apply(&y, |t, y| *t = y + *t / rho);
    let mut x = DMatrix::zeros(p, p);
    let mut best_bound = f64::INFINITY;
    let allowed = settings.tolerance * unit;
    let rounding = 1e-14 * k as f64 * unit.max(1.0);
    let mut iterations = 0;
    let (mut adapt_from, mut patience) = (0, 1.0_f64);
    // Error of X that the residuals would not notice.
    let mut accuracy = settings.tolerance * root_k;
    loop {
        iterations += 1;
        spectrum.project(&target, k, accuracy, &mut x)?;
        let sums = sweep(&x, s, &mut y, &mut u, &mut target, lambda / rho, rho);
        let primal = sums.primal.sqrt();
        let moved = sums.moved.sqrt();
        let dual = rho * moved;
        let relative_primal = primal / sums.x.max(sums.y).sqrt();
        let relative_dual = dual / (rho * sums.u.sqrt()).max(unit / root_k);
        accuracy = (0.1 * primal.min(moved)).clamp(0.01 * settings.tolerance, 1e-2);
        let objective = sums.linear - lambda * sums.penalty;
        let small = relative_primal.max(relative_dual) <= RESIDUAL_FACTOR * settings.tolerance;
        let last = iterations >= settings.max_iterations;
        let mut progress = Progress {
            iterations,
            relative_gap: f64::INFINITY,
            primal_residual: relative_primal,
            dual_residual: relative_dual,
        };
        let mut gap = f64::INFINITY;
        if small || last || iterations % GAP_EVERY == 0 {
            dual_matrix(s, &u, rho, &mut target);
            // Where only convergence is in question a hopeless bound need not be proved.
            let hopeless = if last || !small {
                f64::INFINITY
            } else {
                objective + allowed
            };
            match spectrum.bound(&target, k, 0.02 * allowed / k as f64, hopeless)? {
                Bound::Proved(bound) => {
                    best_bound = best_bound.min(bound);
                    gap = allow_rounding(best_bound - objective, rounding);
                    progress.relative_gap = gap / unit;
                }
                Bound::TooLarge => {}
            }
            retarget(&y, &u, s, rho, &mut target);
        }
        let stop = if small && gap <= allowed {
            Some(Stop::Converged)
        } else if watch(&progress).is_break() {
            Some(Stop::Cancelled)
        } else if last {
            Some(Stop::IterationCap)
        } else {
            None
        };
        if let Some(stop) = stop {
            if gap.is_infinite() {
                dual_matrix(s, &u, rho, &mut target);
                let proved =
                    spectrum.bound(&target, k, 0.02 * allowed / k as f64, f64::INFINITY)?;
                if let Bound::Proved(bound) = proved {
                    gap = allow_rounding(best_bound.min(bound) - objective, rounding);
                }
            }
            x.fill_upper_triangle_with_lower_triangle();
            y.fill_upper_triangle_with_lower_triangle();
            let mut z = u * rho;
            z.fill_upper_triangle_with_lower_triangle();
            return Ok(Found {
                x,
                y,
                z,
                gap,
                relative_gap: gap / unit,
                primal_residual: primal,
                dual_residual: dual,
                iterations,
                rho,
                stop,
            });
        }
        if small {
            // Residuals say done and the gap does not: was a direction missed?
            spectrum.doubt();
        }
        if iterations >= adapt_from {
            let factor = if relative_primal > IMBALANCE * relative_dual {
                2.0
            } else if relative_dual > IMBALANCE * relative_primal {
                0.5
            } else {
                1.0
            };
            let adapted = (rho * factor).clamp(1e-8, 1e8);
            if adapted != rho {
                // Z = ρU is what stays.
                u *= rho / adapted;
                rho = adapted;
                retarget(&y, &u, s, rho, &mut target);
                patience *= PATIENCE_GROWTH;
                adapt_from = iterations + patience as usize;
            }
        }
    }
}

fn allow_rounding(gap: f64, rounding: f64) -> f64 {
    if gap.abs() <= rounding {
        gap.max(0.0)
    } else {
        gap
    }
}

/// S − ρU, whose k largest eigenvalues bound the optimum.
fn dual_matrix(s: &DMatrix<f64>, u: &DMatrix<f64>, rho: f64, out: &mut DMatrix<f64>) {
    out.zip_zip_apply(s, u, |out, s, u| *out = s - rho * u);
}

/// Y − U + S/ρ.
fn retarget(
    y: &DMatrix<f64>,
    u: &DMatrix<f64>,
    s: &DMatrix<f64>,
    rho: f64,
    out: &mut DMatrix<f64>,
) {
    let inverse = 1.0 / rho;
    let rest = y.iter().zip(u).zip(s);
    for (out, ((y, u), s)) in out.iter_mut().zip(rest) {
        *out = y - u + s * inverse;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(y: DMatrix<f64>, primal_residual: f64) -> Found {
        Found {
            x: y.clone(),
            z: DMatrix::zeros(y.nrows(), y.ncols()),
            y,
            gap: 0.0,
            relative_gap: 0.0,
            primal_residual,
            dual_residual: 0.0,
            iterations: 1,
            rho: 1.0,
            stop: Stop::IterationCap,
        }
    }

    /// What the residual cannot tell from zero is not a row; when it can, it is.
    #[test]
    fn support_depends_on_the_residual_reached() {
        let problem = ScaledProblem::new(&DMatrix::zeros(4, 4), 1, 0.0);
        let mut y = DMatrix::zeros(4, 4);
        (y[(0, 0)], y[(2, 2)]) = (0.5, 0.5);
        (y[(0, 2)], y[(2, 0)]) = (0.5, 0.5);
        (y[(0, 3)], y[(3, 0)]) = (1e-5, 1e-5);
        (y[(0, 1)], y[(1, 0)]) = (1e-12, 1e-12);
        assert_eq!(problem.support(&found(y.clone(), 1e-4)), [0, 2]);
        assert_eq!(problem.support(&found(y.clone(), 1e-6)), [0, 2, 3]);
        // Round-off stays out however small the residual.
        assert_eq!(problem.support(&found(y, 0.0)), [0, 2, 3]);
    }

    /// A warm start ends where a cold one does, with a gap that is a proof.
    #[test]
    fn a_warm_start_is_the_same_answer() {
        let p = 30;
        let moment = DMatrix::from_fn(p, p, |i, j| {
            let (a, b) = (i.min(j) as f64, i.max(j) as f64);
            let signal = if i.max(j) < 4 { 1.0 } else { 0.0 };
            signal + 0.2 * (a * 3.7 + b * 1.3 + a * b).sin()
        });
        let settings = AdmmSettings::default();
        let on: &dyn Fn(&Progress) -> ControlFlow<()> = &|_| ControlFlow::Continue(());
        let mut start = None;
        for step in 0..8 {
            let lambda = 1.3 * 0.75_f64.powi(step);
            let cold = solve(&moment, 2, lambda, &settings, on).unwrap();
            let warm = solve_from(&moment, 2, lambda, &settings, start.as_ref(), on).unwrap();
            assert!(cold.converged() && warm.converged());
            let apart = (cold.objective - warm.objective).abs();
            assert!(apart <= cold.gap + warm.gap + 1e-9, "{apart}");
            assert!(warm.dual.amax() <= lambda * (1.0 + 1e-12));
            start = Some(warm.into_start());
        }
    }

    /// An iterate too far from the optimum to show k rows is filled up, never an error.
    #[test]
    fn a_short_support_is_filled_up() {
        let problem = ScaledProblem::new(&DMatrix::zeros(4, 4), 3, 0.0);
        let mut y = DMatrix::zeros(4, 4);
        (y[(1, 1)], y[(3, 3)], y[(0, 0)]) = (1.0, 1e-9, 1e-8);
        assert_eq!(problem.support(&found(y, 1e-3)), [0, 1, 3]);
    }
}
