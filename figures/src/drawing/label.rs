//! Labels next to a plot, at the end of their lines, moved apart until none overlap.

use crate::drawing::{
    marker::{LineStyle, Marker},
    svg::{Anchor, Area, Path, Svg},
    text::Role,
};

/// Width of a swatch: three dashes and two gaps.
const KEY: f64 = 31.0;
const KEY_GAP: f64 = 7.0;
const GAP: f64 = 5.0;

#[derive(Clone, Debug)]
pub(crate) struct Label {
    pub(crate) text: String,
    pub(crate) colour: String,
    pub(crate) swatch: Swatch,
    /// Where the labelled line ends; `None` if it crosses the whole plot.
    pub(crate) x: Option<f64>,
    /// Height of that end: a value, which [`LabelColumn::place`] converts to pixels.
    pub(crate) y: f64,
    /// Whether the labelled line reaches the right edge, so that a leader may connect the two.
    pub(crate) at_edge: bool,
}

impl Label {
    pub(crate) fn above(text: &str, colour: &str, swatch: Swatch) -> Self {
        Self {
            text: text.to_owned(),
            colour: colour.to_owned(),
            swatch,
            x: None,
            y: 0.0,
            at_edge: false,
        }
    }
}

/// A sample of a line, marker or band.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Swatch {
    /// A segment of a series.
    Series(LineStyle, Marker),
    /// A segment of the reference line with this number.
    Reference(usize),
    /// A segment of the edge of a band.
    Edge,
    /// A shaded band.
    Band,
}

/// CSS class of a reference line: each number has its own dashes.
pub(crate) fn reference_class(number: usize) -> &'static str {
    ["ref", "ref r1", "ref r2"][number % 3]
}

impl Swatch {
    fn width(self) -> f64 {
        if matches!(self, Swatch::Series(LineStyle::None, _)) {
            12.0
        } else {
            KEY
        }
    }

    fn draw(self, svg: &mut Svg, colour: &str, x: f64, y: f64) {
        match self {
            Swatch::Series(style, marker) => {
                svg.open_group(colour, "");
                if let Some(class) = style.class() {
                    svg.line(class, (x, y), (x + KEY, y));
                }
                marker.draw(svg, (x + self.width() / 2.0, y), 4.0);
                svg.close_group();
            }
            Swatch::Reference(i) => svg.line(reference_class(i), (x, y), (x + KEY, y)),
            Swatch::Edge => svg.line("bound", (x, y), (x + KEY, y)),
            Swatch::Band => svg.rect("band", Area::new(x, y - 6.0, KEY, 12.0)),
        }
    }
}

/// A column of labels to the right of the plot.
#[derive(Debug)]
pub(crate) struct LabelColumn {
    labels: Vec<(Label, Vec<String>)>,
    /// Width of the column, including the gap to the plot.
    pub(crate) width: f64,
    height: f64,
}

impl LabelColumn {
    /// Gap between the plot and the swatches.
    const LEAD: f64 = 14.0;

    /// Breaks the labels into lines of at most `max_width`.
    pub(crate) fn new(labels: Vec<Label>, max_width: f64) -> Self {
        let labels: Vec<_> = labels
            .into_iter()
            .map(|l| {
                let lines = Role::Label.wrap(&l.text, max_width, 4);
                (l, lines)
            })
            .filter(|(_, lines)| !lines.is_empty())
            .collect();
        let text = Role::Label.widest(labels.iter().flat_map(|(_, lines)| lines));
        let width = if labels.is_empty() {
            0.0
        } else {
            Self::LEAD + KEY + KEY_GAP + text
        };
        let height = labels.iter().map(|(_, lines)| Self::height_of(lines)).sum();
        Self {
            labels,
            width,
            height,
        }
    }

    fn height_of(lines: &[String]) -> f64 {
        Role::Label.line_height() * lines.len() as f64 + GAP
    }

    pub(crate) fn fits(&self, height: f64) -> bool {
        self.height <= height
    }

    /// Converts the ends of the labelled lines from values to pixels.
    pub(crate) fn place(&mut self, x: impl Fn(f64) -> f64, y: impl Fn(f64) -> f64, plot: Area) {
        for (label, _) in &mut self.labels {
            // A line that ends early gets no leader.
            label.at_edge &= label.x.is_none_or(|v| x(v) >= plot.right() - 12.0);
            label.y = y(label.y).clamp(plot.y, plot.bottom());
        }
    }

    /// Writes the labels without overlaps.
    pub(crate) fn draw(mut self, svg: &mut Svg, plot: Area) {
        self.labels.sort_by(|a, b| a.0.y.total_cmp(&b.0.y));
        let heights = self.labels.iter().map(|(_, l)| Self::height_of(l));
        let heights: Vec<f64> = heights.collect();
        let wanted: Vec<f64> = self.labels.iter().map(|(l, _)| l.y).collect();
        let centres = spread(&wanted, &heights, plot.y - 14.0, plot.bottom() + 12.0);
        for ((label, lines), y) in self.labels.iter().zip(centres) {
            let x = plot.right() + Self::LEAD;
            if label.at_edge && (y - label.y).abs() > 1.5 {
                let path = [(plot.right() + 1.0, label.y), (x - 3.0, y)];
                svg.path("lead", &Path::through(&path, false));
            }
            label.swatch.draw(svg, &label.colour, x, y);
            svg.lines_around(lines, (x + KEY + KEY_GAP, y), Anchor::Start);
        }
    }
}

/// The centres closest to the wanted ones (ascending) such that nothing overlaps and everything lies between `top` and
/// `bottom`: least squares, by pooling adjacent violators.
fn spread(wanted: &[f64], heights: &[f64], top: f64, bottom: f64) -> Vec<f64> {
    let mut offset = 0.0;
    let offsets: Vec<f64> = heights
        .iter()
        .map(|h| {
            offset += h;
            offset - h / 2.0
        })
        .collect();
    let mut pools: Vec<(f64, usize)> = Vec::new();
    for (w, o) in wanted.iter().zip(&offsets) {
        let mut pool = (w - o, 1);
        while let Some(&(mean, count)) = pools.last() {
            if mean <= pool.0 {
                break;
            }
            let total = count + pool.1;
            pool = (
                (mean * count as f64 + pool.0 * pool.1 as f64) / total as f64,
                total,
            );
            pools.pop();
        }
        pools.push(pool);
    }
    let most = (bottom - offset).max(top);
    pools
        .iter()
        .flat_map(|&(mean, count)| std::iter::repeat_n(mean.clamp(top, most), count))
        .zip(&offsets)
        .map(|(start, o)| start + o)
        .collect()
}

/// A legend above a plot: labels in rows.
#[derive(Debug)]
pub(crate) struct LegendRows {
    placed: Vec<(Label, Vec<String>, f64, f64)>,
    pub(crate) height: f64,
}

impl LegendRows {
    /// Lays the labels out in rows of at most `max_width`.
    pub(crate) fn new(labels: Vec<Label>, max_width: f64) -> Self {
        let (mut x, mut y, mut row) = (0.0, 0.0, 0.0_f64);
        let mut placed = Vec::new();
        for label in labels {
            let lines =
                Role::Label.wrap(&label.text, max_width - label.swatch.width() - KEY_GAP, 4);
            if lines.is_empty() {
                continue;
            }
            let text = Role::Label.widest(&lines);
            let width = label.swatch.width() + KEY_GAP + text;
            if x > 0.0 && x + width > max_width {
                (x, y, row) = (0.0, y + row, 0.0);
            }
            let height = Role::Label.line_height() * lines.len() as f64 + GAP;
            row = row.max(height);
            placed.push((label, lines, x, y + height / 2.0));
            x += width + 20.0;
        }
        Self {
            placed,
            height: y + row,
        }
    }

    /// Writes the legend with its upper left corner at `at`.
    pub(crate) fn draw(&self, svg: &mut Svg, at: (f64, f64)) {
        for (label, lines, x, centre) in &self.placed {
            let (x, y) = (at.0 + x, at.1 + centre);
            label.swatch.draw(svg, &label.colour, x, y);
            let x = x + label.swatch.width() + KEY_GAP;
            svg.lines_around(lines, (x, y), Anchor::Start);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn labels_stay_in_place_where_they_fit() {
        for (wanted, placed) in [
            ([20.0, 80.0], [20.0, 80.0]),
            ([50.0, 50.0], [45.0, 55.0]),
            ([100.0, 100.0], [85.0, 95.0]),
        ] {
            assert_eq!(spread(&wanted, &[10.0, 10.0], 0.0, 100.0), placed);
        }
        assert!(spread(&[], &[], 0.0, 100.0).is_empty());
    }

    proptest! {
        #[test]
        fn never_overlaps(mut wanted in proptest::collection::vec(-50.0..350.0f64, 1..12)) {
            wanted.sort_by(f64::total_cmp);
            let heights: Vec<f64> = (0..wanted.len()).map(|i| 10.0 + (i % 3) as f64 * 7.0).collect();
            let centres = spread(&wanted, &heights, 0.0, 300.0);
            for i in 1..centres.len() {
                let gap = centres[i] - centres[i - 1] - (heights[i] + heights[i - 1]) / 2.0;
                prop_assert!(gap >= -1e-9);
            }
            prop_assert!(centres[0] - heights[0] / 2.0 >= -1e-9);
            let last = centres.len() - 1;
            prop_assert!(centres[last] + heights[last] / 2.0 <= 300.0 + 1e-9);
        }
    }
}
