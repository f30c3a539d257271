//! Variances of the components of an estimate, against its noise floor.

use crate::{
    alignment::{ALIGNMENT, panel},
    figure::Figure,
    frame::{MARGIN, axes, block, caption_under, fit_y, heading, usable_width, whisker},
    label::{Column, Key, Label, Rows},
    marker::{LineStyle, Marker},
    number::{compact, drawable},
    scale::{Axis, Scale, Tick},
    svg::{Anchor, Area, Path, Svg},
    table::DataTable,
    text::Role,
    verdict::{NoiseFloor, Standing, legend},
};

/// What is known about one estimated component.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ScreeComponent {
    /// Where it stands relative to the noise floor.
    pub verdict: Standing,
    /// Expected squared cosine with the true component, from 0 to 1.
    pub alignment: Option<f64>,
    /// Standard error of the alignment.
    pub alignment_error: Option<f64>,
    /// Standard error of the variance.
    pub standard_error: Option<f64>,
}

/// A spectrum to compare with.
#[derive(Clone, Debug, PartialEq)]
pub struct Reference {
    /// What it is.
    pub name: String,
    /// Its eigenvalues, descending, in the same units.
    pub eigenvalues: Vec<f64>,
}

/// A scree plot: variances (eigenvalues of `E[xxᵀ]`) by rank, the noise floor, and how well each component is expected to
/// be recovered.
#[derive(Clone, Debug, PartialEq)]
pub struct Scree {
    /// Title.
    pub title: String,
    /// A line under the title.
    pub subtitle: Option<String>,
    /// Variances, as a rule descending.
    pub eigenvalues: Vec<f64>,
    /// The noise floor.
    pub floor: Option<NoiseFloor>,
    /// What is known about the leading components; the others are judged by the floor.
    pub components: Vec<ScreeComponent>,
    /// A second spectrum, say that of the same data without noise.
    pub reference: Option<Reference>,
    /// How many eigenvalues to show at most.
    pub shown: usize,
    /// Width in pixels, at least 320.
    pub width: f64,
}

impl Default for Scree {
    fn default() -> Self {
        Self {
            title: String::new(),
            subtitle: None,
            eigenvalues: Vec::new(),
            floor: None,
            components: Vec::new(),
            reference: None,
            shown: 30,
            width: 720.0,
        }
    }
}

const VARIANCE: &str = "Variance";
const UPPER: f64 = 250.0;
const LOWER: f64 = 84.0;

impl Scree {
    /// A scree plot 720 pixels wide, of the first 30 eigenvalues.
    pub fn new(title: impl Into<String>, eigenvalues: impl IntoIterator<Item = f64>) -> Self {
        Self {
            title: title.into(),
            eigenvalues: eigenvalues.into_iter().collect(),
            ..Self::default()
        }
    }

    fn verdict(&self, index: usize, eigenvalue: f64) -> Option<Standing> {
        let known = self.components.get(index).map(|c| c.verdict);
        known.or_else(|| self.floor.map(|f| f.verdict(eigenvalue)))
    }

    /// One standard error above and below the eigenvalue at `index`.
    fn whisker_of(&self, index: usize, value: f64) -> Option<(f64, f64)> {
        let error = self.components.get(index)?.standard_error?;
        let ends = (value + error, value - error);
        (error > 0.0 && drawable(ends.0) && drawable(ends.1)).then_some(ends)
    }

    fn legend(&self, values: &[(usize, f64)], reference: bool) -> Vec<Label> {
        let present: Vec<_> = values.iter().map(|&(i, v)| self.verdict(i, v)).collect();
        let mut labels = legend(&present);
        if let Some(r) = self.reference.as_ref().filter(|_| reference) {
            labels.push(Label::above(
                &r.name,
                "c5 fine",
                Key::Series(LineStyle::Dashed, Marker::Cross),
            ));
        }
        if self.floor.is_some() {
            labels.push(Label::above("hidden by the noise", "", Key::Band));
        }
        labels
    }

    fn levels(&self) -> Vec<Label> {
        let level = |name: &str, key: Key, y: f64| Label {
            text: format!("{name} {}", compact(y)),
            colour: String::new(),
            key,
            x: None,
            y,
            at_edge: true,
        };
        self.floor.map_or_else(Vec::new, |floor| {
            vec![
                level("threshold", Key::Reference(0), floor.threshold),
                level("noise edge", Key::Edge, floor.edge),
            ]
        })
    }

    fn draw_floor(&self, svg: &mut Svg, area: Area, y: &Scale) {
        let Some(floor) = self.floor else { return };
        let clamp = |v: f64| y.at(v).clamp(area.y, area.bottom());
        let (upper, lower) = (clamp(floor.edge), floor.lower.map_or(area.bottom(), clamp));
        svg.rect(
            "band",
            Area {
                y: upper,
                h: lower - upper,
                ..area
            },
        );
    }

    fn draw_levels(&self, svg: &mut Svg, area: Area, y: &Scale) {
        let Some(floor) = self.floor else { return };
        for (class, value) in [("bound", floor.edge), ("ref", floor.threshold)] {
            if y.shows(value) {
                svg.line(class, (area.x, y.at(value)), (area.right(), y.at(value)));
            }
        }
    }

    fn draw_values(&self, svg: &mut Svg, values: &[(usize, f64)], x: &Scale, y: &Scale) {
        let at: Vec<_> = values
            .iter()
            .map(|&(i, v)| (x.at(rank(i)), y.at(v)))
            .collect();
        if at.len() > 1 {
            svg.path("lead", &Path::through(&at, false));
        }
        for (&(i, value), place) in values.iter().zip(at) {
            let verdict = self.verdict(i, value);
            let words = verdict
                .map(|v| format!(", {}", v.legend()))
                .unwrap_or_default();
            let tooltip = format!("Component {}: {}{words}", i + 1, compact(value));
            if let Some((upper, lower)) = self.whisker_of(i, value) {
                svg.open_group("c5", "");
                whisker(svg, place.0, (y.at(upper), y.at(lower)));
                svg.close_group();
            }
            svg.open_group(verdict.map_or("c0", Standing::class), &tooltip);
            verdict
                .map_or(Marker::Circle, Standing::marker)
                .draw(svg, place, 4.5);
            svg.close_group();
        }
    }

    fn description(&self, n: usize) -> String {
        let mut text = format!(
            "Scree plot of the first {n} of {} variances, from {} down to {}.",
            self.eigenvalues.len(),
            self.eigenvalues
                .first()
                .copied()
                .map_or("none".to_owned(), compact),
            self.eigenvalues
                .get(n.wrapping_sub(1))
                .copied()
                .map_or("none".to_owned(), compact),
        );
        if let Some(floor) = self.floor {
            text.push_str(&format!(
                " The noise hides variances up to {}, and a component counts above {}.",
                compact(floor.edge),
                compact(floor.threshold)
            ));
        }
        for verdict in Standing::ALL {
            let shown = self.eigenvalues.iter().enumerate().take(n);
            let count = shown
                .filter(|&(i, &v)| self.verdict(i, v) == Some(verdict))
                .count();
            if count > 0 {
                text.push_str(&format!(" {count} {}.", verdict.legend()));
            }
        }
        for (i, component) in self.components.iter().take(n).enumerate() {
            if let Some(a) = component.alignment.filter(|a| a.is_finite()) {
                text.push_str(&format!(
                    " Component {}: {ALIGNMENT} {}.",
                    i + 1,
                    compact(a)
                ));
            }
        }
        text
    }
}

impl Figure for Scree {
    fn with_width(self, width: f64) -> Self {
        Self { width, ..self }
    }

    fn to_svg(&self) -> String {
        let width = usable_width(self.width);
        let total = self.eigenvalues.len();
        let n = total.min(self.shown.clamp(1, 200));
        let first = |values: &[f64]| -> Vec<(usize, f64)> {
            let shown = values.iter().copied().enumerate().take(n.max(1));
            shown.filter(|(_, v)| drawable(*v)).collect()
        };
        let values = first(&self.eigenvalues);
        let reference = self.reference.as_ref().map(|r| first(&r.eigenvalues));
        let reference = reference.filter(|r| !r.is_empty());

        let mut svg = Svg::default();
        let mut top = heading(&mut svg, &self.title, self.subtitle.as_deref(), width) + 8.0;
        let mut labels = self.legend(&values, reference.is_some());
        let levels = self.levels();
        let mut column = Column::new(levels.clone(), width * 0.18);
        let beside = width >= 480.0;
        if !beside {
            labels.extend(levels);
        }
        let rows = Rows::new(labels, width - 2.0 * MARGIN);
        rows.draw(&mut svg, (MARGIN, top));
        top += rows.height + 10.0;

        let mut wanted: Vec<f64> = vec![0.0];
        let ends = values.iter().filter_map(|&(i, v)| self.whisker_of(i, v));
        wanted.extend(ends.flat_map(|(upper, lower)| [upper, lower]));
        wanted.extend(
            values
                .iter()
                .chain(reference.iter().flatten())
                .map(|(_, v)| *v),
        );
        if let Some(floor) = self.floor {
            wanted.extend([floor.edge, floor.threshold]);
            wanted.extend(floor.lower);
        }
        let title_height = Role::Label.line_height() + 10.0;
        let mut area = Area {
            x: 0.0,
            y: top + title_height,
            w: 0.0,
            h: UPPER,
        };
        let y = fit_y(&Axis::linear(""), &wanted, area);
        area.x = MARGIN + y.label_width().max(Role::Small.width("0.5")) + 8.0;
        let right = if beside { column.width } else { 0.0 };
        area.w = width - MARGIN - right - area.x;
        let x = ranks(n, (area.x, area.right()));

        block(
            &mut svg,
            Role::Label,
            &[VARIANCE.into()],
            MARGIN,
            top,
            Anchor::Start,
        );
        self.draw_floor(&mut svg, area, &y);
        axes(&mut svg, area, &x, &y);
        self.draw_levels(&mut svg, area, &y);
        if let Some(points) = &reference {
            let at: Vec<_> = points
                .iter()
                .map(|&(i, v)| (x.at(rank(i)), y.at(v)))
                .collect();
            svg.open_group("c5 fine", "");
            svg.path("ln thin dash", &Path::through(&at, false));
            for place in at {
                Marker::Cross.draw(&mut svg, place, 3.0);
            }
            svg.close_group();
        }
        self.draw_values(&mut svg, &values, &x, &y);
        if values.is_empty() {
            let at = (area.x + area.w / 2.0, area.y + area.h / 2.0);
            svg.text(Role::Subtitle, "mut", at, Anchor::Middle, "no data");
        }
        if beside {
            column.place(|_| area.right(), |v| y.at(v), area);
            column.draw(&mut svg, area);
        }

        let mut bottom = area.bottom() + 26.0;
        if self
            .components
            .iter()
            .take(n)
            .any(|c| c.alignment.is_some_and(f64::is_finite))
        {
            let known = &self.components[..self.components.len().min(n)];
            let area = Area { h: LOWER, ..area };
            bottom = panel(&mut svg, known, n, area, bottom + 14.0, width, false).bottom() + 26.0;
        }
        let mut under = vec!["Component, by rank".to_owned()];
        if total > n {
            let rest = total - n;
            let s = if rest == 1 { "" } else { "s" };
            under.push(format!("… and {rest} smaller one{s}, not shown"));
        }
        if values.iter().any(|&(i, v)| self.whisker_of(i, v).is_some()) {
            under.push("Whiskers: one standard error to either side".to_owned());
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
        let reference = self.reference.as_ref();
        headers.extend(reference.map(|r| r.name.as_str()));
        let rows = self
            .eigenvalues
            .iter()
            .enumerate()
            .take(self.shown)
            .map(|(i, &value)| {
                let alignment = self.components.get(i).and_then(|c| c.alignment);
                let verdict = self.verdict(i, value).map_or("", Standing::word);
                let error = self.components.get(i).and_then(|c| c.standard_error);
                let mut row = vec![
                    (i + 1).to_string(),
                    compact(value),
                    error.map(compact).unwrap_or_default(),
                    verdict.to_owned(),
                ];
                row.push(alignment.map(compact).unwrap_or_default());
                if let Some(r) = reference {
                    row.push(
                        r.eigenvalues
                            .get(i)
                            .copied()
                            .map(compact)
                            .unwrap_or_default(),
                    );
                }
                row
            });
        DataTable {
            caption: self.title.clone(),
            rows: rows.collect(),
            headers: headers.into_iter().map(str::to_owned).collect(),
        }
    }
}

pub(crate) fn rank(index: usize) -> f64 {
    index as f64 + 1.0
}

/// The horizontal axis: ranks 1 to n, each with its own slot.
pub(crate) fn ranks(n: usize, range: (f64, f64)) -> Scale {
    let n = n.max(1);
    let every = [1, 5, 10, 20, 50]
        .into_iter()
        .find(|e| n / e <= 16)
        .unwrap_or(100);
    let ticks = (1..=n).filter(|r| *r == 1 || r % every == 0);
    let ticks = ticks
        .map(|r| Tick {
            value: r as f64,
            label: r.to_string(),
        })
        .collect();
    let mut scale = Scale::fixed((0.5, n as f64 + 0.5), range, ticks);
    scale.thin(|label| Role::Small.width(label) + 8.0);
    scale
}
