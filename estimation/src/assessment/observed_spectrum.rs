//! The population's spectrum as the noisy one shows it (`docs/derivations/eigengap.md`).

use eigenveil_shared::{Result, estimate::SpectrumEstimate, mechanism::NoiseModel};

use super::{
    Eigenvalues, Floor, closed_form::NoiseProfile, noise_floor::variance_of, selection::NORMAL_95,
};

/// A noisy moment, or its part on the rows of a sparse estimate, with the floor it was judged by.
pub(super) struct NoisySpectrum<'a> {
    pub(super) floor: &'a Floor,
    /// Threshold above which an eigenvalue stands, also within the rows of a sparse estimate.
    pub(super) threshold: f64,
    pub(super) eigenvalues: Eigenvalues<'a>,
    /// Difference of each to an eigenvalue of `E[xxᵀ]`; `None` if `E‖x‖²` is not known.
    pub(super) missing: Option<f64>,
    pub(super) noise: &'a NoiseModel,
    pub(super) n_eff: f64,
    /// `m_v²/a²` of the leading eigenvectors; shorter, or empty, where it is not known or 0.
    pub(super) excess: &'a [f64],
}

impl NoisySpectrum<'_> {
    pub(super) fn estimate(&self) -> Result<SpectrumEstimate> {
        let Eigenvalues {
            leading: values,
            trace,
            dimension: p,
            ..
        } = self.eigenvalues;
        let total = self.missing.map(|missing| trace + missing * p as f64);
        let [standing, doubtful] = self.visible(total);
        let count = standing.len();
        let sum: f64 = standing.iter().map(|(value, _)| value).sum();
        let directions = (p - count) as f64;
        let mean = total.map_or(0.0, |total| ((total - sum) / directions).max(0.0));
        let edge = self.floor.just_above_edge();
        let next = values.get(count).map_or(edge, |next| next.max(edge));
        let next_excess = self.excess_of(count);
        let unseen = self.variance(next, next_excess);
        let total = total.unwrap_or(sum);
        let norm = self.noise.mean_squared_norm(total).unwrap_or(total);
        let profile = NoiseProfile::new(self.noise, p, self.n_eff, norm)?;
        let variance = profile.variance(unseen, unseen) + 2.0 * profile.along_mean * next_excess;
        let hidden = NORMAL_95 * (2.0 * variance).sqrt();
        let excesses = standing.iter().chain(&doubtful).map(|(_, excess)| *excess);
        let mut spectrum = SpectrumEstimate {
            excess_along_mean: match self.excess.is_empty() {
                true => Vec::new(),
                false => excesses.collect(),
            },
            standing: standing.into_iter().map(|(value, _)| value).collect(),
            doubtful: doubtful.into_iter().map(|(value, _)| value).collect(),
            rest_count: p - count,
            rest_mean: mean,
            rest_half_width: 0.0,
            unseen,
            unseen_limit: self.variance(next + hidden, next_excess),
            noise: *self.noise,
            selection: None,
        };
        spectrum.rest_half_width = self.half_width(&spectrum, &profile);
        Ok(spectrum)
    }

    fn variance(&self, eigenvalue: f64, excess: f64) -> f64 {
        let spike = self.floor.judge_with_excess(eigenvalue, excess).spike;
        variance_of(self.floor.level(self.missing), spike)
    }

    fn excess_of(&self, j: usize) -> f64 {
        self.excess.get(j).copied().unwrap_or(0.0)
    }

    /// Variance and excess of the components that stand and of the doubtful ones, each descending; `total` is `E‖x‖²`.
    fn visible(&self, total: Option<f64>) -> [Vec<(f64, f64)>; 2] {
        let values = self.eigenvalues.leading;
        let exceed = |limit: f64| {
            let leading = values.iter().take_while(|&&value| value > limit);
            leading.count().min(self.eigenvalues.dimension - 1)
        };
        let count = exceed(self.threshold);
        let component = |j: usize| {
            (
                self.variance(values[j], self.excess_of(j)),
                self.excess_of(j),
            )
        };
        let mut standing: Vec<(f64, f64)> = (0..count).map(component).collect();
        standing.sort_by(|a, b| b.0.total_cmp(&a.0));
        let doubtful = count..exceed(self.floor.edge).max(count);
        let mut doubtful: Vec<(f64, f64)> = doubtful.map(component).collect();
        let sum: f64 = standing.iter().map(|(value, _)| value).sum();
        // Noise can push the sum above the total. With private centring the total is the less accurate of the two.
        let exact = !matches!(self.noise, NoiseModel::Transformed { .. });
        if let Some(total) = total.filter(|total| exact && *total > 0.0 && sum > *total) {
            standing
                .iter_mut()
                .for_each(|(value, _)| *value *= total / sum);
        }
        // A component that barely stands may come out smaller than one that does not.
        let last = standing.last().map_or(f64::INFINITY, |(value, _)| *value);
        doubtful
            .iter_mut()
            .for_each(|(value, _)| *value = value.min(last));
        doubtful.sort_by(|a, b| b.0.total_cmp(&a.0));
        [standing, doubtful]
    }

    /// Half of the width over which the unseen eigenvalues are spread, from the energy that noise does not explain.
    fn half_width(&self, spectrum: &SpectrumEstimate, profile: &NoiseProfile) -> f64 {
        let Eigenvalues { trace, squares, .. } = self.eigenvalues;
        let (Some(missing), Some(squares), true) = (self.missing, squares, spectrum.rest_count > 1)
        else {
            return 0.0;
        };
        let p = self.eigenvalues.dimension as f64;
        let (m, mean) = (spectrum.rest_count as f64, spectrum.rest_mean);
        let energy = squares + missing * (2.0 * trace + missing * p);
        let sums = |power: i32| {
            let standing = spectrum.standing.iter().map(|value| value.powi(power));
            standing.sum::<f64>() + m * mean.powi(power)
        };
        let (sum, squares) = (sums(1), sums(2));
        let standing_squares = squares - m * mean * mean;
        // Σᵢⱼ V(λᵢ,λⱼ)(1+δᵢⱼ), and what centring adds along the mean, whose squared components add up to its length.
        let noise = profile.constant * p * (p + 1.0)
            + 2.0 * profile.linear * sum * (p + 1.0)
            + profile.bilinear * (sum * sum + squares)
            + profile.along_mean * profile.mean_ratio.powi(2) * 2.0 * (p + 1.0);
        let spread = ((energy - noise - standing_squares) / m - mean * mean).max(0.0);
        let half = (3.0 * spread * (m - 1.0) / (m + 1.0)).sqrt();
        let last = spectrum.standing.last().copied().unwrap_or(f64::INFINITY);
        half.min(mean)
            .min(last - mean)
            .min(self.floor.level(self.missing) + self.floor.noise.bulk_radius - mean)
            .max(0.0)
    }
}

/// The noise of `n_eff` reports around this spectrum.
pub(super) fn profile(spectrum: &SpectrumEstimate, n_eff: f64) -> Result<NoiseProfile> {
    let p = spectrum.standing.len() + spectrum.rest_count;
    let sum =
        spectrum.standing.iter().sum::<f64>() + spectrum.rest_count as f64 * spectrum.rest_mean;
    let norm = spectrum.noise.mean_squared_norm(sum).unwrap_or(sum);
    NoiseProfile::new(&spectrum.noise, p, n_eff, norm)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The spread of the unseen eigenvalues is found from the energy of the noisy matrix, here the expected one.
    #[test]
    fn the_unseen_spread_comes_from_the_energy() {
        let (p, n_eff, sd) = (40_usize, 1e3, 0.5);
        let ramp: Vec<f64> = (0..39)
            .map(|i| 0.02 * (1.0 - f64::from(i) / 38.0))
            .collect();
        let trace = 0.5 + ramp.iter().sum::<f64>();
        let variance = sd * sd / n_eff;
        let squares =
            0.25 + ramp.iter().map(|x| x * x).sum::<f64>() + variance * (p * (p + 1)) as f64;
        let noise = NoiseModel::gaussian(sd);
        // The component where it shows, λ + r²/θ, and one eigenvalue of the bulk.
        let leading = [0.5 + 39.0 * variance / 0.49, 0.05];
        let eigenvalues = Eigenvalues {
            leading: &leading,
            trace,
            squares: Some(squares),
            dimension: p,
        };
        let floor = Floor::from_leading(&eigenvalues, &noise, n_eff).unwrap();
        let spectrum = NoisySpectrum {
            floor: &floor,
            threshold: floor.threshold,
            eigenvalues,
            missing: Some(0.0),
            noise: &noise,
            n_eff,
            excess: &[],
        };
        let estimate = spectrum.estimate().unwrap();
        assert_eq!((estimate.standing.len(), estimate.rest_count), (1, 39));
        assert!(
            (estimate.rest_mean / 0.01 - 1.0).abs() < 0.05,
            "{estimate:?}"
        );
        // The component's own debiasing moves the energy a little.
        assert!(
            (estimate.rest_half_width / 0.01 - 1.0).abs() < 0.2,
            "{estimate:?}"
        );
    }
}
