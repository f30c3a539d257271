//! Components against the noise floor.

use crate::{
    label::{Key, Label},
    marker::{LineStyle, Marker},
};

/// Where a component stands relative to the noise floor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// Above the threshold: noise alone would hardly ever reach it.
    Above,
    /// Between the edge of the noise and the threshold.
    At,
    /// Inside the noise.
    Below,
}

impl Standing {
    /// All verdicts, best first.
    pub(crate) const ALL: [Standing; 3] = [Standing::Above, Standing::At, Standing::Below];

    /// Class of its colour.
    pub(crate) fn class(self) -> &'static str {
        match self {
            Standing::Above => "va",
            Standing::At => "vt",
            Standing::Below => "vb",
        }
    }

    /// Shape of its points.
    pub(crate) fn marker(self) -> Marker {
        match self {
            Standing::Above => Marker::Circle,
            Standing::At => Marker::Diamond,
            Standing::Below => Marker::Ring,
        }
    }

    /// What it means, for a legend.
    pub(crate) fn legend(self) -> &'static str {
        match self {
            Standing::Above => "above the noise floor",
            Standing::At => "at the noise floor",
            Standing::Below => "below the noise floor",
        }
    }

    /// What it means, in a word.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Standing::Above => "above",
            Standing::At => "at",
            Standing::Below => "below",
        }
    }
}

/// The legend of the verdicts that are there.
pub(crate) fn legend(present: &[Option<Standing>]) -> Vec<Label> {
    Standing::ALL
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
    pub fn verdict(&self, variance: f64) -> Standing {
        if variance > self.threshold {
            Standing::Above
        } else if variance > self.edge {
            Standing::At
        } else {
            Standing::Below
        }
    }
}
