//! What the ten cards have in common.

use crate::{Calibration, Card, Delta, Neighbours};

/// An algorithm without a private form of its own.
pub(super) const fn plain(
    name: &'static str,
    source: &'static str,
    description: &'static str,
) -> Card {
    Card {
        name,
        source,
        description,
        guarantee: "none of its own: use dp-ggd or dp-sggd for privacy",
        neighbours: &[],
        calibrations: &[],
        delta: Delta::Positive,
    }
}

/// One that protects rows by Gaussian noise.
pub(super) const fn private(
    name: &'static str,
    source: &'static str,
    description: &'static str,
    guarantee: &'static str,
) -> Card {
    Card {
        name,
        source,
        description,
        guarantee,
        neighbours: &Neighbours::ALL,
        calibrations: &Calibration::ALL,
        delta: Delta::Positive,
    }
}
