//! Error bars by drawing the answers again.

use eigenveil_shared::{Error, Result};
use rand::{SeedableRng, rngs::ChaCha8Rng};
use rand_distr::{Binomial, Distribution};

use super::fit::{Fit, Mixture, Moments};
use crate::Cancel;

/// Redraws.
const DRAWS: u32 = 50;

/// Standard errors of a number column.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Errors {
    pub(super) mean: f64,
    /// Error of the logarithm of the standard deviation.
    pub(super) log_deviation: f64,
    /// Error of the logarithm of the deviation over the whole range.
    pub(super) log_deviation_of_all: f64,
    pub(super) missing: f64,
}

/// Root mean squared distances of 50 fits from the estimate: each to answers drawn from it, as many for each comb as
/// there were. `column` makes the draws the same every time.
///
/// # Errors
/// `estimate-failed` when it was cancelled.
pub(super) fn errors(
    mixture: &Mixture,
    (fit, moments): (&Fit, Moments),
    column: usize,
    cancel: Cancel<'_>,
) -> Result<Errors> {
    let mut rng = ChaCha8Rng::seed_from_u64(column as u64);
    let of_all = mixture.moments_of_all(fit);
    let mut squares = [0.0_f64; 4];
    for _ in 0..DRAWS {
        cancel.check()?;
        let mut counts = Vec::new();
        for (total, probabilities) in mixture.expected(fit) {
            draw(total, &probabilities, &mut rng, &mut counts)?;
        }
        let redrawn = mixture.with_counts(counts.into_iter());
        let other_fit = redrawn.fit();
        let other = redrawn.moments(&other_fit);
        let other_of_all = redrawn.moments_of_all(&other_fit);
        let distances = [
            other.mean - moments.mean,
            (other.deviation / moments.deviation).ln(),
            (other_of_all.deviation / of_all.deviation).ln(),
            other_fit.missing - fit.missing,
        ];
        for (square, distance) in squares.iter_mut().zip(distances) {
            *square += distance * distance;
        }
    }
    let [mean, log_deviation, log_deviation_of_all, missing] =
        squares.map(|sum| (sum / f64::from(DRAWS)).sqrt());
    Ok(Errors {
        mean,
        log_deviation,
        log_deviation_of_all,
        missing,
    })
}

/// Answers to a comb: one binomial number after the other.
fn draw(
    total: f64,
    probabilities: &[f64],
    rng: &mut ChaCha8Rng,
    counts: &mut Vec<f64>,
) -> Result<()> {
    let (mut left, mut rest) = (total as u64, 1.0_f64);
    let last = probabilities.len() - 1;
    for probability in &probabilities[..last] {
        let share = (probability / rest).clamp(0.0, 1.0);
        let count = Binomial::new(left, share)
            .map_err(|error| Error::estimate_failed(format!("a binomial number: {error}")))?
            .sample(rng);
        counts.push(count as f64);
        left = left.saturating_sub(count);
        rest = (rest - probability).max(f64::MIN_POSITIVE);
    }
    counts.push(left as f64);
    Ok(())
}
