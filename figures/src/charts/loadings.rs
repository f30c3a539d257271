//! The loadings of a sparse subspace: features by components.

use eigenveil_shared::wording::plural;

use crate::{
    drawing::{
        frame::{
            MARGIN, RowNames, block_height, caption_left, clamp_width, draw_lines, heading, no_data,
        },
        svg::{Anchor, Area, Svg},
        text::Role,
    },
    figure::Figure,
    number::{compact, drawable},
    table::DataTable,
};

/// Name of a feature, and its loading on each component.
type Row = (String, Vec<f64>);

/// A table of bars on a common scale: one row per feature, one column per component, features with the longest row
/// first.
#[derive(Clone, Debug, PartialEq)]
pub struct LoadingTable {
    /// Title.
    pub title: String,
    /// A line under the title.
    pub subtitle: Option<String>,
    /// Names of the components.
    pub columns: Vec<String>,
    /// Names of the features with a loading for each component, in any order; zero rows are omitted.
    pub rows: Vec<(String, Vec<f64>)>,
}

const MAX_ROWS: usize = 40;
const ROW_HEIGHT: f64 = 22.0;
const BAR_HEIGHT: f64 = 12.0;
/// Minimum width of the bars on one side of zero.
const MIN_BAR_SPACE: f64 = 18.0;

/// Two decimals: precise enough for loadings, and short enough for more columns.
fn short(value: f64) -> String {
    match value.abs() {
        0.0..100.0 => format!("{value:.2}").replace('-', "−"),
        _ => compact(value),
    }
}

impl LoadingTable {
    /// A table of these rows; as many columns are shown as fit its width.
    pub fn new(
        title: impl Into<String>,
        columns: impl IntoIterator<Item = String>,
        rows: impl IntoIterator<Item = (String, Vec<f64>)>,
    ) -> Self {
        Self {
            title: title.into(),
            subtitle: None,
            columns: columns.into_iter().collect(),
            rows: rows.into_iter().collect(),
        }
    }

    /// The features with nonzero loadings, longest row first.
    fn sorted(&self) -> Vec<&Row> {
        let length = |(_, loadings): &Row| -> f64 {
            let finite = loadings.iter().filter(|x| drawable(**x));
            finite.fold(0.0, |sum: f64, x| sum.hypot(*x))
        };
        let mut rows: Vec<&Row> = self.rows.iter().filter(|r| length(r) > 0.0).collect();
        rows.sort_by(|a, b| length(b).total_cmp(&length(a)));
        rows
    }
}

/// A bar of this length (negative: to the left) with its number at the end.
fn draw_bar(svg: &mut Svg, (zero, centre): (f64, f64), length: f64, number: &str, tooltip: &str) {
    let label_width = Role::Small.width(number) + 4.0;
    let end = zero + length;
    let (class, from, at, anchor) = match length < 0.0 {
        true => ("neg", end, end - 4.0, Anchor::End),
        false => ("pos", zero, end + 4.0, Anchor::Start),
    };
    svg.open_group(class, tooltip);
    let bar = Area::new(
        from,
        centre - BAR_HEIGHT / 2.0,
        length.abs().max(0.75),
        BAR_HEIGHT,
    );
    svg.rect("fill", bar);
    svg.close_group();
    // The row's line must not cross the number.
    let x = match length < 0.0 {
        true => at - label_width + 2.0,
        false => at - 2.0,
    };
    svg.rect("bg", Area::new(x, centre - 7.0, label_width, 14.0));
    let baseline = centre + Role::Small.size() * 0.35;
    svg.text(Role::Small, "mut", (at, baseline), anchor, number);
}

impl Figure for LoadingTable {
    fn to_svg_of_width(&self, width: f64) -> String {
        let width = clamp_width(width);
        let all = self.sorted();
        let rows = &all[..all.len().min(MAX_ROWS)];
        let names = RowNames::new(
            rows.iter().map(|row| row.0.as_str()),
            width * 0.3,
            ROW_HEIGHT,
        );
        let left = MARGIN + names.width + 14.0;
        // Only finite values are shown.
        let numbers = |(_, loadings): &Row| -> Vec<Option<(f64, String)>> {
            (0..self.columns.len())
                .map(|j| {
                    let value = loadings.get(j).copied().filter(|x| drawable(*x))?;
                    (value != 0.0).then(|| (value, short(value)))
                })
                .collect()
        };
        let cells: Vec<Vec<Option<(f64, String)>>> = rows.iter().map(|r| numbers(r)).collect();
        let present = || cells.iter().flatten().flatten();
        let pad = Role::Small.widest(present().map(|(_, text)| text)) + 8.0;
        let largest = present().fold(0.0_f64, |most, (value, _)| most.max(value.abs()));
        let min_column = 2.0 * (pad + MIN_BAR_SPACE);
        let room = width - MARGIN - left;
        let columns = ((room / min_column) as usize).clamp(1, self.columns.len().max(1));
        // With long numbers a column may be wider than a narrow figure.
        let column = (room / columns as f64).max(min_column);
        let width = width.max(left + columns as f64 * column + MARGIN);

        let mut svg = Svg::default();
        let top = heading(&mut svg, &self.title, self.subtitle.as_deref(), width) + 12.0;
        let wrapped = |title: &String| Role::Small.wrap(title, column - 8.0, 3);
        let titles = self.columns.iter().take(columns).map(wrapped);
        let titles: Vec<Vec<String>> = titles.collect();
        let title_height = titles.iter().map(|lines| block_height(Role::Small, lines));
        let title_height = title_height.fold(0.0, f64::max);
        let (w, h) = (columns as f64 * column, names.height().max(ROW_HEIGHT));
        let area = Area::new(left, top + title_height + 10.0, w, h);
        for i in 0..rows.len() {
            let centre = area.y + names.centre(i);
            names.draw(&mut svg, i, left - 10.0, centre);
            svg.line("grid", (left, centre), (area.right(), centre));
        }
        for (j, title) in titles.iter().enumerate() {
            let zero = left + column * (j as f64 + 0.5);
            draw_lines(&mut svg, Role::Small, title, zero, top, Anchor::Middle);
            for (i, row) in cells.iter().enumerate() {
                let Some((value, number)) = row[j].as_ref() else {
                    continue;
                };
                let origin = (zero, area.y + names.centre(i));
                let length = (column / 2.0 - pad) * value / largest;
                let tooltip = format!("{}, {}: {number}", rows[i].0, self.columns[j]);
                draw_bar(&mut svg, origin, length, number, &tooltip);
            }
            svg.line("axis", (zero, area.y), (zero, area.bottom()));
        }
        if rows.is_empty() {
            no_data(&mut svg, Area::new(0.0, area.y, width, ROW_HEIGHT * 1.4));
        }
        let hidden = [
            (all.len() - rows.len(), "feature"),
            (self.columns.len().saturating_sub(columns), "component"),
        ];
        let hidden = hidden.into_iter().filter(|(hidden, _)| *hidden > 0);
        let caption_lines = hidden.map(|(hidden, unit)| {
            let units = plural(hidden as u64, unit);
            format!("… and {hidden} more {units}, not shown")
        });
        let caption_lines: Vec<String> = caption_lines.collect();
        let height = caption_left(&mut svg, &caption_lines, area.bottom() + 6.0, width);
        let named: Vec<&str> = rows.iter().map(|row| row.0.as_str()).collect();
        let description = format!(
            "Loadings of {} features on {} components, longest first: {}.",
            all.len(),
            self.columns.len(),
            named.join("; ")
        );
        svg.finish(width, height, &self.title, &description)
    }

    /// A table of the loadings of all features with a nonzero loading.
    fn to_table(&self) -> DataTable {
        let headers = std::iter::once("Feature").chain(self.columns.iter().map(String::as_str));
        let rows = self.sorted().into_iter().map(|(name, loadings)| {
            let cells = loadings.iter().map(|x| compact(*x));
            std::iter::once(name.clone()).chain(cells).collect()
        });
        DataTable::new(&self.title, headers, rows)
    }
}
