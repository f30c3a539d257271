//! The largest loadings of a component, by name.

use crate::{
    figure::Figure,
    frame::{MARGIN, RowNames, block, block_height, heading, usable_width},
    number::{compact, drawable},
    scale::{Axis, Scale},
    svg::{Anchor, Area, Svg},
    table::DataTable,
    text::Role,
};

/// One named value.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Bar {
    /// Name, say of a feature.
    pub name: String,
    /// Value, of either sign.
    pub value: f64,
}

/// Horizontal bars to both sides of zero, largest magnitude first.
#[derive(Clone, Debug, PartialEq)]
pub struct BarChart {
    /// Title.
    pub title: String,
    /// A line under the title.
    pub subtitle: Option<String>,
    /// The values, in any order; those that are not finite are left out.
    pub bars: Vec<Bar>,
    /// What the values are.
    pub x_label: String,
    /// How many bars to show at most.
    pub shown: usize,
    /// Width in pixels, at least 320; more where long numbers need it.
    pub width: f64,
}

const STEP: f64 = 24.0;
const BAR: f64 = 15.0;

impl BarChart {
    /// A chart of the 15 values of largest magnitude, 720 pixels wide.
    pub fn new<N: Into<String>>(
        title: impl Into<String>,
        x_label: impl Into<String>,
        bars: impl IntoIterator<Item = (N, f64)>,
    ) -> Self {
        let bars = bars.into_iter().map(|(name, value)| Bar {
            name: name.into(),
            value,
        });
        Self {
            title: title.into(),
            subtitle: None,
            bars: bars.collect(),
            x_label: x_label.into(),
            shown: 15,
            width: 720.0,
        }
    }

    fn sorted(&self) -> Vec<&Bar> {
        let mut bars: Vec<&Bar> = self.bars.iter().filter(|b| drawable(b.value)).collect();
        bars.sort_by(|a, b| b.value.abs().total_cmp(&a.value.abs()));
        bars
    }

    fn description(&self, bars: &[&Bar], numbers: &[String]) -> String {
        let parts: Vec<String> = bars
            .iter()
            .zip(numbers)
            .map(|(b, n)| format!("{} {n}", b.name))
            .collect();
        format!(
            "Bars of {}, by magnitude: {}.",
            self.x_label,
            parts.join("; ")
        )
    }
}

impl Figure for BarChart {
    fn with_width(self, width: f64) -> Self {
        Self { width, ..self }
    }

    fn to_svg(&self) -> String {
        let all = self.sorted();
        let bars: Vec<&Bar> = all.iter().copied().take(self.shown).collect();
        let room = usable_width(self.width) * 0.34;
        let names = RowNames::new(bars.iter().map(|b| b.name.as_str()), room, STEP);
        let name_width = names.width;
        let numbers: Vec<String> = bars.iter().map(|b| compact(b.value)).collect();
        let number_width = numbers
            .iter()
            .map(|n| Role::Small.width(n))
            .fold(0.0, f64::max);
        // Numbers stand at the ends of the bars, outside them, so each end keeps room for one.
        let pad = number_width + 10.0;
        let width = usable_width(self.width).max(2.0 * MARGIN + name_width + 2.0 * pad + 80.0);

        let mut svg = Svg::default();
        let top = heading(&mut svg, &self.title, self.subtitle.as_deref(), width) + 12.0;
        let left = MARGIN + name_width + 12.0;
        let right = width - MARGIN;
        let negative = bars.iter().any(|b| b.value < 0.0);
        let positive = bars.iter().any(|b| b.value > 0.0) || !negative;
        let range = (
            left + if negative { pad } else { 0.0 },
            right - if positive { pad } else { 0.0 },
        );
        let extent = bars.iter().fold((0.0_f64, 0.0_f64), |(a, b), bar| {
            (a.min(bar.value), b.max(bar.value))
        });
        let extent = if extent == (0.0, 0.0) {
            (0.0, 1.0)
        } else {
            extent
        };
        let axis = Axis::linear("").between(extent.0, extent.1);
        let x = Scale::fit(&axis, std::iter::empty(), range, 4);
        let zero = x.at(0.0);

        let height = names.height().max(STEP);
        let area = Area {
            x: left,
            y: top,
            w: right - left,
            h: height,
        };
        for (i, (bar, number)) in bars.iter().zip(&numbers).enumerate() {
            let centre = area.y + names.centre(i);
            let end = x.at(bar.value);
            let (class, anchor, at) = if bar.value < 0.0 {
                ("neg", Anchor::End, end - 6.0)
            } else {
                ("pos", Anchor::Start, end + 6.0)
            };
            names.draw(&mut svg, i, left - 12.0, centre);
            svg.open_group(class, &format!("{}: {number}", bar.name));
            let w = (end - zero).abs().max(0.75);
            svg.rect(
                "fill",
                Area {
                    x: end.min(zero),
                    y: centre - BAR / 2.0,
                    w,
                    h: BAR,
                },
            );
            svg.close_group();
            let baseline = centre + Role::Small.size() * 0.35;
            svg.text(Role::Small, "mut", (at, baseline), anchor, number);
        }
        if bars.is_empty() {
            let at = (width / 2.0, area.y + STEP * 0.7);
            svg.text(Role::Subtitle, "mut", at, Anchor::Middle, "no data");
        } else {
            svg.line("axis", (zero, area.y), (zero, area.bottom()));
        }
        let mut under = vec![self.x_label.clone()];
        if all.len() > bars.len() {
            under.push(format!(
                "… and {} of smaller magnitude, not shown",
                all.len() - bars.len()
            ));
        }
        let under: Vec<String> = under
            .iter()
            .flat_map(|l| Role::Label.wrap(l, width - 2.0 * MARGIN, 3))
            .collect();
        let y = area.bottom() + 6.0;
        block(&mut svg, Role::Label, &under, MARGIN, y, Anchor::Start);
        let height = y + block_height(Role::Label, &under) + MARGIN;
        svg.finish(
            width,
            height.round(),
            &self.title,
            &self.description(&bars, &numbers),
        )
    }

    /// The numbers of all bars as a table.
    fn to_table(&self) -> DataTable {
        let rows = self.sorted();
        DataTable {
            caption: self.title.clone(),
            headers: vec!["Name".to_owned(), self.x_label.clone()],
            rows: rows
                .iter()
                .map(|b| vec![b.name.clone(), compact(b.value)])
                .collect(),
        }
    }
}
