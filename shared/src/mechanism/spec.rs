//! The closed set of mechanisms, in one list.

use rand::{
    Rng, SeedableRng,
    rngs::{ChaCha20Rng, SysRng},
};
use serde::{Deserialize, Serialize};

use super::{
    AuditStatistic, Calibration, Decoding, GaussianNoise, IsotropicGaussian, NoiseModel, NormBound,
    PayloadKind, SymmetricGaussian,
    discrete_gaussian::DiscreteGaussian,
    double_cap::DoubleCap,
    randomizer::LocalRandomizer,
    sampling_cost::{CountingRng, SamplingCost},
};
use crate::{
    error::{Error, Result, error},
    preprocess::BoundedRow,
    privacy::{Budget, accountant::Guarantee},
};

/// Lists the mechanisms once, and generates the two enums and two dispatch macros from the list.
macro_rules! mechanisms {
    ($d:tt $($(#[$meta:meta])* $name:ident($(#[$spec_meta:meta])* $randomizer:ty),)*) => {
        /// Name of a mechanism.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, Default)]
        #[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
        #[serde(rename_all = "kebab-case")]
        pub enum MechanismKind {
            $($(#[$meta])* $name,)*
        }

        /// A mechanism with the constants derived once, when the study is created.
        #[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
        #[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
        #[serde(rename_all = "kebab-case", tag = "kind")]
        pub enum Mechanism {
            $($(#[$spec_meta])* $name($randomizer),)*
        }

        impl MechanismKind {
            /// Every mechanism.
            pub const ALL: &'static [MechanismKind] = &[$(MechanismKind::$name,)*];
        }

        impl Mechanism {
            /// The mechanism's name.
            pub fn kind(&self) -> MechanismKind {
                match self {
                    $(Mechanism::$name(_) => MechanismKind::$name,)*
                }
            }
        }

        $(impl From<$randomizer> for Mechanism {
            fn from(randomizer: $randomizer) -> Self {
                Mechanism::$name(randomizer)
            }
        })*

        /// Evaluates an expression of the randomizer that a mechanism holds.
        macro_rules! dispatch_value {
            ($d mechanism:expr, $d randomizer:ident => $d result:expr) => {
                match $d mechanism {
                    $(Mechanism::$name($d randomizer) => $d result,)*
                }
            };
        }

        /// Evaluates an expression of the type of randomizer that a kind names.
        macro_rules! dispatch_type {
            ($d kind:expr, $d randomizer:ident => $d result:expr) => {
                match $d kind {
                    $(MechanismKind::$name => {
                        type $d randomizer = $randomizer;
                        $d result
                    })*
                }
            };
        }
    };
}

mechanisms! { $
    /// A seed that leans towards the row: pure ε-LDP, 16 bytes.
    #[default]
    DoubleCap(
        /// Pure ε-LDP, 16 bytes.
        DoubleCap
    ),
    /// Algorithms 1 and 2 of Wang & Xu: i.i.d. Gaussians on the upper triangle.
    SymmetricGaussian(
        /// Algorithms 1 and 2 of Wang & Xu.
        SymmetricGaussian
    ),
    /// Gaussians isotropic in the Frobenius norm.
    IsotropicGaussian(
        /// Gaussians isotropic in the Frobenius norm.
        IsotropicGaussian
    ),
    /// Exact discrete Gaussians on a grid, isotropic in the Frobenius norm.
    DiscreteGaussian(
        /// Exact discrete Gaussians on a grid.
        DiscreteGaussian
    ),
}

impl MechanismKind {
    /// The name as written on the wire and on the command line.
    pub const fn as_str(self) -> &'static str {
        dispatch_type!(self, R => <R as LocalRandomizer>::NAME)
    }

    /// Its promise and its payload in half a line, for whoever chooses.
    pub const fn summary(self) -> &'static str {
        dispatch_type!(self, R => <R as LocalRandomizer>::SUMMARY)
    }

    /// Every mechanism with its summary, for the help of a form or a flag.
    pub fn summaries() -> String {
        let each = Self::ALL.iter();
        let each: Vec<_> = each
            .map(|kind| format!("{kind}: {}", kind.summary()))
            .collect();
        each.join("; ")
    }

    /// Its number in canonical study parameters (`docs/protocol.md`).
    pub(crate) const fn number(self) -> u8 {
        dispatch_type!(self, R => <R as LocalRandomizer>::NUMBER)
    }

    pub(crate) fn from_number(number: u8) -> Option<Self> {
        let mut all = Self::ALL.iter().copied();
        all.find(|kind| kind.number() == number)
    }

    /// Whether it promises δ = 0.
    pub const fn is_pure(self) -> bool {
        dispatch_type!(self, R => <R as LocalRandomizer>::PURE)
    }

    /// Whether its reports show the trace of `xxᵀ`.
    pub(crate) const fn shows_trace(self) -> bool {
        dispatch_type!(self, R => <R as LocalRandomizer>::SHOWS_TRACE)
    }

    /// Whether its noise is a continuous Gaussian with a choice of calibration.
    pub const fn is_calibrated(self) -> bool {
        dispatch_type!(self, R => <R as LocalRandomizer>::CALIBRATED)
    }

    /// Largest dimension of its reports.
    pub const fn max_dimension(self) -> usize {
        dispatch_type!(self, R => <R as LocalRandomizer>::MAX_DIMENSION)
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
            Some(delta) if self.is_pure() && delta != 0.0 => Err(error!(
                InvalidBudget,
                "delta is {delta:e}, but the delta of {self} is always 0; leave delta out"
            )
            .with_field("delta")),
            _ if self.is_pure() => Budget::pure(epsilon),
            delta => Budget::approximate(epsilon, delta.unwrap_or(DEFAULT_DELTA)),
        }
    }

    /// This calibration, or the default one.
    ///
    /// # Errors
    /// `invalid-request` where it would have no effect.
    pub fn calibration(self, given: Option<Calibration>) -> Result<Calibration> {
        let unused = given.is_some() && !self.is_calibrated();
        let why = format!("{self} has no choice of it");
        Error::reject_if_given(&[("calibration", unused)], &why)?;
        Ok(given.unwrap_or_default())
    }
}

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
        let mut all = Self::ALL.iter().copied();
        all.find(|kind| kind.as_str() == text).ok_or_else(|| {
            let names: Vec<_> = Self::ALL.iter().map(|kind| kind.as_str()).collect();
            error!(
                InvalidMechanism,
                "there is no mechanism {text:?}; the mechanisms are {}",
                names.join(", ")
            )
        })
    }
}

/// ChaCha20 keyed by the operating system, for one report.
pub(super) fn release_generator() -> Result<ChaCha20Rng> {
    ChaCha20Rng::try_from_rng(&mut SysRng).map_err(|error| {
        error!(
            RandomnessUnavailable,
            "the operating system's random generator failed ({error}); nothing was released"
        )
    })
}

/// Methods that are those of the randomizer.
macro_rules! delegate {
    ($($(#[$doc:meta])* $visibility:vis fn $name:ident($($argument:ident: $type:ty),*) -> $result:ty;)*) => {$(
        $(#[$doc])*
        $visibility fn $name(&self, $($argument: $type),*) -> $result {
            dispatch_value!(self, randomizer => LocalRandomizer::$name(randomizer, $($argument),*))
        }
    )*};
}

impl Mechanism {
    delegate! {
        /// The frozen constants in the order of `docs/protocol.md`.
        pub(crate) fn constants() -> Vec<f64>;

        /// Upper bound on what floating point adds to ε of one report of this dimension, beside the guarantee of the
        /// real-number mechanism: 2⁻²⁰ for `double-cap`, d·2⁻³⁵ or a little more for the Gaussian mechanisms (whose δ
        /// also grows by half that share), 0 for the discrete one.
        pub fn arithmetic_slack(dimension: usize) -> f64;

        /// The noise of a mechanism whose noise is a continuous Gaussian by construction.
        pub fn gaussian_noise() -> Option<GaussianNoise>;

        /// The guarantee of one report that actually holds, for composing it with others.
        ///
        /// # Errors
        /// `invalid-mechanism` for constants that were never checked.
        pub fn guarantee() -> Result<Guarantee>;

        /// The smallest ε that really holds at this δ, rounded up; `None` when none does.
        pub fn true_epsilon(delta: f64) -> Option<f64>;

        /// The smallest δ that really holds at the claimed ε, rounded up. For `double-cap` the claim is
        /// understood as ε + 2⁻²⁰, and δ is 0.
        pub fn true_delta(epsilon: f64) -> f64;

        /// Probability that one report changes the odds between the worst pair of rows by more than e^`epsilon`, one
        /// way or the other ([`privacy_loss_tail`](crate::privacy::gaussian::privacy_loss_tail)); 0 for a pure
        /// mechanism at its ε. It is larger than δ.
        pub fn privacy_loss_tail(epsilon: f64) -> f64;

        /// The ε that holds at this δ for reports of this dimension, with what floating point adds to both; `None` when
        /// none does.
        pub fn epsilon_with_rounding(dimension: usize, delta: f64) -> Option<f64>;

        /// The assumptions of the proof, and the addition of floating point to ε: a sentence or two for participants.
        pub fn assumption(dimension: usize) -> String;

        /// The kind of a payload's values.
        pub fn payload_kind() -> PayloadKind;

        /// The norm test for reports of this dimension; `None` for `double-cap`, whose every payload is a report.
        pub fn norm_bound(dimension: usize) -> Option<NormBound>;

        /// The most that exchanging one report for another can change `n` times the moment, in spectral norm; for dense
        /// reports, that of the longest ones that pass the norm test.
        pub fn report_influence(dimension: usize) -> f64;

        /// How a payload becomes an estimate of `xxᵀ`.
        pub fn decoding() -> Decoding;

        /// The noise of one decoded report.
        pub fn noise_model() -> NoiseModel;

        /// The statistic to which the audit reduces a report.
        pub fn audit_statistic() -> AuditStatistic;
    }

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
        if calibration != Calibration::Analytic && !kind.is_calibrated() {
            let calibrated = MechanismKind::ALL
                .iter()
                .filter(|kind| kind.is_calibrated());
            let calibrated: Vec<_> = calibrated.map(|kind| kind.as_str()).collect();
            return Err(error!(
                InvalidMechanism,
                "there is no calibration {calibration} for {kind}; it belongs to {}",
                calibrated.join(" and ")
            ));
        }
        Ok(
            dispatch_type!(kind, R => <R as LocalRandomizer>::derive(calibration, dimension, budget)?.into()),
        )
    }

    /// The mechanism with these constants, as they arrive on the wire: to be checked with
    /// [`check`](Self::check). `None` when their number does not fit.
    pub(crate) fn from_constants(
        kind: MechanismKind,
        calibration: Calibration,
        dimension: usize,
        epsilon: f64,
        constants: &[f64],
    ) -> Option<Self> {
        dispatch_type!(kind, R => {
            let read = <R as LocalRandomizer>::from_constants;
            Some(read(calibration, dimension, epsilon, constants)?.into())
        })
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
        dispatch_value!(self, randomizer => LocalRandomizer::check(randomizer, dimension, budget))
    }

    /// How the noise was chosen, where there is a choice.
    pub fn calibration(&self) -> Option<Calibration> {
        Some(self.gaussian_noise()?.calibration())
    }

    /// Perturbs one row for release; the guarantee is the mechanism's own, under replacement of the row.
    ///
    /// The randomness comes from ChaCha20 keyed by the operating system for this one report. There is no
    /// way to pass a generator or a seed here.
    ///
    /// # Errors
    /// `randomness-unavailable` when the operating system gives no randomness.
    pub fn perturb(&self, row: &BoundedRow) -> Result<Vec<u8>> {
        Ok(self.perturb_measured(row)?.0)
    }

    /// Like [`perturb`](Self::perturb), and also returns what someone timing the device could see. **For the audit
    /// only**: it must never leave a device.
    pub fn perturb_measured(&self, row: &BoundedRow) -> Result<(Vec<u8>, SamplingCost)> {
        Ok(self.perturb_with_measured(row, &mut release_generator()?))
    }

    /// Perturbs one row with the caller's generator, **for simulation only**: reproducible noise
    /// protects nobody. The device SDK never calls this.
    pub fn perturb_with<R: Rng + ?Sized>(&self, row: &BoundedRow, rng: &mut R) -> Vec<u8> {
        self.perturb_with_measured(row, rng).0
    }

    /// Perturbs like [`perturb_with`](Self::perturb_with), and measures the work.
    pub fn perturb_with_measured<R: Rng + ?Sized>(
        &self,
        row: &BoundedRow,
        rng: &mut R,
    ) -> (Vec<u8>, SamplingCost) {
        let mut counting = CountingRng::new(rng);
        let (payload, attempts) = dispatch_value!(self, randomizer => LocalRandomizer::perturb(randomizer, row, &mut counting));
        let words = counting.words();
        (payload, SamplingCost { attempts, words })
    }

    /// Tries that a report takes on average, the same for every row; `None` for a mechanism that makes one.
    pub fn expected_attempts(&self) -> Option<f64> {
        match self.decoding() {
            Decoding::Direction(parameters) => Some(parameters.expected_attempts()),
            Decoding::Entries | Decoding::Grid { .. } => None,
        }
    }

    /// Bytes of one payload of reports of this dimension.
    pub fn payload_len(&self, dimension: usize) -> usize {
        self.payload_kind().len(dimension)
    }

    /// The largest eigenvalue that a made-up report can have: that of the longest one that passes the norm test, or of
    /// a freely chosen seed.
    pub fn report_reach(&self, dimension: usize) -> f64 {
        let exchange = self.report_influence(dimension);
        match self.norm_bound(dimension) {
            // Exchanging the longest report for its opposite moves the sum by twice as much.
            Some(_) => 0.5 * exchange,
            None => exchange,
        }
    }
}
