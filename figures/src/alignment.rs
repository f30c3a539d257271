//! How well each component is expected to be recovered.

use crate::{
    figure::Figure,
    frame::{MARGIN, axes, block, block_height, caption_under, heading, usable_width, whisker},
    label::Rows,
    number::compact,
    scale::{Scale, Tick},
    scree::{ScreeComponent, rank, ranks},
    svg::{Anchor, Area, Svg},
    table::DataTable,
    text::Role,
    verdict::legend,
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
    /// How many components to show at most.
    pub shown: usize,
    /// Width in pixels, at least 320.
    pub width: f64,
}

const HEIGHT: f64 = 220.0;
const MARK: f64 = 4.5;

impl AlignmentChart {
    /// A chart of the first 30 components, 720 pixels wide.
    pub fn new(
        title: impl Into<String>,
        components: impl IntoIterator<Item = ScreeComponent>,
    ) -> Self {
        Self {
            title: title.into(),
            subtitle: None,
            components: components.into_iter().collect(),
            shown: 30,
            width: 720.0,
        }
    }

    fn shown(&self) -> &[ScreeComponent] {
        &self.components[..self.components.len().min(self.shown.clamp(1, 200))]
    }
}

impl Figure for AlignmentChart {
    fn with_width(self, width: f64) -> Self {
        Self { width, ..self }
    }

    fn to_svg(&self) -> String {
        let width = usable_width(self.width);
        let components = self.shown();
        let mut svg = Svg::default();
        let mut top = heading(&mut svg, &self.title, self.subtitle.as_deref(), width) + 8.0;
        let verdicts: Vec<_> = components.iter().map(|c| Some(c.verdict)).collect();
        let rows = Rows::new(legend(&verdicts), width - 2.0 * MARGIN);
        rows.draw(&mut svg, (MARGIN, top));
        top += rows.height + 10.0;
        let left = MARGIN + Role::Small.width("0.5") + 8.0;
        let area = Area {
            x: left,
            y: 0.0,
            w: width - MARGIN - left,
            h: HEIGHT,
        };
        let area = panel(
            &mut svg,
            components,
            components.len(),
            area,
            top,
            width,
            true,
        );
        if components.is_empty() {
            let at = (area.x + area.w / 2.0, area.y + area.h / 2.0);
            svg.text(Role::Subtitle, "mut", at, Anchor::Middle, "no data");
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
        let description: Vec<String> = components.iter().enumerate().map(in_words).collect();
        svg.finish(width, height, &self.title, &description.join(" "))
    }

    /// The numbers as a table, one row for each component shown.
    fn to_table(&self) -> DataTable {
        let headers = ["Component", "Noise floor", ALIGNMENT, "Standard error"];
        let rows = self.shown().iter().enumerate().map(|(i, component)| {
            vec![
                (i + 1).to_string(),
                component.verdict.word().to_owned(),
                component.alignment.map(compact).unwrap_or_default(),
                error_of(component).map(compact).unwrap_or_default(),
            ]
        });
        DataTable {
            caption: self.title.clone(),
            headers: headers.map(str::to_owned).to_vec(),
            rows: rows.collect(),
        }
    }
}

fn error_of(component: &ScreeComponent) -> Option<f64> {
    component
        .alignment_error
        .filter(|error| error.is_finite() && *error > 0.0)
}

fn in_words((i, component): (usize, &ScreeComponent)) -> String {
    let value = component.alignment.map_or("unknown".to_owned(), compact);
    let error = error_of(component).map_or(String::new(), |e| format!(" ± {}", compact(e)));
    format!(
        "Component {}, {}: {value}{error}.",
        i + 1,
        component.verdict.legend()
    )
}

/// Bars of the alignments from 0 to 1 in `n` slots under their name at `top`, as wide as `area` and as tall; gives the area
/// drawn in.
pub(crate) fn panel(
    svg: &mut Svg,
    components: &[ScreeComponent],
    n: usize,
    area: Area,
    top: f64,
    width: f64,
    marked: bool,
) -> Area {
    let lines = Role::Label.wrap(ALIGNMENT, width - 2.0 * MARGIN, 3);
    block(svg, Role::Label, &lines, MARGIN, top, Anchor::Start);
    // Room for a number above a whole bar, and for its mark.
    let room = if marked { 30.0 } else { 22.0 };
    let area = Area {
        y: top + block_height(Role::Label, &lines) + room,
        ..area
    };
    let tick = |value: f64| Tick {
        value,
        label: compact(value),
    };
    let ticks = [0.0, 0.5, 1.0].map(tick).to_vec();
    let y = Scale::fixed((0.0, 1.0), (area.bottom(), area.y), ticks);
    let x = ranks(n, (area.x, area.right()));
    axes(svg, area, &x, &y);
    let slot = area.w / n.max(1) as f64;
    let bar = (slot * 0.55).clamp(2.0, if marked { 44.0 } else { 26.0 });
    for (i, component) in components.iter().enumerate() {
        let Some(value) = component.alignment.filter(|a| a.is_finite()) else {
            continue;
        };
        let value = value.clamp(0.0, 1.0);
        let (centre, upper) = (x.at(rank(i)), y.at(value));
        svg.open_group(component.verdict.class(), &in_words((i, component)));
        let fill = Area {
            x: centre - bar / 2.0,
            y: upper,
            w: bar,
            h: area.bottom() - upper,
        };
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
            svg.open_group(component.verdict.class(), "");
            component.verdict.marker().draw(svg, (centre, upper), MARK);
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
