//! Missing cells: dividing the moment by what they took from it.
//!
//! A device sends a missing cell as its centre, 0. Where cell i is there with the public probability πᵢ, whatever its
//! value, `E yᵢyⱼ` is πᵢⱼ times what it would be for whole rows: πᵢπⱼ for cells that are missing one by one, πᵢ on the
//! diagonal and within a section of cells that are missing together. `clip` divides a row by the root of its own share
//! q of observed cells, and `normalize` by about as much. So entry (i, j) of the moment is divided by
//! `πᵢⱼ·E[1/q | i and j observed]`, under `require` by πᵢⱼ; the mean of private centring by `πᵢ·E[1/√q | i observed]`.
//!
//! The noise that this adds is derived in `docs/derivations/missing-cells-and-weights.md`.

use eigenveil_shared::{
    Result,
    mechanism::NoiseModel,
    preprocess::{Norm, Preprocessing},
};

use crate::{input::accumulate::Accumulator, report::warning::Warning, search::bisect};

/// Squared coefficient of variation of a row's share of observed cells from which the correction is rough.
const MAX_VARIATION: f64 = 0.02;

/// The public shares of observed cells of a study that allows missing ones.
pub(crate) struct ObservedShares {
    shares: Vec<f64>,
    /// Number of the section of each feature; those without one have a number of their own.
    sections: Vec<usize>,
    /// Share of all features that are in the section of each.
    sizes: Vec<f64>,
    /// Mean and variance of a row's share of observed cells.
    mean: f64,
    variance: f64,
    /// Whether rows are given their length back: not under `require`.
    lengthened: bool,
}

impl ObservedShares {
    /// `None` where a missing cell makes a zero row.
    pub(crate) fn new(preprocessing: &Preprocessing) -> Option<Self> {
        if !preprocessing.allows_missing_cells() {
            return None;
        }
        let features = preprocessing.features.as_deref()?;
        let p = features.len() as f64;
        let shares: Vec<f64> = features
            .iter()
            .map(|feature| feature.observed.unwrap_or(1.0))
            .collect();
        let mut first = std::collections::HashMap::new();
        let sections: Vec<usize> = (0..features.len())
            .map(|i| match features[i].section.as_deref() {
                None => i,
                Some(name) => *first.entry(name).or_insert(i),
            })
            .collect();
        let mut counts = vec![0.0; features.len()];
        for section in &sections {
            counts[*section] += 1.0 / p;
        }
        let sizes: Vec<f64> = sections.iter().map(|section| counts[*section]).collect();
        let variance = (0..features.len())
            .filter(|&i| sections[i] == i)
            .map(|i| sizes[i] * sizes[i] * shares[i] * (1.0 - shares[i]))
            .sum();
        Some(Self {
            mean: shares.iter().sum::<f64>() / p,
            variance,
            shares,
            sections,
            sizes,
            lengthened: !matches!(preprocessing.norm, Norm::Require { .. }),
        })
    }

    /// A warning where rows differ much in how much of them is observed: then lengths are given back only roughly.
    pub(crate) fn warning(&self) -> Option<Warning> {
        let variation = self.variance / (self.mean * self.mean);
        (self.lengthened && variation > MAX_VARIATION).then_some(Warning::RoughMissingCells)
    }

    /// By what entry (i, j) of the moment is multiplied; index p is the constant of private centring.
    fn factor(&self, i: usize, j: usize) -> f64 {
        let p = self.shares.len();
        match (i < p, j < p) {
            (true, true) if self.sections[i] != self.sections[j] => {
                1.0 / (self.shares[i] * self.shares[j] * self.inverse_share(&[i, j], -1.0))
            }
            (true, true) => 1.0 / (self.shares[i] * self.inverse_share(&[i], -1.0)),
            (true, false) => 1.0 / (self.shares[i] * self.inverse_share(&[i], -0.5)),
            (false, true) => 1.0 / (self.shares[j] * self.inverse_share(&[j], -0.5)),
            (false, false) => 1.0,
        }
    }

    /// E qᵉ of a row's share q of observed cells, given that these of different sections are observed, to second order.
    fn inverse_share(&self, observed: &[usize], exponent: f64) -> f64 {
        if !self.lengthened {
            return 1.0;
        }
        let (mut mean, mut variance) = (self.mean, self.variance);
        for &i in observed {
            let (size, share) = (self.sizes[i], self.shares[i]);
            mean += size * (1.0 - share);
            variance -= size * size * share * (1.0 - share);
        }
        let curvature = 0.5 * exponent * (exponent - 1.0);
        mean.powf(exponent) * (1.0 + curvature * variance.max(0.0) / (mean * mean))
    }

    /// Divides sums of decoded reports, of dimension p or p + 1, each of which lacks `lacking`·I of the rows' moment;
    /// afterwards it lacks `remaining`·I.
    pub(crate) fn divide(
        &self,
        sums: &[Accumulator],
        lacking: f64,
        remaining: f64,
    ) -> Result<Vec<Accumulator>> {
        let p = sums.first().map_or(0, Accumulator::dimension);
        let entries = (0..p).flat_map(|i| (i..p).map(move |j| (i, j)));
        let factors: Vec<(f64, f64)> = entries
            .map(|(i, j)| (self.factor(i, j), f64::from(u8::from(i == j))))
            .collect();
        let divide = |sum: &Accumulator| {
            let [lacking, remaining] = [lacking, remaining].map(|each| sum.count() as f64 * each);
            let mut divided = sum.sum().clone();
            for (entry, (factor, on_diagonal)) in divided.as_mut_slice().iter_mut().zip(&factors) {
                *entry = factor * (*entry + on_diagonal * lacking) - on_diagonal * remaining;
            }
            Accumulator::from_parts(divided, sum.count())
        };
        sums.iter().map(divide).collect()
    }

    /// By what entry i of the mean of rows is multiplied.
    pub(crate) fn mean_factor(&self, i: usize) -> f64 {
        self.factor(i, self.shares.len())
    }

    /// By what the variance of an entry of the estimated mean is multiplied, averaged over the entries.
    pub(crate) fn mean_variance_factor(&self) -> f64 {
        let p = self.shares.len();
        let squares = (0..p).map(|i| self.mean_factor(i).powi(2));
        squares.sum::<f64>() / p as f64
    }

    /// The noise of one report after the division, of rows with this `E‖x‖²`.
    pub(crate) fn noise(&self, noise: &NoiseModel, squared_norm: f64) -> NoiseModel {
        let p = self.shares.len();
        let squares = (0..p).flat_map(|i| (0..p).map(move |j| (i, j)));
        let squared = squares.map(|(i, j)| self.factor(i, j).powi(2)).sum::<f64>() / (p * p) as f64;
        let excess = self.noise_excess();
        let factors: Vec<f64> = excess.iter().map(|excess| 1.0 + excess).collect();
        let widening = edge_of_unequal_noise(&factors) / (2.0 * (p as f64).sqrt());
        match noise.transformed(p, squared_norm) {
            NoiseModel::Transformed {
                dimension,
                constant,
                linear,
                bilinear,
                shift,
                total_variance,
                mean_ratio,
                ..
            } => NoiseModel::Transformed {
                dimension,
                constant: squared * constant,
                linear: squared * linear,
                bilinear: squared * bilinear,
                shift: squared.sqrt() * shift,
                total_variance,
                mean_ratio,
                edge_widening: widening.max(1.0),
            },
            other => other,
        }
    }

    /// By how much the noise along each feature exceeds the average, in units of that.
    pub(crate) fn noise_excess(&self) -> Vec<f64> {
        let factors = self.shares.iter().map(|share| 1.0 / (share * share));
        let mean = factors.clone().sum::<f64>() / self.shares.len() as f64;
        factors.map(|factor| factor / mean - 1.0).collect()
    }
}

/// Upper edge of the spectrum of a large symmetric matrix of independent entries with the variances aᵢaⱼ: the least z
/// for which `m = Σ aᵢ/(z − aᵢm)` has a solution m; 2√p·a where all are equal.
fn edge_of_unequal_noise(factors: &[f64]) -> f64 {
    let largest = factors.iter().copied().fold(0.0, f64::max);
    // The z that belongs to m lies above `largest`·m, and falls as the sum does.
    let at = |m: f64| {
        let excess = |z: f64| factors.iter().map(|a| a / (z - a * m)).sum::<f64>() - m;
        let low = largest * m;
        let high = low + factors.len() as f64 * largest / m;
        bisect(low, high, 60, |z| excess(z) > 0.0).1
    };
    // z is convex in m: a search by the golden section, in the logarithm of m.
    let ratio = 0.5 * (5.0_f64.sqrt() - 1.0);
    let scale = (factors.len() as f64).sqrt();
    let (mut low, mut high) = ((1e-3 * scale).ln(), (1e3 * scale).ln());
    for _ in 0..60 {
        let (left, right) = (high - ratio * (high - low), low + ratio * (high - low));
        if at(left.exp()) < at(right.exp()) {
            high = right;
        } else {
            low = left;
        }
    }
    at((0.5 * (low + high)).exp())
}

#[cfg(test)]
mod tests {
    use nalgebra::DMatrix;
    use rand::{SeedableRng, rngs::ChaCha20Rng};
    use rand_distr::{Distribution, StandardNormal};

    use super::*;

    /// The mean of the largest eigenvalues of 20 drawn matrices of dimension 300 is below the edge as the law of Tracy
    /// and Widom has it: by 2 %, and by 6 % where a tenth of the features has nearly all of the noise.
    #[test]
    fn the_edge_is_that_of_drawn_matrices() {
        let p = 300;
        let mut rng = ChaCha20Rng::seed_from_u64(8);
        assert!((edge_of_unequal_noise(&[2.0; 25]) - 20.0).abs() < 1e-6);
        for (factors, above) in [
            (
                (0..p)
                    .map(|i| 1.0 + f64::from(i) / f64::from(p))
                    .collect::<Vec<_>>(),
                0.97,
            ),
            (
                (0..p).map(|i| if i < 30 { 11.0 } else { 1.0 }).collect(),
                0.92,
            ),
        ] {
            let edge = edge_of_unequal_noise(&factors);
            let mean = (0..20)
                .map(|_| {
                    let mut noise = DMatrix::zeros(p as usize, p as usize);
                    for i in 0..p as usize {
                        for j in i..p as usize {
                            let z: f64 = StandardNormal.sample(&mut rng);
                            noise[(i, j)] = z * (factors[i] * factors[j]).sqrt();
                            noise[(j, i)] = noise[(i, j)];
                        }
                    }
                    noise.symmetric_eigenvalues().max()
                })
                .sum::<f64>()
                / 20.0;
            assert!((above..1.0).contains(&(mean / edge)), "{mean} {edge}");
        }
    }
}
