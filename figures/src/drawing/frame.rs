//! Parts shared by all figures: margins, headings and axes.

use crate::{
    drawing::{
        label::{Label, LegendRows},
        scale::{Axis, AxisScale},
        svg::{Anchor, Area, Path, Svg},
        text::Role,
    },
    figure::WIDTH,
};

pub(crate) const MARGIN: f64 = 22.0;

pub(crate) fn clamp_width(width: f64) -> f64 {
    clamp_size(width, 320.0, WIDTH)
}

/// A width or height within limits; one that is not finite becomes `otherwise`.
pub(crate) fn clamp_size(size: f64, least: f64, otherwise: f64) -> f64 {
    match size.is_finite() {
        true => size.clamp(least, 4000.0).round(),
        false => otherwise,
    }
}

/// Writes title and subtitle; returns the y below them.
pub(crate) fn heading(svg: &mut Svg, title: &str, subtitle: Option<&str>, width: f64) -> f64 {
    let max_width = width - 2.0 * MARGIN;
    let mut y = MARGIN;
    for (role, class, text) in [
        (Role::Title, "", title),
        (Role::Subtitle, "mut", subtitle.unwrap_or_default()),
    ] {
        for line in role.wrap(text, max_width, 6) {
            let at = (MARGIN, y + role.size() * 0.8);
            svg.text(role, class, at, Anchor::Start, &line);
            y += role.line_height();
        }
        y += 2.0;
    }
    y
}

/// Begins a figure with its heading and a legend; returns the y below them.
pub(crate) fn heading_and_legend(
    title: &str,
    subtitle: Option<&str>,
    legend: Vec<Label>,
    width: f64,
) -> (Svg, f64) {
    let mut svg = Svg::default();
    let top = heading(&mut svg, title, subtitle, width) + 8.0;
    let rows = LegendRows::new(legend, width - 2.0 * MARGIN);
    rows.draw(&mut svg, (MARGIN, top));
    (svg, top + rows.height + 10.0)
}

pub(crate) fn no_data(svg: &mut Svg, area: Area) {
    let at = area.centre();
    svg.text(Role::Subtitle, "mut", at, Anchor::Middle, "no data");
}

/// Height of a text block above or below a plot.
pub(crate) fn block_height(role: Role, lines: &[String]) -> f64 {
    role.line_height() * lines.len() as f64
}

/// Writes lines downwards from `top`.
pub(crate) fn draw_lines(
    svg: &mut Svg,
    role: Role,
    lines: &[String],
    x: f64,
    top: f64,
    anchor: Anchor,
) {
    for (i, line) in lines.iter().enumerate() {
        let y = top + role.line_height() * i as f64 + role.size();
        svg.text(role, "mut", (x, y), anchor, line);
    }
}

/// Maximum number of lines of a row's name.
const NAME_LINES: usize = 6;

/// A column of names to the left of their rows, each in full, wrapped into lines.
pub(crate) struct RowNames {
    names: Vec<Vec<String>>,
    /// Width of the widest line.
    pub(crate) width: f64,
    /// Height of each row, at least the step requested.
    heights: Vec<f64>,
}

impl RowNames {
    /// Breaks names into lines no wider than `max_width`.
    pub(crate) fn new<'a>(names: impl Iterator<Item = &'a str>, max_width: f64, step: f64) -> Self {
        let role = Role::Label;
        let names: Vec<Vec<String>> = names
            .map(|name| role.wrap(name, max_width, NAME_LINES))
            .collect();
        Self {
            width: role.widest(names.iter().flatten()),
            heights: names
                .iter()
                .map(|lines| step.max(block_height(role, lines) + 6.0))
                .collect(),
            names,
        }
    }

    pub(crate) fn height(&self) -> f64 {
        self.heights.iter().sum()
    }

    /// The centre of row `index`, from the top of the first row.
    pub(crate) fn centre(&self, index: usize) -> f64 {
        let above: f64 = self.heights.iter().take(index).sum();
        above + 0.5 * self.heights.get(index).copied().unwrap_or_default()
    }

    /// Writes the name of row `index`, ending at `right` and centred at `centre`.
    pub(crate) fn draw(&self, svg: &mut Svg, index: usize, right: f64, centre: f64) {
        let lines = self.names.get(index).map_or(&[][..], Vec::as_slice);
        svg.lines_around(lines, (right, centre), Anchor::End);
    }
}

fn wrapped(lines: &[String], width: f64) -> Vec<String> {
    let lines = lines.iter();
    lines
        .flat_map(|line| Role::Label.wrap(line, width - 2.0 * MARGIN, 3))
        .collect()
}

/// Shifts a centred text so that it stays inside the figure.
pub(crate) fn keep_inside(centre: f64, lines: &[String], width: f64) -> f64 {
    let half = Role::Label.widest(lines) / 2.0;
    centre.clamp(half.min(width / 2.0), (width - half).max(width / 2.0))
}

/// Writes wrapped lines under a figure from its left edge; returns the total height.
pub(crate) fn caption_left(svg: &mut Svg, lines: &[String], top: f64, width: f64) -> f64 {
    let lines = wrapped(lines, width);
    draw_lines(svg, Role::Label, &lines, MARGIN, top, Anchor::Start);
    (top + block_height(Role::Label, &lines) + MARGIN).round()
}

/// Writes wrapped lines centred under a plot, inside the figure; returns the total height.
pub(crate) fn caption_under(
    svg: &mut Svg,
    lines: &[String],
    middle: f64,
    top: f64,
    width: f64,
) -> f64 {
    let lines = wrapped(lines, width);
    let x = keep_inside(middle, &lines, width);
    draw_lines(svg, Role::Label, &lines, x, top, Anchor::Middle);
    (top + block_height(Role::Label, &lines) + MARGIN).round()
}

/// An error bar between two heights.
pub(crate) fn whisker(svg: &mut Svg, x: f64, (upper, lower): (f64, f64)) {
    let mut path = Path::default();
    path.add(&[(x, upper), (x, lower)]);
    path.add(&[(x - 3.5, upper), (x + 3.5, upper)]);
    path.add(&[(x - 3.5, lower), (x + 3.5, lower)]);
    svg.path("eb", &path);
}

/// A horizontal axis with as many ticks as fit.
pub(crate) fn fit_x(axis: &Axis, values: &[f64], range: (f64, f64)) -> AxisScale {
    let most = (((range.1 - range.0) / 64.0) as usize).clamp(2, 12);
    let max_width = |label: &str| Role::Small.width(label) + 10.0;
    let mut scale = AxisScale::fit(axis, values.iter().copied(), range, most);
    for target in (2..=most).rev() {
        scale = AxisScale::fit(axis, values.iter().copied(), range, target);
        if !scale.thin(max_width) {
            break;
        }
    }
    scale
}

/// A vertical axis upwards from `area.bottom()`.
pub(crate) fn fit_y(axis: &Axis, values: &[f64], area: Area) -> AxisScale {
    let target = ((area.h / 42.0) as usize).clamp(2, 10);
    let range = (area.bottom(), area.y);
    let mut scale = AxisScale::fit(axis, values.iter().copied(), range, target);
    scale.thin(|_| Role::Small.size() * 1.5);
    scale
}

pub(crate) fn axes(svg: &mut Svg, area: Area, x: &AxisScale, y: &AxisScale) {
    for tick in &y.ticks {
        let at = y.at(tick.value);
        svg.line("grid", (area.x, at), (area.right(), at));
        let baseline = at + Role::Small.size() * 0.35;
        if !tick.label.is_empty() {
            let position = (area.x - 8.0, baseline);
            svg.text(Role::Small, "mut", position, Anchor::End, &tick.label);
        }
    }
    if y.domain.0 < 0.0 && y.domain.1 > 0.0 {
        svg.line("axis", (area.x, y.at(0.0)), (area.right(), y.at(0.0)));
    }
    let bottom = area.bottom();
    svg.line("axis", (area.x, bottom), (area.right(), bottom));
    for value in &x.minor {
        let at = x.at(*value);
        svg.line("axis", (at, bottom), (at, bottom + 3.0));
    }
    for tick in &x.ticks {
        let at = x.at(tick.value);
        svg.line("axis", (at, bottom), (at, bottom + 5.0));
        if !tick.label.is_empty() {
            let position = (at, bottom + 18.0);
            svg.text(Role::Small, "mut", position, Anchor::Middle, &tick.label);
        }
    }
}
