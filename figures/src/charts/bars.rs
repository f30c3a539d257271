//! The largest loadings of a component, by name.

use crate::{
    drawing::{
        frame::{MARGIN, RowNames, caption_left, clamp_width, heading, no_data},
        scale::{Axis, AxisScale},
        svg::{Anchor, Area, Svg},
        text::Role,
    },
    figure::Figure,
    number::{compact, drawable},
    table::DataTable,
};

/// Horizontal bars to both sides of zero, largest magnitude first.
#[derive(Clone, Debug, PartialEq)]
pub struct BarChart {
    /// Title.
    pub title: String,
    /// Names and values, in any order; values that are not finite are omitted.
    pub bars: Vec<(String, f64)>,
    /// Label of the values.
    pub x_label: String,
    /// Maximum number of bars.
    pub shown: usize,
}

const STEP: f64 = 24.0;
const BAR: f64 = 15.0;

impl BarChart {
    /// A chart of the 15 values of largest magnitude.
    pub fn new<N: Into<String>>(
        title: impl Into<String>,
        x_label: impl Into<String>,
        bars: impl IntoIterator<Item = (N, f64)>,
    ) -> Self {
        let bars = bars.into_iter().map(|(name, value)| (name.into(), value));
        Self {
            title: title.into(),
            bars: bars.collect(),
            x_label: x_label.into(),
            shown: 15,
        }
    }

    fn sorted(&self) -> Vec<(&str, f64)> {
        let bars = self
            .bars
            .iter()
            .map(|(name, value)| (name.as_str(), *value));
        let mut bars: Vec<_> = bars.filter(|(_, value)| drawable(*value)).collect();
        bars.sort_by(|a, b| b.1.abs().total_cmp(&a.1.abs()));
        bars
    }
}

impl Figure for BarChart {
    fn to_svg_of_width(&self, width: f64) -> String {
        let all = self.sorted();
        let bars = &all[..all.len().min(self.shown)];
        let room = clamp_width(width) * 0.34;
        let names = RowNames::new(bars.iter().map(|(name, _)| *name), room, STEP);
        let name_width = names.width;
        let numbers: Vec<String> = bars.iter().map(|(_, value)| compact(*value)).collect();
        // Numbers stand outside the bars at their ends, so both sides reserve space for one.
        let pad = Role::Small.widest(&numbers) + 10.0;
        let width = clamp_width(width).max(2.0 * MARGIN + name_width + 2.0 * pad + 80.0);

        let mut svg = Svg::default();
        let top = heading(&mut svg, &self.title, None, width) + 12.0;
        let left = MARGIN + name_width + 12.0;
        let right = width - MARGIN;
        let negative = bars.iter().any(|bar| bar.1 < 0.0);
        let positive = bars.iter().any(|bar| bar.1 > 0.0) || !negative;
        let range = (
            left + if negative { pad } else { 0.0 },
            right - if positive { pad } else { 0.0 },
        );
        let axis = match bars.iter().fold((0.0_f64, 0.0_f64), |(low, high), bar| {
            (low.min(bar.1), high.max(bar.1))
        }) {
            (0.0, 0.0) => Axis::linear("").between(0.0, 1.0),
            (low, high) => Axis::linear("").between(low, high),
        };
        let x = AxisScale::fit(&axis, std::iter::empty(), range, 4);
        let zero = x.at(0.0);

        let height = names.height().max(STEP);
        let area = Area::new(left, top, right - left, height);
        for (i, ((name, value), number)) in bars.iter().zip(&numbers).enumerate() {
            let centre = area.y + names.centre(i);
            let end = x.at(*value);
            let (class, anchor, at) = match *value < 0.0 {
                true => ("neg", Anchor::End, end - 6.0),
                false => ("pos", Anchor::Start, end + 6.0),
            };
            names.draw(&mut svg, i, left - 12.0, centre);
            svg.open_group(class, &format!("{name}: {number}"));
            let w = (end - zero).abs().max(0.75);
            let bar = Area::new(end.min(zero), centre - BAR / 2.0, w, BAR);
            svg.rect("fill", bar);
            svg.close_group();
            let baseline = centre + Role::Small.size() * 0.35;
            svg.text(Role::Small, "mut", (at, baseline), anchor, number);
        }
        if bars.is_empty() {
            no_data(&mut svg, Area::new(0.0, area.y, width, STEP * 1.4));
        } else {
            svg.line("axis", (zero, area.y), (zero, area.bottom()));
        }
        let mut under = vec![self.x_label.clone()];
        if all.len() > bars.len() {
            let rest = all.len() - bars.len();
            under.push(format!("… and {rest} of smaller magnitude, not shown"));
        }
        let height = caption_left(&mut svg, &under, area.bottom() + 6.0, width);
        let parts = bars.iter().zip(&numbers);
        let parts: Vec<String> = parts.map(|((name, _), n)| format!("{name} {n}")).collect();
        let (what, parts) = (&self.x_label, parts.join("; "));
        let description = format!("Bars of {what}, by magnitude: {parts}.");
        svg.finish(width, height, &self.title, &description)
    }

    fn to_table(&self) -> DataTable {
        let rows = self.sorted().into_iter();
        let rows = rows.map(|(name, value)| vec![name.to_owned(), compact(value)]);
        DataTable::new(&self.title, ["Name", &self.x_label], rows)
    }
}
