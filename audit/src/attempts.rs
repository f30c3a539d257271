//! A test that a count has the same distribution for every row: the number of attempts shows in a device's running
//! time.

use serde::Serialize;
use statrs::function::gamma::gamma_ur;

use crate::PairKind;

/// Verdict of the attempts test.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum AttemptsVerdict {
    /// No difference between the rows was found.
    SameForEveryRow,
    /// The running time reveals something about the row.
    DependsOnTheRow,
}

/// Result of [`attempts_test`].
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct AttemptsTest {
    /// Probability of a difference at least this large in some pair if no pair differs in distribution.
    pub p_value: f64,
    /// The p-value below which the rows count as different.
    pub false_alarm: f64,
    /// The verdict.
    pub verdict: AttemptsVerdict,
    /// Draws of each row.
    pub trials: usize,
    /// The pair that differs most.
    pub pair: PairKind,
    /// Mean attempts of that pair under row A and row B.
    pub mean: [f64; 2],
}

/// χ² tests that a count has the same distribution under both rows of each pair; the smallest p-value is multiplied by
/// the number of pairs (Bonferroni). Bins are chosen from the pooled counts of a pair, with at least 25 expected in
/// each. `None` without pairs.
pub fn attempts_test(
    counts: &[(PairKind, [Vec<u64>; 2])],
    false_alarm: f64,
) -> Option<AttemptsTest> {
    let tested = counts
        .iter()
        .map(|(pair, samples)| (homogeneity_p_value(samples), pair, samples));
    let (smallest, &pair, samples) = tested.min_by(|x, y| x.0.total_cmp(&y.0))?;
    let p_value = (smallest * counts.len() as f64).min(1.0);
    Some(AttemptsTest {
        p_value,
        false_alarm,
        verdict: if p_value < false_alarm {
            AttemptsVerdict::DependsOnTheRow
        } else {
            AttemptsVerdict::SameForEveryRow
        },
        trials: samples[0].len(),
        pair,
        mean: samples
            .each_ref()
            .map(|sample| sample.iter().sum::<u64>() as f64 / sample.len() as f64),
    })
}

/// p-value of the χ² test of homogeneity for two samples of equal size.
fn homogeneity_p_value(samples: &[Vec<u64>; 2]) -> f64 {
    const MIN_EXPECTED: usize = 25;
    const MAX_BINS: usize = 50;
    let mut pooled: Vec<u64> = samples.iter().flatten().copied().collect();
    pooled.sort_unstable();
    // Upper ends of the bins, each with enough pooled counts; the last bin takes the rest.
    let enough = (2 * MIN_EXPECTED).max(pooled.len() / MAX_BINS);
    let mut ends = Vec::new();
    let mut begin = 0;
    while begin + enough <= pooled.len() {
        let value = pooled[begin + enough - 1];
        let end = pooled.partition_point(|&v| v <= value);
        if pooled.len() - end < enough {
            break;
        }
        ends.push(value);
        begin = end;
    }
    if ends.is_empty() {
        return 1.0;
    }
    let [a, b] = samples.each_ref().map(|sample| {
        let mut bins = vec![0.0_f64; ends.len() + 1];
        for v in sample {
            bins[ends.partition_point(|end| end < v)] += 1.0;
        }
        bins
    });
    let chi_squared = a.iter().zip(&b).map(|(a, b)| {
        let expected = (a + b) / 2.0;
        [a, b]
            .map(|count| (count - expected).powi(2) / expected)
            .iter()
            .sum::<f64>()
    });
    gamma_ur(0.5 * ends.len() as f64, 0.5 * chi_squared.sum::<f64>())
}

#[cfg(test)]
mod tests {
    use rand::{Rng, SeedableRng, rngs::ChaCha20Rng};

    use super::*;

    const PAIR: PairKind = PairKind::Axes;

    fn sample(
        seed: u64,
        trials: usize,
        mut count: impl FnMut(&mut ChaCha20Rng) -> u64,
    ) -> Vec<u64> {
        let mut rng = ChaCha20Rng::seed_from_u64(seed);
        (0..trials).map(|_| count(&mut rng)).collect()
    }

    /// For a geometric count the false alarms at 5 % occur for at most 5 % of 400 seeds, within 4 standard deviations.
    #[test]
    fn false_alarm_rate_is_as_stated() {
        let geometric =
            |rng: &mut ChaCha20Rng| 1 + (f64::from(rng.next_u32()) / 4e9).ln().abs() as u64;
        let alarms = (0..400)
            .filter(|&seed| {
                let pair = |pair: u64| {
                    let sample = |side| sample(10_000 * seed + 2 * pair + side, 600, geometric);
                    (PAIR, [sample(0), sample(1)])
                };
                let test = attempts_test(&[pair(0), pair(1), pair(2)], 0.05).unwrap();
                test.verdict == AttemptsVerdict::DependsOnTheRow
            })
            .count();
        assert!((3..=37).contains(&alarms), "{alarms} of 400");
    }

    #[test]
    fn different_distributions_are_found_and_constants_are_equal() {
        let with = |percent: u32| {
            sample(u64::from(percent), 5000, |rng| {
                u64::from(rng.next_u32() % 100 < percent)
            })
        };
        let test = attempts_test(&[(PAIR, [with(50), with(60)])], 1e-3).unwrap();
        assert_eq!(test.verdict, AttemptsVerdict::DependsOnTheRow);
        let constant = || sample(1, 5000, |_| 1);
        let test = attempts_test(&[(PAIR, [constant(), constant()])], 1e-3).unwrap();
        assert_eq!(
            (test.p_value, test.verdict),
            (1.0, AttemptsVerdict::SameForEveryRow)
        );
        let test = attempts_test(&[(PAIR, [with(0), with(100)])], 1e-3).unwrap();
        assert!(test.p_value < 1e-100, "{}", test.p_value);
        assert_eq!(attempts_test(&[], 1e-3), None);
    }
}
