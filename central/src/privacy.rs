//! The privacy requested of a run, and the guarantee it achieves.

use std::{fmt, str::FromStr};

use eigenveil_shared::{Error, Result, privacy::Budget};

/// The neighbouring relation: which data sets of n rows must be indistinguishable. n is public: no row is added or
/// removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Neighbours {
    /// One row is replaced by the zero row.
    ZeroOut,
    /// One row is replaced by another row of the unit ball: the relation of the local mechanisms.
    Replace,
    /// One entry of `A = Σxxᵀ`, and its mirror image, changes by at most 1: far weaker than the other two, because a
    /// row changes p² entries. Only algorithms that work on A support it.
    Entry,
}

impl Neighbours {
    /// Both relations between rows, which most algorithms support.
    pub const ALL: [Self; 2] = [Self::ZeroOut, Self::Replace];

    /// All three relations.
    pub const WITH_ENTRY: [Self; 3] = [Self::ZeroOut, Self::Replace, Self::Entry];

    /// Frobenius sensitivity of `Σxxᵀ`, also after multiplication by a matrix of spectral norm 1: 1, or √2
    /// (`‖xxᵀ − yyᵀ‖_F² = ‖x‖⁴ + ‖y‖⁴ − 2⟨x,y⟩² ≤ 2`; a pair of entries).
    pub fn outer_sensitivity(self) -> f64 {
        match self {
            Self::ZeroOut => 1.0,
            Self::Replace | Self::Entry => std::f64::consts::SQRT_2,
        }
    }

    /// L2 sensitivity of a sum of one vector of norm ≤ 1 per row (a gradient that is 0 at the zero row):
    /// 1, or 2; for entries there is no bound.
    pub fn gradient_sensitivity(self) -> f64 {
        match self {
            Self::ZeroOut => 1.0,
            Self::Replace => 2.0,
            Self::Entry => f64::INFINITY,
        }
    }

    /// As written on the command line.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::ZeroOut => "zero-out",
            Self::Replace => "replace",
            Self::Entry => "entry",
        }
    }
}

/// Calibration of the noise of a central run. (The local mechanisms have `analytic` instead of `accounted`.)
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CentralCalibration {
    /// By an accountant, so that the whole run keeps its budget.
    Accounted,
    /// By the paper's formula, with unstated constants set to 1; the result reports the guarantee that actually holds.
    AsPublished,
}

impl CentralCalibration {
    /// Both calibrations.
    pub const ALL: [Self; 2] = [Self::Accounted, Self::AsPublished];

    /// As written on the command line.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Accounted => "accounted",
            Self::AsPublished => "as-published",
        }
    }
}

macro_rules! impl_names {
    ($kind:ident, $all:ident, $what:literal) => {
        impl fmt::Display for $kind {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(self.as_str())
            }
        }

        impl FromStr for $kind {
            type Err = Error;

            fn from_str(name: &str) -> Result<Self> {
                Self::$all
                    .into_iter()
                    .find(|kind| kind.as_str() == name)
                    .ok_or_else(|| {
                        let names = Self::$all.map(Self::as_str).join(" or ");
                        Error::invalid_request(format!("{name:?} is not {}; use {names}", $what))
                    })
            }
        }
    };
}

impl_names!(Neighbours, WITH_ENTRY, "a neighbouring relation");
impl_names!(CentralCalibration, ALL, "a calibration");

/// Whether a run is private. A budget is always finite; without one there is no noise.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Privacy {
    /// No noise: the algorithm equals its non-private counterpart.
    None,
    /// The whole run, including its start, must keep this budget.
    Private(PrivacyTarget),
}

impl Privacy {
    /// A private run with this budget, neighbouring relation and calibration.
    pub fn with_budget(
        budget: Budget,
        neighbours: Neighbours,
        calibration: CentralCalibration,
    ) -> Self {
        Self::Private(PrivacyTarget {
            budget,
            neighbours,
            calibration,
        })
    }

    pub(crate) fn calibration(&self) -> Option<CentralCalibration> {
        match self {
            Self::None => None,
            Self::Private(target) => Some(target.calibration),
        }
    }
}

/// The privacy requested of a run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PrivacyTarget {
    /// (ε, δ); pure where δ = 0.
    pub budget: Budget,
    /// The neighbouring relation.
    pub neighbours: Neighbours,
    /// The calibration of the noise.
    pub calibration: CentralCalibration,
}

impl PrivacyTarget {
    pub(crate) fn guarantee(self, true_epsilon: Option<f64>, note: Option<String>) -> RunGuarantee {
        RunGuarantee {
            budget: self.budget,
            neighbours: self.neighbours,
            calibration: self.calibration,
            true_epsilon,
            note,
        }
    }
}

/// The privacy requested of a run and the guarantee it actually has.
#[derive(Clone, Debug, PartialEq)]
pub struct RunGuarantee {
    /// The requested budget.
    pub budget: Budget,
    /// The neighbouring relation.
    pub neighbours: Neighbours,
    /// The calibration of the noise.
    pub calibration: CentralCalibration,
    /// An ε that holds for the whole run at the budget's δ between these neighbours, rounded up; `None` if none does.
    pub true_epsilon: Option<f64>,
    /// A note for the reader (why no ε holds, say).
    pub note: Option<String>,
}

impl RunGuarantee {
    /// Whether the requested budget is kept.
    pub fn holds(&self) -> bool {
        self.true_epsilon
            .is_some_and(|epsilon| epsilon <= self.budget.epsilon())
    }
}
