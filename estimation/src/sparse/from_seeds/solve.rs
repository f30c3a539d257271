//! The Fantope problem on all p rows, solved on a few of them and proved on all.

use eigenveil_shared::{Error, Result};
use nalgebra::DMatrix;

use super::{
    candidates::{first_candidates, largest, mass},
    certificate::{GUARD, LeadingSumBound, Proof},
    dual::DualMatrix,
    matrix::LargeMatrix,
};
use crate::{
    cancel::Cancel,
    linalg::{StartVectors, leading_columns, symmetric_eigen},
    sparse::fantope::{self, Accuracy, AdmmSettings, Solution, embed},
};

/// Rows that may join the candidates in one round.
const GROWTH: usize = 128;
/// Maximum number of candidates: the small solver then takes minutes.
pub(super) const MAX_CANDIDATES: usize = 2_000;
/// Share of the tolerance that the small problem may use.
const INNER_SHARE: f64 = 0.3;
/// Directions of the small dual matrix within this share of the k-th eigenvalue are invariant as well: where X has
/// fractional eigenvalues they are all at one level.
const LEVEL: f64 = 0.9;
/// Number of consecutive rounds that may leave more than this share of the gap: then more rows do not help.
const PROGRESS: f64 = 0.9;
const MAX_ROUNDS_WITHOUT_PROGRESS: usize = 3;
/// A bound further away than this many times the k-th eigenvalue is useless.
const MAX_STEP: f64 = 1e6;
/// A row with less of the leading vectors than this share of an even spread is not worth adding.
const MIN_WORTHWHILE_GAIN: f64 = 1e-3;

pub(super) struct Problem<'a> {
    pub(super) moment: &'a LargeMatrix,
    pub(super) k: usize,
    pub(super) lambda: f64,
    /// The size of the largest of all noise entries.
    pub(super) largest_noise_entry: f64,
    pub(super) settings: AdmmSettings,
}

pub(super) struct SolveResult {
    /// `p × k` orthonormal.
    pub(super) vectors: DMatrix<f64>,
    pub(super) support: Vec<usize>,
    /// Proved bound on the optimum of the whole problem minus the objective reached.
    pub(super) gap: f64,
    /// Relative to `Σ_{i≤k} λᵢ` of the centred S̃.
    pub(super) relative_gap: f64,
    pub(super) converged: bool,
    /// Iterations of the small solver, all rounds together.
    pub(super) iterations: usize,
    /// The last small problem, its rows being candidates.
    pub(super) small: Solution,
    /// Rows of the small problem at the end.
    pub(super) candidates: usize,
}

impl Problem<'_> {
    /// Solves; `unit` is `Σ_{i≤k} λᵢ` of the centred S̃, from below. `cancel` is checked between steps.
    pub(super) fn solve(&self, unit: f64, cancel: Cancel<'_>) -> Result<SolveResult> {
        let Self {
            moment, k, lambda, ..
        } = *self;
        let mut random = StartVectors::default();
        let mut candidates =
            first_candidates(moment, k, lambda, self.largest_noise_entry, &mut random)?;
        self.solve_from(&mut candidates, unit, &mut random, cancel)
    }

    /// From these candidates, ascending.
    pub(super) fn solve_from(
        &self,
        candidates: &mut Vec<usize>,
        unit: f64,
        random: &mut StartVectors,
        cancel: Cancel<'_>,
    ) -> Result<SolveResult> {
        let Self {
            moment, k, lambda, ..
        } = *self;
        let p = moment.dimension();
        let centre = moment.trace() / p as f64;
        let allowed = self.settings.tolerance * unit;
        let accuracy = Accuracy {
            slack: 0.02 * allowed / k as f64,
            sharpen: 1.0,
        };
        let inner = AdmmSettings {
            tolerance: INNER_SHARE * self.settings.tolerance,
            ..self.settings
        };
        let mut iterations = 0;
        let (mut least, mut stalled) = (f64::INFINITY, 0);
        loop {
            cancel.check()?;
            let mut inside = moment.submatrix(candidates);
            (0..candidates.len()).for_each(|i| inside[(i, i)] -= centre);
            let small = fantope::solve(&inside, k, lambda, &inner, cancel)?;
            iterations += small.iterations;
            let reached = objective(&inside, &small.x, lambda);
            let left = &inside - &small.dual;
            let eigen = symmetric_eigen(&left)?;
            let level = LEVEL * eigen.values[k - 1];
            let near = eigen.values.iter().take_while(|&&v| v >= level).count();
            let protected = leading_columns(&eigen.vectors, near.clamp(k, 4 * k));
            let dual = DualMatrix::extend(moment, lambda, centre, candidates, &left, &protected);
            // Those that come next bound what the proof has to leave below t.
            let known = (protected.ncols() + GUARD).min(candidates.len());
            let known = embed(&leading_columns(&eigen.vectors, known), candidates, p);
            let mut claim = LeadingSumBound::find(&dual, &known, k, accuracy, random)?;
            // A factorisation is worth its time only where the Ritz values allow the gap to close.
            let proved = match claim.at_least() - reached <= allowed {
                true => proved(&mut claim, &dual, random, cancel)?,
                false => None,
            };
            let closed = proved.is_some_and(|bound| bound - reached <= allowed);
            let open = claim.at_least() - reached;
            stalled = match open < PROGRESS * least {
                true => 0,
                false => stalled + 1,
            };
            least = least.min(open);
            let more = match closed || stalled >= MAX_ROUNDS_WITHOUT_PROGRESS {
                true => Vec::new(),
                false => missing_rows(&dual, &claim.leading(), candidates.len()),
            };
            if !more.is_empty() {
                candidates.extend(more);
                candidates.sort_unstable();
                continue;
            }
            // The end: the gap is closed, or cannot be improved with these candidates. Some bound must then still be
            // proved.
            let bound = match proved {
                Some(bound) => bound,
                None => loosely_proved(&claim, &dual, cancel)?,
            };
            let gap = (bound - reached).max(0.0);
            return Ok(SolveResult {
                vectors: embed(&small.vectors, candidates, p),
                support: small.support.iter().map(|&a| candidates[a]).collect(),
                gap,
                relative_gap: gap / unit,
                converged: gap <= allowed && small.converged(),
                iterations,
                candidates: candidates.len(),
                small,
            });
        }
    }
}

/// The bound, if it can be proved. Tried twice: new random vectors may show what the first bound missed.
fn proved(
    claim: &mut LeadingSumBound,
    dual: &DualMatrix<'_>,
    random: &mut StartVectors,
    cancel: Cancel<'_>,
) -> Result<Option<f64>> {
    for _ in 0..2 {
        match claim.prove(dual, 1.0, cancel)? {
            Proof::Proved(bound) => return Ok(Some(bound)),
            Proof::Failed => *claim = claim.refine(dual, random)?,
        }
    }
    Ok(None)
}

/// The bound, looser until it can be proved.
fn loosely_proved(
    claim: &LeadingSumBound,
    dual: &DualMatrix<'_>,
    cancel: Cancel<'_>,
) -> Result<f64> {
    let mut loose = 1.0;
    loop {
        match claim.prove(dual, loose, cancel)? {
            Proof::Proved(bound) => return Ok(bound),
            Proof::Failed if loose < MAX_STEP => loose *= 2.0,
            Proof::Failed => {
                return Err(Error::estimate_failed(
                    "no bound on the optimum could be proved; the moment may hold enormous numbers",
                ));
            }
        }
    }
}

/// `⟨S_JJ,X⟩ − λ Σ_{i≠j}|Xᵢⱼ|`, whatever multiple of the identity S_JJ is off by.
fn objective(inside: &DMatrix<f64>, x: &DMatrix<f64>, lambda: f64) -> f64 {
    let all: f64 = x.iter().map(|v| v.abs()).sum();
    inside.dot(x) - lambda * (all - x.diagonal().iter().map(|v| v.abs()).sum::<f64>())
}

/// The non-candidates with weight in the leading vectors of M: these are the rows that can raise its eigenvalues.
fn missing_rows(dual: &DualMatrix<'_>, leading: &DMatrix<f64>, have: usize) -> Vec<usize> {
    let (p, k) = leading.shape();
    let mut scores = mass(leading, k);
    for (i, score) in scores.iter_mut().enumerate() {
        if dual.has(i) || *score < MIN_WORTHWHILE_GAIN * k as f64 / p as f64 {
            *score = 0.0;
        }
    }
    largest(&scores, GROWTH.min(MAX_CANDIDATES.saturating_sub(have)))
}
