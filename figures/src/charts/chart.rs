//! Lines over a horizontal axis, with error bars and reference lines.

use crate::{
    drawing::{
        frame::{
            MARGIN, axes, block_height, clamp_size, clamp_width, draw_lines, fit_x, fit_y, heading,
            keep_inside, no_data, whisker,
        },
        label::{Label, LabelColumn, LegendRows, Swatch, reference_class},
        marker::{LineStyle, Marker},
        scale::{Axis, AxisScale, ScaleKind},
        style::SERIES_COLOURS,
        svg::{Anchor, Area, Path, Svg},
        text::Role,
    },
    figure::Figure,
    number::{compact, drawable},
    table::DataTable,
};

/// One line of a chart.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Series {
    /// Name of the line.
    pub name: String,
    /// Points, connected in this order.
    pub points: Vec<(f64, f64)>,
    /// One standard deviation for each point, drawn in both directions.
    pub error_bars: Option<Vec<f64>>,
    /// Lower and upper end of a range for each point, shaded.
    pub ranges: Option<Vec<(f64, f64)>>,
    /// Stroke of the line.
    pub style: LineStyle,
    /// Shape of the points.
    pub marker: Marker,
    /// Index of its colour; `None`: its index among the series.
    pub colour: Option<usize>,
}

impl Series {
    /// A solid line with an automatic marker.
    pub fn new(name: impl Into<String>, points: impl IntoIterator<Item = (f64, f64)>) -> Self {
        Self {
            name: name.into(),
            points: points.into_iter().collect(),
            ..Self::default()
        }
    }

    /// Adds error bars, one standard deviation for each point.
    #[must_use]
    pub fn with_error_bars(mut self, deviations: impl IntoIterator<Item = f64>) -> Self {
        self.error_bars = Some(deviations.into_iter().collect());
        self
    }

    /// Adds a shaded range, from a lower to an upper end for each point.
    #[must_use]
    pub fn with_ranges(mut self, ends: impl IntoIterator<Item = (f64, f64)>) -> Self {
        self.ranges = Some(ends.into_iter().collect());
        self
    }

    /// The places of the range: x, lower and upper end.
    fn shaded(&self) -> Vec<(f64, f64, f64)> {
        let ranges = self.ranges.as_deref().unwrap_or_default();
        let places = self.points.iter().zip(ranges);
        places
            .map(|(&(x, _), &(low, high))| (x, low, high))
            .filter(|&(x, low, high)| drawable(x) && drawable(low) && drawable(high))
            .collect()
    }

    /// Sets the stroke.
    #[must_use]
    pub fn with_style(mut self, style: LineStyle) -> Self {
        self.style = style;
        self
    }

    /// Sets the marker.
    #[must_use]
    pub fn with_marker(mut self, marker: Marker) -> Self {
        self.marker = marker;
        self
    }

    /// Takes the colour of the series at this index, for two lines that belong together.
    #[must_use]
    pub fn with_colour_of(mut self, place: usize) -> Self {
        self.colour = Some(place);
        self
    }
}

/// A line chart.
///
/// Points that are not finite, or not positive on a logarithmic axis, are omitted.
#[derive(Clone, Debug, PartialEq)]
pub struct LineChart {
    /// Title: the message of the chart.
    pub title: String,
    /// A line under the title: the setting.
    pub subtitle: Option<String>,
    /// Horizontal axis.
    pub x: Axis,
    /// Vertical axis.
    pub y: Axis,
    /// The lines.
    pub series: Vec<Series>,
    /// Reference levels drawn across the chart: label and value.
    pub reference_lines: Vec<(String, f64)>,
    /// Height in pixels; more where a long legend needs it.
    pub height: f64,
}

/// A point that can be drawn, with its deviation.
type Point = (f64, f64, Option<f64>);

impl LineChart {
    /// An empty chart, 420 pixels high.
    pub fn new(title: impl Into<String>, x: Axis, y: Axis) -> Self {
        Self {
            title: title.into(),
            subtitle: None,
            x,
            y,
            series: Vec::new(),
            reference_lines: Vec::new(),
            height: 420.0,
        }
    }

    fn drawable(&self, series: &Series) -> Vec<Point> {
        let deviations = series.error_bars.as_deref().unwrap_or_default();
        series
            .points
            .iter()
            .enumerate()
            .filter(|(_, (x, y))| self.x.can_show(*x) && self.y.can_show(*y))
            .map(|(i, &(x, y))| {
                let deviation = deviations.get(i).copied();
                (x, y, deviation.filter(|d| d.is_finite() && *d > 0.0))
            })
            .collect()
    }

    fn labels(&self, points: &[Vec<Point>], lines: &[&(String, f64)]) -> Vec<Label> {
        let series = self.series.iter().zip(points).enumerate();
        let series = series.filter_map(|(i, (s, points))| {
            let last = points.iter().max_by(|a, b| a.0.total_cmp(&b.0))?;
            Some(Label {
                text: s.name.clone(),
                colour: colour(s.colour.unwrap_or(i)),
                swatch: Swatch::Series(s.style, s.marker.resolve(i)),
                x: Some(last.0),
                y: last.1,
                at_edge: s.style != LineStyle::None,
            })
        });
        let levels = lines.iter().enumerate().map(|(i, (label, y))| Label {
            text: label.clone(),
            colour: String::new(),
            swatch: Swatch::Reference(i),
            x: None,
            y: *y,
            at_edge: true,
        });
        series.chain(levels).collect()
    }

    fn description(&self, points: &[Vec<Point>]) -> String {
        let scale = |axis: &Axis| match axis.scale {
            ScaleKind::Linear => "",
            ScaleKind::Log10 => " (logarithmic)",
        };
        let mut text = format!(
            "Line chart of {}{} against {}{}.",
            non_empty_or(&self.y.label, "y"),
            scale(&self.y),
            non_empty_or(&self.x.label, "x"),
            scale(&self.x)
        );
        for (series, points) in self.series.iter().zip(points) {
            let name = non_empty_or(&series.name, "Unnamed series");
            text.push_str(&match (points.first(), points.last()) {
                (Some(a), Some(b)) => format!(
                    " {name}: {} points, from {} at {} to {} at {}.",
                    points.len(),
                    compact(a.1),
                    compact(a.0),
                    compact(b.1),
                    compact(b.0)
                ),
                _ => format!(" {name}: no data."),
            });
            if let Some((x, low, high)) = series.shaded().last() {
                text.push_str(&format!(
                    " Its range ends with {} to {} at {}.",
                    compact(*low),
                    compact(*high),
                    compact(*x)
                ));
            }
        }
        for (name, level) in &self.reference_lines {
            text.push_str(&format!(" Reference: {name} at {}.", compact(*level)));
        }
        text
    }
}

impl Figure for LineChart {
    fn to_svg_of_width(&self, width: f64) -> String {
        let width = clamp_width(width);
        let points: Vec<Vec<Point>> = self.series.iter().map(|s| self.drawable(s)).collect();
        let lines = self.reference_lines.iter();
        let lines: Vec<&(String, f64)> = lines.filter(|l| self.y.can_show(l.1)).collect();
        let xs: Vec<f64> = points.iter().flatten().map(|p| p.0).collect();
        let mut ys: Vec<f64> = lines.iter().map(|l| l.1).collect();
        for &(_, y, deviation) in points.iter().flatten() {
            let d = deviation.unwrap_or(0.0);
            ys.extend([y, y + d, y - d].iter().filter(|&&v| self.y.can_show(v)));
        }
        let ends = self.series.iter().flat_map(Series::shaded);
        let ends = ends.flat_map(|(_, low, high)| [low, high]);
        ys.extend(ends.filter(|&v| self.y.can_show(v)));

        let mut svg = Svg::default();
        let mut top = heading(&mut svg, &self.title, self.subtitle.as_deref(), width);

        let y_title = Role::Label.wrap(&self.y.label, width - 2.0 * MARGIN, 3);
        let x_title = Role::Label.wrap(&self.x.label, width - 2.0 * MARGIN, 3);
        let above = 12.0 + block_height(Role::Label, &y_title) + 10.0;
        let below = 26.0 + block_height(Role::Label, &x_title) + MARGIN;
        let plot_height = (clamp_size(self.height, 220.0, 420.0) - top - above - below).max(150.0);

        // Names go to the right of the plot if they fit, otherwise into a legend above it.
        let labels = self.labels(&points, &lines);
        let mut column = LabelColumn::new(labels.clone(), width * 0.26);
        let beside = column.fits(plot_height) && width >= 480.0;
        if !beside {
            let rows = LegendRows::new(labels, width - 2.0 * MARGIN);
            rows.draw(&mut svg, (MARGIN, top + 8.0));
            top += 8.0 + rows.height;
        }
        let mut area = Area::new(0.0, top + above, 0.0, plot_height);
        let height = area.bottom() + below;

        let y = fit_y(&self.y, &ys, area);
        area.x = MARGIN + y.label_width() + 8.0;
        let right = if beside { column.width } else { 0.0 };
        area.w = width - MARGIN - right - area.x;
        let mut x = fit_x(&self.x, &xs, (area.x, area.right()));
        if let Some(last) = x.ticks.last().filter(|_| right == 0.0) {
            // The last number is centred on its tick and may extend to the right.
            area.w -= (Role::Small.width(&last.label) / 2.0 - MARGIN + 6.0).max(0.0);
            x = fit_x(&self.x, &xs, (area.x, area.right()));
        }

        x.keep_within(2.0, width - 2.0);
        let role = Role::Label;
        draw_lines(&mut svg, role, &y_title, MARGIN, top + 12.0, Anchor::Start);
        axes(&mut svg, area, &x, &y);
        let (centre, under) = (area.x + area.w / 2.0, area.bottom() + 26.0);
        let centre = keep_inside(centre, &x_title, width);
        draw_lines(&mut svg, role, &x_title, centre, under, Anchor::Middle);

        for (i, line) in lines.iter().enumerate().filter(|(_, l)| y.shows(l.1)) {
            let level = y.at(line.1);
            let (from, to) = ((area.x, level), (area.right(), level));
            svg.line(reference_class(i), from, to);
        }
        for (i, (series, points)) in self.series.iter().zip(&points).enumerate() {
            draw_series(&mut svg, i, series, points, (&x, &y), area);
        }
        if points.iter().all(Vec::is_empty) {
            no_data(&mut svg, area);
        }
        if beside {
            column.place(|v| x.at(v), |v| y.at(v), area);
            column.draw(&mut svg, area);
        }
        svg.finish(width, height, &self.title, &self.description(&points))
    }

    /// The numbers of the chart as a table, one row for each point.
    fn to_table(&self) -> DataTable {
        let deviations = self.series.iter().any(|s| s.error_bars.is_some());
        let mut headers = vec!["Series", &self.x.label, &self.y.label];
        headers.extend(deviations.then_some("± s.d."));
        let ranges = self.series.iter().any(|s| s.ranges.is_some());
        headers.extend(ranges.then_some(["from", "to"]).into_iter().flatten());
        let mut rows = Vec::new();
        for series in &self.series {
            let shaded = series.shaded();
            for (x, y, deviation) in self.drawable(series) {
                let mut row = vec![series.name.clone(), compact(x), compact(y)];
                if deviations {
                    row.push(deviation.map(compact).unwrap_or_default());
                }
                let ends = shaded.iter().find(|(place, _, _)| *place == x);
                row.extend(ends.into_iter().flat_map(|end| [end.1, end.2].map(compact)));
                row.resize(headers.len(), String::new());
                rows.push(row);
            }
        }
        let levels = self.reference_lines.iter().filter(|l| self.y.can_show(l.1));
        for (label, level) in levels {
            let mut row = vec![label.clone(), String::new(), compact(*level)];
            row.resize(headers.len(), String::new());
            rows.push(row);
        }
        DataTable::new(&self.title, headers, rows)
    }
}

fn non_empty_or<'a>(text: &'a str, otherwise: &'a str) -> &'a str {
    if text.is_empty() { otherwise } else { text }
}

pub(crate) fn colour(index: usize) -> String {
    format!("c{}", index % SERIES_COLOURS)
}

fn draw_series(
    svg: &mut Svg,
    index: usize,
    series: &Series,
    points: &[Point],
    (x, y): (&AxisScale, &AxisScale),
    area: Area,
) {
    let at: Vec<(f64, f64)> = points.iter().map(|p| (x.at(p.0), y.at(p.1))).collect();
    svg.open_group(&colour(series.colour.unwrap_or(index)), "");
    let (x0, y0) = (area.x - 6.0, area.y - 2.0);
    svg.open_clip(Area::new(x0, y0, area.w + 12.0, area.h + 4.0));
    let shaded = series.shaded();
    let upper = shaded.iter().map(|end| (x.at(end.0), y.at(end.2)));
    let lower = shaded.iter().rev().map(|end| (x.at(end.0), y.at(end.1)));
    let around: Vec<(f64, f64)> = upper.chain(lower).collect();
    if shaded.len() > 1 {
        svg.tinted_path("fill", &Path::through(&around, true), 0.14);
    }
    for (&(px, py, deviation), &(cx, _)) in points.iter().zip(&at) {
        let Some(d) = deviation else { continue };
        if !x.shows(px) {
            continue;
        }
        // On a logarithmic axis an error bar that reaches zero extends to the lower edge.
        let (upper, lower) = (y.at((py + d).min(1e300)), y.at((py - d).max(-1e300)));
        whisker(svg, cx, (upper, lower));
    }
    if let Some(class) = series.style.class().filter(|_| at.len() > 1) {
        svg.path(class, &Path::through(&at, false));
    }
    svg.close_clip();
    let marker = series.marker.resolve(index);
    // Long lines have fewer markers; an isolated point always has one.
    let every = if series.style == LineStyle::None {
        1
    } else {
        points.len() / 40 + 1
    };
    for (i, (&(px, py, d), &place)) in points.iter().zip(&at).enumerate() {
        if i % every == 0 && x.shows(px) && y.shows(py) && marker != Marker::None {
            let d = d.map(|d| format!(" ± {}", compact(d))).unwrap_or_default();
            let tooltip = format!("{}: {} at {}{d}", series.name, compact(py), compact(px));
            svg.open_group("", &tooltip);
            marker.draw(svg, place, 4.0);
            svg.close_group();
        }
    }
    svg.close_group();
}
