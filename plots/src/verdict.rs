//! Components against the noise floor.

use crate::{
    label::{Key, Label},
    marker::{LineStyle, Marker},
};

/// Where a component stands relative to the noise floor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Above the threshold: noise alone would hardly ever reach it.
    Above,
    /// Between the edge of the noise and the threshold.
    At,
    /// Inside the noise.
    Below,
}

impl Verdict {
    /// All verdicts, best first.
    pub(crate) const ALL: [Verdict; 3] = [Verdict::Above, Verdict::At, Verdict::Below];

    /// Class of its colour.
    pub(crate) fn class(self) -> &'static str {
        match self {
            Verdict::Above => "va",
            Verdict::At => "vt",
            Verdict::Below => "vb",
        }
    }

    /// Shape of its points.
    pub(crate) fn marker(self) -> Marker {
        match self {
            Verdict::Above => Marker::Circle,
            Verdict::At => Marker::Diamond,
            Verdict::Below => Marker::Ring,
        }
    }

    /// What it means, for a legend.
    pub(crate) fn legend(self) -> &'static str {
        match self {
            Verdict::Above => "above the noise floor",
            Verdict::At => "at the noise floor",
            Verdict::Below => "below the noise floor",
        }
    }

    /// What it means, in a word.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Verdict::Above => "above",
            Verdict::At => "at",
            Verdict::Below => "below",
        }
    }
}

/// The legend of the verdicts that are there.
pub(crate) fn legend(present: &[Option<Verdict>]) -> Vec<Label> {
    Verdict::ALL
        .iter()
        .filter(|verdict| present.contains(&Some(**verdict)))
        .map(|verdict| {
            let key = Key::Series(LineStyle::None, verdict.marker());
            Label::above(verdict.legend(), verdict.class(), key)
        })
        .collect()
}

/// The noise floor: which variances the noise hides.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct NoiseFloor {
    /// Mean variance of the directions that cannot be seen; by default the band reaches the bottom of the picture.
    pub lower: Option<f64>,
    /// Smallest variance that shows outside of the noise.
    pub edge: f64,
    /// What a variance must exceed to count as a component's.
    pub threshold: f64,
}

impl NoiseFloor {
    /// Where a variance stands relative to this floor.
    #[must_use]
    pub fn verdict(&self, variance: f64) -> Verdict {
        if variance > self.threshold {
            Verdict::Above
        } else if variance > self.edge {
            Verdict::At
        } else {
            Verdict::Below
        }
    }
}
