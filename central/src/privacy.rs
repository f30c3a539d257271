//! What a private run is asked to protect, and what it then protects.

use std::{fmt, str::FromStr};

use eigenveil_shared::{Error, Result, privacy::Budget};

/// Which two data sets of n rows a result must not tell apart. n is public: no row is added or taken away.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Neighbours {
    /// One row is replaced by the zero row.
    ZeroOut,
    /// One row is replaced by another row of the unit ball: the notion of the local mechanisms.
    Replace,
    /// One entry of `A = Σxxᵀ`, and its mirror image, moves by at most 1: far weaker than either, for a row has p²
    /// entries. Only algorithms that work on A have it.
    Entry,
}

impl Neighbours {
    /// Both relations between rows: what most algorithms protect.
    pub const ALL: [Self; 2] = [Self::ZeroOut, Self::Replace];

    /// And that between entries.
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

/// How the noise of a private run is chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CentralCalibration {
    /// By an accountant, so that the whole run keeps its budget.
    Accounted,
    /// By the paper's formula, unstated constants taken as 1; the result says what really holds.
    AsPublished,
}

impl CentralCalibration {
    /// Both.
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

/// A budget is always finite; without one there is no noise.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Privacy {
    /// No noise: the algorithm equals its non-private counterpart.
    None,
    /// The whole run, initialisation included, is to keep this budget.
    Budget(PrivacyTarget),
}

impl Privacy {
    /// A budget between these neighbours, by this noise.
    pub fn with_budget(budget: Budget, neighbours: Neighbours, calibration: CentralCalibration) -> Self {
        Self::Budget(PrivacyTarget {
            budget,
            neighbours,
            calibration,
        })
    }

    /// How the noise is chosen, where there is any.
    pub(crate) fn calibration(&self) -> Option<CentralCalibration> {
        match self {
            Self::None => None,
            Self::Budget(target) => Some(target.calibration),
        }
    }
}

/// What a private run is asked to keep.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PrivacyTarget {
    /// (ε, δ); pure where δ = 0.
    pub budget: Budget,
    /// Between which data sets.
    pub neighbours: Neighbours,
    /// How the noise is chosen.
    pub calibration: CentralCalibration,
}

impl PrivacyTarget {
    /// What is told of a run with this ε at the budget's δ.
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

/// What a private run was asked for and what its noise really gives.
#[derive(Clone, Debug, PartialEq)]
pub struct RunGuarantee {
    /// The budget asked for.
    pub budget: Budget,
    /// Between which data sets.
    pub neighbours: Neighbours,
    /// How the noise was chosen.
    pub calibration: CentralCalibration,
    /// An ε that holds for the whole run at δ of the budget between these neighbours, rounded up; `None`
    /// where none does.
    pub true_epsilon: Option<f64>,
    /// What a reader must know besides (why none holds, say).
    pub note: Option<String>,
}

impl RunGuarantee {
    /// Whether the budget asked for is kept.
    pub fn holds(&self) -> bool {
        self.true_epsilon
            .is_some_and(|epsilon| epsilon <= self.budget.epsilon())
    }
}
