//! From a known spectrum to the measured one, and to the number of participants that a target needs.

use eigenveil_shared::{Error, Result, mechanism::NoiseModel};

use super::{
    Spectrum, Spike,
    spiked_model::{NoiseProfile, check_reports, unit_of_loss},
};
use crate::metrics::random_error;

/// More participants than this are reported as "never".
const MAX_PARTICIPANTS: f64 = 1e18;

/// The prediction for a spectrum and n participants.
#[derive(Clone, Debug, PartialEq)]
pub struct Prediction {
    /// The leading components, in the order of the spectrum.
    pub components: Vec<PredictedComponent>,
    /// Expected ‖V̂V̂ᵀ − VVᵀ‖_F, a root mean square: √(2Σ min(1, 1 − cos² + mixing)), an invisible component counting 1;
    /// at most that of a subspace drawn at random.
    pub expected_error: f64,
}

impl Prediction {
    /// The smallest expected squared cosine of the components, 0 if one is invisible.
    ///
    /// With noise of one variance and a flat bulk it is 1 − (r/θ)² of the weakest.
    pub fn weakest_alignment(&self) -> f64 {
        self.components
            .iter()
            .map(|c| c.spike.map_or(0.0, |spike| spike.squared_cosine))
            .fold(1.0, f64::min)
    }
}

/// The prediction for one component and n participants.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PredictedComponent {
    /// Its eigenvalue, size and tilt; `None` if it is invisible.
    pub spike: Option<Spike>,
    /// Whether its eigenvalue is expected above the threshold that `k = auto` counts with.
    pub above_threshold: bool,
}

/// Predicts what the mean of `n_eff` reports with this noise shows of `spectrum`.
pub fn predict(spectrum: &Spectrum, noise: &NoiseModel, n_eff: f64) -> Result<Prediction> {
    check_reports(n_eff)?;
    Ok(prediction(spectrum, &spectrum.noise_of(noise, n_eff)?))
}

fn prediction(spectrum: &Spectrum, profile: &NoiseProfile) -> Prediction {
    let flat = spectrum.flat_law(profile);
    // An eigenvalue of noise beyond the bulk (along the mean, or among seldom observed cells) ranks before every
    // component below it.
    let lifted = if profile.mean_ratio > 1.0 || flat.edge_widening > 1.0 {
        flat.edge()
    } else {
        f64::NEG_INFINITY
    };
    let threshold = spectrum.edge(profile).max(lifted) + flat.margin(spectrum.dimension());
    let mut components: Vec<PredictedComponent> = Vec::with_capacity(spectrum.rank());
    let leading = spectrum.leading();
    for (j, &lambda) in leading.iter().enumerate() {
        // Equal eigenvalues have equal predictions, and there may be many.
        if let Some(last) = components.last().copied()
            && leading[j - 1] == lambda
            && spectrum.excess(j - 1) == spectrum.excess(j)
        {
            components.push(last);
            continue;
        }
        let spike = spectrum
            .spike(lambda, spectrum.excess(j), profile)
            .filter(|spike| spike.displacement > lifted);
        let above_threshold = spike.is_some_and(|spike| spike.displacement > threshold);
        components.push(PredictedComponent {
            spike,
            above_threshold,
        });
    }
    // Summed in the order of the components; an empty sum is −0.
    let lost: f64 = components
        .iter()
        .enumerate()
        .map(|(j, c)| {
            let lost = c.spike.map_or(1.0, |spike| 1.0 - spike.squared_cosine);
            (lost + spectrum.mixing(j, profile)).clamp(0.0, 1.0)
        })
        .sum();
    let most = random_error(spectrum.dimension(), spectrum.rank());
    Prediction {
        components,
        expected_error: (2.0 * lost + 0.0).sqrt().min(most),
    }
}

/// Minimum number of participants for which every leading component of `spectrum` is expected above the threshold;
/// `None` when no number up to 10¹⁸ is enough (a component equal to the bulk).
pub fn participants_for_visibility(spectrum: &Spectrum, noise: &NoiseModel) -> Result<Option<u64>> {
    fewest(spectrum, noise, |prediction, _| {
        prediction.components.iter().all(|c| c.above_threshold)
    })
}

/// Minimum number of participants for which the expected ‖V̂V̂ᵀ − VVᵀ‖_F is at most `target`, with `lost` as in
/// [`SelectionLoss`](eigenveil_shared::estimate::SelectionLoss) (0 for plain PCA); `None` when no number up to 10¹⁸ is
/// enough.
pub fn participants_for_error(
    spectrum: &Spectrum,
    noise: &NoiseModel,
    target: f64,
    lost: f64,
) -> Result<Option<u64>> {
    if !(target.is_finite() && target > 0.0) {
        return Err(Error::invalid_request(format!(
            "the target error is {target}; it must be positive"
        )));
    }
    let added = 2.0 * lost * unit_of_loss(noise, 1.0);
    fewest(spectrum, noise, |prediction, n| {
        (prediction.expected_error.powi(2) + added / n)
            .max(0.0)
            .sqrt()
            <= target
    })
}

/// Smallest whole n at which `enough` holds; `enough` is monotone because all noise falls with n.
fn fewest(
    spectrum: &Spectrum,
    noise: &NoiseModel,
    enough: impl Fn(&Prediction, f64) -> bool,
) -> Result<Option<u64>> {
    let holds = |n: u64| -> Result<bool> {
        let profile = spectrum.noise_of(noise, n as f64)?;
        Ok(enough(&prediction(spectrum, &profile), n as f64))
    };
    let (mut low, mut high) = (0_u64, 1_u64);
    while !holds(high)? {
        low = high;
        high *= 2;
        if high as f64 > MAX_PARTICIPANTS {
            return Ok(None);
        }
    }
    while high - low > 1 {
        let middle = low + (high - low) / 2;
        if holds(middle)? {
            high = middle;
        } else {
            low = middle;
        }
    }
    Ok(Some(high))
}

#[cfg(test)]
mod tests {
    use super::{
        super::{SpectralNoise, double_cap},
        *,
    };

    #[test]
    fn invisible_components_count_fully_and_the_error_stays_finite() {
        let spectrum = Spectrum::new(40, vec![0.3, 0.2, 0.1], 0.4 / 37.0).unwrap();
        let drowned = predict(&spectrum, &NoiseModel::gaussian(5.0), 1.0).unwrap();
        assert_eq!(drowned.expected_error, random_error(40, 3));
        let mut components = drowned.components.iter();
        assert!(components.all(|c| c.spike.is_none() && !c.above_threshold));
        let clear = predict(&spectrum, &NoiseModel::gaussian(5.0), 1e9).unwrap();
        assert!(clear.expected_error < 0.02);
        let noiseless = predict(&spectrum, &NoiseModel::gaussian(0.0), 1.0).unwrap();
        assert_eq!(noiseless.expected_error, 0.0);
    }

    #[test]
    fn participants_invert_the_prediction() {
        let spectrum = Spectrum::new(100, vec![0.2, 0.15], 0.65 / 98.0).unwrap();
        let noise = NoiseModel::gaussian(4.0);
        let needed =
            |noise: &NoiseModel, target| participants_for_error(&spectrum, noise, target, 0.0);
        let at = |target| needed(&noise, target).unwrap().unwrap();
        // Far above the floor the error is √(2Σ r²/θ²): four times the participants halve it.
        assert!((at(0.01) as f64 / at(0.02) as f64 - 4.0).abs() < 1e-3);
        assert!(needed(&noise, 0.0).is_err() && needed(&noise, f64::NAN).is_err());
        assert_eq!(needed(&NoiseModel::gaussian(0.0), 0.1).unwrap(), Some(1));
    }

    /// Over a flat bulk what the spread formula predicts is what the flat one, derived independently, reads back, at
    /// every strength and for every noise. With Gaussian noise it is the textbook's `θ + r²/θ` and `1 − (r/θ)²`.
    #[test]
    fn a_flat_bulk_is_the_closed_form() {
        let p = 30;
        let caps = [1.0, 4.0, 8.0].map(|epsilon| double_cap(p, epsilon));
        for noise in [NoiseModel::gaussian(1.0)].into_iter().chain(caps) {
            for n in [20.0, 100.0, 1e3, 1e5] {
                for theta in [0.001, 0.01, 0.1, 0.2, 0.3, 0.9] {
                    let bulk = (1.0 - theta) / p as f64;
                    let spectrum = Spectrum::new(p, vec![bulk + theta], bulk).unwrap();
                    let profile = spectrum.noise_of(&noise, n).unwrap();
                    let spectral_noise = SpectralNoise::new(&noise, p, 1, n, theta).unwrap();
                    let spread = spectrum.spike(bulk + theta, 0.0, &profile);
                    if let Some(a) = spread {
                        let b = spectral_noise.spike_from_eigenvalue(a.displacement);
                        let b = b.unwrap();
                        assert!((a.squared_cosine - b.squared_cosine).abs() < 1e-8);
                        assert!((b.theta / theta - 1.0).abs() < 1e-8);
                    }
                    if let NoiseModel::Gaussian { .. } = noise {
                        assert!((spectrum.edge(&profile) - spectral_noise.edge()).abs() < 1e-9);
                        let r = spectral_noise.bulk_radius;
                        assert_eq!(spread.is_some(), theta > r, "θ = {theta}");
                        let closed_form = spread.map(|a| (a.displacement, a.squared_cosine));
                        if let Some((place, cosine)) = closed_form {
                            assert!((place / (theta + r * r / theta) - 1.0).abs() < 1e-10);
                            assert!((cosine - (1.0 - (r / theta).powi(2))).abs() < 1e-10);
                        }
                    }
                }
            }
        }
    }

    /// The closed form solves the self-consistent equations, here by iteration, with a spread bulk.
    #[test]
    fn a_spread_bulk_solves_the_self_consistent_equations() {
        let noise = double_cap(20, 6.0);
        let mut eigenvalues = vec![0.35, 0.2];
        eigenvalues.extend((0..18).map(|i| 0.05 * (1.0 - f64::from(i) / 18.0)));
        let total: f64 = eigenvalues.iter().sum();
        eigenvalues.iter_mut().for_each(|value| *value /= total);
        let spectrum = Spectrum::from_eigenvalues(&eigenvalues, 2).unwrap();
        let rest = &eigenvalues[2..];
        for n in [300.0, 3_000.0] {
            let profile = spectrum.noise_of(&noise, n).unwrap();
            for &lambda in &eigenvalues[..2] {
                // Self-energy of `own` at z, with every g iterated to its fixed point.
                let energy = |z: f64, own: f64| {
                    let mut g: Vec<f64> = rest.iter().map(|w| 1.0 / (z - w)).collect();
                    let sum = |g: &[f64], own: f64| {
                        let mean = g.iter().sum::<f64>() / g.len() as f64;
                        let terms = rest.iter().zip(g);
                        let terms = terms.map(|(w, g)| profile.variance(own, *w) * g);
                        terms.sum::<f64>() / (1.0 - profile.shift * mean)
                    };
                    for _ in 0..2_000 {
                        let next = rest.iter().map(|&w| 1.0 / (z - w - sum(&g, w)));
                        g = next.collect();
                    }
                    sum(&g, own)
                };
                let spike = spectrum.spike(lambda, 0.0, &profile).unwrap();
                let z = spike.displacement + spectrum.bulk;
                assert!((z - lambda - energy(z, lambda)).abs() < 1e-10);
                let step = 1e-6;
                let slope = (energy(z + step, lambda) - energy(z - step, lambda)) / (2.0 * step);
                assert!((spike.squared_cosine * (1.0 - slope) - 1.0).abs() < 1e-6);
            }
        }
    }

    #[test]
    fn a_double_cap_study_can_be_planned_for_visibility() {
        let p = 40;
        let bulk = 0.3 / 40.0;
        let leading = vec![bulk + 0.4, bulk + 0.2, bulk + 0.1];
        let spectrum = Spectrum::new(p, leading, bulk).unwrap();
        for epsilon in [1.0, 2.0, 4.0, 8.0] {
            let noise = double_cap(p, epsilon);
            let n = participants_for_error(&spectrum, &noise, 0.3, 0.0);
            let n = n.unwrap().unwrap();
            let seen = participants_for_visibility(&spectrum, &noise);
            let seen = seen.unwrap().unwrap();
            assert!(seen < n);
            let shows =
                |n| predict(&spectrum, &noise, n as f64).unwrap().components[2].above_threshold;
            assert!(shows(seen) && !shows(seen - 1));
        }
    }

    #[test]
    fn a_component_inside_the_bulk_is_never_visible() {
        let spectrum = Spectrum::new(10, vec![0.5, 0.1], 0.1).unwrap();
        let seen = participants_for_visibility(&spectrum, &NoiseModel::gaussian(1.0));
        assert_eq!(seen.unwrap(), None);
    }

    #[test]
    fn impossible_spectra_are_rejected() {
        for (p, leading, bulk) in [
            (2, vec![1.0, 1.0], 0.0),
            (3, vec![], 0.0),
            (3, vec![1.0, 2.0], 0.0),
            (3, vec![1.0], 2.0),
            (3, vec![f64::NAN], 0.0),
        ] {
            assert!(Spectrum::new(p, leading, bulk).is_err());
        }
        for (last, k) in [(1.0, 3), (2.0, 1), (f64::NAN, 1)] {
            assert!(Spectrum::from_eigenvalues(&[3.0, 1.0, last], k).is_err());
        }
        assert!(Spectrum::from_eigenvalues(&[], 0).is_err());
        let flat = Spectrum::from_eigenvalues(&[3.0, 0.5, 0.5], 1).unwrap();
        assert_eq!(flat, Spectrum::new(3, vec![3.0], 0.5).unwrap());
    }
}
