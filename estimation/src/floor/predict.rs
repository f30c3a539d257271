//! From a known spectrum to what will be measured, and the number of participants for a wish.

use eigenveil_shared::{Error, ErrorCode, Result, mechanism::NoiseModel};

use super::{SpectralNoise, Spike};

/// More participants than this is "never".
const MOST_PARTICIPANTS: f64 = 1e18;

/// Spectrum of the noiseless second moment `E[xxᵀ]` of the prepared rows, its bulk taken as flat.
#[derive(Clone, Debug, PartialEq)]
pub struct Spectrum {
    p: usize,
    leading: Vec<f64>,
    bulk: f64,
}

impl Spectrum {
    /// `leading` eigenvalues (descending) over `p − leading.len()` eigenvalues all equal to `bulk`.
    ///
    /// # Errors
    /// `InvalidRequest` unless `1 ≤ leading.len() < p`, all numbers are finite, and the leading ones
    /// are descending and not below the bulk.
    pub fn new(p: usize, leading: Vec<f64>, bulk: f64) -> Result<Self> {
        let refuse = |detail: String| Err(Error::new(ErrorCode::InvalidRequest, detail));
        let k = leading.len();
        if k == 0 || k >= p {
            return refuse(format!(
                "{k} leading eigenvalues in dimension {p}; between 1 and p − 1 are needed"
            ));
        }
        if !bulk.is_finite() || leading.iter().any(|value| !value.is_finite()) {
            return refuse("an eigenvalue is not a finite number".to_owned());
        }
        if leading.windows(2).any(|pair| pair[0] < pair[1]) || leading[k - 1] < bulk {
            return refuse(format!(
                "the eigenvalues are not descending down to the bulk's {bulk}"
            ));
        }
        Ok(Self { p, leading, bulk })
    }

    /// The `k` leading of all `eigenvalues` (descending), over the mean of the others.
    ///
    /// # Errors
    /// As [`new`](Self::new).
    pub fn from_eigenvalues(eigenvalues: &[f64], k: usize) -> Result<Self> {
        let p = eigenvalues.len();
        if k == 0 || k >= p {
            return Err(Error::new(
                ErrorCode::InvalidRequest,
                format!("k is {k}; between 1 and p − 1 of p = {p} eigenvalues can be leading"),
            ));
        }
        let bulk = eigenvalues[k..].iter().sum::<f64>() / (p - k) as f64;
        Self::new(p, eigenvalues[..k].to_vec(), bulk)
    }

    /// The dimension p.
    pub fn dimension(&self) -> usize {
        self.p
    }

    /// Number of leading eigenvalues.
    pub fn rank(&self) -> usize {
        self.leading.len()
    }

    /// θⱼ: what the leading eigenvalues stand above the bulk.
    fn thetas(&self) -> impl Iterator<Item = f64> + '_ {
        self.leading.iter().map(|value| value - self.bulk)
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
    let law = SpectralNoise::of(noise, spectrum.p, spectrum.rank(), n)?;
    Ok(prediction(spectrum, &law))
}

fn prediction(spectrum: &Spectrum, law: &SpectralNoise) -> Prediction {
    let threshold = law.threshold(spectrum.p);
    let components: Vec<PredictedComponent> = spectrum
        .thetas()
        .map(|theta| {
            let spike = law.spike_from_signal(theta);
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
        let law = SpectralNoise::at(noise, spectrum.p, spectrum.rank(), n as f64)?;
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
    use super::*;

    fn gaussian(sd: f64) -> NoiseModel {
        NoiseModel::Gaussian {
            off_diagonal_sd: sd,
            diagonal_sd: sd,
        }
    }

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
        let spectrum = Spectrum::from_eigenvalues(&[3.0, 1.0, 0.0], 1).unwrap();
        assert_eq!(spectrum, Spectrum::new(3, vec![3.0], 0.5).unwrap());
    }
}
