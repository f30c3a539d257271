//! The spectrum of a population, and how noise shows it.

use eigenveil_shared::{Error, Result, mechanism::NoiseModel};

use super::{SpectralNoise, Spike, eigengap::mean_squared_sine, spiked_model::NoiseProfile};
use crate::search::bisect;

/// Spectrum of the noiseless second moment `E[xxᵀ]` of the prepared rows, of which the first k components are wanted.
#[derive(Clone, Debug, PartialEq)]
pub struct Spectrum {
    /// The eigenvalues that are counted one by one, descending: the k of the wanted components and perhaps more.
    distinct: Vec<f64>,
    /// k.
    rank: usize,
    /// The others, descending; all equal where the bulk is taken as flat.
    rest: Vec<f64>,
    /// Their mean.
    pub(crate) bulk: f64,
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
        let (k, rest) = (leading.len(), p.saturating_sub(leading.len()));
        Self::checked(leading, k, vec![bulk; rest])
    }

    /// The `k` leading of all `eigenvalues` (descending), with the others unchanged as the bulk: real data has a
    /// spread bulk, and components near its upper end are tilted into it (`docs/derivations/floor.md`, "A spread
    /// bulk"). Those that are nearer to the k-th than to the mean of all after it are counted one by one.
    pub fn from_eigenvalues(eigenvalues: &[f64], k: usize) -> Result<Self> {
        let (wanted, others) = eigenvalues.split_at(k.min(eigenvalues.len()));
        let mean = others.iter().sum::<f64>() / others.len() as f64;
        let middle = 0.5 * (wanted.last().copied().unwrap_or(mean) + mean);
        let near = others.iter().take_while(|&&value| value > middle).count();
        Self::with_distinct(eigenvalues, k + near, k)
    }

    /// Makes a spectrum like [`from_eigenvalues`](Self::from_eigenvalues), where the bulk begins after the first
    /// `distinct` ≥ k eigenvalues, whatever they are: the components between mix with the wanted ones, each by its own
    /// gap.
    pub fn with_distinct(eigenvalues: &[f64], distinct: usize, k: usize) -> Result<Self> {
        let (leading, rest) = eigenvalues.split_at(distinct.min(eigenvalues.len()));
        Self::checked(leading.to_vec(), k, rest.to_vec())
    }

    fn checked(distinct: Vec<f64>, k: usize, rest: Vec<f64>) -> Result<Self> {
        let reject = |detail: String| Err(Error::invalid_request(detail));
        let p = distinct.len() + rest.len();
        if k == 0 || k >= p || k > distinct.len() {
            return reject(format!(
                "{k} leading eigenvalues in dimension {p}; between 1 and p − 1 are needed"
            ));
        }
        let mut all = distinct.iter().chain(&rest);
        if all.clone().any(|value| !value.is_finite()) {
            return reject("an eigenvalue is not a finite number".to_owned());
        }
        let mut previous = f64::INFINITY;
        if !all.all(|&value| std::mem::replace(&mut previous, value) >= value) {
            return reject("the eigenvalues are not descending (down to the bulk)".to_owned());
        }
        let bulk = match rest.len() {
            0 => distinct[p - 1],
            directions => rest.iter().sum::<f64>() / directions as f64,
        };
        Ok(Self {
            runs: runs(&rest, &[]),
            distinct,
            rank: k,
            rest,
            bulk,
            excess: Vec::new(),
        })
    }

    /// Adds what private centring sees of the mean: `excess` is `m_v²/a²` of all p eigenvectors, m the mean of the
    /// rows. Without it the cost of centring is computed for components orthogonal to the mean.
    pub fn with_excess_along_mean(mut self, excess: Vec<f64>) -> Result<Self> {
        let usable = excess.iter().all(|x| x.is_finite() && *x >= -1.0);
        if excess.len() != self.dimension() || !usable {
            return Err(Error::invalid_request(format!(
                "{} numbers for the noise along the mean do not fit {} eigenvalues, or one is below −1 or not finite",
                excess.len(),
                self.dimension()
            )));
        }
        self.runs = runs(&self.rest, &excess[self.distinct.len()..]);
        self.excess = excess;
        Ok(self)
    }

    /// `m_v²/a²` of eigenvector `j`.
    pub(crate) fn excess(&self, j: usize) -> f64 {
        self.excess.get(j).copied().unwrap_or(0.0)
    }

    /// The dimension p.
    pub fn dimension(&self) -> usize {
        self.distinct.len() + self.rest.len()
    }

    /// Sum of all eigenvalues.
    pub fn total(&self) -> f64 {
        self.distinct.iter().chain(&self.rest).sum()
    }

    /// Components wanted, k.
    pub fn rank(&self) -> usize {
        self.rank
    }

    pub(crate) fn leading(&self) -> &[f64] {
        &self.distinct[..self.rank]
    }

    /// Mean squared sine that component `j` loses to those that are counted singly and not wanted; at most 1.
    pub(crate) fn mixing(&self, j: usize, profile: &NoiseProfile) -> f64 {
        let mut lost = 0.0;
        for i in self.rank..self.distinct.len() {
            lost += mean_squared_sine(self.gap(j, i, profile));
            if lost >= 1.0 {
                return 1.0;
            }
        }
        lost
    }

    /// The gap between two of the single eigenvalues in units of 2√V.
    fn gap(&self, j: usize, i: usize, profile: &NoiseProfile) -> f64 {
        let (own, other) = (self.distinct[j], self.distinct[i]);
        let excess = self.excess(j) + self.excess(i);
        profile.gap(own, other, excess)
    }

    /// The noise of n reports of rows with this second moment, entry by entry.
    ///
    /// Where the study does not fix `E‖x‖²` the sum of the spectrum is used (that of a part of the dimensions is less,
    /// which makes the noise larger, never smaller).
    pub(crate) fn noise_of(&self, noise: &NoiseModel, n_eff: f64) -> Result<NoiseProfile> {
        let sum = self.total();
        let norm = noise.mean_squared_norm(sum).unwrap_or(sum);
        NoiseProfile::new(noise, self.dimension(), n_eff, norm)
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
        if y <= self.top_of_rest() {
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
        let directions = self.rest.len().max(1) as f64;
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
        let eigenvalue = y + own0 * s0 + own1 * s1 + mean;
        // Not finite if the sums overflow next to an equal eigenvalue.
        (eigenvalue.is_finite() && slope.is_finite() && h > 0.0).then_some(OutlierPosition {
            place: eigenvalue,
            slope,
            squared_cosine: slope / stretch,
        })
    }

    fn top_of_rest(&self) -> f64 {
        self.rest.first().copied().unwrap_or(f64::NEG_INFINITY)
    }

    /// How the leading eigenvalue `lambda` will show.
    pub(crate) fn spike(&self, lambda: f64, excess: f64, profile: &NoiseProfile) -> Option<Spike> {
        let theta = lambda - self.bulk;
        if profile.is_noiseless() {
            return (lambda > self.top_of_rest()).then_some(Spike {
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
    pub(crate) fn edge(&self, profile: &NoiseProfile) -> f64 {
        let Some(&top) = self.rest.first() else {
            return f64::NEG_INFINITY;
        };
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
        let (_, high) = bisect(top, top + step, 200, |y| !rises(y));
        self.emergence(high, 0.0, profile)
            .map_or(f64::INFINITY, |e| e.place - self.bulk)
    }

    /// The spectral noise over this bulk, taken as flat.
    pub(crate) fn flat_law(&self, profile: &NoiseProfile) -> SpectralNoise {
        SpectralNoise::over_flat_bulk(profile, self.rest.len(), self.bulk)
    }
}

struct OutlierPosition {
    place: f64,
    /// Its derivative by the noiseless one: positive where it shows at all.
    slope: f64,
    squared_cosine: f64,
}
