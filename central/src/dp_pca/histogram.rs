//! A stability-based histogram: the fullest of infinitely many bins.

use std::collections::BTreeMap;

use crate::{Generator, parts::noise::EntryNoise};

/// Releases the fullest bin of a histogram under (ε, δ): Laplace noise of scale 2/ε on the non-empty bins; counts below
/// the threshold are suppressed.
///
/// Neighbours move one item from a bin to another (replace) or to the bin of the zero row (zero-out): two counts change
/// by 1. A bin that is non-empty for only one of them is released with probability at most δ/2.
#[derive(Clone, Copy, Debug)]
pub(super) struct StableHistogram {
    pub(super) epsilon: f64,
    pub(super) delta: f64,
}

impl StableHistogram {
    /// `1 + 2 ln(1/δ)/ε`.
    pub(super) fn threshold(self) -> f64 {
        1.0 + 2.0 * (1.0 / self.delta).ln() / self.epsilon
    }

    /// The bin with the largest noisy count; `None` if none reaches the threshold.
    pub(super) fn fullest(
        self,
        bins: impl Iterator<Item = i64>,
        rng: &mut Generator,
    ) -> Option<i64> {
        let mut counts = BTreeMap::<i64, f64>::new();
        for bin in bins {
            *counts.entry(bin).or_default() += 1.0;
        }
        let noise = EntryNoise::Laplace {
            scale: 2.0 / self.epsilon,
        };
        counts
            .into_iter()
            .map(|(bin, count)| (bin, count + noise.draw(rng)))
            .filter(|(_, count)| *count > self.threshold())
            .max_by(|(_, first), (_, second)| first.total_cmp(second))
            .map(|(bin, _)| bin)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::generator;

    /// A bin with one item is released with probability δ/2 and a bin at the threshold with 1/2; δ is so large here
    /// that 100,000 draws show it: 2,500 expected, standard deviation 49; the tolerance is six. Half the noise would
    /// give 125.
    #[test]
    fn the_threshold_hides_a_single_item() {
        let histogram = StableHistogram {
            epsilon: 0.7,
            delta: 0.05,
        };
        let mut rng = generator(Some(3)).unwrap();
        let released = (0..100_000)
            .filter(|_| histogram.fullest([4].into_iter(), &mut rng).is_some())
            .count();
        assert!((2_200..2_800).contains(&released), "{released}");
        let full = (histogram.threshold() + 60.0) as usize;
        let bins = [1, 2, 2].into_iter().chain((0..full).map(|_| 7));
        assert_eq!(histogram.fullest(bins, &mut rng), Some(7));
        assert_eq!(histogram.fullest(std::iter::empty(), &mut rng), None);
    }
}
