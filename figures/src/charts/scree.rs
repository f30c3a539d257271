//! The scree plot of an estimate: variances against its noise floor.

use eigenveil_shared::{
    estimate::{VarianceFloor, Verdict},
    wording::plural,
};

use crate::{
    charts::alignment::{ALIGNMENT, name, number_or_empty, panel, starts},
    drawing::{
        frame::{
            MARGIN, axes, caption_under, clamp_width, draw_lines, fit_y, heading_and_legend,
            no_data, whisker,
        },
        label::{Label, LabelColumn, Swatch},
        marker::{LineStyle, Marker},
        scale::{Axis, AxisScale},
        svg::{Anchor, Area, Path, Svg},
        text::Role,
    },
    figure::Figure,
    number::{compact, drawable},
    table::DataTable,
    verdict::{self, MAX_COMPONENTS, ScreeComponent, rank, ranks},
};

/// A scree plot: variances (eigenvalues of `E[xxᵀ]`) by rank, the noise floor, and the expected alignment of each
/// component.
#[derive(Clone, Debug, PartialEq)]
pub struct Scree {
    /// Title.
    pub title: String,
    /// A line under the title.
    pub subtitle: Option<String>,
    /// Variances, usually descending.
    pub eigenvalues: Vec<f64>,
    /// The noise floor.
    pub floor: Option<VarianceFloor>,
    /// Details of the leading components; the verdicts of the others follow from the floor.
    pub components: Vec<ScreeComponent>,
    /// Whether the variances are lower bounds: then there are no whiskers.
    pub lower_bounds: bool,
    /// Where other studies of the same people would end the components: after how many, and in which share.
    pub ends: Vec<(usize, f64)>,
    /// The spectrum of the same data without noise, in the same units.
    pub without_noise: Option<Vec<f64>>,
}

const VARIANCE: &str = "Variance";
const AT_LEAST: &str = "Variance, at least";
const WITHOUT_NOISE: &str = "without noise (non-private)";
const VARIANCE_LOG: &str = "Variance (logarithmic)";
const AT_LEAST_LOG: &str = "Variance, at least (logarithmic)";
/// On a linear axis a leading variance this much above the threshold would flatten the rest.
const MAX_LINEAR_RATIO: f64 = 20.0;
const UPPER: f64 = 250.0;
const LOWER: f64 = 84.0;

impl Scree {
    /// A scree plot of these variances alone.
    pub fn new(title: impl Into<String>, eigenvalues: impl IntoIterator<Item = f64>) -> Self {
        Self {
            title: title.into(),
            subtitle: None,
            eigenvalues: eigenvalues.into_iter().collect(),
            floor: None,
            components: Vec::new(),
            lower_bounds: false,
            ends: Vec::new(),
            without_noise: None,
        }
    }

    /// "≥ " before a lower bound.
    fn sign(&self) -> &'static str {
        if self.lower_bounds { "≥ " } else { "" }
    }

    /// The vertical axis: logarithmic, starting at the floor level, if the first variance would dwarf the others.
    fn y_axis(&self, shown: &[f64]) -> Axis {
        let largest = shown.iter().copied().fold(0.0, f64::max);
        match self.floor {
            Some(floor)
                if floor.level > 0.0
                    && largest.is_finite()
                    && largest > MAX_LINEAR_RATIO * floor.threshold =>
            {
                let label = match self.lower_bounds {
                    true => AT_LEAST_LOG,
                    false => VARIANCE_LOG,
                };
                Axis::log(label).between(0.8 * floor.level, 1.3 * largest)
            }
            _ if self.lower_bounds => Axis::linear(AT_LEAST),
            _ => Axis::linear(VARIANCE),
        }
    }

    fn verdict(&self, index: usize, eigenvalue: f64) -> Option<Verdict> {
        let known = self.components.get(index).map(|c| c.verdict);
        known.or_else(|| self.floor.map(|f| verdict::from_variance(f, eigenvalue)))
    }

    /// One standard error above and below the eigenvalue at `index`.
    fn whisker_of(&self, index: usize, value: f64) -> Option<(f64, f64)> {
        let error = self.components.get(index)?.variance_error?;
        let ends = (value + error, value - error);
        (error > 0.0 && drawable(ends.0) && drawable(ends.1)).then_some(ends)
    }

    fn legend(&self, values: &[(usize, f64)], reference: bool) -> Vec<Label> {
        let present: Vec<_> = values.iter().map(|&(i, v)| self.verdict(i, v)).collect();
        let mut labels = verdict::legend(&present);
        if reference {
            let swatch = Swatch::Series(LineStyle::Dashed, Marker::Cross);
            labels.push(Label::above(WITHOUT_NOISE, "c5 fine", swatch));
        }
        if self.floor.is_some() {
            labels.push(Label::above("hidden by the noise", "", Swatch::Band));
        }
        labels
    }

    fn levels(&self) -> Vec<Label> {
        let level = |name: &str, swatch: Swatch, y: f64| Label {
            text: format!("{name} {}", compact(y)),
            colour: String::new(),
            swatch,
            x: None,
            y,
            at_edge: true,
        };
        self.floor.map_or_else(Vec::new, |floor| {
            vec![
                level("threshold", Swatch::Reference(0), floor.threshold),
                level("noise edge", Swatch::Edge, floor.edge),
            ]
        })
    }

    fn draw_floor(&self, svg: &mut Svg, area: Area, y: &AxisScale) {
        let Some(floor) = self.floor else { return };
        let clamp = |v: f64| y.at(v).clamp(area.y, area.bottom());
        let (y, h) = (clamp(floor.edge), clamp(floor.level) - clamp(floor.edge));
        svg.rect("band", Area { y, h, ..area });
    }

    fn draw_levels(&self, svg: &mut Svg, area: Area, y: &AxisScale) {
        let Some(floor) = self.floor else { return };
        for (class, value) in [("bound", floor.edge), ("ref", floor.threshold)] {
            if y.shows(value) {
                svg.line(class, (area.x, y.at(value)), (area.right(), y.at(value)));
            }
        }
    }

    /// The ends that are shown: between two of the first `n` components, and in a share that is not nearly 0.
    fn shown_ends(&self, n: usize) -> impl Iterator<Item = (usize, f64)> {
        let ends = self
            .ends
            .iter()
            .map(|&(count, share)| (count, share.min(1.0)));
        ends.filter(move |&(count, share)| (1..=n).contains(&count) && share >= 0.005)
    }

    /// A line between two components as high as the share of the studies that would end there.
    fn draw_ends(&self, svg: &mut Svg, area: Area, x: &AxisScale, n: usize) {
        for (count, share) in self.shown_ends(n) {
            let at = x.at(rank(count - 1) + 0.5);
            let h = area.h * share;
            let tooltip = format!("{count} components: {:.0} % of such studies", 100.0 * share);
            svg.open_group("c3", &tooltip);
            let line = Area::new(at - 1.5, area.bottom() - h, 3.0, h);
            svg.tinted("fill", line, 0.6);
            svg.close_group();
        }
    }

    fn ends_in_words(&self, n: usize) -> Option<String> {
        let ends = self.shown_ends(n);
        let ends: Vec<String> = ends
            .map(|(count, share)| format!("after {count} in {:.0}\u{a0}%", 100.0 * share))
            .collect();
        let list = ends.join(", ");
        (!ends.is_empty()).then(|| {
            format!("Upright lines: where such studies of the same people would end, {list}")
        })
    }

    fn draw_values(&self, svg: &mut Svg, values: &[(usize, f64)], x: &AxisScale, y: &AxisScale) {
        let at: Vec<_> = values
            .iter()
            .map(|&(i, v)| (x.at(rank(i)), y.at(v)))
            .collect();
        if at.len() > 1 {
            svg.path("lead", &Path::through(&at, false));
        }
        for (&(i, value), place) in values.iter().zip(at) {
            let verdict = self.verdict(i, value);
            let words = verdict.map_or(String::new(), |v| format!(", {}", v.in_words()));
            let sign = self.sign();
            let tooltip = format!("Component {}: {sign}{}{words}", i + 1, compact(value));
            if let Some((upper, lower)) = self.whisker_of(i, value) {
                let lower = if y.shows(lower) { lower } else { y.domain.0 };
                svg.open_group("c5", "");
                whisker(svg, place.0, (y.at(upper), y.at(lower)));
                svg.close_group();
            }
            svg.open_group(verdict.map_or("c0", verdict::class), &tooltip);
            let marker = verdict.map_or(Marker::Circle, verdict::marker);
            marker.draw(svg, place, 4.5);
            svg.close_group();
        }
    }

    fn description(&self, n: usize) -> String {
        let value = |index: usize| {
            let value = self.eigenvalues.get(index).copied();
            value.map_or("none".to_owned(), compact)
        };
        let mut text = format!(
            "Scree plot of the first {n} of {} variances, from {} down to {}.",
            self.eigenvalues.len(),
            value(0),
            value(n.wrapping_sub(1)),
        );
        if let Some(floor) = self.floor {
            text.push_str(&format!(
                " The noise hides variances up to {}, and a component counts above {}.",
                compact(floor.edge),
                compact(floor.threshold)
            ));
        }
        for verdict in verdict::ALL {
            let eigenvalues = self.eigenvalues.iter().enumerate().take(n);
            let count = eigenvalues
                .filter(|&(i, &v)| self.verdict(i, v) == Some(verdict))
                .count();
            if count > 0 {
                text.push_str(&format!(" {count} {}.", verdict.in_words()));
            }
        }
        for start in starts(&self.components[..self.components.len().min(n)]) {
            let alignment = start.1.alignment;
            if alignment.is_finite() {
                let alignment = compact(alignment);
                text.push_str(&format!(" {}: {ALIGNMENT} {alignment}.", name(start)));
            }
        }
        text
    }
}

fn draw_reference(svg: &mut Svg, points: &[(f64, f64)]) {
    svg.open_group("c5 fine", "");
    svg.path("ln thin dash", &Path::through(points, false));
    for point in points {
        Marker::Cross.draw(svg, *point, 3.0);
    }
    svg.close_group();
}

/// The lines under the chart; `rest` eigenvalues are not in it.
fn notes(rest: usize, has_whiskers: bool, ends: Option<String>) -> Vec<String> {
    let mut notes = vec!["Component, by rank".to_owned()];
    notes.extend(ends);
    if rest > 0 {
        let ones = plural(rest as u64, "one");
        notes.push(format!("… and {rest} smaller {ones}, not shown"));
    }
    if has_whiskers {
        notes.push("Whiskers: one standard error to either side".to_owned());
    }
    notes
}

impl Figure for Scree {
    fn to_svg_of_width(&self, width: f64) -> String {
        let width = clamp_width(width);
        let total = self.eigenvalues.len();
        let n = total.min(MAX_COMPONENTS);
        let first = |values: &[f64]| -> Vec<(usize, f64)> {
            let points = values.iter().copied().enumerate().take(n.max(1));
            points.filter(|(_, v)| drawable(*v)).collect()
        };
        let values = first(&self.eigenvalues);
        let reference = self.without_noise.as_deref().map(first);
        let reference = reference.filter(|r| !r.is_empty());

        let mut labels = self.legend(&values, reference.is_some());
        let levels = self.levels();
        let mut column = LabelColumn::new(levels.clone(), width * 0.18);
        let beside = width >= 480.0;
        if !beside {
            labels.extend(levels);
        }
        let (title, subtitle) = (&self.title, self.subtitle.as_deref());
        let (mut svg, top) = heading_and_legend(title, subtitle, labels, width);

        let mut wanted: Vec<f64> = vec![0.0];
        let ends = values.iter().filter_map(|&(i, v)| self.whisker_of(i, v));
        wanted.extend(ends.flat_map(|(upper, lower)| [upper, lower]));
        let drawn = values.iter().chain(reference.iter().flatten());
        wanted.extend(drawn.map(|(_, v)| *v));
        if let Some(floor) = self.floor {
            wanted.extend([floor.edge, floor.threshold, floor.level]);
        }
        let title_height = Role::Label.line_height() + 10.0;
        let mut area = Area::new(0.0, top + title_height, 0.0, UPPER);
        let axis = self.y_axis(&wanted);
        let y = fit_y(&axis, &wanted, area);
        // Below a logarithmic axis: pure noise.
        let visible = |points: Vec<(usize, f64)>| -> Vec<(usize, f64)> {
            points.into_iter().filter(|(_, v)| y.shows(*v)).collect()
        };
        let (values, reference) = (visible(values), reference.map(visible));
        area.x = MARGIN + y.label_width().max(Role::Small.width("0.5")) + 8.0;
        let right = if beside { column.width } else { 0.0 };
        area.w = width - MARGIN - right - area.x;
        let x = ranks(n, (area.x, area.right()));

        let name = [axis.label];
        draw_lines(&mut svg, Role::Label, &name, MARGIN, top, Anchor::Start);
        self.draw_floor(&mut svg, area, &y);
        axes(&mut svg, area, &x, &y);
        self.draw_levels(&mut svg, area, &y);
        self.draw_ends(&mut svg, area, &x, n);
        if let Some(points) = &reference {
            let at: Vec<_> = points
                .iter()
                .map(|&(i, v)| (x.at(rank(i)), y.at(v)))
                .collect();
            draw_reference(&mut svg, &at);
        }
        self.draw_values(&mut svg, &values, &x, &y);
        if values.is_empty() {
            no_data(&mut svg, area);
        }
        if beside {
            column.place(|_| area.right(), |v| y.at(v), area);
            column.draw(&mut svg, area);
        }

        let mut bottom = area.bottom() + 26.0;
        let visible = &self.components[..self.components.len().min(n)];
        if visible.iter().any(|c| c.alignment.is_finite()) {
            let (y, h) = (bottom + 14.0, LOWER);
            let area = panel(&mut svg, visible, n, Area { y, h, ..area }, width, false);
            bottom = area.bottom() + 26.0;
        }
        let has_whiskers = values.iter().any(|&(i, v)| self.whisker_of(i, v).is_some());
        let mut under = notes(total - n, has_whiskers, self.ends_in_words(n));
        if self.lower_bounds {
            under.push("Lower bounds: the reports do not show how long the rows are".to_owned());
        }
        let middle = area.x + area.w / 2.0;
        let height = caption_under(&mut svg, &under, middle, bottom, width);
        svg.finish(width, height, &self.title, &self.description(n))
    }

    /// The numbers of the plot as a table, one row for each eigenvalue shown.
    fn to_table(&self) -> DataTable {
        let mut headers = vec![
            "Component",
            VARIANCE,
            "Standard error",
            "Noise floor",
            ALIGNMENT,
        ];
        headers.extend(self.without_noise.as_ref().map(|_| WITHOUT_NOISE));
        let values = self.eigenvalues.iter().enumerate().take(MAX_COMPONENTS);
        let rows = values.map(|(i, &value)| {
            let component = self.components.get(i);
            let error = component.and_then(|c| c.variance_error);
            let verdict = self.verdict(i, value).map_or("", Verdict::as_str);
            let mut row = vec![
                (i + 1).to_string(),
                format!("{}{}", self.sign(), compact(value)),
                error.map(compact).unwrap_or_default(),
                verdict.to_owned(),
                component.map_or(String::new(), |c| {
                    let value = number_or_empty(c.alignment);
                    match c.span {
                        2.. if !value.is_empty() => format!("{value} ({}–{})", i + 1, i + c.span),
                        _ => value,
                    }
                }),
            ];
            if let Some(others) = &self.without_noise {
                row.push(others.get(i).copied().map(compact).unwrap_or_default());
            }
            row
        });
        DataTable::new(&self.title, headers, rows)
    }
}
