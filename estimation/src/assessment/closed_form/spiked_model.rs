//! The spiked model: from a component's size to its noisy eigenvalue, and back.

use eigenveil_shared::{Error, Result, error, mechanism::NoiseModel};

/// Second moments of the noise of the mean of n reports, between two orthonormal directions in which the
/// rows have mean squares λ and λ': `V = constant + linear·(λ + λ') + bilinear·λλ'`.
///
/// For `double-cap` it is the variance of one report (`docs/derivations/double-cap.md`, "Variance") averaged over rows
/// of independent length and direction (`docs/derivations/floor.md`, "The noise of a mean"), `E‖x‖² = ρ`: constant
/// `(c²/n)[ρa₀ + (1−ρ)/(p(p+2))]`, linear `(c²/n)a₁`, bilinear `(c²/n)a₂·p/((p+2)ρ)`. The last factor makes V exactly
/// `c²/(n p(p+2))` for rows of uniform direction and any length, so that the floor under pure noise is right in small
/// dimensions too.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct NoiseProfile {
    /// χ.
    pub(crate) shift: f64,
    pub(crate) constant: f64,
    pub(crate) linear: f64,
    pub(crate) bilinear: f64,
    /// Addition of private centring in a direction v, per `m_v²/a²`.
    pub(crate) along_mean: f64,
    /// ‖E x‖/a of private centring, else 0.
    pub(crate) mean_ratio: f64,
    /// By how much unequal shares of observed cells widen the spectrum of pure noise; 0 counts as 1.
    pub(crate) edge_widening: f64,
}

impl NoiseProfile {
    /// The noise within `rows` of the dimensions, of rows with `E‖x‖² = squared_norm` (which Gaussian
    /// noise does not depend on).
    pub(crate) fn new(
        noise: &NoiseModel,
        rows: usize,
        n_eff: f64,
        squared_norm: f64,
    ) -> Result<Self> {
        let sd = checked_deviation(noise)?;
        match *noise {
            NoiseModel::Gaussian { .. } => Ok(Self {
                constant: sd * sd / n_eff,
                ..Self::default()
            }),
            NoiseModel::Transformed {
                dimension,
                constant,
                linear,
                bilinear,
                shift,
                mean_ratio,
                edge_widening,
                ..
            } => Self {
                shift: shift * rows as f64 / (dimension as f64 * n_eff),
                constant: constant / n_eff,
                linear: linear / n_eff,
                bilinear: bilinear / n_eff,
                along_mean: constant / n_eff,
                mean_ratio,
                edge_widening,
            }
            .checked(),
            NoiseModel::DoubleCap {
                dimension,
                scale,
                a0,
                a1,
                a2,
                ..
            } => {
                let p = dimension as f64;
                let norm = squared_norm.clamp(0.0, 1.0);
                let unit = scale * scale / n_eff;
                let bilinear = if norm > 0.0 {
                    unit * a2 * p / ((p + 2.0) * norm)
                } else {
                    0.0
                };
                let profile = Self {
                    shift: scale * rows as f64 / (p * n_eff),
                    constant: unit * (norm * a0 + (1.0 - norm) / (p * (p + 2.0))),
                    linear: unit * a1,
                    bilinear,
                    ..Self::default()
                };
                profile.checked()
            }
        }
    }

    fn checked(self) -> Result<Self> {
        let usable = [
            self.shift,
            self.constant,
            self.linear,
            self.bilinear,
            self.mean_ratio,
            self.edge_widening,
        ];
        if usable.iter().all(|number| number.is_finite()) {
            return Ok(self);
        }
        Err(error!(
            InvalidMechanism,
            "the constants of the noise are not finite numbers"
        ))
    }

    pub(crate) fn is_noiseless(&self) -> bool {
        self.constant == 0.0 && self.linear == 0.0 && self.bilinear == 0.0 && self.shift == 0.0
    }

    /// The gap between two eigenvalues in units of 2√V, where the `m_v²/a²` of their directions add up to `excess`; 0
    /// where they are equal, also without noise.
    pub(crate) fn gap(&self, one: f64, other: f64, excess: f64) -> f64 {
        let gap = (one - other).abs();
        let variance = self.variance(one, other) + self.along_mean * excess;
        if gap > 0.0 {
            0.5 * gap / variance.sqrt()
        } else {
            0.0
        }
    }

    /// V between directions of these mean squares.
    pub(crate) fn variance(&self, a: f64, b: f64) -> f64 {
        (self.constant + self.linear * (a + b) + self.bilinear * a * b).max(0.0)
    }
}

/// Standard deviation of one report between two directions.
///
/// # Errors
/// `invalid-mechanism` where it is not a finite number ≥ 0.
pub(crate) fn checked_deviation(noise: &NoiseModel) -> Result<f64> {
    let sd = noise.off_diagonal_sd();
    if sd.is_finite() && sd >= 0.0 {
        return Ok(sd);
    }
    Err(error!(
        InvalidMechanism,
        "the noise's standard deviation is {sd}; it must be a finite number ≥ 0"
    ))
}

/// Mean squared sines that a [`SelectionLoss`](eigenveil_shared::estimate::SelectionLoss) of 1 stands for, with the
/// noise of `n_eff` reports.
pub(crate) fn unit_of_loss(noise: &NoiseModel, n_eff: f64) -> f64 {
    noise.off_diagonal_sd().powi(2) / n_eff
}

/// # Errors
/// `invalid-request` for no reports.
pub(crate) fn check_reports(n_eff: f64) -> Result<()> {
    // Written so that NaN fails.
    if n_eff > 0.0 {
        return Ok(());
    }
    Err(Error::invalid_request(format!(
        "n is {n_eff}; a mean needs n ≥ 1 reports"
    )))
}

/// Noise of the mean of n reports as its spectrum shows it, with a given number of components removed,
/// over a flat bulk.
///
/// That of `double-cap` is Wishart-like and depends on the signal; the Gaussian mechanisms have
/// `shift = 0`, `signal_variance_slope = 0` and `signal_variance = bulk_radius²`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SpectralNoise {
    /// χ: shift of the bulk towards larger eigenvalues (`c/n` for `double-cap`, 0 for Gaussian noise).
    pub shift: f64,
    /// r_b: half of the bulk's half-width; pure noise ends near `b + χ + 2 r_b`.
    pub bulk_radius: f64,
    /// R² at θ = 0: squared length of the noise that tilts a component, `R² = this + slope·θ`.
    pub signal_variance: f64,
    /// dR²/dθ.
    pub signal_variance_slope: f64,
    /// Noise directions, p − k.
    pub directions: usize,
    /// Addition of two components θ and θ' to the variance between them, per θθ'.
    pub cross_variance_slope: f64,
    /// Addition of private centring to R² of a component v, per `m_v²/a²`; else 0.
    pub along_mean: f64,
    /// ‖E x‖/a of private centring, else 0: it lifts [`edge`](Self::edge) where it exceeds 1.
    pub mean_ratio: f64,
    /// By how much unequal shares of observed cells widen the spectrum of pure noise: at least 1.
    pub edge_widening: f64,
}

/// One component as seen through noise.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Spike {
    /// θ: the component's eigenvalue above the bulk, without noise.
    pub theta: f64,
    /// Where it shows: the noisy eigenvalue minus the bulk's centre, `χ + H + r_b²/H`.
    pub displacement: f64,
    /// Expected squared cosine between the noisy direction and the true one.
    pub squared_cosine: f64,
}

impl SpectralNoise {
    /// The noise of the mean of `n_eff` reports within `rows` dimensions (all p, or those a sparse estimate
    /// selects), outside `components` directions whose sizes θ add up to `signal`.
    ///
    /// Gaussian noise does not depend on the signal. That of `double-cap` does, through the bulk's level
    /// `(ρ − Σθ)/p`, `ρ = E‖x‖²`. Where the study does not fix ρ it lies between Σθ and 1; the distribution is
    /// linear or nearly so in ρ, and each of its numbers is the larger of those at the two ends, so that
    /// noise is never understated (the two differ by less than 1 % for p ≥ 40, ε ≤ 8).
    ///
    /// # Errors
    /// `invalid-request` unless `components < rows` and `n_eff > 0`; `invalid-mechanism` for a noise family
    /// whose floor is not known here, or constants that are not finite numbers (a standard deviation ≥ 0).
    pub fn new(
        noise: &NoiseModel,
        rows: usize,
        components: usize,
        n_eff: f64,
        signal: f64,
    ) -> Result<Self> {
        check_reports(n_eff)?;
        if components >= rows {
            return Err(Error::invalid_request(format!(
                "{components} components leave no noise directions in dimension {rows}"
            )));
        }
        let (dimension, mean_squared_norm) = match *noise {
            NoiseModel::DoubleCap {
                dimension,
                mean_squared_norm,
                ..
            } => (dimension, mean_squared_norm),
            NoiseModel::Transformed {
                dimension,
                total_variance,
                ..
            } => (dimension, total_variance),
            NoiseModel::Gaussian { .. } => {
                let profile = NoiseProfile::new(noise, rows, n_eff, 1.0)?;
                return Ok(Self::over_flat_bulk(&profile, rows - components, 0.0));
            }
        };
        let at = |norm: f64| {
            let level = (norm - signal).max(0.0) / dimension as f64;
            let profile = NoiseProfile::new(noise, rows, n_eff, norm)?;
            Ok(Self::over_flat_bulk(&profile, rows - components, level))
        };
        match mean_squared_norm {
            Some(norm) => at(norm),
            None => Ok(at(signal.clamp(0.0, 1.0))?.elementwise_max(at(1.0)?)),
        }
    }

    /// The spectral noise over a bulk that is flat at `level`.
    pub(crate) fn over_flat_bulk(profile: &NoiseProfile, directions: usize, level: f64) -> Self {
        let count = directions as f64;
        let variance = count * profile.variance(level, level);
        Self {
            shift: profile.shift,
            bulk_radius: variance.sqrt(),
            signal_variance: variance,
            signal_variance_slope: count * (profile.linear + profile.bilinear * level).max(0.0),
            directions,
            cross_variance_slope: profile.bilinear,
            along_mean: count * profile.along_mean,
            mean_ratio: profile.mean_ratio,
            edge_widening: profile.edge_widening.max(1.0),
        }
    }

    /// The larger of both in every number.
    fn elementwise_max(self, other: Self) -> Self {
        Self {
            shift: self.shift.max(other.shift),
            bulk_radius: self.bulk_radius.max(other.bulk_radius),
            signal_variance: self.signal_variance.max(other.signal_variance),
            signal_variance_slope: self.signal_variance_slope.max(other.signal_variance_slope),
            directions: self.directions,
            cross_variance_slope: self.cross_variance_slope.max(other.cross_variance_slope),
            ..self
        }
    }

    /// Standard deviation of the noise between two directions of the bulk.
    pub(crate) fn bulk_deviation(&self) -> f64 {
        self.bulk_radius / (self.directions as f64).sqrt()
    }

    /// Variance of the noise between two components of these sizes.
    pub(crate) fn variance_between(&self, a: f64, b: f64) -> f64 {
        let per_direction = self.signal_variance + self.signal_variance_slope * (a + b);
        (per_direction / self.directions as f64 + self.cross_variance_slope * a * b).max(0.0)
    }

    /// Upper edge of the noise above its centre: `χ + 2 r_b`, or where private centring lifts an eigenvalue of
    /// pure noise out of the bulk, `χ + 2 r_b·(x + 1/x)/2`; wider by what unequal shares of observed cells do.
    pub fn edge(&self) -> f64 {
        let widening = edge_factor(self.mean_ratio) * self.edge_widening;
        self.shift + 2.0 * self.bulk_radius * widening
    }

    /// The height above the centre that an eigenvalue must exceed to count: `edge + 2 r_b p^(−2/3)`. The margin is of
    /// the order of the fluctuation of the largest eigenvalue of pure noise.
    pub fn threshold(&self, p: usize) -> f64 {
        self.edge() + self.margin(p)
    }

    /// The margin `2 r_b p^(−2/3)`, or the larger one for the noise along the mean, which fluctuates more.
    pub(crate) fn margin(&self, p: usize) -> f64 {
        let bulk = 2.0 * self.edge_widening * (p as f64).powf(-2.0 / 3.0);
        self.bulk_radius * bulk.max(mean_margin(self.mean_ratio, p))
    }

    /// Bounds for a component v with this `m_v²/a²`.
    pub(crate) fn with_excess(self, excess: f64) -> Self {
        Self {
            signal_variance: self.signal_variance + excess * self.along_mean,
            ..self
        }
    }

    /// The component behind an eigenvalue that lies `displacement` above the centre; `None` inside the bulk.
    pub fn spike_from_eigenvalue(&self, displacement: f64) -> Option<Spike> {
        let x = displacement - self.shift;
        // Also false for NaN.
        let outside = x > 2.0 * self.bulk_radius && x.is_finite();
        if !outside {
            return None;
        }
        // √(x²−4r²) in two factors: no cancellation near the edge, no overflow far from it.
        let root = (x - 2.0 * self.bulk_radius).sqrt() * (x + 2.0 * self.bulk_radius).sqrt();
        let h = 0.5 * (x + root);
        // θ = displacement − R²(θ)/H with R² = A + Bθ.
        let theta =
            (displacement - self.signal_variance / h) / (1.0 + self.signal_variance_slope / h);
        let strength = (self.signal_variance + self.signal_variance_slope * theta).max(0.0);
        // Divided by H² throughout, so that nothing overflows.
        let inside = self.bulk_radius / h;
        let above = (1.0 - inside) * (1.0 + inside);
        Some(Spike {
            theta,
            displacement,
            squared_cosine: above / (above + strength / h / h),
        })
    }
}

/// `max(1, (x + 1/x)/2)`.
fn edge_factor(x: f64) -> f64 {
    if x > 1.0 { 0.5 * (x + x.recip()) } else { 1.0 }
}

/// The margin above the edge for the noise along m̂, in units of r_b, such that noise alone exceeds it in one or two
/// of a hundred cases: `2.95·min(x, x²)/√p`.
///
/// An eigenvalue outside the bulk fluctuates like `x√(1.5/p)`, not like p^(−2/3), and the edge is affected from below
/// x = 1 on: with the bulk's margin, noise was counted in up to 16 % of cases (x = 1.2). Fitted to the 99 % points
/// of 800 to 4,000 draws of `G − x(ugᵀ + guᵀ)` for p = 10, 40, 150 and x = 0.5 to 9; as x grows it is 2.33
/// standard deviations and 3 % more.
fn mean_margin(x: f64, p: usize) -> f64 {
    2.95 * x.min(x * x) / (p as f64).sqrt()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn out_of_range_is_an_error() {
        let noise = NoiseModel::gaussian(1.0);
        assert!(SpectralNoise::new(&noise, 3, 3, 10.0, 0.0).is_err());
        assert!(SpectralNoise::new(&noise, 3, 1, 0.0, 0.0).is_err());
        let noise = NoiseModel::Gaussian {
            off_diagonal_sd: f64::NAN,
            diagonal_sd: 1.0,
        };
        assert!(SpectralNoise::new(&noise, 3, 1, 10.0, 0.0).is_err());
    }

    #[test]
    fn without_noise_a_component_is_itself_and_within_it_none() {
        let none = SpectralNoise::over_flat_bulk(&NoiseProfile::default(), 3, 0.0);
        let spike = none.spike_from_eigenvalue(0.3).unwrap();
        assert_eq!((spike.theta, spike.squared_cosine), (0.3, 1.0));
        assert!(none.spike_from_eigenvalue(0.0).is_none());
        let noise = SpectralNoise::new(&NoiseModel::gaussian(3.0), 45, 5, 1000.0, 0.0).unwrap();
        let r = 3.0 * (40.0_f64 / 1000.0).sqrt();
        assert!((noise.bulk_radius - r).abs() < 1e-15);
        assert!(noise.spike_from_eigenvalue(1.999 * r).is_none());
        assert!(noise.spike_from_eigenvalue(f64::NAN).is_none());
    }
}
