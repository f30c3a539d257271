//! From a known spectrum to the measured one, and to the number of participants that a target needs.

use eigenveil_shared::{Error, Result, mechanism::NoiseModel};

use super::{SpectralNoise, Spike, spiked_model::NoiseProfile};

/// More participants than this are reported as "never".
const MAX_PARTICIPANTS: f64 = 1e18;

/// Spectrum of the noiseless second moment `E[xxᵀ]` of the prepared rows.
#[derive(Clone, Debug, PartialEq)]
pub struct Spectrum {
    leading: Vec<f64>,
    /// The other p − k, descending; all equal where the bulk is taken as flat.
    rest: Vec<f64>,
    /// Their mean.
    bulk: f64,
    /// `m_v²/a²` of every eigenvector, in the same order; empty without private centring.
    excess: Vec<f64>,
    /// The rest as runs of equal neighbours: a flat bulk is one run, whatever p is.
    runs: Vec<EqualRun>,
}

/// Neighbours of the bulk that are equal.
#[derive(Clone, Debug, PartialEq)]
struct EqualRun {
    eigenvalue: f64,
    excess: f64,
    count: f64,
}

/// Equal neighbours of the bulk, which has these excesses or none.
fn runs(rest: &[f64], excess: &[f64]) -> Vec<EqualRun> {
    let mut runs: Vec<EqualRun> = Vec::new();
    for (j, &eigenvalue) in rest.iter().enumerate() {
        let excess = excess.get(j).copied().unwrap_or(0.0);
        match runs.last_mut() {
            Some(run) if run.eigenvalue == eigenvalue && run.excess == excess => run.count += 1.0,
            _ => runs.push(EqualRun {
                eigenvalue,
                excess,
                count: 1.0,
            }),
        }
    }
    runs
}

impl Spectrum {
    /// `leading` eigenvalues (descending) over `p − leading.len()` eigenvalues all equal to `bulk`.
    ///
    /// # Errors
    /// `invalid-request` unless `1 ≤ leading.len() < p`, all numbers are finite, and the leading ones
    /// are descending and not below the bulk.
    pub fn new(p: usize, leading: Vec<f64>, bulk: f64) -> Result<Self> {
        let rest = p.saturating_sub(leading.len());
        Self::checked(leading, vec![bulk; rest])
    }

    /// The `k` leading of all `eigenvalues` (descending), with the others unchanged as the bulk: real data has a
    /// spread bulk, and components near its upper end are tilted into it (`docs/derivations/floor.md`, "A spread
    /// bulk").
    ///
    /// # Errors
    /// `invalid-request` unless `1 ≤ k < p` and the eigenvalues are finite and descending.
    pub fn from_eigenvalues(eigenvalues: &[f64], k: usize) -> Result<Self> {
        let (leading, rest) = eigenvalues.split_at(k.min(eigenvalues.len()));
        Self::checked(leading.to_vec(), rest.to_vec())
    }

    fn checked(leading: Vec<f64>, rest: Vec<f64>) -> Result<Self> {
        let reject = |detail: String| Err(Error::invalid_request(detail));
        let (k, p) = (leading.len(), leading.len() + rest.len());
        if k == 0 || rest.is_empty() {
            return reject(format!(
                "{k} leading eigenvalues in dimension {p}; between 1 and p − 1 are needed"
            ));
        }
        let mut all = leading.iter().chain(&rest);
        if all.clone().any(|value| !value.is_finite()) {
            return reject("an eigenvalue is not a finite number".to_owned());
        }
        let mut previous = f64::INFINITY;
        if !all.all(|&value| std::mem::replace(&mut previous, value) >= value) {
            return reject("the eigenvalues are not descending (down to the bulk)".to_owned());
        }
        let bulk = rest.iter().sum::<f64>() / rest.len() as f64;
        Ok(Self {
            runs: runs(&rest, &[]),
            leading,
            rest,
            bulk,
            excess: Vec::new(),
        })
    }

    /// The same spectrum as private centring sees it: `excess` is `m_v²/a²` of all p eigenvectors, m the mean
    /// of the rows. Without it the cost of centring is computed for components orthogonal to the mean.
    ///
    /// # Errors
    /// `invalid-request` unless there is one finite number ≥ 0 for each eigenvalue.
    pub fn with_excess_along_mean(mut self, excess: Vec<f64>) -> Result<Self> {
        let usable = excess.iter().all(|x| x.is_finite() && *x >= 0.0);
        if excess.len() != self.dimension() || !usable {
            return Err(Error::invalid_request(format!(
                "{} numbers for the noise along the mean do not fit {} eigenvalues, or one is negative or not finite",
                excess.len(),
                self.dimension()
            )));
        }
        self.runs = runs(&self.rest, &excess[self.rank()..]);
        self.excess = excess;
        Ok(self)
    }

    /// `m_v²/a²` of eigenvector `j`.
    fn excess(&self, j: usize) -> f64 {
        self.excess.get(j).copied().unwrap_or(0.0)
    }

    /// The dimension p.
    pub fn dimension(&self) -> usize {
        self.leading.len() + self.rest.len()
    }

    /// Sum of all eigenvalues.
    pub fn total(&self) -> f64 {
        self.leading.iter().chain(&self.rest).sum()
    }

    /// Number of leading eigenvalues.
    pub fn rank(&self) -> usize {
        self.leading.len()
    }

    /// The noise of n reports of rows with this second moment, entry by entry.
    ///
    /// Where the study does not fix `E‖x‖²` the sum of the spectrum is used (that of a part of the dimensions is less,
    /// which makes the noise larger, never smaller).
    fn noise_of(&self, noise: &NoiseModel, n: f64) -> Result<NoiseProfile> {
        let sum = self.total();
        let norm = noise.mean_squared_norm(sum).unwrap_or(sum);
        NoiseProfile::new(noise, self.dimension(), n, norm)
    }

    /// Where an eigenvalue `y` above the bulk would show, whether or not it is visible.
    ///
    /// The equations of `docs/derivations/floor.md`, "A spread bulk", with the shift χ, are
    /// `g_w = 1/(z − λ_w − Σ_w' V_ww' g_w')` and `z = λⱼ + Σ_w V_jw g_w`, where every sum over V g is divided by
    /// `1 − χ·mean(g)`, as for a sample covariance. Because V has rank two they have a closed form. With
    /// `m₀ = Σ 1/(y−λ_w)`, `m₁ = Σ λ_w/(y−λ_w)`, `D = 1 − χ·m₀/(p−k)` and V = α + β(λ+λ') + γλλ':
    ///
    /// ```text
    /// h = ½[D + √(D² + 4(βm₀+γm₁))]        S₀ = m₀/h   S₁ = m₁/h
    /// z(y) = y + (α+βy)S₀ + (β+γy)S₁        visible iff z'(y) > 0   cos² = z'(y)/(1+βS₀+γS₁)
    /// ```
    ///
    /// Over a flat bulk this is the closed form of [`SpectralNoise`]; for noise of one variance V it is `z = y + V m₀`,
    /// `cos² = 1 − V Σ 1/(y−λ_w)²`. The extra noise of private centring along the mean, for the component (`excess`)
    /// and the others, is included to first order.
    fn emergence(&self, y: f64, excess: f64, profile: &NoiseProfile) -> Option<OutlierPosition> {
        if y <= self.rest[0] {
            return None;
        }
        let &NoiseProfile {
            shift,
            constant,
            linear,
            bilinear,
            along_mean,
            ..
        } = profile;
        // Sums and their derivatives.
        let (mut m0, mut m1, mut dm0, mut dm1) = (0.0, 0.0, 0.0, 0.0);
        let (mut mean, mut dmean) = (0.0, 0.0);
        for run in &self.runs {
            let w = run.eigenvalue;
            let single = 1.0 / (y - w);
            let inverse = run.count * single;
            m0 += inverse;
            m1 += w * inverse;
            dm0 -= inverse * single;
            dm1 -= w * inverse * single;
            let along = along_mean * run.excess;
            mean += along * inverse;
            dmean -= along * inverse * single;
        }
        let directions = self.rest.len() as f64;
        let drift = 1.0 - shift * m0 / directions;
        let extra = linear * m0 + bilinear * m1;
        let root = (drift * drift + 4.0 * extra).max(0.0).sqrt();
        let h = if drift >= 0.0 {
            0.5 * (drift + root)
        } else {
            2.0 * extra / (root - drift)
        };
        let dh = (linear * dm0 + bilinear * dm1 - shift * dm0 / directions * h) / root;
        let (s0, s1) = (m0 / h, m1 / h);
        let (ds0, ds1) = ((dm0 - s0 * dh) / h, (dm1 - s1 * dh) / h);
        let constant = constant + along_mean * excess;
        let (own0, own1) = (constant + linear * y, linear + bilinear * y);
        let stretch = 1.0 + linear * s0 + bilinear * s1;
        let slope = stretch + own0 * ds0 + own1 * ds1 + dmean;
        let place = y + own0 * s0 + own1 * s1 + mean;
        // Not finite if the sums overflow next to an equal eigenvalue.
        (place.is_finite() && slope.is_finite() && h > 0.0).then_some(OutlierPosition {
            place,
            slope,
            squared_cosine: slope / stretch,
        })
    }

    /// How the leading eigenvalue `lambda` will show.
    fn spike(&self, lambda: f64, excess: f64, profile: &NoiseProfile) -> Option<Spike> {
        let theta = lambda - self.bulk;
        if profile.is_noiseless() {
            return (lambda > self.rest[0]).then_some(Spike {
                theta,
                displacement: theta,
                squared_cosine: 1.0,
            });
        }
        let emergence = self.emergence(lambda, excess, profile)?;
        (emergence.slope > 0.0).then(|| Spike {
            theta,
            displacement: emergence.place - self.bulk,
            squared_cosine: emergence.squared_cosine.min(1.0),
        })
    }

    /// Upper end of the noisy bulk above its centre: the turning point of the map λ ↦ λ̂.
    fn edge(&self, profile: &NoiseProfile) -> f64 {
        let top = self.rest[0];
        if profile.is_noiseless() {
            return top - self.bulk;
        }
        let rises = |y: f64| {
            self.emergence(y, 0.0, profile)
                .is_some_and(|e| e.slope > 0.0)
        };
        // The slope rises from below zero at `top` to 1 far above.
        let mut step = self.flat_law(profile).edge();
        while !rises(top + step) {
            step *= 2.0;
            if !step.is_finite() {
                return f64::INFINITY;
            }
        }
        let (mut low, mut high) = (top, top + step);
        for _ in 0..200 {
            let middle = 0.5 * (low + high);
            if middle <= low || middle >= high {
                break;
            }
            if rises(middle) {
                high = middle;
            } else {
                low = middle;
            }
        }
        self.emergence(high, 0.0, profile)
            .map_or(f64::INFINITY, |e| e.place - self.bulk)
    }

    /// The spectral noise over this bulk, taken as flat.
    fn flat_law(&self, profile: &NoiseProfile) -> SpectralNoise {
        SpectralNoise::over_flat_bulk(profile, self.rest.len(), self.bulk)
    }
}

/// Where an eigenvalue shows in noise.
struct OutlierPosition {
    /// The noisy eigenvalue.
    place: f64,
    /// Its derivative by the noiseless one: positive where it shows at all.
    slope: f64,
    squared_cosine: f64,
}

/// What n participants would show of a spectrum.
#[derive(Clone, Debug, PartialEq)]
pub struct Prediction {
    /// The leading components, in the order of the spectrum.
    pub components: Vec<PredictedComponent>,
    /// Expected ‖V̂V̂ᵀ − VVᵀ‖_F = √(2Σ(1−cos²)), an invisible component counting 1; at most √(2k).
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

/// What n participants would show of one component.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PredictedComponent {
    /// Its eigenvalue, size and tilt; `None` if it is invisible.
    pub spike: Option<Spike>,
    /// Whether its eigenvalue is expected above the threshold that `k = auto` counts with.
    pub above_threshold: bool,
}

/// What the mean of `n` reports with this noise would show of `spectrum`.
///
/// # Errors
/// `invalid-request` for n = 0; `invalid-mechanism` as [`SpectralNoise::new`].
pub fn predict(spectrum: &Spectrum, noise: &NoiseModel, n: u64) -> Result<Prediction> {
    if n == 0 {
        return Err(Error::invalid_request("n is 0; a mean needs n ≥ 1 reports"));
    }
    Ok(prediction(spectrum, &spectrum.noise_of(noise, n as f64)?))
}

fn prediction(spectrum: &Spectrum, profile: &NoiseProfile) -> Prediction {
    let flat = spectrum.flat_law(profile);
    // An eigenvalue that private centring lifts out of the bulk ranks before every component below it.
    let lifted = if profile.mean_ratio > 1.0 {
        flat.edge()
    } else {
        f64::NEG_INFINITY
    };
    let threshold = spectrum.edge(profile).max(lifted) + flat.margin(spectrum.dimension());
    let mut components: Vec<PredictedComponent> = Vec::with_capacity(spectrum.rank());
    for (j, &lambda) in spectrum.leading.iter().enumerate() {
        // Equal eigenvalues have equal predictions, and there may be many.
        if let Some(last) = components.last().copied()
            && spectrum.leading[j - 1] == lambda
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
    // An empty sum is −0.
    let sum: f64 = squared_cosines.map(|c| (1.0 - c).clamp(0.0, 1.0)).sum();
    (2.0 * sum + 0.0).sqrt()
}

/// Minimum number of participants for which every leading component of `spectrum` is expected above the threshold;
/// `None` when no number up to 10¹⁸ is enough (a component equal to the bulk).
///
/// # Errors
/// `invalid-mechanism` as [`SpectralNoise::new`].
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

/// Minimum number of participants for which the expected ‖V̂V̂ᵀ − VVᵀ‖_F is at most `target`; `None` when no number up
/// to 10¹⁸ is enough.
///
/// # Errors
/// `invalid-request` unless `target > 0`; `invalid-mechanism` as [`SpectralNoise::new`].
pub fn participants_for_error(
    spectrum: &Spectrum,
    noise: &NoiseModel,
    target: f64,
) -> Result<Option<u64>> {
    if !(target.is_finite() && target > 0.0) {
        return Err(Error::invalid_request(format!(
            "the target error is {target}; it must be positive"
        )));
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
        let profile = spectrum.noise_of(noise, n as f64)?;
        Ok(enough(&prediction(spectrum, &profile)))
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
    use super::{super::double_cap, *};

    #[test]
    fn invisible_components_count_fully_and_the_error_stays_finite() {
        let spectrum = Spectrum::new(40, vec![0.3, 0.2, 0.1], 0.4 / 37.0).unwrap();
        let drowned = predict(&spectrum, &NoiseModel::gaussian(5.0), 1).unwrap();
        assert!((drowned.expected_error - 6.0_f64.sqrt()).abs() < 1e-15);
        let mut components = drowned.components.iter();
        assert!(components.all(|c| c.spike.is_none() && !c.above_threshold));
        let clear = predict(&spectrum, &NoiseModel::gaussian(5.0), 1_000_000_000).unwrap();
        assert!(clear.expected_error < 0.02);
        let noiseless = predict(&spectrum, &NoiseModel::gaussian(0.0), 1).unwrap();
        assert_eq!(noiseless.expected_error, 0.0);
    }

    #[test]
    fn participants_invert_the_prediction() {
        let spectrum = Spectrum::new(100, vec![0.2, 0.15], 0.65 / 98.0).unwrap();
        let noise = NoiseModel::gaussian(4.0);
        let needed = |noise: &NoiseModel, target| participants_for_error(&spectrum, noise, target);
        let at = |target| needed(&noise, target).unwrap().unwrap();
        // Far above the floor the error is √(2Σ r²/θ²): four times the participants halve it.
        assert!((at(0.01) as f64 / at(0.02) as f64 - 4.0).abs() < 1e-3);
        assert!(needed(&noise, 0.0).is_err() && needed(&noise, f64::NAN).is_err());
        assert_eq!(needed(&NoiseModel::gaussian(0.0), 0.1).unwrap(), Some(1));
    }

    /// Over a flat bulk the spread formula is the flat one, at every strength and for every noise: the two were
    /// derived independently.
    #[test]
    fn a_flat_bulk_is_the_closed_form() {
        let p = 30;
        let caps = [1.0, 4.0, 8.0].map(|epsilon| double_cap(p, epsilon));
        for noise in [NoiseModel::gaussian(1.0)].into_iter().chain(caps) {
            for n in [20, 100, 1_000, 100_000] {
                for theta in [0.001, 0.01, 0.1, 0.2, 0.3, 0.9] {
                    let bulk = (1.0 - theta) / p as f64;
                    let spectrum = Spectrum::new(p, vec![bulk + theta], bulk).unwrap();
                    let profile = spectrum.noise_of(&noise, n as f64).unwrap();
                    let spectral_noise = SpectralNoise::new(&noise, p, 1, n, theta).unwrap();
                    let spread = spectrum.spike(bulk + theta, 0.0, &profile);
                    let flat = spectral_noise.spike_from_signal(theta);
                    assert_eq!(spread.is_some(), flat.is_some(), "{noise:?} θ = {theta}");
                    if let (Some(a), Some(b)) = (spread, flat) {
                        assert!((a.squared_cosine - b.squared_cosine).abs() < 1e-10);
                        assert!((a.displacement / b.displacement - 1.0).abs() < 1e-10);
                    }
                    if let NoiseModel::Gaussian { .. } = noise {
                        assert!((spectrum.edge(&profile) - spectral_noise.edge()).abs() < 1e-9);
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
            let n = participants_for_error(&spectrum, &noise, 0.3);
            let n = n.unwrap().unwrap();
            let seen = participants_for_visibility(&spectrum, &noise);
            let seen = seen.unwrap().unwrap();
            assert!(seen < n);
            let shown = |n| predict(&spectrum, &noise, n).unwrap().components[2].above_threshold;
            assert!(shown(seen) && !shown(seen - 1));
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
