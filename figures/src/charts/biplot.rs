//! The usual biplot of a PCA: rows in the plane of two components, the features' loadings as arrows.
//!
//! It shows raw rows, so it is only drawn from local rows and never uploaded.

use std::collections::BTreeMap;

use eigenveil_estimation::format::with_thousands;
use eigenveil_shared::estimate::{Estimate, Verdict};

use crate::{
    charts::chart::colour,
    drawing::{
        frame::{
            MARGIN, axes, caption_under, clamp_width, draw_lines, fit_x, fit_y, heading_and_legend,
            no_data,
        },
        label::{Label, Swatch},
        marker::{LineStyle, Marker},
        scale::Axis,
        style::SERIES_COLOURS,
        svg::{Anchor, Area, Path, Svg},
        text::Role,
    },
    figure::{WIDTH, titled},
    number::{compact, drawable},
};

/// Maximum number of points: more would bloat the file without changing the figure.
const MAX_POINTS: usize = 5_000;
/// Maximum number of labels with a colour and a shape of their own.
const MAX_LABELS: usize = 12;
/// Maximum number of distinct labels: more are probably numbers, not labels.
const MAX_DISTINCT_LABELS: usize = 100;
/// Maximum number of arrows; the longest are drawn.
const MAX_ARROWS: usize = 10;

/// Shapes of labels; the ring is that of points without one.
const SHAPES: [Marker; 7] = [
    Marker::Circle,
    Marker::Square,
    Marker::Triangle,
    Marker::Diamond,
    Marker::TriangleDown,
    Marker::Cross,
    Marker::Plus,
];
/// Name and colour of points without a label, beside others: no label has this colour.
const NO_LABEL: (&str, &str) = ("no label", "vb");

/// Points of one colour and shape.
#[derive(Clone, Debug, PartialEq)]
struct PointGroup {
    /// Empty when there is no legend.
    name: String,
    /// Class of the colour.
    colour: String,
    shape: Marker,
    /// Scores on the two components.
    points: Vec<(f64, f64)>,
}

impl PointGroup {
    /// The mark of the label with this index. The shape changes after every eight colours: the ninth group has the first
    /// colour and another shape.
    fn of_label(index: usize, name: &str) -> Self {
        Self {
            name: name.to_owned(),
            colour: colour(index),
            shape: SHAPES[(index + index / SERIES_COLOURS) % SHAPES.len()],
            points: Vec::new(),
        }
    }

    fn without_label() -> Self {
        let (name, colour) = NO_LABEL;
        Self {
            name: name.to_owned(),
            colour: colour.to_owned(),
            shape: Marker::Ring,
            points: Vec::new(),
        }
    }
}

/// Loadings of one feature on the two components.
#[derive(Clone, Debug, PartialEq)]
struct Arrow {
    name: String,
    x: f64,
    y: f64,
}

/// A scatter of rows over two components, with equal units on both axes, with the longest loadings as arrows from the
/// origin. Arrows have a scale of their own, as in any biplot: their lengths compare with each other, not with the
/// points.
#[derive(Clone, Debug, PartialEq)]
pub struct Biplot {
    title: String,
    subtitle: String,
    /// Names of the two components.
    x_name: String,
    y_name: String,
    groups: Vec<PointGroup>,
    arrows: Vec<Arrow>,
}

/// Minimum and maximum height of the plot, as a share of its width.
const HEIGHTS: (f64, f64) = (0.35, 0.85);
/// Length of the longest arrow, relative to the distance to the edge.
const REACH: f64 = 0.8;

impl Biplot {
    /// The arrows of nonzero length, longest first.
    fn arrows_by_length(&self) -> Vec<&Arrow> {
        let length = |arrow: &Arrow| arrow.x.hypot(arrow.y);
        let mut arrows: Vec<&Arrow> = self
            .arrows
            .iter()
            .filter(|arrow| drawable(arrow.x) && drawable(arrow.y) && length(arrow) > 0.0)
            .collect();
        arrows.sort_by(|a, b| length(b).total_cmp(&length(a)));
        arrows
    }

    fn points(&self) -> impl Iterator<Item = (f64, f64)> {
        let all = self.groups.iter().flat_map(|group| &group.points);
        all.copied().filter(|(x, y)| drawable(*x) && drawable(*y))
    }

    /// The range of the points with a margin; it includes zero, where the arrows begin.
    fn extent(&self, coordinate: impl Fn((f64, f64)) -> f64) -> (f64, f64) {
        let (from, to) = self
            .points()
            .map(coordinate)
            .fold((0.0_f64, 0.0_f64), |(a, b), v| (a.min(v), b.max(v)));
        let span = if to > from { to - from } else { 1.0 };
        (from - 0.06 * span, to + 0.06 * span)
    }

    fn legend(&self) -> Vec<Label> {
        let named = self.groups.iter().filter(|group| !group.name.is_empty());
        let label = |group: &PointGroup| {
            let swatch = Swatch::Series(LineStyle::None, group.shape);
            Label::above(&group.name, &group.colour, swatch)
        };
        named.map(label).collect()
    }

    /// Draws arrows with their names; returns the names that did not fit.
    fn draw_arrows<'a>(
        svg: &mut Svg,
        arrows: &[&'a Arrow],
        area: Area,
        from: (f64, f64),
    ) -> Vec<&'a str> {
        // Pixels per unit loading, such that no arrow leaves the plot.
        let room = |loading: f64, ahead: f64, behind: f64| match loading {
            l if l > 0.0 => ahead / l,
            l if l < 0.0 => behind / -l,
            _ => f64::INFINITY,
        };
        let (ox, oy) = from;
        let scale = REACH
            * arrows.iter().fold(f64::INFINITY, |least: f64, arrow| {
                least
                    .min(room(arrow.x, area.right() - ox, ox - area.x))
                    .min(room(arrow.y, oy - area.y, area.bottom() - oy))
            });
        let (mut names, mut places, mut missing) = (Vec::new(), Vec::new(), Vec::new());
        for arrow in arrows {
            let tip = (ox + scale * arrow.x, oy - scale * arrow.y);
            let tooltip = format!("{}: {}, {}", arrow.name, compact(arrow.x), compact(arrow.y));
            svg.open_group("c5", &tooltip);
            svg.path("ln thin", &arrow_path(from, tip));
            svg.close_group();
            match place_for(&arrow.name, tip, area, &places) {
                Some(place) => {
                    places.push(place);
                    names.push(&arrow.name);
                }
                None => missing.push(arrow.name.as_str()),
            }
        }
        // Names are drawn on top of all arrows.
        for (name, place) in names.into_iter().zip(places) {
            svg.tinted("bg", place, 0.8);
            let baseline = (place.x + 2.0, place.y + Role::Small.size());
            svg.text(Role::Small, "", baseline, Anchor::Start, name);
        }
        missing
    }

    fn description(&self, count: usize, arrows: &[&Arrow]) -> String {
        let groups = self.groups.iter().filter(|group| !group.name.is_empty());
        let groups: Vec<String> = groups
            .map(|group| format!("{} {}", group.points.len(), group.name))
            .collect();
        let arrows: Vec<String> = arrows
            .iter()
            .map(|a| format!("{} ({}, {})", a.name, compact(a.x), compact(a.y)))
            .collect();
        let mut text = format!(
            "Scatter of {count} rows, {} against {}.",
            self.y_name, self.x_name
        );
        if !groups.is_empty() {
            text.push_str(&format!(" Groups: {}.", groups.join(", ")));
        }
        if !arrows.is_empty() {
            text.push_str(&format!(" Loadings: {}.", arrows.join("; ")));
        }
        text
    }

    /// The scatter as SVG, 720 pixels wide.
    #[must_use]
    pub fn to_svg(&self) -> String {
        self.to_svg_of_width(WIDTH)
    }

    /// The scatter as SVG, this many pixels wide: at least 320.
    #[must_use]
    pub fn to_svg_of_width(&self, width: f64) -> String {
        let width = clamp_width(width);
        let (title, subtitle) = (&self.title, Some(self.subtitle.as_str()));
        let (mut svg, mut top) = heading_and_legend(title, subtitle, self.legend(), width);
        let name = Role::Label.wrap(&self.y_name, width - 2.0 * MARGIN, 1);
        draw_lines(&mut svg, Role::Label, &name, MARGIN, top, Anchor::Start);
        top += Role::Label.line_height() + 10.0;

        let (x_extent, y_extent) = (self.extent(|p| p.0), self.extent(|p| p.1));
        let left = MARGIN + 52.0;
        let w = width - MARGIN - left;
        let unit = (w / (x_extent.1 - x_extent.0))
            .min(HEIGHTS.1 * w / (y_extent.1 - y_extent.0))
            .max(f64::MIN_POSITIVE);
        let h = (unit * (y_extent.1 - y_extent.0)).clamp(HEIGHTS.0 * w, HEIGHTS.1 * w);
        let area = Area::new(left, top, w, h);
        // Both axes have the same unit: the one that needs less space shows a larger range.
        let around = |(from, to): (f64, f64), pixels: f64| {
            let (middle, half) = (0.5 * (from + to), 0.5 * pixels / unit);
            Axis::linear("").between(middle - half, middle + half)
        };
        let x = fit_x(&around(x_extent, w), &[], (area.x, area.right()));
        let y = fit_y(&around(y_extent, h), &[], area);
        axes(&mut svg, area, &x, &y);
        if x.domain.0 < 0.0 && x.domain.1 > 0.0 {
            svg.line("axis", (x.at(0.0), area.y), (x.at(0.0), area.bottom()));
        }
        let count = self.points().count();
        let radius = match count {
            0..300 => 4.0,
            300..1_500 => 3.0,
            _ => 2.2,
        };
        for group in &self.groups {
            svg.open_group(&group.colour, &group.name);
            for &(px, py) in &group.points {
                if drawable(px) && drawable(py) {
                    group.shape.draw(&mut svg, (x.at(px), y.at(py)), radius);
                }
            }
            svg.close_group();
        }
        if count == 0 {
            no_data(&mut svg, area);
        }
        let origin = (
            x.at(0.0).clamp(area.x, area.right()),
            y.at(0.0).clamp(area.y, area.bottom()),
        );
        let all = self.arrows_by_length();
        let arrows = &all[..all.len().min(MAX_ARROWS)];
        let missing = Self::draw_arrows(&mut svg, arrows, area, origin);

        let mut caption_lines = vec![self.x_name.clone()];
        let arrows_text = match (arrows.len(), all.len()) {
            (drawn, all) if drawn < all => format!("the {drawn} longest loadings of {all}"),
            _ => "loadings".to_owned(),
        };
        if !arrows.is_empty() {
            caption_lines.push(format!("Arrows: {arrows_text}, to a scale of their own"));
        }
        if !missing.is_empty() {
            caption_lines.push(format!("No room for the names of {}", missing.join(", ")));
        }
        let bottom = area.bottom() + 26.0;
        let middle = area.x + area.w / 2.0;
        let height = caption_under(&mut svg, &caption_lines, middle, bottom, width);
        let description = self.description(count, arrows);
        svg.finish(width, height, &self.title, &description)
    }
}

/// The biplot of rows with these `scores` on all components over two components `(x, y)` (from 0), with one label per
/// row or none; an empty label is none.
pub fn biplot(
    estimate: &Estimate,
    (first, second): (usize, usize),
    scores: &[Vec<f64>],
    labels: Option<&[String]>,
) -> Result<Biplot, String> {
    let components = &estimate.components;
    let (Some(x), Some(y)) = (components.get(first), components.get(second)) else {
        return Err(format!(
            "the figure needs components {} and {}, but the estimate has {}; estimate with a larger k, or choose others",
            first + 1,
            second + 1,
            estimate.k
        ));
    };
    let loadings = x.loadings.iter().zip(&y.loadings);
    let arrows = estimate.feature_names().into_iter().zip(loadings);
    let arrow = |(name, (&x, &y)): (String, (&f64, &f64))| Arrow { name, x, y };
    let names = labels.map_or(Ok(Vec::new()), group_names)?;
    // Rare labels share a group, and so do points without one; without labels that is all of them.
    let rare = names.len();
    let mut groups: Vec<PointGroup> = (0..)
        .zip(names.iter().chain([&labels.map_or("", |_| "other")]))
        .map(|(index, name)| PointGroup::of_label(index, name))
        .collect();
    groups.push(PointGroup::without_label());
    // Every `step`-th row.
    let step = scores.len().div_ceil(MAX_POINTS).max(1);
    for row in (0..scores.len()).step_by(step) {
        let group = match labels.map(|labels| labels[row].as_str()) {
            None => rare,
            Some("") => rare + 1,
            Some(label) => {
                let index = names.iter().position(|name| *name == label);
                index.unwrap_or(rare)
            }
        };
        let scores = (scores[row][first], scores[row][second]);
        groups[group].points.push(scores);
    }
    groups.retain(|group| !group.points.is_empty());
    let axis = |index: usize| {
        let component = &components[index];
        let verdict = match component.verdict {
            Verdict::Above => String::new(),
            verdict => format!(", {}", verdict.in_words()),
        };
        let share = component.explained_variance_ratio;
        let share = share.map_or_else(String::new, |share| {
            format!(" ({:.1} % of the variance)", 100.0 * share)
        });
        let group = estimate.group_of(index);
        let group = group.map_or_else(String::new, |group| format!(", one of {}", group.range()));
        format!("Component {}{share}{verdict}{group}", index + 1)
    };
    let drawn = with_thousands(scores.len().div_ceil(step) as u64);
    let all = with_thousands(scores.len() as u64);
    Ok(Biplot {
        title: titled("Rows by component", estimate),
        subtitle: match step {
            1 => format!("{all} rows"),
            _ => format!("{drawn} of {all} rows, one in {step}"),
        },
        x_name: axis(first),
        y_name: axis(second),
        groups,
        arrows: arrows.map(arrow).collect(),
    })
}

/// The labels with their own colour, most frequent first, then by name.
fn group_names(labels: &[String]) -> Result<Vec<&str>, String> {
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for label in labels.iter().filter(|label| !label.is_empty()) {
        *counts.entry(label).or_default() += 1;
    }
    if counts.len() > MAX_DISTINCT_LABELS {
        return Err(format!(
            "the label column has {} different values; at most {MAX_DISTINCT_LABELS} can be drawn: give a column with fewer",
            counts.len()
        ));
    }
    let mut names: Vec<(&str, usize)> = counts.into_iter().collect();
    if names.len() > MAX_LABELS {
        names.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
        names.truncate(MAX_LABELS - 1);
    }
    Ok(names.into_iter().map(|(name, _)| name).collect())
}

/// A line with a head at its end.
fn arrow_path((ox, oy): (f64, f64), (x, y): (f64, f64)) -> Path {
    let mut path = Path::default();
    path.add(&[(ox, oy), (x, y)]);
    let length = (x - ox).hypot(y - oy);
    if length > 0.0 {
        let (ux, uy) = ((x - ox) / length, (y - oy) / length);
        let across = |side: f64| (x - 7.0 * ux - side * uy, y - 7.0 * uy + side * ux);
        path.add(&[across(3.0), (x, y), across(-3.0)]);
    }
    path
}

/// A place for a name near the tip of an arrow where it overlaps no other and stays in the plot: next to the tip, or
/// further up or down.
fn place_for(name: &str, (x, y): (f64, f64), area: Area, taken: &[Area]) -> Option<Area> {
    let (w, h) = (Role::Small.width(name) + 4.0, Role::Small.size() + 4.0);
    let beside = [x + 5.0, x - w - 5.0, x - w / 2.0];
    let steps = [0.0, -1.0, 1.0, -2.0, 2.0, -3.0, 3.0, -4.0, 4.0];
    let places = steps
        .into_iter()
        .flat_map(|step| beside.map(|left| (left, y - h / 2.0 + step * h)));
    let clear = |place: &Area| {
        let apart = |other: &Area| {
            place.right() <= other.x
                || other.right() <= place.x
                || place.bottom() <= other.y
                || other.bottom() <= place.y
        };
        let inside = place.x >= area.x
            && place.right() <= area.right()
            && place.y >= area.y
            && place.bottom() <= area.bottom();
        inside && taken.iter().all(apart)
    };
    places.map(|(x, y)| Area::new(x, y, w, h)).find(clear)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rare_labels_share_a_group() {
        let labels: Vec<String> = (0..40).map(|i| format!("l{}", i * i % 23)).collect();
        let names = group_names(&labels).unwrap();
        assert_eq!(names.len(), MAX_LABELS);
        let names = group_names(&labels[..3]).unwrap();
        assert_eq!(names, ["l0", "l1", "l4"]);
        let gaps = ["", "a", ""].map(str::to_owned);
        assert_eq!(group_names(&gaps).unwrap(), ["a"]);
        let many: Vec<String> = (0..101).map(|i| i.to_string()).collect();
        assert!(group_names(&many).is_err());
    }
}
