//! The closed set of mechanisms with their derived constants, and the trait they share.

use rand::{
    Rng, SeedableRng,
    rngs::{ChaCha20Rng, SysRng},
};
use serde::{Deserialize, Serialize};

use super::{IsotropicGaussian, MAX_DENSE_DIMENSION, NoiseModel, SymmetricGaussian};
use crate::{
    error::{Error, ErrorCode, Result},
    preprocess::BoundedRow,
    privacy::{Budget, gaussian},
};

/// Name of a mechanism.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum MechanismKind {
    /// Algorithms 1 and 2 of Wang & Xu: i.i.d. Gaussians on the upper triangle.
    SymmetricGaussian,
    /// Gaussians isotropic in the Frobenius norm.
    IsotropicGaussian,
}

impl MechanismKind {
    /// Every mechanism.
    pub const ALL: &'static [MechanismKind] = &[
        MechanismKind::SymmetricGaussian,
        MechanismKind::IsotropicGaussian,
    ];

    /// The name as written on the wire and on the command line.
    pub const fn as_str(self) -> &'static str {
        match self {
            MechanismKind::SymmetricGaussian => "symmetric-gaussian",
            MechanismKind::IsotropicGaussian => "isotropic-gaussian",
        }
    }
}

impl std::fmt::Display for MechanismKind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}

impl std::str::FromStr for MechanismKind {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        Self::ALL
            .iter()
            .copied()
            .find(|kind| kind.as_str() == text)
            .ok_or_else(|| {
                let names: Vec<_> = Self::ALL.iter().map(|kind| kind.as_str()).collect();
                Error::new(
                    ErrorCode::InvalidMechanism,
                    format!(
                        "there is no mechanism {text:?}; the mechanisms are {}",
                        names.join(", ")
                    ),
                )
            })
    }
}

/// How the noise of a Gaussian mechanism is chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, Default)]
#[serde(rename_all = "kebab-case")]
pub enum Calibration {
    /// The smallest σ that is (ε, δ)-LDP (Balle & Wang 2018, sensitivity √2).
    #[default]
    Analytic,
    /// The σ that Wang & Xu print, so that their figures can be rerun; always shown with the (ε, δ)
    /// that really holds.
    AsPublished,
}

impl Calibration {
    /// The name as written on the wire and on the command line.
    pub const fn as_str(self) -> &'static str {
        match self {
            Calibration::Analytic => "analytic",
            Calibration::AsPublished => "as-published",
        }
    }
}

impl std::fmt::Display for Calibration {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}

impl std::str::FromStr for Calibration {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        match text {
            "analytic" => Ok(Calibration::Analytic),
            "as-published" => Ok(Calibration::AsPublished),
            _ => Err(Error::new(
                ErrorCode::InvalidMechanism,
                format!("there is no calibration {text:?}; it is analytic or as-published"),
            )),
        }
    }
}

pub(super) trait Sealed {}

/// A local randomizer: one bounded row in, one payload out. Sealed: the set is closed.
#[expect(private_bounds, reason = "sealed")]
pub trait LocalRandomizer: Sealed {
    /// Perturbs one row with this generator's randomness. Private only if `rng` is a
    /// cryptographic generator seeded by the operating system: [`MechanismSpec::release`] is.
    fn perturb<R: Rng + ?Sized>(&self, row: &BoundedRow, rng: &mut R) -> Vec<u8>;

    /// Bytes of one payload at this dimension.
    fn payload_len(&self, dimension: usize) -> usize;

    /// The noise of one decoded report.
    fn noise_model(&self) -> NoiseModel;
}

/// A mechanism with the constants derived once, when the study is created.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MechanismSpec {
    kind: MechanismKind,
    calibration: Calibration,
    sigma: f64,
}

impl MechanismSpec {
    /// Derives the constants for this budget.
    ///
    /// # Errors
    /// `invalid-budget` for a pure budget or ε > 16.
    pub fn derive(kind: MechanismKind, calibration: Calibration, budget: Budget) -> Result<Self> {
        budget.check_study_limit()?;
        let sigma = match calibration {
            Calibration::Analytic => gaussian::analytic_sigma(budget, gaussian::SENSITIVITY)?,
            Calibration::AsPublished => gaussian::as_published_sigma(budget)?,
        };
        Ok(Self {
            kind,
            calibration,
            sigma,
        })
    }

    /// Constants as they arrive on the wire: to be checked with [`check`](Self::check).
    pub(crate) fn from_wire(kind: MechanismKind, calibration: Calibration, sigma: f64) -> Self {
        Self {
            kind,
            calibration,
            sigma,
        }
    }

    /// Checks, on the device too, that the constants give what the study claims: a server cannot
    /// hand out less noise than the budget needs.
    ///
    /// # Errors
    /// `invalid-mechanism` when σ is not the noise this calibration and budget ask for;
    /// `invalid-dimension` and `invalid-budget` when they are out of range.
    pub fn check(&self, dimension: usize, budget: Budget) -> Result<()> {
        check_dimension(dimension)?;
        let wanted = Self::derive(self.kind, self.calibration, budget)?.sigma;
        let enough = match self.calibration {
            // Another implementation may end its search elsewhere: what counts is that the claim holds.
            Calibration::Analytic => {
                gaussian::true_delta(self.sigma, gaussian::SENSITIVITY, budget.epsilon())
                    <= budget.delta()
            }
            Calibration::AsPublished => self.sigma >= wanted * (1.0 - 1e-12),
        };
        if enough && self.sigma <= wanted * 1.01 {
            return Ok(());
        }
        Err(Error::new(
            ErrorCode::InvalidMechanism,
            format!(
                "the study's noise has standard deviation {} but ({}, {}) under calibration {} needs {wanted}; do not take part",
                self.sigma,
                budget.epsilon(),
                budget.delta(),
                self.calibration
            ),
        ))
    }

    /// The mechanism's name.
    pub fn kind(&self) -> MechanismKind {
        self.kind
    }

    /// How its noise was chosen.
    pub fn calibration(&self) -> Calibration {
        self.calibration
    }

    /// Noise scale σ, in units of the entries of `xxᵀ`.
    pub fn sigma(&self) -> f64 {
        self.sigma
    }

    /// Perturbs one row for release: (ε, δ)-LDP under replacement of the row, L2 sensitivity √2.
    ///
    /// The noise comes from ChaCha20 keyed by the operating system for this one report. There is no
    /// way to pass a generator or a seed here.
    ///
    /// # Errors
    /// `randomness-unavailable` when the operating system gives no randomness.
    pub fn release(&self, row: &BoundedRow) -> Result<Vec<u8>> {
        let mut generator = ChaCha20Rng::try_from_rng(&mut SysRng).map_err(|error| {
            Error::new(
                ErrorCode::RandomnessUnavailable,
                format!(
                    "the operating system's random generator failed ({error}); nothing was released"
                ),
            )
        })?;
        Ok(self.perturb(row, &mut generator))
    }

    /// Perturbs one row with the caller's generator, **for simulation only**: reproducible noise
    /// protects nobody. The device SDK never calls this.
    pub fn perturb_with<R: Rng + ?Sized>(&self, row: &BoundedRow, rng: &mut R) -> Vec<u8> {
        self.perturb(row, rng)
    }

    /// Bytes of one payload at this dimension.
    pub fn payload_len(&self, dimension: usize) -> usize {
        match self.kind {
            MechanismKind::SymmetricGaussian => self.symmetric().payload_len(dimension),
            MechanismKind::IsotropicGaussian => self.isotropic().payload_len(dimension),
        }
    }

    /// The noise of one decoded report.
    pub fn noise_model(&self) -> NoiseModel {
        match self.kind {
            MechanismKind::SymmetricGaussian => self.symmetric().noise_model(),
            MechanismKind::IsotropicGaussian => self.isotropic().noise_model(),
        }
    }

    fn perturb<R: Rng + ?Sized>(&self, row: &BoundedRow, rng: &mut R) -> Vec<u8> {
        match self.kind {
            MechanismKind::SymmetricGaussian => self.symmetric().perturb(row, rng),
            MechanismKind::IsotropicGaussian => self.isotropic().perturb(row, rng),
        }
    }

    fn symmetric(&self) -> SymmetricGaussian {
        SymmetricGaussian::new(self.sigma)
    }

    fn isotropic(&self) -> IsotropicGaussian {
        IsotropicGaussian::new(self.sigma)
    }
}

/// Refuses a dimension that the dense mechanisms cannot serve.
pub(crate) fn check_dimension(dimension: usize) -> Result<()> {
    if (2..=MAX_DENSE_DIMENSION).contains(&dimension) {
        return Ok(());
    }
    Err(Error::new(
        ErrorCode::InvalidDimension,
        format!("the dimension is {dimension}; this mechanism takes 2 to {MAX_DENSE_DIMENSION}"),
    ))
}
