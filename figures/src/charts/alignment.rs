//! The chart of the expected alignments.

use crate::{
    drawing::{
        frame::{
            MARGIN, axes, block_height, caption_under, clamp_width, draw_lines, heading_and_legend,
            no_data, whisker,
        },
        scale::{AxisScale, Tick},
        svg::{Anchor, Area, Svg},
        text::Role,
    },
    figure::Figure,
    number::compact,
    table::DataTable,
    verdict::{self, MAX_COMPONENTS, ScreeComponent, rank, ranks},
};

pub(crate) const ALIGNMENT: &str = "Expected squared cosine with the true component";

/// Expected alignment of each component with the true one, coloured and marked by verdict, with standard errors.
#[derive(Clone, Debug, PartialEq)]
pub struct AlignmentChart {
    /// Title.
    pub title: String,
    /// A line under the title.
    pub subtitle: Option<String>,
    /// The components, leading first.
    pub components: Vec<ScreeComponent>,
}

const HEIGHT: f64 = 220.0;
const MARK: f64 = 4.5;

impl AlignmentChart {
    /// A chart of these components.
    pub fn new(
        title: impl Into<String>,
        components: impl IntoIterator<Item = ScreeComponent>,
    ) -> Self {
        Self {
            title: title.into(),
            subtitle: None,
            components: components.into_iter().collect(),
        }
    }

    fn shown(&self) -> &[ScreeComponent] {
        &self.components[..self.components.len().min(MAX_COMPONENTS)]
    }
}

impl Figure for AlignmentChart {
    fn to_svg_of_width(&self, width: f64) -> String {
        let width = clamp_width(width);
        let components = self.shown();
        let verdicts: Vec<_> = components.iter().map(|c| Some(c.verdict)).collect();
        let (title, subtitle) = (&self.title, self.subtitle.as_deref());
        let legend = verdict::legend(&verdicts);
        let (mut svg, top) = heading_and_legend(title, subtitle, legend, width);
        let left = MARGIN + Role::Small.width("0.5") + 8.0;
        let area = Area::new(left, top, width - MARGIN - left, HEIGHT);
        let n = components.len();
        let area = panel(&mut svg, components, n, area, width, true);
        if components.is_empty() {
            no_data(&mut svg, area);
        }
        let mut under = vec!["Component, by rank".to_owned()];
        if components.iter().any(|c| error_of(c).is_some()) {
            under.push("Whiskers: one standard error to either side".to_owned());
        }
        if self.components.len() > components.len() {
            let rest = self.components.len() - components.len();
            under.push(format!("… and {rest} more, not shown"));
        }
        let bottom = area.bottom() + 26.0;
        let middle = area.x + area.w / 2.0;
        let height = caption_under(&mut svg, &under, middle, bottom, width);
        let description: Vec<String> = starts(components).into_iter().map(in_words).collect();
        svg.finish(width, height, &self.title, &description.join(" "))
    }

    /// The numbers as a table, one row for each component or group shown.
    fn to_table(&self) -> DataTable {
        let headers = ["Component", "Noise floor", ALIGNMENT, "Standard error"];
        let rows = starts(self.shown()).into_iter().map(|(i, component)| {
            vec![
                numbers((i, component)),
                component.verdict.as_str().to_owned(),
                number_or_empty(component.alignment),
                error_of(component).map(compact).unwrap_or_default(),
            ]
        });
        DataTable::new(&self.title, headers, rows)
    }
}

/// The components and the groups, each with the place of its first component.
pub(crate) fn starts(components: &[ScreeComponent]) -> Vec<(usize, &ScreeComponent)> {
    let mut next = 0;
    let mut starts = Vec::new();
    for (i, component) in components.iter().enumerate() {
        if i >= next {
            next = i + component.span.max(1);
            starts.push((i, component));
        }
    }
    starts
}

/// "1", or "2–4" of a group.
fn numbers((i, component): (usize, &ScreeComponent)) -> String {
    match component.span {
        0 | 1 => (i + 1).to_string(),
        span => format!("{}–{}", i + 1, i + span),
    }
}

/// "Component 1", "Components 2–4 together".
pub(crate) fn name(start: (usize, &ScreeComponent)) -> String {
    match start.1.span {
        0 | 1 => format!("Component {}", numbers(start)),
        _ => format!("Components {} together", numbers(start)),
    }
}

/// A value as text; empty if it is unknown.
pub(crate) fn number_or_empty(value: f64) -> String {
    match value.is_finite() {
        true => compact(value),
        false => String::new(),
    }
}

fn error_of(component: &ScreeComponent) -> Option<f64> {
    component
        .alignment_error
        .filter(|error| error.is_finite() && *error > 0.0)
}

fn in_words((i, component): (usize, &ScreeComponent)) -> String {
    let value = match component.alignment.is_finite() {
        true => compact(component.alignment),
        false => "unknown".to_owned(),
    };
    let error = error_of(component).map_or(String::new(), |e| format!(" ± {}", compact(e)));
    format!(
        "{}, {}: {value}{error}.",
        name((i, component)),
        component.verdict.in_words()
    )
}

/// Draws bars of the alignments from 0 to 1 in `n` slots, under a label at the top of `area`; that of a group spans the
/// slots of its components. Returns the area of the bars.
pub(crate) fn panel(
    svg: &mut Svg,
    components: &[ScreeComponent],
    n: usize,
    area: Area,
    width: f64,
    marked: bool,
) -> Area {
    let top = area.y;
    let lines = Role::Label.wrap(ALIGNMENT, width - 2.0 * MARGIN, 3);
    draw_lines(svg, Role::Label, &lines, MARGIN, top, Anchor::Start);
    // Space for a number and a mark above a full bar.
    let room = if marked { 30.0 } else { 22.0 };
    let area = Area {
        y: top + block_height(Role::Label, &lines) + room,
        ..area
    };
    let ticks = [0.0, 0.5, 1.0].map(|value| Tick::new(value, compact(value)));
    let y = AxisScale::fixed((0.0, 1.0), (area.bottom(), area.y), ticks.to_vec());
    let x = ranks(n, (area.x, area.right()));
    axes(svg, area, &x, &y);
    let slot = area.w / n.max(1) as f64;
    let bar = (slot * 0.55).clamp(2.0, if marked { 44.0 } else { 26.0 });
    for (i, component) in starts(components) {
        if !component.alignment.is_finite() {
            continue;
        }
        let value = component.alignment.clamp(0.0, 1.0);
        let class = verdict::class(component.verdict);
        let last = (i + component.span.max(1)).min(n.max(i + 1)) - 1;
        let (from, to) = (x.at(rank(i)), x.at(rank(last)));
        let (centre, upper) = ((from + to) / 2.0, y.at(value));
        let bar = bar + to - from;
        svg.open_group(class, &in_words((i, component)));
        let fill = Area::new(centre - bar / 2.0, upper, bar, area.bottom() - upper);
        if marked {
            svg.tinted("fill", fill, 0.45);
        } else {
            svg.rect("fill", fill);
        }
        svg.close_group();
        let mut highest = upper;
        if let Some(error) = error_of(component) {
            let end = |value: f64| y.at(value.clamp(0.0, 1.0));
            highest = end(value + error);
            svg.open_group("c5", "");
            whisker(svg, centre, (highest, end(value - error)));
            svg.close_group();
        }
        if marked {
            svg.open_group(class, "");
            verdict::marker(component.verdict).draw(svg, (centre, upper), MARK);
            svg.close_group();
            highest = highest.min(upper - MARK - 2.0);
        }
        let text = format!("{value:.2}");
        if Role::Small.width(&text) + 4.0 <= slot {
            let at = (centre, highest - 5.0);
            svg.text(Role::Small, "mut", at, Anchor::Middle, &text);
        }
    }
    area
}
