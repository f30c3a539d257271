//! Correlations of pairs of features as a map of colours.

use crate::{
    drawing::{
        frame::{MARGIN, RowNames, caption_left, clamp_width, heading, no_data},
        svg::{Anchor, Area, Path, Svg},
        text::Role,
    },
    figure::Figure,
    number::{compact, drawable},
    table::DataTable,
};

/// Two features by their places, the first before the second, and their correlation: value, and the ends of its 95 %
/// interval; `None` where it is refused.
pub type CorrelatedPair = (usize, usize, Option<[f64; 3]>);

/// A map of correlations: orange where positive, blue where negative, fuller where larger. A small square is one that may
/// be 0, a cross one that is refused. Above the diagonal are the numbers, where they fit.
#[derive(Clone, Debug, PartialEq)]
pub struct CorrelationMap {
    /// Title.
    pub title: String,
    /// A line under the title.
    pub subtitle: Option<String>,
    /// Names of the features.
    pub features: Vec<String>,
    /// Their pairs.
    pub pairs: Vec<CorrelatedPair>,
    /// Number of features that are not among these.
    pub left_out: usize,
}

/// Height of a row, at least.
const ROW: f64 = 20.0;
const MAX_COLUMN: f64 = 52.0;
/// Share of its cell's sides that a correlation has which may be 0.
const SMALL: f64 = 0.45;
const WIDEST_NUMBER: &str = "−0.82";

/// Two decimals with a real minus sign.
fn short(value: f64) -> String {
    format!("{value:.2}").replace('-', "−")
}

/// The numbers of a pair, −1 to 1; those that are not finite are refused.
fn shown(pair: &CorrelatedPair) -> Option<[f64; 3]> {
    let numbers = pair.2?;
    let is_finite = numbers.iter().all(|x| drawable(*x));
    is_finite.then(|| numbers.map(|x| x.clamp(-1.0, 1.0)))
}

fn is_sure([_, low, high]: [f64; 3]) -> bool {
    low > 0.0 || high < 0.0
}

impl CorrelationMap {
    /// Pairs of features that there are.
    fn pairs(&self) -> impl Iterator<Item = &CorrelatedPair> {
        let n = self.features.len();
        let pairs = self.pairs.iter();
        pairs.filter(move |(first, second, _)| first < second && *second < n)
    }

    fn largest_first(&self) -> Vec<&CorrelatedPair> {
        let size = |pair: &CorrelatedPair| shown(pair).map_or(-1.0, |[value, ..]| value.abs());
        let mut pairs: Vec<&CorrelatedPair> = self.pairs().collect();
        pairs.sort_by(|a, b| size(b).total_cmp(&size(a)));
        pairs
    }

    /// "height ~ weight".
    fn name(&self, (first, second, _): &CorrelatedPair) -> String {
        format!("{} ~ {}", self.features[*first], self.features[*second])
    }

    fn tooltip(&self, pair: &CorrelatedPair) -> String {
        let name = self.name(pair);
        match shown(pair) {
            Some([value, low, high]) => {
                let [value, low, high] = [value, low, high].map(short);
                format!("{name}: {value}, {low} to {high}")
            }
            None => format!("{name}: refused"),
        }
    }

    fn description(&self) -> String {
        let sure = self.largest_first().into_iter();
        let sure = sure.filter(|pair| shown(pair).is_some_and(is_sure));
        let largest: Vec<String> = sure.take(5).map(|pair| self.tooltip(pair)).collect();
        let mut text = format!("Correlations of {} features.", self.features.len());
        match largest.is_empty() {
            true => text.push_str(" None is surely different from 0."),
            false => text.push_str(&format!(" The largest: {}.", largest.join("; "))),
        }
        text
    }

    fn notes(&self) -> Vec<String> {
        let mut notes = vec![
            "Full squares: the 95 % interval excludes 0; small ones: it does not; crosses: refused"
                .to_owned(),
        ];
        if self.left_out > 0 {
            let features = self.features.len();
            notes.push(format!(
                "The {features} features with the largest correlations; {} more are not shown",
                self.left_out
            ));
        }
        notes
    }
}

/// Draws a correlation into its cell.
fn draw_cell(svg: &mut Svg, cell: Area, found: Option<[f64; 3]>) {
    let Some(numbers) = found else {
        let (x, y) = cell.centre();
        let mut cross = Path::default();
        for side in [-1.0, 1.0] {
            cross.add(&[(x - 3.0, y - 3.0 * side), (x + 3.0, y + 3.0 * side)]);
        }
        svg.path("bound", &cross);
        return;
    };
    let [value, ..] = numbers;
    let share = if is_sure(numbers) { 1.0 } else { SMALL };
    let (w, h) = (share * cell.w, share * cell.h);
    let (x, y) = cell.centre();
    let class = if value < 0.0 { "fill neg" } else { "fill pos" };
    let cell_area = Area::new(x - w / 2.0, y - h / 2.0, w, h);
    svg.tinted(class, cell_area, value.abs().clamp(0.08, 1.0));
}

/// Draws the key of the colours, from −1 to 1; returns the y below it.
fn draw_key(svg: &mut Svg, (x, y): (f64, f64)) -> f64 {
    let baseline = y + Role::Small.size() * 0.85;
    svg.text(Role::Small, "mut", (x, baseline), Anchor::Start, "−1");
    let left = x + Role::Small.width("−1") + 6.0;
    for step in -4..=4 {
        let value = f64::from(step) / 4.0;
        let swatch = Area::new(left + f64::from(step + 4) * 12.0, y, 12.0, 10.0);
        draw_cell(svg, swatch, Some([value; 3]));
    }
    let right = (left + 9.0 * 12.0 + 6.0, baseline);
    svg.text(Role::Small, "mut", right, Anchor::Start, "+1");
    y + Role::Small.line_height()
}

impl Figure for CorrelationMap {
    fn to_svg_of_width(&self, width: f64) -> String {
        let width = clamp_width(width);
        let n = self.features.len();
        let named = (1..).zip(&self.features);
        let named: Vec<String> = named
            .map(|(i, name): (usize, _)| format!("{i} {name}"))
            .collect();
        let names = RowNames::new(named.iter().map(String::as_str), width * 0.34, ROW);
        let left = MARGIN + names.width + 10.0;
        let column = ((width - MARGIN - left) / n.max(1) as f64).min(MAX_COLUMN);

        let mut svg = Svg::default();
        let above = heading(&mut svg, &self.title, self.subtitle.as_deref(), width) + 8.0;
        let top = above + Role::Small.line_height();
        let height = names.height().max(ROW);
        let area = Area::new(left, top, column * n as f64, height);
        let label = Role::Small.width(&n.to_string()) + 4.0;
        let every = (label / column).ceil().max(1.0) as usize;
        for i in 0..n {
            names.draw(&mut svg, i, left - 8.0, area.y + names.centre(i));
            if i % every == 0 {
                let at = (left + column * (i as f64 + 0.5), top - 4.0);
                let number = (i + 1).to_string();
                svg.text(Role::Small, "mut", at, Anchor::Middle, &number);
            }
        }
        let has_numbers = column >= Role::Small.width(WIDEST_NUMBER) + 4.0;
        let cell = |row: usize, at: usize| {
            let (x, y) = (left + column * at as f64, area.y + names.centre(row));
            Area::new(x + 0.5, y - ROW / 2.0 + 0.5, column - 1.0, ROW - 1.0)
        };
        for pair in self.pairs() {
            let (first, second, found) = (pair.0, pair.1, shown(pair));
            svg.open_group("", &self.tooltip(pair));
            draw_cell(&mut svg, cell(second, first), found);
            let mirrored = cell(first, second);
            match found {
                _ if !has_numbers => draw_cell(&mut svg, mirrored, found),
                Some([value, ..]) => {
                    let (x, y) = mirrored.centre();
                    let at = (x, y + Role::Small.size() * 0.35);
                    let class = if found.is_some_and(is_sure) {
                        ""
                    } else {
                        "mut"
                    };
                    svg.text(Role::Small, class, at, Anchor::Middle, &short(value));
                }
                None => {}
            }
            svg.close_group();
        }
        for i in 0..n {
            svg.rect("edge", cell(i, i));
        }
        let mut bottom = area.bottom() + 8.0;
        if n == 0 {
            no_data(&mut svg, Area::new(0.0, area.y, width, ROW * 1.4));
        } else {
            bottom = draw_key(&mut svg, (MARGIN, bottom)) + 4.0;
        }
        let height = caption_left(&mut svg, &self.notes(), bottom, width);
        svg.finish(width, height, &self.title, &self.description())
    }

    /// A line for each pair, the largest first.
    fn to_table(&self) -> DataTable {
        let rows = self
            .largest_first()
            .into_iter()
            .map(|pair| match shown(pair) {
                Some([value, low, high]) => {
                    let ends = format!("{} to {}", short(low), short(high));
                    vec![self.name(pair), compact(value), ends]
                }
                None => vec![self.name(pair), "refused".to_owned(), String::new()],
            });
        DataTable::new(
            &self.title,
            ["Features", "Correlation", "95 % interval"],
            rows,
        )
    }
}
