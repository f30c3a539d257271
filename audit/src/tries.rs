//! Whether a count has the same law for every row: the number of tries shows in the time a device takes.

use eigenveil_shared::Result;
use rand::rngs::ChaCha20Rng;
use serde::Serialize;
use statrs::function::gamma::gamma_ur;

use crate::Sampling;

/// Probability that a mechanism whose counts have one law is accused.
pub const TRIES_FALSE_ALARM: f64 = 1e-3;

/// What the counts say.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum TriesVerdict {
    /// No difference between the rows was found.
    SameForEveryRow,
    /// Whoever sees the time learns something about the row.
    DependsOnTheRow,
}

/// Result of [`tries_test`].
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct TriesTest {
    /// Probability of counts at least this different when all rows have one law.
    pub p_value: f64,
    /// The p-value below which the rows are said to differ.
    pub false_alarm: f64,
    /// What was found.
    pub verdict: TriesVerdict,
    /// Draws of each row.
    pub trials: usize,
    /// Mean count under each row, in the order given.
    pub mean: Vec<f64>,
}

/// χ² test that a count has one law under each of `rows` rows. Bins are chosen on the pooled counts alone,
/// at least 25 expected in each.
///
/// # Errors
/// The first error of a draw.
pub fn tries_test(
    count: &(dyn Fn(usize, &mut ChaCha20Rng) -> Result<u64> + Sync),
    rows: usize,
    number: u64,
    sampling: &Sampling<'_>,
) -> Result<TriesTest> {
    let counts = (0..rows)
        .map(|row| sampling.draw(number + row as u64, sampling.trials, &|rng| count(row, rng)))
        .collect::<Result<Vec<Vec<u64>>>>()?;
    let p_value = same_law(&counts);
    Ok(TriesTest {
        p_value,
        false_alarm: TRIES_FALSE_ALARM,
        verdict: if p_value < TRIES_FALSE_ALARM {
            TriesVerdict::DependsOnTheRow
        } else {
            TriesVerdict::SameForEveryRow
        },
        trials: sampling.trials,
        mean: counts
            .iter()
            .map(|counts| counts.iter().sum::<u64>() as f64 / counts.len() as f64)
            .collect(),
    })
}

/// p-value of the χ² test of homogeneity for samples of one size.
fn same_law(samples: &[Vec<u64>]) -> f64 {
    const EXPECTED: usize = 25;
    const MOST_BINS: usize = 50;
    let mut pooled: Vec<u64> = samples.iter().flatten().copied().collect();
    pooled.sort_unstable();
    // Upper ends of the bins, each with enough pooled counts; the last bin takes what is left.
    let enough = (EXPECTED * samples.len()).max(pooled.len() / MOST_BINS);
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
    let observed: Vec<Vec<f64>> = samples
        .iter()
        .map(|sample| {
            let mut bins = vec![0.0; ends.len() + 1];
            for v in sample {
                bins[ends.partition_point(|end| end < v)] += 1.0;
            }
            bins
        })
        .collect();
    let mut chi_squared = 0.0;
    for bin in 0..=ends.len() {
        let expected = observed.iter().map(|bins| bins[bin]).sum::<f64>() / samples.len() as f64;
        chi_squared += observed
            .iter()
            .map(|bins| (bins[bin] - expected).powi(2) / expected)
            .sum::<f64>();
    }
    let freedom = ends.len() * (samples.len() - 1);
    if freedom == 0 {
        return 1.0;
    }
    gamma_ur(0.5 * freedom as f64, 0.5 * chi_squared)
}

#[cfg(test)]
mod tests {
    use rand::Rng;

    use super::*;

    /// A geometric count: false alarms at 5 % come in 5 % of 400 seeds, within 4 standard deviations.
    #[test]
    fn false_alarms_come_as_often_as_stated() {
        let alarms = (0..400)
            .filter(|&seed| {
                let count = |_: usize, rng: &mut ChaCha20Rng| {
                    Ok(1 + (f64::from(rng.next_u32()) / 4e9).ln().abs() as u64)
                };
                let test = tries_test(&count, 3, 0, &Sampling::quiet(600, seed)).unwrap();
                test.p_value < 0.05
            })
            .count();
        assert!((3..=37).contains(&alarms), "{alarms} of 400");
    }

    #[test]
    fn a_different_law_is_found_and_a_constant_is_not_one() {
        let differs = |row: usize, rng: &mut ChaCha20Rng| {
            Ok(u64::from(rng.next_u32() % 100 < 50 + 5 * row as u32))
        };
        let test = tries_test(&differs, 3, 0, &Sampling::quiet(5000, 1)).unwrap();
        assert_eq!(test.verdict, TriesVerdict::DependsOnTheRow);
        let constant = |_: usize, _: &mut ChaCha20Rng| Ok(1);
        let test = tries_test(&constant, 3, 0, &Sampling::quiet(5000, 1)).unwrap();
        assert_eq!(
            (test.p_value, test.verdict),
            (1.0, TriesVerdict::SameForEveryRow)
        );
        let certain = |row: usize, _: &mut ChaCha20Rng| Ok(u64::from(row == 0));
        let test = tries_test(&certain, 2, 0, &Sampling::quiet(5000, 1)).unwrap();
        assert!(test.p_value < 1e-100, "{}", test.p_value);
    }
}
