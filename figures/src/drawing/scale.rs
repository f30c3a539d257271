//! Axes: from values to pixels, and the choice of tick labels.

use crate::{
    drawing::text::Role,
    number::{
        MAX_DRAWABLE, MIN_DRAWABLE, compact, drawable, floor_log10, linear_labels, log_labels,
    },
};

/// The kind of an axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum ScaleKind {
    /// Equal differences have equal lengths.
    #[default]
    Linear,
    /// Equal ratios have equal lengths; values of zero and below are omitted.
    Log10,
}

/// The specification of an axis.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Axis {
    /// Label: the quantity and its unit.
    pub label: String,
    /// Kind of the axis.
    pub scale: ScaleKind,
    /// First and last value; by default the range of the data, rounded outwards.
    pub domain: Option<(f64, f64)>,
    /// Tick values; by default round numbers.
    pub ticks: Vec<f64>,
}

impl Axis {
    /// A linear axis.
    pub fn linear(label: impl Into<String>) -> Self {
        Self {
            label: label.into(),
            ..Self::default()
        }
    }

    /// A logarithmic axis.
    pub fn log(label: impl Into<String>) -> Self {
        Self {
            label: label.into(),
            scale: ScaleKind::Log10,
            ..Self::default()
        }
    }

    /// Fixes the range; ignored unless `first < last`.
    #[must_use]
    pub fn between(mut self, first: f64, last: f64) -> Self {
        self.domain = Some((first, last));
        self
    }

    /// Sets the ticks.
    #[must_use]
    pub fn ticks(mut self, values: impl IntoIterator<Item = f64>) -> Self {
        self.ticks = values.into_iter().collect();
        self
    }

    pub(crate) fn can_show(&self, value: f64) -> bool {
        can_show(self.scale, value)
    }
}

fn can_show(kind: ScaleKind, value: f64) -> bool {
    drawable(value) && (kind == ScaleKind::Linear || value >= MIN_DRAWABLE)
}

/// A tick; its label is empty if it does not fit.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Tick {
    pub(crate) value: f64,
    pub(crate) label: String,
}

impl Tick {
    pub(crate) fn new(value: f64, label: String) -> Self {
        Self { value, label }
    }
}

/// An axis fitted to data and to a range of pixels.
#[derive(Clone, Debug)]
pub(crate) struct AxisScale {
    kind: ScaleKind,
    /// First and last value.
    pub(crate) domain: (f64, f64),
    range: (f64, f64),
    /// Labelled ticks, ascending.
    pub(crate) ticks: Vec<Tick>,
    /// Minor ticks, short and without label.
    pub(crate) minor: Vec<f64>,
}

impl AxisScale {
    /// Fits an axis to values, with about `target` ticks.
    pub(crate) fn fit(
        axis: &Axis,
        values: impl Iterator<Item = f64>,
        range: (f64, f64),
        target: usize,
    ) -> Self {
        let kind = axis.scale;
        let given = axis
            .domain
            .filter(|&(a, b)| can_show(kind, a) && can_show(kind, b) && a < b);
        let mut wanted = axis.ticks.clone();
        wanted.retain(|&t| can_show(kind, t));
        wanted.sort_by(f64::total_cmp);
        wanted.dedup();
        let data = values
            .chain(wanted.iter().copied())
            .filter(|&v| can_show(kind, v));
        let extent = given.or_else(|| {
            data.fold(None, |e: Option<(f64, f64)>, v| {
                Some(e.map_or((v, v), |(a, b)| (a.min(v), b.max(v))))
            })
        });
        let extent = widen(kind, extent);
        let target = target.max(2);
        let (mut domain, mut ticks) = match kind {
            ScaleKind::Linear => linear(extent, target),
            ScaleKind::Log10 => logarithmic(extent, target),
        };
        if given.is_some() || wanted.len() > 1 {
            domain = extent;
        }
        if !wanted.is_empty() {
            ticks = wanted
                .iter()
                .map(|&value| Tick::new(value, compact(value)))
                .collect();
        }
        let slack = |v: f64| v.abs() * 1e-9;
        ticks.retain(|t| {
            t.value >= domain.0 - slack(domain.0) && t.value <= domain.1 + slack(domain.1)
        });
        let minor = if wanted.is_empty() {
            minor(kind, domain, &ticks)
        } else {
            Vec::new()
        };
        Self {
            kind,
            domain,
            range,
            ticks,
            minor,
        }
    }

    /// A linear scale with the given domain, range and ticks.
    pub(crate) fn fixed(domain: (f64, f64), range: (f64, f64), ticks: Vec<Tick>) -> Self {
        Self {
            kind: ScaleKind::Linear,
            domain,
            range,
            ticks,
            minor: Vec::new(),
        }
    }

    /// Position of a value, in pixels.
    pub(crate) fn at(&self, value: f64) -> f64 {
        let (a, b) = self.domain;
        let share = match self.kind {
            // Halving keeps the differences finite.
            ScaleKind::Linear => (value / 2.0 - a / 2.0) / (b / 2.0 - a / 2.0),
            ScaleKind::Log10 => {
                (value.max(MIN_DRAWABLE).log10() - a.log10()) / (b.log10() - a.log10())
            }
        };
        let share = match share.is_finite() {
            true => share.clamp(-50.0, 50.0),
            false => 0.0,
        };
        self.range.0 + share * (self.range.1 - self.range.0)
    }

    pub(crate) fn shows(&self, value: f64) -> bool {
        let at = self.at(value);
        let (a, b) = (self.range.0, self.range.1);
        let (a, b) = (a.min(b), a.max(b));
        can_show(self.kind, value) && at >= a - 0.5 && at <= b + 0.5
    }

    /// Removes the labels that would touch the one before; returns whether any did.
    pub(crate) fn thin(&mut self, size: impl Fn(&str) -> f64) -> bool {
        let mut end = f64::NEG_INFINITY;
        let mut thinned = false;
        let ascending = self.range.1 >= self.range.0;
        for i in 0..self.ticks.len() {
            let at = self.at(self.ticks[i].value);
            let at = if ascending { at } else { -at };
            let half = size(&self.ticks[i].label) / 2.0;
            if at - half < end {
                self.ticks[i].label.clear();
                thinned = true;
            } else {
                end = at + half;
            }
        }
        thinned
    }

    /// Removes the labels centred on their ticks that would reach beyond `from` or `to`.
    pub(crate) fn keep_within(&mut self, from: f64, to: f64) {
        for i in 0..self.ticks.len() {
            let at = self.at(self.ticks[i].value);
            let half = Role::Small.width(&self.ticks[i].label) / 2.0;
            if at - half < from || at + half > to {
                self.ticks[i].label.clear();
            }
        }
    }

    pub(crate) fn label_width(&self) -> f64 {
        Role::Small.widest(self.ticks.iter().map(|tick| &tick.label))
    }
}

/// A range that is not empty and not narrower than the resolution of the numbers.
fn widen(kind: ScaleKind, extent: Option<(f64, f64)>) -> (f64, f64) {
    match kind {
        ScaleKind::Linear => {
            let (a, b) = extent.unwrap_or((0.0, 1.0));
            let largest = a.abs().max(b.abs());
            if largest < MIN_DRAWABLE {
                (-1.0, 1.0)
            } else if b - a < largest * 1e-9 {
                (
                    (a - largest).max(-MAX_DRAWABLE),
                    (b + largest).min(MAX_DRAWABLE),
                )
            } else {
                (a, b)
            }
        }
        ScaleKind::Log10 => {
            let (a, b) = extent.unwrap_or((1.0, 10.0));
            if b / a < 1.0 + 1e-9 {
                ((a / 3.0).max(MIN_DRAWABLE), (b * 3.0).min(MAX_DRAWABLE))
            } else {
                (a, b)
            }
        }
    }
}

/// The nearest step of 1, 2 or 5 times a power of ten, as factor and exponent.
fn nice_step(span: f64, target: usize) -> (f64, i32) {
    let raw = span / target as f64;
    let exponent = floor_log10(raw);
    let share = raw / 10f64.powi(exponent);
    match share {
        s if s < std::f64::consts::SQRT_2 => (1.0, exponent),
        s if s < 10f64.sqrt() => (2.0, exponent),
        s if s < 50f64.sqrt() => (5.0, exponent),
        _ => (1.0, exponent + 1),
    }
}

/// `i` steps of `m·10^e`, without accumulating decimal errors.
fn multiple(i: f64, (m, e): (f64, i32)) -> f64 {
    if e < 0 {
        i * m / 10f64.powi(-e)
    } else {
        i * m * 10f64.powi(e)
    }
}

fn linear_values((lo, hi): (f64, f64), target: usize) -> (Vec<f64>, f64) {
    let step = nice_step(hi - lo, target);
    let size = multiple(1.0, step);
    let first = (lo / size + 1e-9).floor();
    let last = (hi / size - 1e-9).ceil();
    let count = (last - first).clamp(1.0, 4.0 * target as f64) as usize;
    let values = (0..=count).map(|i| multiple(first + i as f64, step));
    (values.collect(), size)
}

fn linear(extent: (f64, f64), target: usize) -> ((f64, f64), Vec<Tick>) {
    let (values, size) = linear_values(extent, target);
    let domain = (
        values[0].min(extent.0),
        values[values.len() - 1].max(extent.1),
    );
    let labels = linear_labels(&values, size);
    (domain, zip(&values, labels))
}

fn logarithmic(extent: (f64, f64), target: usize) -> ((f64, f64), Vec<Tick>) {
    let span = extent.1.log10() - extent.0.log10();
    if span < 0.35 {
        let (values, size) = linear_values(extent, target);
        if values[0] > 0.0 {
            let domain = (values[0], values[values.len() - 1]);
            return (domain, zip(&values, linear_labels(&values, size)));
        }
    }
    let one_two_five = |exponent: i32| [1.0, 2.0, 5.0].map(|m| multiple(1.0, (m, exponent)));
    let (from, to) = (floor_log10(extent.0) - 1, floor_log10(extent.1) + 2);
    let ladder: Vec<f64> = (from..to).flat_map(one_two_five).collect();
    let below = ladder
        .iter()
        .rposition(|&v| v <= extent.0 * (1.0 + 1e-9))
        .unwrap_or(0);
    let above = ladder.iter().position(|&v| v >= extent.1 * (1.0 - 1e-9));
    let above = above.unwrap_or(ladder.len() - 1);
    let domain = (ladder[below], ladder[above]);
    let values: Vec<f64> = if span < 2.0 || above - below < target * 3 / 2 {
        ladder[below..=above].to_vec()
    } else {
        let (first, last) = (floor_log10(domain.0 * 9.99), floor_log10(domain.1));
        let every = |step: i32| (first..=last).filter(move |e| e.rem_euclid(step) == 0);
        let step = (last - first) / i32::try_from(target).unwrap_or(i32::MAX) + 1;
        let step = (1..=step)
            .rev()
            .find(|&s| every(s).nth(1).is_some())
            .unwrap_or(1);
        every(step).map(|e| multiple(1.0, (1.0, e))).collect()
    };
    let labels = log_labels(&values);
    (domain, zip(&values, labels))
}

fn zip(values: &[f64], labels: Vec<String>) -> Vec<Tick> {
    let pairs = values.iter().zip(labels);
    pairs
        .map(|(&value, label)| Tick::new(value, label))
        .collect()
}

/// Minor ticks at 2, 3, … 9 times each power of ten, on a logarithmic axis of few decades.
fn minor(kind: ScaleKind, domain: (f64, f64), ticks: &[Tick]) -> Vec<f64> {
    if kind == ScaleKind::Linear || !(2.0..=1e7).contains(&(domain.1 / domain.0)) {
        return Vec::new();
    }
    (floor_log10(domain.0)..=floor_log10(domain.1))
        .flat_map(|e| (1..10).map(move |m| multiple(1.0, (f64::from(m), e))))
        .filter(|v| *v >= domain.0 && *v <= domain.1)
        .filter(|v| !ticks.iter().any(|t| (t.value / v - 1.0).abs() < 1e-9))
        .collect()
}

#[cfg(test)]
mod tests;
