//! Missing cells: dividing the moment by what they took from it.
//!
//! A device sends a missing cell as its centre, 0. Where cell i is there with the public probability πᵢ, whatever its
//! value, `E yᵢyⱼ` is πᵢⱼ times what it would be for whole rows: πᵢπⱼ for cells that are missing one by one, πᵢ on the
//! diagonal and within a section of cells that are missing together. `normalize` and `clip` give a row its length back,
//! on average 1/√π̄ with π̄ the mean of the πᵢ. So entry (i, j) of the moment is multiplied by π̄/πᵢⱼ, or by 1/πᵢⱼ under
//! `require`; the mean of private centring by √π̄/πᵢ, or by 1/πᵢ.
//!
//! The noise grows with it: between directions v and w its variance is multiplied by κ_vκ_w, κ_v = Σ vᵢ²aᵢ with
//! aᵢ = π̄/πᵢ², for which the mean κ̄ of the aᵢ is taken; rates that differ also widen the spectrum of pure noise.
//! Derived in `docs/derivations/missing-cells-and-weights.md`.

use eigenveil_shared::{
    Result,
    mechanism::NoiseModel,
    packed::PackedSymmetric,
    preprocess::{Norm, Preprocessing},
};

use crate::accumulate::Accumulator;

/// The public shares of observed cells of a study that allows missing ones.
pub(crate) struct ObservedShares {
    shares: Vec<f64>,
    /// Number of the section of each feature; those without one have a number of their own.
    sections: Vec<usize>,
    /// π̄, or 1 under `require`.
    length: f64,
}

impl ObservedShares {
    /// `None` where a missing cell makes a zero row.
    pub(crate) fn new(preprocessing: &Preprocessing) -> Option<Self> {
        if !preprocessing.allows_missing_cells() {
            return None;
        }
        let features = preprocessing.features.as_deref()?;
        let shares: Vec<f64> = features
            .iter()
            .map(|feature| feature.observed.unwrap_or(1.0))
            .collect();
        let sections = (0..features.len())
            .map(|i| match &features[i].section {
                None => i,
                own => features
                    .iter()
                    .position(|feature| feature.section == *own)
                    .unwrap_or(i),
            })
            .collect();
        let length = match preprocessing.norm {
            Norm::Normalize | Norm::Clip { .. } => shares.iter().sum::<f64>() / shares.len() as f64,
            Norm::Require { .. } => 1.0,
        };
        Some(Self {
            shares,
            sections,
            length,
        })
    }

    /// By what entry (i, j) of the moment is multiplied; index p is the constant of private centring.
    fn factor(&self, i: usize, j: usize) -> f64 {
        match (self.shares.get(i), self.shares.get(j)) {
            (Some(a), Some(b)) if self.sections[i] != self.sections[j] => self.length / (a * b),
            (Some(a), Some(_)) => self.length / a,
            (Some(a), None) | (None, Some(a)) => self.length.sqrt() / a,
            (None, None) => 1.0,
        }
    }

    /// Divides a sum of decoded reports, of dimension p or p + 1, each of which lacks `lacking`·I of the rows' moment;
    /// afterwards it lacks `remaining`·I.
    ///
    /// # Errors
    /// `estimate-failed` for an entry that is not finite.
    pub(crate) fn divide(
        &self,
        sum: &Accumulator,
        lacking: f64,
        remaining: f64,
    ) -> Result<Accumulator> {
        let p = sum.dimension();
        let [lacking, remaining] = [lacking, remaining].map(|each| sum.count() as f64 * each);
        let mut divided = PackedSymmetric::zeros(p);
        let mut entries = divided.as_mut_slice().iter_mut().zip(sum.sum().as_slice());
        for i in 0..p {
            for j in i..p {
                if let Some((entry, value)) = entries.next() {
                    let on_diagonal = f64::from(u8::from(i == j));
                    *entry = self.factor(i, j) * (value + on_diagonal * lacking)
                        - on_diagonal * remaining;
                }
            }
        }
        Accumulator::from_parts(divided, sum.count())
    }

    /// By what the variance of an entry of the estimated mean is multiplied, averaged over the entries.
    pub(crate) fn mean_variance_factor(&self) -> f64 {
        self.noise_factors().sum::<f64>() / self.shares.len() as f64
    }

    /// The noise of one report after the division, of rows with this `E‖x‖²`.
    pub(crate) fn noise(&self, noise: &NoiseModel, squared_norm: f64) -> NoiseModel {
        let factor = self.mean_variance_factor();
        let squared = factor * factor;
        let factors: Vec<f64> = self.noise_factors().collect();
        let widening =
            edge_of_unequal_noise(&factors) / (2.0 * (factors.len() as f64).sqrt() * factor);
        let transformed = noise.transformed(self.shares.len(), squared_norm);
        match transformed {
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
                shift: factor * shift,
                total_variance,
                mean_ratio,
                edge_widening: widening.max(1.0),
            },
            other => other,
        }
    }

    /// aᵢ.
    fn noise_factors(&self) -> impl Iterator<Item = f64> {
        self.shares
            .iter()
            .map(|share| self.length / (share * share))
    }
}

/// Upper edge of the spectrum of a large symmetric matrix of independent entries with the variances aᵢaⱼ: the least z
/// for which `m = Σ aᵢ/(z − aᵢm)` has a solution m; 2√p·a where all are equal.
fn edge_of_unequal_noise(factors: &[f64]) -> f64 {
    let largest = factors.iter().copied().fold(0.0, f64::max);
    // The z that belongs to m lies above `largest`·m, and falls as the sum does.
    let at = |m: f64| {
        let excess = |z: f64| factors.iter().map(|a| a / (z - a * m)).sum::<f64>() - m;
        let (mut low, mut high) = (
            largest * m,
            largest * m + factors.len() as f64 * largest / m,
        );
        for _ in 0..60 {
            let middle = 0.5 * (low + high);
            if excess(middle) > 0.0 {
                low = middle;
            } else {
                high = middle;
            }
        }
        high
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
