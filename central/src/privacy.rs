//! The privacy requested of a run, and the guarantee it achieves.

use eigenveil_shared::{Error, names, privacy::Budget};

/// The neighbouring relation: which data sets of n rows must be indistinguishable. n is public: no row is added or
/// removed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Neighbours {
    /// One row is replaced by the zero row.
    ZeroOut,
    /// One row is replaced by another row of the unit ball: the relation of the local mechanisms.
    #[default]
    Replace,
    /// One entry of `A = Σxxᵀ`, and its mirror image, changes by at most 1: far weaker than the other two, because a
    /// row changes p² entries. Only algorithms that work on A support it.
    Entry,
}

impl Neighbours {
    /// The relations between rows, which most algorithms support.
    pub const OF_ROWS: [Self; 2] = [Self::ZeroOut, Self::Replace];

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
}

/// Calibration of the noise of a central run. (The local mechanisms have `analytic` instead of `accounted`.)
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum CentralCalibration {
    /// By an accountant, so that the whole run keeps its budget.
    #[default]
    Accounted,
    /// By the paper's formula, with unstated constants set to 1; the result reports the guarantee that actually holds.
    AsPublished,
}

names! {
    pub Neighbours { ZeroOut = "zero-out", Replace = "replace", Entry = "entry" }
        else |name, names| unknown(name, "a neighbouring relation", &names);
    pub CentralCalibration { Accounted = "accounted", AsPublished = "as-published" }
        else |name, names| unknown(name, "a calibration", &names);
}

fn unknown(name: &str, what: &str, names: &[&str]) -> Error {
    Error::invalid_request(format!(
        "{name:?} is not {what}; use {}",
        names.join(" or ")
    ))
}

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
