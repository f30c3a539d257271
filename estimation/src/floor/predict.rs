//! From a known spectrum to what will be measured, and the number of participants for a wish.

use eigenveil_shared::{Error, ErrorCode, Result, mechanism::NoiseModel};

use super::{SpectralNoise, Spike};

/// More participants than this is "never".
const MOST_PARTICIPANTS: f64 = 1e18;

/// Spectrum of the noiseless second moment `E[xxᵀ]` of the prepared rows.
#[derive(Clone, Debug, PartialEq)]
pub struct Spectrum {
    leading: Vec<f64>,
    /// The other p − k, descending; all equal where the bulk is taken as flat.
    rest: Vec<f64>,
    /// Their mean.
    bulk: f64,
}

impl Spectrum {
    /// `leading` eigenvalues (descending) over `p − leading.len()` eigenvalues all equal to `bulk`.
    ///
    /// # Errors
    /// `InvalidRequest` unless `1 ≤ leading.len() < p`, all numbers are finite, and the leading ones
    /// are descending and not below the bulk.
    pub fn new(p: usize, leading: Vec<f64>, bulk: f64) -> Result<Self> {
        let rest = p.saturating_sub(leading.len());
        Self::checked(leading, vec![bulk; rest])
    }

    /// The `k` leading of all `eigenvalues` (descending) over the others as they are: real data has
    /// a spread bulk, and components near its upper end are tilted into it (`referee.md` §5e).
    ///
    /// # Errors
    /// `InvalidRequest` unless `1 ≤ k < p` and the eigenvalues are finite and descending.
    pub fn from_eigenvalues(eigenvalues: &[f64], k: usize) -> Result<Self> {
        let (leading, rest) = eigenvalues.split_at(k.min(eigenvalues.len()));
        Self::checked(leading.to_vec(), rest.to_vec())
    }

    fn checked(leading: Vec<f64>, rest: Vec<f64>) -> Result<Self> {
        let refuse = |detail: String| Err(Error::new(ErrorCode::InvalidRequest, detail));
        let (k, p) = (leading.len(), leading.len() + rest.len());
        if k == 0 || rest.is_empty() {
            return refuse(format!(
                "{k} leading eigenvalues in dimension {p}; between 1 and p − 1 are needed"
            ));
        }
        let mut all = leading.iter().chain(&rest);
        if all.clone().any(|value| !value.is_finite()) {
            return refuse("an eigenvalue is not a finite number".to_owned());
        }
        let mut previous = f64::INFINITY;
        if !all.all(|&value| std::mem::replace(&mut previous, value) >= value) {
            return refuse("the eigenvalues are not descending (down to the bulk)".to_owned());
        }
        let bulk = rest.iter().sum::<f64>() / rest.len() as f64;
        Ok(Self {
            leading,
            rest,
            bulk,
        })
    }

    /// The dimension p.
    pub fn dimension(&self) -> usize {
        self.leading.len() + self.rest.len()
    }

    /// Number of leading eigenvalues.
    pub fn rank(&self) -> usize {
        self.leading.len()
    }

    /// `Σ_w 1/(λ−λ_w)` and `Σ_w 1/(λ−λ_w)²` over the rest.
    fn resolvent(&self, lambda: f64) -> (f64, f64) {
        self.rest.iter().fold((0.0, 0.0), |(first, second), w| {
            let inverse = 1.0 / (lambda - w);
            (first + inverse, second + inverse * inverse)
        })
    }

    /// How the leading eigenvalue `lambda` will show.
    ///
    /// For noise of one variance V in every direction §5e's self-consistent equations have the
    /// solution `λ̂ = λ + V Σ_w 1/(λ−λ_w)`, `cos² = 1 − V Σ_w 1/(λ−λ_w)²`, visible while that is
    /// positive; with a flat bulk it is the formula of §5d. Signal-dependent noise takes the bulk as flat.
    fn spike(&self, lambda: f64, law: &SpectralNoise) -> Option<Spike> {
        let Some(variance) = law.uniform_variance(self.rest.len()) else {
            return law.spike_from_signal(lambda - self.bulk);
        };
        if lambda <= self.rest[0] {
            return None;
        }
        let theta = lambda - self.bulk;
        if variance == 0.0 {
            return Some(Spike {
                theta,
                displacement: theta,
                squared_cosine: 1.0,
            });
        }
        let (first, second) = self.resolvent(lambda);
        let squared_cosine = 1.0 - variance * second;
        // Also false where the sums overflow beside an equal eigenvalue.
        let visible = squared_cosine > 0.0;
        visible.then_some(Spike {
            theta,
            displacement: theta + variance * first,
            squared_cosine,
        })
    }

    /// Upper end of the noisy bulk above its centre: where the map λ ↦ λ̂ turns.
    fn edge(&self, law: &SpectralNoise) -> f64 {
        let top = self.rest[0];
        match law.uniform_variance(self.rest.len()) {
            None => law.edge(),
            Some(0.0) => top - self.bulk,
            Some(variance) => {
                // V Σ 1/(λ−λ_w)² falls from infinity at `top` to at most 1 at `top + r_b`.
                let (mut low, mut high) = (top, top + law.bulk_radius);
                for _ in 0..200 {
                    let middle = 0.5 * (low + high);
                    if middle <= low || middle >= high {
                        break;
                    }
                    if variance * self.resolvent(middle).1 > 1.0 {
                        low = middle;
                    } else {
                        high = middle;
                    }
                }
                high + variance * self.resolvent(high).0 - self.bulk
            }
        }
    }
}

/// What n participants would show of a spectrum.
#[derive(Clone, Debug, PartialEq)]
pub struct Prediction {
    /// The leading components, in the order of the spectrum.
    pub components: Vec<PredictedComponent>,
    /// Expected ‖V̂V̂ᵀ − VVᵀ‖_F = √(2Σ(1−cos²)), an invisible component counting 1; at most √(2k).
    pub expected_error: f64,
}

/// What n participants would show of one component.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PredictedComponent {
    /// Its place, size and tilt; `None` when it drowns.
    pub spike: Option<Spike>,
    /// Whether its eigenvalue is expected above the threshold that `k = auto` counts with.
    pub above_threshold: bool,
}

/// What the mean of `n` reports with noise of this law would show of `spectrum`.
///
/// # Errors
/// `InvalidRequest` for n = 0; `InvalidMechanism` as [`SpectralNoise::of`].
pub fn predict(spectrum: &Spectrum, noise: &NoiseModel, n: u64) -> Result<Prediction> {
    let law = SpectralNoise::of(noise, spectrum.dimension(), spectrum.rank(), n)?;
    Ok(prediction(spectrum, &law))
}

fn prediction(spectrum: &Spectrum, law: &SpectralNoise) -> Prediction {
    let threshold = spectrum.edge(law) + law.margin(spectrum.dimension());
    let components: Vec<PredictedComponent> = spectrum
        .leading
        .iter()
        .map(|&lambda| {
            let spike = spectrum.spike(lambda, law);
            let above_threshold = spike.is_some_and(|spike| spike.displacement > threshold);
            PredictedComponent {
                spike,
                above_threshold,
            }
        })
        .collect();
    let expected_error = expected_error(
        components
            .iter()
            .map(|c| c.spike.map_or(0.0, |spike| spike.squared_cosine)),
    );
    Prediction {
        components,
        expected_error,
    }
}

/// `√(2Σ(1−cos²))`.
pub(super) fn expected_error(squared_cosines: impl Iterator<Item = f64>) -> f64 {
    (2.0 * squared_cosines
        .map(|c| (1.0 - c).clamp(0.0, 1.0))
        .sum::<f64>())
    .sqrt()
}

/// Fewest participants for which every leading component of `spectrum` is expected above the
/// threshold; `None` when no number up to 10¹⁸ is enough (a component equal to the bulk).
///
/// # Errors
/// `InvalidMechanism` as [`SpectralNoise::of`].
///
/// ```
/// use eigenveil_estimation::floor::{Spectrum, participants_for_visibility, predict};
/// use eigenveil_shared::mechanism::NoiseModel;
/// let spectrum = Spectrum::new(40, vec![0.5, 0.25], 0.25 / 38.0)?;
/// let noise = NoiseModel::Gaussian { off_diagonal_sd: 4.2, diagonal_sd: 5.9 };
/// let n = participants_for_visibility(&spectrum, &noise)?.expect("both stand out of the bulk");
/// assert!(predict(&spectrum, &noise, n)?.components.iter().all(|c| c.above_threshold));
/// assert!(!predict(&spectrum, &noise, n - 1)?.components.iter().all(|c| c.above_threshold));
/// # Ok::<(), eigenveil_shared::Error>(())
/// ```
pub fn participants_for_visibility(spectrum: &Spectrum, noise: &NoiseModel) -> Result<Option<u64>> {
    fewest(spectrum, noise, |prediction| {
        prediction.components.iter().all(|c| c.above_threshold)
    })
}

/// Fewest participants for which the expected ‖V̂V̂ᵀ − VVᵀ‖_F is at most `target`; `None` when no
/// number up to 10¹⁸ is enough.
///
/// # Errors
/// `InvalidRequest` unless `target > 0`; `InvalidMechanism` as [`SpectralNoise::of`].
pub fn participants_for_error(
    spectrum: &Spectrum,
    noise: &NoiseModel,
    target: f64,
) -> Result<Option<u64>> {
    if !(target.is_finite() && target > 0.0) {
        return Err(Error::new(
            ErrorCode::InvalidRequest,
            format!("the target error is {target}; it must be positive"),
        ));
    }
    fewest(spectrum, noise, |prediction| {
        prediction.expected_error <= target
    })
}

/// Smallest whole n at which `enough` holds; `enough` is monotone because all noise falls with n.
fn fewest(
    spectrum: &Spectrum,
    noise: &NoiseModel,
    enough: impl Fn(&Prediction) -> bool,
) -> Result<Option<u64>> {
    let holds = |n: u64| -> Result<bool> {
        let law = SpectralNoise::at(noise, spectrum.dimension(), spectrum.rank(), n as f64)?;
        Ok(enough(&prediction(spectrum, &law)))
    };
    let (mut low, mut high) = (0_u64, 1_u64);
    while !holds(high)? {
        low = high;
        high *= 2;
        if high as f64 > MOST_PARTICIPANTS {
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
    use super::{super::gaussian, *};

    #[test]
    fn invisible_components_count_fully_and_the_error_stays_finite() {
        let spectrum = Spectrum::new(40, vec![0.3, 0.2, 0.1], 0.4 / 37.0).unwrap();
        let drowned = predict(&spectrum, &gaussian(5.0), 1).unwrap();
        assert!((drowned.expected_error - 6.0_f64.sqrt()).abs() < 1e-15);
        assert!(
            drowned
                .components
                .iter()
                .all(|c| c.spike.is_none() && !c.above_threshold)
        );
        let clear = predict(&spectrum, &gaussian(5.0), 1_000_000_000).unwrap();
        assert!(clear.expected_error < 0.02);
        let noiseless = predict(&spectrum, &gaussian(0.0), 1).unwrap();
        assert_eq!(noiseless.expected_error, 0.0);
    }

    #[test]
    fn participants_invert_the_prediction() {
        let spectrum = Spectrum::new(100, vec![0.2, 0.15], 0.65 / 98.0).unwrap();
        let noise = gaussian(4.0);
        for target in [0.05, 0.2, 1.0] {
            let n = participants_for_error(&spectrum, &noise, target)
                .unwrap()
                .unwrap();
            assert!(predict(&spectrum, &noise, n).unwrap().expected_error <= target);
            assert!(predict(&spectrum, &noise, n - 1).unwrap().expected_error > target);
        }
        // Far above the floor the error is √(2Σ r²/θ²): four times the participants halve it.
        let at = |target| {
            participants_for_error(&spectrum, &noise, target)
                .unwrap()
                .unwrap() as f64
        };
        assert!((at(0.01) / at(0.02) - 4.0).abs() < 1e-3);
        assert!(participants_for_error(&spectrum, &noise, 0.0).is_err());
        assert!(participants_for_error(&spectrum, &noise, f64::NAN).is_err());
        assert_eq!(
            participants_for_error(&spectrum, &gaussian(0.0), 0.1).unwrap(),
            Some(1)
        );
    }

    /// With a flat bulk the spread formula is the flat one, at every strength.
    #[test]
    fn a_flat_bulk_is_the_closed_form() {
        let (p, bulk) = (30, 0.2);
        for theta in [0.01, 0.1, 0.2, 0.3, 1.0] {
            let spectrum = Spectrum::new(p, vec![bulk + theta], bulk).unwrap();
            let law = SpectralNoise::of(&gaussian(1.0), p, 1, 1000).unwrap();
            let spread = spectrum.spike(bulk + theta, &law);
            let flat = law.spike_from_signal(bulk + theta - bulk);
            assert_eq!(spread.is_some(), flat.is_some(), "θ = {theta}");
            if let (Some(a), Some(b)) = (spread, flat) {
                assert!((a.squared_cosine - b.squared_cosine).abs() < 1e-12);
                assert!((a.displacement - b.displacement).abs() < 1e-12);
            }
            assert!((spectrum.edge(&law) - law.edge()).abs() < 1e-9);
        }
    }

    #[test]
    fn a_component_inside_the_bulk_is_never_visible() {
        let spectrum = Spectrum::new(10, vec![0.5, 0.1], 0.1).unwrap();
        assert_eq!(
            participants_for_visibility(&spectrum, &gaussian(1.0)).unwrap(),
            None
        );
    }

    #[test]
    fn impossible_spectra_are_refused() {
        assert!(Spectrum::new(2, vec![1.0, 1.0], 0.0).is_err());
        assert!(Spectrum::new(3, vec![], 0.0).is_err());
        assert!(Spectrum::new(3, vec![1.0, 2.0], 0.0).is_err());
        assert!(Spectrum::new(3, vec![1.0], 2.0).is_err());
        assert!(Spectrum::new(3, vec![f64::NAN], 0.0).is_err());
        assert!(Spectrum::from_eigenvalues(&[3.0, 1.0, 1.0], 3).is_err());
        assert!(Spectrum::from_eigenvalues(&[3.0, 1.0, 2.0], 1).is_err());
        assert!(Spectrum::from_eigenvalues(&[3.0, 1.0, f64::NAN], 1).is_err());
        assert!(Spectrum::from_eigenvalues(&[], 0).is_err());
        let flat = Spectrum::from_eigenvalues(&[3.0, 0.5, 0.5], 1).unwrap();
        assert_eq!(flat, Spectrum::new(3, vec![3.0], 0.5).unwrap());
    }
}
