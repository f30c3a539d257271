//! λ by cross-validation over the buckets.

use eigenveil_shared::{
    Error, Result,
    api::SparseSettings,
    estimate::{CrossValidation, ScoredLambda},
};
use nalgebra::DMatrix;

use super::{
    admm::{AdmmSettings, Start, solve_from},
    lambda::{automatic_lambda, max_useful_lambda},
    path::{STEPS, coarse, grid},
    refit::refit,
};
use crate::{
    cancel::Cancel,
    dense::pca::rayleigh_quotients,
    input::{accumulate::Accumulator, moment::NoisyMoment},
    linalg::{cancellable_map, packed_to_dense},
};

/// Number of folds, and minimum number of non-empty buckets.
const FOLDS: usize = 5;
/// The path ends after this many consecutive values of λ whose scores are worse than the best by more than a standard
/// error: smaller values give even denser and slower solutions.
const WORSE_IN_A_ROW: usize = 3;

struct Fold {
    training: DMatrix<f64>,
    held_out: DMatrix<f64>,
    weight: f64,
    /// √(n/n_training): how much larger the noise of the training moment is.
    noise_inflation: f64,
    start: Option<Start>,
}

impl Fold {
    /// `Σ vᵀS̃v` on the held-out moment of the components found on the training moment at this λ, scaled like its noise.
    fn score(
        &mut self,
        lambda: f64,
        k: usize,
        admm: &AdmmSettings,
        refitted: bool,
        cancel: Cancel<'_>,
    ) -> Result<f64> {
        let start = self.start.take();
        let penalty = lambda * self.noise_inflation;
        let solution = solve_from(&self.training, k, penalty, admm, start.as_ref(), cancel)?;
        let score = if refitted {
            let vectors = refit(&self.training, &solution.support, k)?;
            rayleigh_quotients(&self.held_out, &vectors).sum()
        } else {
            rayleigh_quotients(&self.held_out, &solution.vectors).sum()
        };
        self.start = Some(solution.into_start());
        Ok(score)
    }
}

/// Chooses λ by cross-validation: five folds of whole buckets, a geometric path of 16 values from
/// `max_{i≠j} |S̃ᵢⱼ|` down to half of λ `auto` (at most an eighth of the first), warm-started.
///
/// On a training moment, λ is scaled by √(n/n_training), like its noise. The score is `Σ vᵀS̃v` of the components v
/// found there (after `refit` where requested) on the held-out moment S̃; it estimates the variance they capture,
/// without bias, because reports are independent. The one-standard-error rule takes the largest λ whose score is worse
/// than the best one by at most one standard error *of that difference*, over folds: scores of one fold share most of
/// their noise, so the standard error of a score itself would be far too generous. The folds of one λ are worked on by
/// [`Threads::current`](crate::linalg::Threads::current) threads.
///
/// # Errors
/// `invalid-request` with fewer than five non-empty buckets; those of [`solve`](super::solve); `estimate-failed` when
/// it was cancelled.
pub fn cross_validate(
    moment: &NoisyMoment,
    k: usize,
    settings: &SparseSettings,
    cancel: Cancel<'_>,
) -> Result<CrossValidation> {
    let admm = coarse(settings);
    let largest = max_useful_lambda(&moment.dense());
    let automatic = automatic_lambda(
        moment.noise(),
        moment.dimension(),
        moment.n_eff(),
        settings.refit,
    )?;
    let mut folds = folds(moment)?;
    let mut scores: Vec<Vec<f64>> = Vec::with_capacity(STEPS);
    let mut lambdas = Vec::with_capacity(STEPS);
    for lambda in grid(largest, automatic) {
        scores.push(cancellable_map(
            folds.iter_mut(),
            cancel,
            |fold, cancel| fold.score(lambda, k, &admm, settings.refit, cancel),
        )?);
        lambdas.push(lambda);
        let (best, behind) = score_deficits(&scores, &folds);
        let worse = behind.iter().rev().take_while(|(by, se)| by > se).count();
        if worse >= WORSE_IN_A_ROW && best + worse < scores.len() {
            break;
        }
    }
    let (best, behind) = score_deficits(&scores, &folds);
    let chosen = behind.iter().position(|(by, se)| by <= se).unwrap_or(best);
    let path = lambdas
        .iter()
        .zip(&scores)
        .zip(&behind)
        .map(
            |((&lambda, fold_scores), &(behind, standard_error))| ScoredLambda {
                lambda,
                score: weighted_mean(fold_scores, &folds),
                score_deficit: behind,
                standard_error,
            },
        )
        .collect();
    Ok(CrossValidation {
        folds: folds.len(),
        lambda_best: lambdas[best],
        lambda_1se: lambdas[chosen],
        grid: path,
    })
}

/// Whole buckets in folds of nearly equal size: the largest bucket first, each to the lightest fold.
fn folds(moment: &NoisyMoment) -> Result<Vec<Fold>> {
    let mut buckets: Vec<&Accumulator> =
        moment.buckets().iter().filter(|b| b.count() > 0).collect();
    if buckets.len() < FOLDS {
        return Err(Error::invalid_request(format!(
            "lambda cv needs {FOLDS} buckets with reports and there are {}; use auto or a number, or collect more batches",
            buckets.len()
        )));
    }
    buckets.sort_by_key(|bucket| std::cmp::Reverse(bucket.count()));
    let mut sums = vec![Accumulator::new(moment.dimension())?; FOLDS];
    for bucket in buckets {
        if let Some(lightest) = sums.iter_mut().min_by_key(|sum| sum.count()) {
            lightest.merge(bucket)?;
        }
    }
    let n = moment.n() as f64;
    Ok(sums
        .iter()
        .map(|sum| {
            let count = sum.count() as f64;
            let rest = n - count;
            let mut held_out = sum.sum().clone();
            held_out.scale(1.0 / count);
            let mut training = moment.mean().clone();
            for (entry, held) in training.as_mut_slice().iter_mut().zip(held_out.as_slice()) {
                *entry = (n * *entry - count * held) / rest;
            }
            Fold {
                training: packed_to_dense(&training),
                held_out: packed_to_dense(&held_out),
                weight: count / n,
                noise_inflation: (n / rest).sqrt(),
                start: None,
            }
        })
        .collect())
}

fn weighted_mean(values: &[f64], folds: &[Fold]) -> f64 {
    values
        .iter()
        .zip(folds)
        .map(|(x, fold)| x * fold.weight)
        .sum()
}

/// The index of the best score, and each score's deficit with its standard error.
fn score_deficits(scores: &[Vec<f64>], folds: &[Fold]) -> (usize, Vec<(f64, f64)>) {
    let means: Vec<f64> = scores.iter().map(|s| weighted_mean(s, folds)).collect();
    let best = (0..means.len())
        .max_by(|&a, &b| means[a].total_cmp(&means[b]).then(b.cmp(&a)))
        .unwrap_or(0);
    let count = folds.len() as f64;
    let behind = scores
        .iter()
        .map(|fold_scores| {
            let differences: Vec<f64> = fold_scores
                .iter()
                .zip(&scores[best])
                .map(|(x, y)| y - x)
                .collect();
            let mean = weighted_mean(&differences, folds);
            let squares: f64 = differences
                .iter()
                .zip(folds)
                .map(|(d, fold)| (fold.weight * (d - mean)).powi(2))
                .sum();
            (mean, (count / (count - 1.0) * squares).sqrt())
        })
        .collect();
    (best, behind)
}
