//! The closed set of mechanisms with their derived constants, and the trait they share.

use rand::{
    Rng, SeedableRng,
    rngs::{ChaCha20Rng, SysRng},
};
use serde::{Deserialize, Serialize};

use super::{
    GaussianNoise, IsotropicGaussian, NoiseModel, SymmetricGaussian,
    discrete_gaussian::{DiscreteGaussian, DiscreteGaussianParameters, grid_sensitivity},
    double_cap::DoubleCap,
    gaussian::check_dense_dimension,
    work::{Counting, Work},
};
use crate::{
    error::{Error, ErrorCode, Result},
    preprocess::BoundedRow,
    privacy::{
        Budget,
        accountant::{self, GENERATOR_SLACK, Guarantee, Pure, Zcdp},
        gaussian,
    },
};

/// Name of a mechanism.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, Default)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum MechanismKind {
    /// A seed that leans towards the row: pure ε-LDP, 16 bytes.
    #[default]
    DoubleCap,
    /// Algorithms 1 and 2 of Wang & Xu: i.i.d. Gaussians on the upper triangle.
    SymmetricGaussian,
    /// Gaussians isotropic in the Frobenius norm.
    IsotropicGaussian,
    /// Exact discrete Gaussians on a grid, isotropic in the Frobenius norm.
    DiscreteGaussian,
}

impl MechanismKind {
    /// Every mechanism.
    pub const ALL: &'static [MechanismKind] = &[
        MechanismKind::DoubleCap,
        MechanismKind::SymmetricGaussian,
        MechanismKind::IsotropicGaussian,
        MechanismKind::DiscreteGaussian,
    ];

    /// The name as written on the wire and on the command line.
    pub const fn as_str(self) -> &'static str {
        match self {
            MechanismKind::DoubleCap => "double-cap",
            MechanismKind::SymmetricGaussian => "symmetric-gaussian",
            MechanismKind::IsotropicGaussian => "isotropic-gaussian",
            MechanismKind::DiscreteGaussian => "discrete-gaussian",
        }
    }

    /// Whether it promises δ = 0.
    pub const fn is_pure(self) -> bool {
        matches!(self, MechanismKind::DoubleCap)
    }

    /// Whether its noise is a continuous Gaussian with a choice of calibration.
    pub const fn is_gaussian(self) -> bool {
        matches!(
            self,
            MechanismKind::SymmetricGaussian | MechanismKind::IsotropicGaussian
        )
    }

    /// The budget for this ε: pure where the mechanism is, otherwise with this δ or [`DEFAULT_DELTA`].
    ///
    /// ```
    /// use eigenveil_shared::mechanism::MechanismKind;
    /// assert_eq!(MechanismKind::DoubleCap.budget(1.0, None)?.delta(), 0.0);
    /// assert_eq!(MechanismKind::IsotropicGaussian.budget(1.0, None)?.delta(), 1e-6);
    /// assert!(MechanismKind::DoubleCap.budget(1.0, Some(1e-6)).is_err());
    /// # Ok::<(), eigenveil_shared::Error>(())
    /// ```
    ///
    /// # Errors
    /// `invalid-budget` for an ε or δ out of range, and for a δ with a pure mechanism.
    pub fn budget(self, epsilon: f64, delta: Option<f64>) -> Result<Budget> {
        match delta {
            // 0 is what a pure mechanism has: saying so is no mistake.
            Some(delta) if self.is_pure() && delta != 0.0 => Err(Error::new(
                ErrorCode::InvalidBudget,
                format!("delta is {delta:e}, but the delta of {self} is always 0; leave delta out"),
            )),
            _ if self.is_pure() => Budget::pure(epsilon),
            delta => Budget::approximate(epsilon, delta.unwrap_or(DEFAULT_DELTA)),
        }
    }
}

/// Largest share of ε that floating point may add: a study beyond it is refused.
const MAX_ARITHMETIC_SHARE: f64 = 0.01;

/// δ of an (ε, δ) mechanism when nobody says.
pub const DEFAULT_DELTA: f64 = 1e-6;

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
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
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
                format!("there is no calibration {text:?}; use analytic or as-published"),
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
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "kebab-case", tag = "kind")]
#[non_exhaustive]
pub enum MechanismSpec {
    /// Pure ε-LDP, 16 bytes.
    DoubleCap(DoubleCap),
    /// Algorithms 1 and 2 of Wang & Xu.
    SymmetricGaussian(SymmetricGaussian),
    /// Gaussians isotropic in the Frobenius norm.
    IsotropicGaussian(IsotropicGaussian),
    /// Exact discrete Gaussians on a grid.
    DiscreteGaussian(DiscreteGaussian),
}

/// Evaluates an expression for whichever randomizer a spec holds.
macro_rules! with_randomizer {
    ($spec:expr, $randomizer:ident => $result:expr) => {
        match $spec {
            MechanismSpec::DoubleCap($randomizer) => $result,
            MechanismSpec::SymmetricGaussian($randomizer) => $result,
            MechanismSpec::IsotropicGaussian($randomizer) => $result,
            MechanismSpec::DiscreteGaussian($randomizer) => $result,
        }
    };
}

impl MechanismSpec {
    /// Derives the constants for reports of this dimension and this budget.
    ///
    /// # Errors
    /// `invalid-dimension`; `invalid-budget` for ε > 16, for a pure budget where the mechanism needs δ
    /// and for a δ where it takes none; `invalid-mechanism` for a calibration it does not have.
    pub fn derive(
        kind: MechanismKind,
        calibration: Calibration,
        dimension: usize,
        budget: Budget,
    ) -> Result<Self> {
        budget.check_study_limit()?;
        if calibration != Calibration::Analytic && !kind.is_gaussian() {
            return Err(Error::new(
                ErrorCode::InvalidMechanism,
                format!(
                    "there is no calibration {calibration} for {kind}; it belongs to symmetric-gaussian and isotropic-gaussian"
                ),
            ));
        }
        let spec = match kind {
            MechanismKind::DoubleCap => {
                MechanismSpec::DoubleCap(DoubleCap::derive(dimension, budget)?)
            }
            MechanismKind::SymmetricGaussian => MechanismSpec::SymmetricGaussian(
                SymmetricGaussian(GaussianNoise::derive(calibration, budget)?),
            ),
            MechanismKind::IsotropicGaussian => MechanismSpec::IsotropicGaussian(
                IsotropicGaussian(GaussianNoise::derive(calibration, budget)?),
            ),
            MechanismKind::DiscreteGaussian => {
                check_dense_dimension(dimension)?;
                MechanismSpec::DiscreteGaussian(DiscreteGaussian::derive(dimension, budget)?)
            }
        };
        if kind.is_gaussian() {
            check_dense_dimension(dimension)?;
        }
        Ok(spec)
    }

    /// The spec with these constants, as they arrive on the wire: to be checked with
    /// [`check`](Self::check). `None` when their number does not fit.
    pub(crate) fn from_constants(
        kind: MechanismKind,
        calibration: Calibration,
        dimension: usize,
        epsilon: f64,
        constants: &[f64],
    ) -> Option<Self> {
        Some(match kind {
            MechanismKind::DoubleCap => MechanismSpec::DoubleCap(DoubleCap::from_constants(
                dimension,
                epsilon,
                constants.try_into().ok()?,
            )),
            MechanismKind::SymmetricGaussian | MechanismKind::IsotropicGaussian => {
                let [sigma] = constants.try_into().ok()?;
                let noise = GaussianNoise::from_constants(calibration, sigma);
                if kind == MechanismKind::SymmetricGaussian {
                    MechanismSpec::SymmetricGaussian(SymmetricGaussian(noise))
                } else {
                    MechanismSpec::IsotropicGaussian(IsotropicGaussian(noise))
                }
            }
            MechanismKind::DiscreteGaussian => {
                let [grid_bits, sigma_grid] = constants.try_into().ok()?;
                let parameters = DiscreteGaussianParameters::new(
                    u8::try_from(whole(grid_bits)?).ok()?,
                    whole(sigma_grid)?,
                );
                MechanismSpec::DiscreteGaussian(DiscreteGaussian::new(dimension, parameters.ok()?))
            }
        })
    }

    /// The frozen constants in the order of `docs/protocol.md`.
    pub(crate) fn constants(&self) -> Vec<f64> {
        match self {
            MechanismSpec::DoubleCap(cap) => cap.constants().to_vec(),
            MechanismSpec::SymmetricGaussian(gaussian) => vec![gaussian.noise().sigma()],
            MechanismSpec::IsotropicGaussian(gaussian) => vec![gaussian.noise().sigma()],
            MechanismSpec::DiscreteGaussian(discrete) => {
                let parameters = discrete.parameters();
                // At most 2²⁶: exact.
                vec![
                    f64::from(parameters.grid_bits()),
                    parameters.sigma_grid() as f64,
                ]
            }
        }
    }

    /// Checks, on the device too, that the constants give what the study claims: a server cannot
    /// hand out less noise than the budget needs.
    ///
    /// # Errors
    /// `invalid-mechanism` when the constants are not those this dimension and budget ask for;
    /// `invalid-dimension` and `invalid-budget` when they are out of range, and where floating point could add
    /// more than a hundredth to ε ([`arithmetic_slack`](Self::arithmetic_slack)).
    pub fn check(&self, dimension: usize, budget: Budget) -> Result<()> {
        budget.check_study_limit()?;
        match self {
            MechanismSpec::DoubleCap(cap) => cap.check(dimension, budget),
            MechanismSpec::SymmetricGaussian(SymmetricGaussian(noise))
            | MechanismSpec::IsotropicGaussian(IsotropicGaussian(noise)) => {
                noise.check(dimension, budget)?;
                let slack = self.arithmetic_slack(dimension);
                if slack <= MAX_ARITHMETIC_SHARE * budget.epsilon() {
                    return Ok(());
                }
                Err(Error::new(
                    ErrorCode::InvalidBudget,
                    format!(
                        "epsilon is {:e} and floating point could add {slack:.1e} to it at dimension {dimension}; take epsilon = {:.1e} or more, or discrete-gaussian",
                        budget.epsilon(),
                        1.05 * slack / MAX_ARITHMETIC_SHARE
                    ),
                ))
            }
            MechanismSpec::DiscreteGaussian(discrete) => {
                check_dense_dimension(dimension)?;
                discrete.check(dimension, budget)
            }
        }
    }

    /// What computing in floating point adds at most to ε of one report of this dimension, beside the guarantee
    /// of the real-number mechanism: [`GENERATOR_SLACK`] for `double-cap`, d·2⁻³⁵ or a little more for the
    /// Gaussian mechanisms (whose δ also grows by half that share), 0 for the discrete one.
    pub fn arithmetic_slack(&self, dimension: usize) -> f64 {
        match self {
            MechanismSpec::DoubleCap(_) => GENERATOR_SLACK,
            MechanismSpec::SymmetricGaussian(gaussian) => {
                gaussian.rounded().arithmetic_slack(dimension)
            }
            MechanismSpec::IsotropicGaussian(gaussian) => {
                gaussian.rounded().arithmetic_slack(dimension)
            }
            MechanismSpec::DiscreteGaussian(_) => 0.0,
        }
    }

    /// The mechanism's name.
    pub fn kind(&self) -> MechanismKind {
        match self {
            MechanismSpec::DoubleCap(_) => MechanismKind::DoubleCap,
            MechanismSpec::SymmetricGaussian(_) => MechanismKind::SymmetricGaussian,
            MechanismSpec::IsotropicGaussian(_) => MechanismKind::IsotropicGaussian,
            MechanismSpec::DiscreteGaussian(_) => MechanismKind::DiscreteGaussian,
        }
    }

    /// How the noise was chosen, where there is a choice.
    pub fn calibration(&self) -> Option<Calibration> {
        Some(self.gaussian_noise()?.calibration())
    }

    /// The noise of a mechanism whose noise is a continuous Gaussian by construction.
    pub fn gaussian_noise(&self) -> Option<GaussianNoise> {
        match self {
            MechanismSpec::SymmetricGaussian(gaussian) => Some(gaussian.noise()),
            MechanismSpec::IsotropicGaussian(gaussian) => Some(gaussian.noise()),
            MechanismSpec::DoubleCap(_) | MechanismSpec::DiscreteGaussian(_) => None,
        }
    }

    /// What one report satisfies, for composing it with others: what holds, not what is claimed.
    ///
    /// # Errors
    /// `invalid-mechanism` for constants that were never checked.
    pub fn guarantee(&self) -> Result<Guarantee> {
        Ok(match self {
            MechanismSpec::DoubleCap(cap) => Pure::double_cap(cap.epsilon())?.into(),
            MechanismSpec::SymmetricGaussian(SymmetricGaussian(noise))
            | MechanismSpec::IsotropicGaussian(IsotropicGaussian(noise)) => {
                accountant::Gaussian::from_noise(noise.sigma(), gaussian::SENSITIVITY)?.into()
            }
            MechanismSpec::DiscreteGaussian(discrete) => {
                Zcdp::new(discrete.parameters().zcdp_rho(discrete.dimension()))?.into()
            }
        })
    }

    /// The smallest ε that really holds at this δ, rounded up; `None` when none does.
    pub fn true_epsilon(&self, delta: f64) -> Option<f64> {
        match self {
            MechanismSpec::DoubleCap(cap) => Some((cap.epsilon() + GENERATOR_SLACK).next_up()),
            MechanismSpec::SymmetricGaussian(SymmetricGaussian(noise))
            | MechanismSpec::IsotropicGaussian(IsotropicGaussian(noise)) => {
                gaussian::true_epsilon(noise.sigma(), gaussian::SENSITIVITY, delta)
            }
            MechanismSpec::DiscreteGaussian(discrete) => discrete
                .parameters()
                .true_epsilon(discrete.dimension(), delta),
        }
    }

    /// The smallest δ that really holds at the claimed ε, rounded up. For `double-cap` the claim is
    /// understood as ε + [`GENERATOR_SLACK`], and δ is 0.
    pub fn true_delta(&self, epsilon: f64) -> f64 {
        match self {
            MechanismSpec::DoubleCap(cap) => {
                if epsilon >= cap.epsilon() {
                    0.0
                } else {
                    // Densities in {1, e^ε'}/Z: the hockey-stick divergence is at most 1 − e^(ε−ε').
                    (-(epsilon - cap.epsilon() - GENERATOR_SLACK).exp_m1()).next_up()
                }
            }
            MechanismSpec::SymmetricGaussian(SymmetricGaussian(noise))
            | MechanismSpec::IsotropicGaussian(IsotropicGaussian(noise)) => {
                gaussian::true_delta(noise.sigma(), gaussian::SENSITIVITY, epsilon)
            }
            MechanismSpec::DiscreteGaussian(discrete) => discrete
                .parameters()
                .true_delta(discrete.dimension(), epsilon),
        }
    }

    /// Probability that one report changes the odds between the worst pair of rows by more than e^`epsilon`, one way or
    /// the other ([`gaussian::loss_exceeds`]); 0 for a pure mechanism at its ε. It is larger than δ.
    pub fn loss_exceeds(&self, epsilon: f64) -> f64 {
        match self {
            MechanismSpec::DoubleCap(cap) if epsilon >= cap.epsilon() => 0.0,
            MechanismSpec::DoubleCap(_) => 1.0,
            // The grid misses the threshold by half a cell at most (docs/derivations/gaussian.md, "The two-sided statement").
            MechanismSpec::SymmetricGaussian(gaussian) => {
                loss_exceeds_within(gaussian.noise(), gaussian.rounded().half_cell(), epsilon)
            }
            MechanismSpec::IsotropicGaussian(gaussian) => {
                loss_exceeds_within(gaussian.noise(), gaussian.rounded().half_cell(), epsilon)
            }
            // So do whole numbers (docs/derivations/discrete-gaussian.md, "The two-sided probability").
            MechanismSpec::DiscreteGaussian(discrete) => {
                let parameters = discrete.parameters();
                let sensitivity = grid_sensitivity(discrete.dimension(), parameters.grid_bits());
                let sigma = parameters.sigma_grid() as f64;
                let half_step = 0.5 * sensitivity / (sigma * sigma);
                gaussian::loss_exceeds(sigma, sensitivity, epsilon - half_step)
            }
        }
    }

    /// Perturbs one row for release; the guarantee is the mechanism's own, under replacement of the row.
    ///
    /// The randomness comes from ChaCha20 keyed by the operating system for this one report. There is no
    /// way to pass a generator or a seed here.
    ///
    /// # Errors
    /// `randomness-unavailable` when the operating system gives no randomness.
    pub fn release(&self, row: &BoundedRow) -> Result<Vec<u8>> {
        Ok(self.release_counted(row)?.0)
    }

    /// The release and what it took, **for the audit**: [`release`](Self::release) is its first half. The
    /// work is to leave no device.
    ///
    /// # Errors
    /// As [`release`](Self::release).
    pub fn release_counted(&self, row: &BoundedRow) -> Result<(Vec<u8>, Work)> {
        let mut generator = ChaCha20Rng::try_from_rng(&mut SysRng).map_err(|error| {
            Error::new(
                ErrorCode::RandomnessUnavailable,
                format!(
                    "the operating system's random generator failed ({error}); nothing was released"
                ),
            )
        })?;
        Ok(self.perturb_counted(row, &mut generator))
    }

    /// Perturbs one row with the caller's generator, **for simulation only**: reproducible noise
    /// protects nobody. The device SDK never calls this.
    pub fn perturb_with<R: Rng + ?Sized>(&self, row: &BoundedRow, rng: &mut R) -> Vec<u8> {
        self.perturb_counted(row, rng).0
    }

    /// As [`perturb_with`](Self::perturb_with), with what it took.
    pub fn perturb_counted<R: Rng + ?Sized>(
        &self,
        row: &BoundedRow,
        rng: &mut R,
    ) -> (Vec<u8>, Work) {
        let mut counting = Counting::new(rng);
        let (payload, tries) = match self {
            MechanismSpec::DoubleCap(cap) => {
                let (seed, tries) = cap.draw_with(row, &mut counting);
                (seed.to_vec(), tries)
            }
            MechanismSpec::SymmetricGaussian(gaussian) => (gaussian.perturb(row, &mut counting), 1),
            MechanismSpec::IsotropicGaussian(gaussian) => (gaussian.perturb(row, &mut counting), 1),
            MechanismSpec::DiscreteGaussian(discrete) => (discrete.perturb(row, &mut counting), 1),
        };
        let words = counting.words();
        (payload, Work { tries, words })
    }

    /// Bytes of one payload of reports of this dimension.
    pub fn payload_len(&self, dimension: usize) -> usize {
        with_randomizer!(self, randomizer => randomizer.payload_len(dimension))
    }

    /// What a payload is made of.
    pub fn payload_form(&self) -> PayloadForm {
        match self {
            MechanismSpec::DoubleCap(_) => PayloadForm::Seed,
            MechanismSpec::SymmetricGaussian(_) | MechanismSpec::IsotropicGaussian(_) => {
                PayloadForm::Floats
            }
            MechanismSpec::DiscreteGaussian(discrete) => PayloadForm::Integers {
                bound: discrete.parameters().payload_bound(),
            },
        }
    }

    /// The noise of one decoded report.
    pub fn noise_model(&self) -> NoiseModel {
        with_randomizer!(self, randomizer => randomizer.noise_model())
    }
}

/// [`gaussian::loss_exceeds`] where a released number is known to within this many standard deviations.
fn loss_exceeds_within(noise: GaussianNoise, within: f64, epsilon: f64) -> f64 {
    let missed = within * gaussian::SENSITIVITY / noise.sigma();
    gaussian::loss_exceeds(noise.sigma(), gaussian::SENSITIVITY, epsilon - missed)
}

/// A constant that must be a whole number no `f64` has rounded.
fn whole(constant: f64) -> Option<u64> {
    let fits = constant.fract() == 0.0 && (0.0..=(1_u64 << 53) as f64).contains(&constant);
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a whole number between 0 and 2^53"
    )]
    fits.then_some(constant as u64)
}

/// What the bytes of a payload are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum PayloadForm {
    /// Little-endian f32, the packed upper triangle; each must be finite.
    Floats,
    /// Little-endian i32, the packed upper triangle on a grid; none may exceed the bound in magnitude.
    Integers {
        /// Largest magnitude a device sends.
        bound: i32,
    },
    /// Sixteen bytes, every value of which is a report.
    Seed,
}

impl PayloadForm {
    /// Refuses numbers that no device sends. Nothing leaves a loop early: without a branch it is
    /// vectorised, and reports are nearly always in order.
    ///
    /// # Errors
    /// `payload-not-finite`, `payload-out-of-range`.
    pub fn check(self, payload: &[u8]) -> Result<()> {
        let (numbers, _) = payload.as_chunks::<4>();
        match self {
            PayloadForm::Seed => Ok(()),
            PayloadForm::Floats => {
                // An f32 is NaN or infinite iff its exponent bits are all ones: one more then carries into
                // the top bit. Masks and sums of whole lanes vectorise, a conjunction of booleans does not.
                let carries = numbers.iter().fold(0, |carries, n| {
                    carries | ((u32::from_le_bytes(*n) & 0x7f80_0000) + 0x0080_0000)
                });
                if carries >> 31 == 0 {
                    return Ok(());
                }
                Err(Error::new(
                    ErrorCode::PayloadNotFinite,
                    "the payload has a NaN or infinite entry; the device must not send one",
                ))
            }
            PayloadForm::Integers { bound } => {
                // The difference is below 2³¹ in magnitude: its top bit is its sign.
                let bound_magnitude = bound.unsigned_abs();
                let signs = numbers.iter().fold(0, |signs, n| {
                    signs | bound_magnitude.wrapping_sub(i32::from_le_bytes(*n).unsigned_abs())
                });
                if signs >> 31 == 0 {
                    return Ok(());
                }
                Err(Error::new(
                    ErrorCode::PayloadOutOfRange,
                    format!(
                        "the payload has an entry beyond {bound} in magnitude, which no device of this study sends"
                    ),
                ))
            }
        }
    }
}
