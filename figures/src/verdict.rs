//! Components by rank and verdict, as all their charts show them.

use eigenveil_shared::estimate::{VarianceFloor, Verdict};

use crate::drawing::{
    label::{Label, Swatch},
    marker::{LineStyle, Marker},
    scale::{AxisScale, Tick},
    text::Role,
};

/// Maximum number of components shown one by one.
pub(crate) const MAX_COMPONENTS: usize = 30;

/// One estimated component.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ScreeComponent {
    /// Verdict relative to the noise floor.
    pub verdict: Verdict,
    /// Expected squared cosine with the true component, from 0 to 1; not finite where it is unknown.
    pub alignment: f64,
    /// Standard error of the alignment.
    pub alignment_error: Option<f64>,
    /// Number of components, this one the first, for whose space the alignment is.
    pub span: usize,
    /// Standard error of the variance.
    pub variance_error: Option<f64>,
}

pub(crate) const ALL: [Verdict; 3] = [Verdict::Above, Verdict::At, Verdict::Below];

pub(crate) fn class(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Above => "va",
        Verdict::At => "vt",
        Verdict::Below => "vb",
    }
}

pub(crate) fn marker(verdict: Verdict) -> Marker {
    match verdict {
        Verdict::Above => Marker::Circle,
        Verdict::At => Marker::Diamond,
        Verdict::Below => Marker::Ring,
    }
}

pub(crate) fn legend(present: &[Option<Verdict>]) -> Vec<Label> {
    ALL.into_iter()
        .filter(|verdict| present.contains(&Some(*verdict)))
        .map(|verdict| {
            let swatch = Swatch::Series(LineStyle::None, marker(verdict));
            Label::above(verdict.in_words(), class(verdict), swatch)
        })
        .collect()
}

/// The verdict of a variance relative to the floor.
pub(crate) fn from_variance(floor: VarianceFloor, variance: f64) -> Verdict {
    if variance > floor.threshold {
        Verdict::Above
    } else if variance > floor.edge {
        Verdict::At
    } else {
        Verdict::Below
    }
}

pub(crate) fn rank(index: usize) -> f64 {
    index as f64 + 1.0
}

/// The horizontal axis: ranks 1 to n, one slot each.
pub(crate) fn ranks(n: usize, range: (f64, f64)) -> AxisScale {
    let n = n.max(1);
    let tick_step = if n <= 16 { 1 } else { 5 };
    let ticks = (1..=n).filter(|r| *r == 1 || r % tick_step == 0);
    let ticks = ticks.map(|r| Tick::new(r as f64, r.to_string()));
    let mut scale = AxisScale::fixed((0.5, n as f64 + 0.5), range, ticks.collect());
    scale.thin(|label| Role::Small.width(label) + 8.0);
    scale
}
