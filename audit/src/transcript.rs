//! A statistic of the transcript (everything an observer with a clock sees), learned from separate training trials.
//!
//! A report by itself may satisfy the claim, and the work by itself may be independent of the row, while both together
//! reveal the row. So trials are divided into classes by the report (for `double-cap` by the caps of the two rows that
//! it lies in, otherwise by quartiles of its likelihood ratio). Within each class every further observation is tested
//! for a difference between the rows: attempts and random words, their remainders, and each bit on the wire. A
//! significant difference adds its log-ratio to that of the class. Any choice of features is valid, because the bound
//! is computed from fresh trials.

use eigenveil_shared::mechanism::SamplingCost;

/// Standard deviations of a significant difference; several thousand differences are tested.
const SIGNIFICANCE_THRESHOLD: f64 = 4.5;
/// Bytes of a report that are tested bit by bit: the envelope and the first hundred numbers.
const MAX_BYTES: usize = 458;
const CLASSES: usize = 4;
/// Maximum distinct values of a count; larger ones share a bin.
const MAX_BINS: usize = 32;
/// Moduli of the remainders.
const MODULI: std::ops::RangeInclusive<u64> = 2..=8;

/// One trial, before it is reduced to a statistic.
#[derive(Clone, Debug, Default)]
pub(crate) struct Observation {
    /// The report's own statistic.
    pub(crate) value: f64,
    /// Its class, if the mechanism has classes.
    pub(crate) class: Option<usize>,
    pub(crate) work: SamplingCost,
    /// The encoded report.
    pub(crate) bytes: Vec<u8>,
}

pub(crate) struct TranscriptStatistic {
    /// Quartiles of the statistic, for reports without classes.
    cuts: Vec<f64>,
    class_log_ratio: [f64; CLASSES],
    counts: Vec<(CountFeature, Weights)>,
    bits: Vec<(usize, Weights)>,
}

/// Weights of the categories of a feature, by class.
type Weights = [Vec<f64>; CLASSES];

/// A categorical feature of the work: one of its counts, by bin or by remainder.
struct CountFeature {
    read: fn(&SamplingCost) -> u64,
    categories: Categories,
}

enum Categories {
    /// Upper ends of the bins.
    Bin(Vec<u64>),
    Modulo(u64),
}

impl CountFeature {
    fn all(trials: &[&[Observation]; 2]) -> Vec<Self> {
        let counts: [fn(&SamplingCost) -> u64; 2] = [|work| work.attempts, |work| work.words];
        counts
            .into_iter()
            .flat_map(|read| {
                let mut pooled: Vec<u64> = trials
                    .iter()
                    .flat_map(|side| side.iter().map(|observation| read(&observation.work)))
                    .collect();
                pooled.sort_unstable();
                // Bin edges: every distinct value if few, quantiles otherwise.
                let mut ends = pooled.clone();
                ends.dedup();
                if ends.len() > MAX_BINS {
                    ends = (1..MAX_BINS)
                        .filter_map(|i| pooled.get(pooled.len() * i / MAX_BINS).copied())
                        .collect();
                    ends.dedup();
                }
                std::iter::once(Categories::Bin(ends))
                    .chain(MODULI.map(Categories::Modulo))
                    .map(move |categories| Self { read, categories })
            })
            .collect()
    }

    fn category(&self, work: &SamplingCost) -> usize {
        let count = (self.read)(work);
        match &self.categories {
            Categories::Bin(ends) => ends.partition_point(|&end| end < count),
            Categories::Modulo(modulus) => usize::try_from(count % modulus).unwrap_or(0),
        }
    }
}

impl TranscriptStatistic {
    /// Learns the statistic from trials under row A and row B.
    pub(crate) fn train(a: &[Observation], b: &[Observation]) -> Self {
        let trials = [a, b];
        let mut values: Vec<f64> = a
            .iter()
            .chain(b)
            .map(|observation| observation.value)
            .collect();
        values.sort_unstable_by(f64::total_cmp);
        let cuts = (1..CLASSES)
            .filter_map(|i| values.get(values.len() * i / CLASSES).copied())
            .collect();
        let mut statistic = Self {
            cuts,
            class_log_ratio: [0.0; CLASSES],
            counts: Vec::new(),
            bits: Vec::new(),
        };
        let totals = statistic.tally(&trials, 1, |_| 0);
        let total = |side: usize| totals[side].iter().map(|class| class[0]).sum();
        let row_totals = [total(0), total(1)];
        let [totals_a, totals_b] = &totals;
        for ((ratio, a), b) in statistic
            .class_log_ratio
            .iter_mut()
            .zip(totals_a)
            .zip(totals_b)
        {
            *ratio = log_ratio([a[0], b[0]], row_totals);
        }
        for count in CountFeature::all(&trials) {
            let categories = MAX_BINS.max(8) + 1;
            let tally = statistic.tally(&trials, categories, |observation| {
                count.category(&observation.work)
            });
            let weights = weights(&tally, &totals, |counts, totals| {
                (0..categories)
                    .map(|category| {
                        significant_log_ratio([counts[0][category], counts[1][category]], totals)
                    })
                    .collect()
            });
            if any_significant(&weights) {
                statistic.counts.push((count, weights));
            }
        }
        let bytes = trials
            .iter()
            .flat_map(|side| side.iter().map(|observation| observation.bytes.len()))
            .min();
        for at in 0..bytes.unwrap_or(0).min(MAX_BYTES) {
            let tally = statistic.tally(&trials, 256, |observation| {
                usize::from(observation.bytes[at])
            });
            let weights = weights(&tally, &totals, weights_from_bits);
            if any_significant(&weights) {
                statistic.bits.push((at, weights));
            }
        }
        statistic
    }

    pub(crate) fn score(&self, observation: &Observation) -> f64 {
        let class = self.class(observation);
        let counts = self
            .counts
            .iter()
            .map(|(count, weights)| weights[class][count.category(&observation.work)]);
        let bits = self.bits.iter().map(|(at, weights)| {
            let byte = observation.bytes.get(*at).copied().unwrap_or(0);
            weights[class][usize::from(byte)]
        });
        self.class_log_ratio[class] + counts.sum::<f64>() + bits.sum::<f64>()
    }

    fn class(&self, observation: &Observation) -> usize {
        observation
            .class
            .unwrap_or_else(|| self.cuts.partition_point(|&cut| cut < observation.value))
    }

    /// Frequencies of the categories, by side and class.
    fn tally(
        &self,
        trials: &[&[Observation]; 2],
        categories: usize,
        category: impl Fn(&Observation) -> usize,
    ) -> [[Vec<f64>; CLASSES]; 2] {
        trials.map(|side| {
            let mut tally: [Vec<f64>; CLASSES] = std::array::from_fn(|_| vec![0.0; categories]);
            for observation in side {
                tally[self.class(observation)][category(observation)] += 1.0;
            }
            tally
        })
    }
}

/// Weights of every class, from its tallies and totals under both rows.
fn weights(
    tally: &[[Vec<f64>; CLASSES]; 2],
    totals: &[[Vec<f64>; CLASSES]; 2],
    class_weights: impl Fn([&[f64]; 2], [f64; 2]) -> Vec<f64>,
) -> Weights {
    std::array::from_fn(|class| {
        class_weights(
            [&tally[0][class], &tally[1][class]],
            [totals[0][class][0], totals[1][class][0]],
        )
    })
}

/// Weights of the 256 values of a byte: the sum of the weights of its bits.
fn weights_from_bits(counts: [&[f64]; 2], totals: [f64; 2]) -> Vec<f64> {
    let mut table = vec![0.0; 256];
    for bit in 0..8 {
        let ones = counts.map(|tally| {
            let set = tally
                .iter()
                .enumerate()
                .filter(|(value, _)| value >> bit & 1 == 1);
            set.map(|(_, count)| count).sum::<f64>()
        });
        let zeros = [totals[0] - ones[0], totals[1] - ones[1]];
        let weight = [
            significant_log_ratio(zeros, totals),
            significant_log_ratio(ones, totals),
        ];
        for (value, entry) in table.iter_mut().enumerate() {
            *entry += weight[value >> bit & 1];
        }
    }
    table
}

fn any_significant(weights: &Weights) -> bool {
    weights.iter().flatten().any(|&weight| weight != 0.0)
}

/// The log-ratio of two frequencies if they differ significantly, otherwise 0.
fn significant_log_ratio(counts: [f64; 2], totals: [f64; 2]) -> f64 {
    if totals[0] == 0.0 || totals[1] == 0.0 {
        return 0.0;
    }
    let pooled = (counts[0] + counts[1]) / (totals[0] + totals[1]);
    let variance = pooled * (1.0 - pooled) * (totals[0].recip() + totals[1].recip());
    let difference = counts[0] / totals[0] - counts[1] / totals[1];
    if difference * difference > SIGNIFICANCE_THRESHOLD * SIGNIFICANCE_THRESHOLD * variance {
        log_ratio(counts, totals)
    } else {
        0.0
    }
}

fn log_ratio(counts: [f64; 2], totals: [f64; 2]) -> f64 {
    ((counts[0] + 0.5) / (totals[0] + 1.0)).ln() - ((counts[1] + 0.5) / (totals[1] + 1.0)).ln()
}

#[cfg(test)]
mod tests {
    use rand::{Rng, SeedableRng, rngs::ChaCha20Rng};

    use super::*;

    /// Trials with random class, attempts and bytes, modified by `leak`.
    fn trials(seed: u64, leak: impl Fn(&mut Observation)) -> Vec<Observation> {
        let mut rng = ChaCha20Rng::seed_from_u64(seed);
        (0..20_000)
            .map(|_| {
                let mut bytes = vec![0; 20];
                rng.fill_bytes(&mut bytes);
                let attempts = 1 + u64::from(rng.next_u32().leading_zeros());
                let mut observation = Observation {
                    value: 0.0,
                    class: Some((rng.next_u32() % 4) as usize),
                    work: SamplingCost {
                        attempts,
                        words: 3 + 3 * attempts,
                    },
                    bytes,
                };
                leak(&mut observation);
                observation
            })
            .collect()
    }

    #[test]
    fn equal_rows_have_no_significant_features() {
        let statistic = TranscriptStatistic::train(&trials(1, |_| ()), &trials(2, |_| ()));
        assert!(statistic.counts.is_empty() && statistic.bits.is_empty());
        assert!(
            statistic
                .class_log_ratio
                .iter()
                .all(|weight| weight.abs() < 0.1)
        );
    }

    #[test]
    fn a_leak_in_one_class_is_learned_there() {
        // The bit is balanced under both rows: only together with the class does it reveal the row.
        let bit = |value: bool| {
            move |observation: &mut Observation| {
                if let Some(class @ (1 | 2)) = observation.class {
                    observation.bytes[7] =
                        observation.bytes[7] & !4 | u8::from((class == 1) == value) << 2;
                }
            }
        };
        let (a, b) = (trials(1, bit(true)), trials(2, bit(false)));
        let statistic = TranscriptStatistic::train(&a, &b);
        assert_eq!(statistic.bits.len(), 1);
        assert_eq!(statistic.bits[0].0, 7);
        let telling = |observation: &&Observation| matches!(observation.class, Some(1 | 2));
        assert!(
            a.iter()
                .filter(telling)
                .all(|observation| statistic.score(observation) > 5.0)
        );
        let mut revealing = b.iter().filter(telling);
        assert!(revealing.all(|observation| statistic.score(observation) < -5.0));
    }
}
