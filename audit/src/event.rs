//! The black-box bound ε ≥ ln((P₁,lo − δ)/P₂,hi) over threshold events.

use eigenveil_shared::{
    Error, ErrorCode, Result,
    mechanism::{MechanismSpec, NoiseModel},
    preprocess::BoundedRow,
};
use rand::Rng;

use crate::{lower_limit, upper_limit};

/// A lower bound on ε with its confidence.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct EventBound {
    /// No ε below this is compatible with the outputs, at the stated confidence.
    pub epsilon_lower_bound: f64,
    /// Outputs judged under each row (half of those given).
    pub judged: u64,
}

/// Lower bound on ε at this `confidence` from a statistic of outputs under row A and under row B.
///
/// The events are `statistic ≥ t` (A against B) and `statistic ≤ t` (B against A); direction and t are
/// chosen on the even positions, the bound is computed on the odd ones with each Clopper–Pearson limit at
/// `(1 + confidence)/2`.
///
/// # Errors
/// `invalid-request` when a sample has fewer than two outputs, δ or the confidence lies outside (0, 1)
/// (δ = 0 is allowed), or a statistic is not a number.
pub fn event_bound(a: &[f64], b: &[f64], delta: f64, confidence: f64) -> Result<EventBound> {
    if a.len() < 2 || b.len() < 2 || a.iter().chain(b).any(|v| v.is_nan()) {
        return Err(Error::new(
            ErrorCode::InvalidRequest,
            format!(
                "{} and {} outputs; give at least two numbers under each row",
                a.len(),
                b.len()
            ),
        ));
    }
    let in_range = (0.0..1.0).contains(&delta) && confidence > 0.0 && confidence < 1.0;
    if !in_range {
        return Err(Error::new(
            ErrorCode::InvalidRequest,
            format!("delta {delta} and confidence {confidence} must lie between 0 and 1"),
        ));
    }
    let half = |sample: &[f64], parity: usize| {
        let mut half: Vec<f64> = sample.iter().skip(parity).step_by(2).copied().collect();
        half.sort_by(f64::total_cmp);
        half
    };
    let (a_choose, b_choose) = (half(a, 0), half(b, 0));
    let (a_judge, b_judge) = (half(a, 1), half(b, 1));
    // B against A is A against B with the statistic's sign turned.
    let turned = |sample: &[f64]| sample.iter().rev().map(|v| -v).collect::<Vec<f64>>();
    let each = 0.5 * (1.0 + confidence);
    let forward = best_threshold(&a_choose, &b_choose, delta, each);
    let backward = best_threshold(&turned(&b_choose), &turned(&a_choose), delta, each);
    let bound = if forward.1 >= backward.1 {
        bound_at(&a_judge, &b_judge, forward.0, delta, each)
    } else {
        bound_at(
            &turned(&b_judge),
            &turned(&a_judge),
            backward.0,
            delta,
            each,
        )
    };
    Ok(EventBound {
        epsilon_lower_bound: bound,
        judged: a_judge.len().min(b_judge.len()) as u64,
    })
}

/// The threshold with the best bound on these sorted samples, among 400 quantiles of the two.
fn best_threshold(a: &[f64], b: &[f64], delta: f64, confidence: f64) -> (f64, f64) {
    let candidates = [a, b].into_iter().flat_map(|sample| {
        (0..200).map(move |step| {
            // Finer towards the top, where the ratio is largest.
            let share = 1.0 - (f64::from(step) / 199.0).powi(3);
            sample[((sample.len() - 1) as f64 * share) as usize]
        })
    });
    candidates
        .map(|t| (t, bound_at(a, b, t, delta, confidence)))
        .max_by(|x, y| x.1.total_cmp(&y.1))
        .unwrap_or((0.0, 0.0))
}

fn bound_at(a: &[f64], b: &[f64], threshold: f64, delta: f64, confidence: f64) -> f64 {
    let hits = |sorted: &[f64]| (sorted.len() - sorted.partition_point(|&v| v < threshold)) as u64;
    let p_low = lower_limit(hits(a), a.len() as u64, confidence);
    let p_high = upper_limit(hits(b), b.len() as u64, confidence);
    ((p_low - delta) / p_high).ln().max(0.0)
}

/// Log-likelihood ratio of A against B (up to a constant) for `trials` releases under each row, through
/// the public perturb-and-encode path. `spec` draws the outputs; `claimed` is the noise the statistic
/// assumes, so that a weaker mechanism can be put under test.
///
/// # Errors
/// `invalid-request` when the rows have different dimensions.
pub fn likelihood_ratio_statistics<R: Rng + ?Sized>(
    spec: &MechanismSpec,
    claimed: &NoiseModel,
    rows: (&BoundedRow, &BoundedRow),
    trials: usize,
    rng: &mut R,
) -> Result<(Vec<f64>, Vec<f64>)> {
    let (a, b) = (rows.0.as_slice(), rows.1.as_slice());
    if a.len() != b.len() {
        return Err(Error::new(
            ErrorCode::InvalidRequest,
            format!(
                "the rows have {} and {} values; give two of one dimension",
                a.len(),
                b.len()
            ),
        ));
    }
    // For Gaussian noise the log-likelihood ratio is linear: Σ D_ij (a_i a_j − b_i b_j)/sd_ij².
    let NoiseModel::Gaussian {
        off_diagonal_sd,
        diagonal_sd,
    } = *claimed
    else {
        return Err(Error::new(
            ErrorCode::InvalidRequest,
            "there is no likelihood ratio for this noise here",
        ));
    };
    let mut weights = Vec::new();
    for i in 0..a.len() {
        for j in i..a.len() {
            let sd = if i == j { diagonal_sd } else { off_diagonal_sd };
            weights.push((a[i] * a[j] - b[i] * b[j]) / (sd * sd));
        }
    }
    let mut draw = |row: &BoundedRow| -> Vec<f64> {
        (0..trials)
            .map(|_| {
                let payload = spec.perturb_with(row, rng);
                payload
                    .as_chunks::<4>()
                    .0
                    .iter()
                    .zip(&weights)
                    .map(|(bytes, weight)| f64::from(f32::from_le_bytes(*bytes)) * weight)
                    .sum()
            })
            .collect()
    };
    Ok((draw(rows.0), draw(rows.1)))
}

#[cfg(test)]
mod tests {
    use eigenveil_shared::{
        mechanism::{Calibration, MechanismKind},
        preprocess::{Norm, Preprocessing, Row},
        privacy::Budget,
    };
    use rand::{SeedableRng, rngs::ChaCha20Rng};

    use super::*;

    fn axis(at: usize) -> BoundedRow {
        let mut x = vec![0.0; 3];
        x[at] = 1.0;
        let preprocessing = Preprocessing {
            dimension: 3,
            features: None,
            norm: Norm::Normalize,
            centring: None,
        };
        preprocessing
            .preprocessor()
            .unwrap()
            .prepare(&Row::new(x))
            .unwrap()
    }

    fn spec(kind: MechanismKind, epsilon: f64, delta: f64) -> MechanismSpec {
        MechanismSpec::derive(
            kind,
            Calibration::Analytic,
            3,
            Budget::approximate(epsilon, delta).unwrap(),
        )
        .unwrap()
    }

    /// One run at a fixed seed: a correct mechanism exceeds its claim for at most 5 % of seeds.
    fn audited(kind: MechanismKind, real: f64, claimed: f64, delta: f64) -> f64 {
        let mut rng = ChaCha20Rng::seed_from_u64(11);
        let noise = spec(kind, claimed, delta).noise_model();
        let (a, b) = likelihood_ratio_statistics(
            &spec(kind, real, delta),
            &noise,
            (&axis(0), &axis(1)),
            100_000,
            &mut rng,
        )
        .unwrap();
        event_bound(&a, &b, delta, 0.95)
            .unwrap()
            .epsilon_lower_bound
    }

    #[test]
    fn correct_mechanisms_stay_below_their_claim_and_the_bound_is_not_empty() {
        for kind in [
            MechanismKind::SymmetricGaussian,
            MechanismKind::IsotropicGaussian,
        ] {
            let bound = audited(kind, 1.0, 1.0, 1e-2);
            assert!(bound <= 1.0, "{kind}: {bound}");
            assert!(bound >= 0.5, "{kind}: {bound} says too little");
        }
    }

    #[test]
    fn a_mechanism_with_too_little_noise_is_convicted() {
        for kind in [
            MechanismKind::SymmetricGaussian,
            MechanismKind::IsotropicGaussian,
        ] {
            let bound = audited(kind, 2.5, 1.0, 1e-2);
            assert!(bound > 1.2, "{kind}: {bound}");
        }
    }

    #[test]
    fn wrong_input_is_an_error() {
        assert!(event_bound(&[1.0], &[1.0, 2.0], 0.0, 0.95).is_err());
        assert!(event_bound(&[1.0, f64::NAN], &[1.0, 2.0], 0.0, 0.95).is_err());
        assert!(event_bound(&[1.0, 2.0], &[1.0, 2.0], 1.0, 0.95).is_err());
    }
}
