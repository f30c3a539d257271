//! Rows in the plane of two components, with the features' loadings as arrows.

use crate::{
    figure::Figure,
    frame::{MARGIN, axes, block, caption_under, fit_x, fit_y, heading, usable_width},
    label::{Key, Label, Rows},
    marker::{LineStyle, Marker},
    number::{compact, drawable},
    scale::Axis,
    style::SERIES_COLOURS,
    svg::{Anchor, Area, Path, Svg},
    table::DataTable,
    text::Role,
};

/// Points that belong together: one colour and one shape.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PointGroup {
    /// What they have in common; without names there is no legend.
    pub name: String,
    /// Scores on the two components.
    pub points: Vec<(f64, f64)>,
}

/// Loadings of one feature on the two components.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Arrow {
    /// Name of the feature.
    pub name: String,
    /// Loading on the horizontal component.
    pub x: f64,
    /// Loading on the vertical one.
    pub y: f64,
}

/// A scatter of rows over two components, one unit of both equally long, with the longest loadings as arrows from the origin.
/// Arrows are to one scale of their own, as in any biplot: their lengths compare with each other, not with the points.
#[derive(Clone, Debug, PartialEq)]
pub struct Biplot {
    /// Title.
    pub title: String,
    /// A line under the title.
    pub subtitle: Option<String>,
    /// Name of the horizontal component.
    pub x: String,
    /// Name of the vertical one.
    pub y: String,
    /// The rows.
    pub groups: Vec<PointGroup>,
    /// The features, in any order.
    pub arrows: Vec<Arrow>,
    /// How many arrows to draw at most.
    pub shown: usize,
    /// Width in pixels, at least 320.
    pub width: f64,
}

/// Least and greatest height of the plot, as a share of its width.
const HEIGHTS: (f64, f64) = (0.35, 0.85);
/// How far the longest arrow reaches towards the edge.
const REACH: f64 = 0.8;

impl Biplot {
    /// A picture 720 pixels wide, with the 10 longest arrows.
    pub fn new(
        title: impl Into<String>,
        (x, y): (String, String),
        groups: impl IntoIterator<Item = PointGroup>,
        arrows: impl IntoIterator<Item = Arrow>,
    ) -> Self {
        Self {
            title: title.into(),
            subtitle: None,
            x,
            y,
            groups: groups.into_iter().collect(),
            arrows: arrows.into_iter().collect(),
            shown: 10,
            width: 720.0,
        }
    }

    /// Longest first, those that have a direction.
    fn sorted(&self) -> Vec<&Arrow> {
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

    /// What the points span, with some air; zero is in it, where the arrows begin.
    fn extent(&self, of: impl Fn((f64, f64)) -> f64) -> (f64, f64) {
        let (from, to) = self
            .points()
            .map(of)
            .fold((0.0_f64, 0.0_f64), |(a, b), v| (a.min(v), b.max(v)));
        let span = if to > from { to - from } else { 1.0 };
        (from - 0.06 * span, to + 0.06 * span)
    }

    fn legend(&self) -> Vec<Label> {
        let named = self.groups.iter().enumerate();
        named
            .filter(|(_, group)| !group.name.is_empty() && !group.points.is_empty())
            .map(|(i, group)| {
                let key = Key::Series(LineStyle::None, shape(i));
                Label::above(&group.name, &colour(i), key)
            })
            .collect()
    }

    /// Draws the arrows with their names; gives the names that found no room.
    fn draw_arrows(&self, svg: &mut Svg, area: Area, origin: (f64, f64)) -> Vec<&str> {
        let arrows = self.sorted();
        let arrows = &arrows[..arrows.len().min(self.shown)];
        // Pixels for a loading of one: no arrow leaves the plot.
        let room = |loading: f64, ahead: f64, behind: f64| match loading {
            l if l > 0.0 => ahead / l,
            l if l < 0.0 => behind / -l,
            _ => f64::INFINITY,
        };
        let (ox, oy) = origin;
        let scale = REACH
            * arrows.iter().fold(f64::INFINITY, |least: f64, arrow| {
                least
                    .min(room(arrow.x, area.right() - ox, ox - area.x))
                    .min(room(arrow.y, oy - area.y, area.bottom() - oy))
            });
        let mut taken: Vec<Area> = Vec::new();
        let mut missing = Vec::new();
        for arrow in arrows {
            let tip = (ox + scale * arrow.x, oy - scale * arrow.y);
            let tooltip = format!("{}: {}, {}", arrow.name, compact(arrow.x), compact(arrow.y));
            svg.open_group("c5", &tooltip);
            svg.path("ln thin", &shaft(origin, tip));
            svg.close_group();
            match place_for(&arrow.name, tip, area, &taken) {
                Some(place) => taken.push(place),
                None => missing.push(arrow.name.as_str()),
            }
        }
        // Names lie over every arrow.
        let named = arrows
            .iter()
            .filter(|a| !missing.contains(&a.name.as_str()));
        for (arrow, place) in named.zip(&taken) {
            svg.tinted("bg", *place, 0.8);
            let baseline = (place.x + 2.0, place.y + Role::Small.size());
            svg.text(Role::Small, "", baseline, Anchor::Start, &arrow.name);
        }
        missing
    }

    fn description(&self, count: usize) -> String {
        let groups: Vec<String> = self
            .groups
            .iter()
            .filter(|group| !group.name.is_empty())
            .map(|group| format!("{} {}", group.points.len(), group.name))
            .collect();
        let arrows: Vec<String> = self
            .sorted()
            .iter()
            .take(self.shown)
            .map(|a| format!("{} ({}, {})", a.name, compact(a.x), compact(a.y)))
            .collect();
        let mut text = format!("Scatter of {count} rows, {} against {}.", self.y, self.x);
        if !groups.is_empty() {
            text.push_str(&format!(" Groups: {}.", groups.join(", ")));
        }
        if !arrows.is_empty() {
            text.push_str(&format!(" Loadings: {}.", arrows.join("; ")));
        }
        text
    }
}

impl Figure for Biplot {
    fn with_width(self, width: f64) -> Self {
        Self { width, ..self }
    }

    fn to_svg(&self) -> String {
        let width = usable_width(self.width);
        let mut svg = Svg::default();
        let mut top = heading(&mut svg, &self.title, self.subtitle.as_deref(), width) + 8.0;
        let rows = Rows::new(self.legend(), width - 2.0 * MARGIN);
        rows.draw(&mut svg, (MARGIN, top));
        top += rows.height + 10.0;
        block(
            &mut svg,
            Role::Label,
            &Role::Label.wrap(&self.y, width - 2.0 * MARGIN, 1),
            MARGIN,
            top,
            Anchor::Start,
        );
        top += Role::Label.line_height() + 10.0;

        let (x_extent, y_extent) = (self.extent(|p| p.0), self.extent(|p| p.1));
        let left = MARGIN + 52.0;
        let w = width - MARGIN - left;
        let unit = (w / (x_extent.1 - x_extent.0))
            .min(HEIGHTS.1 * w / (y_extent.1 - y_extent.0))
            .max(f64::MIN_POSITIVE);
        let h = (unit * (y_extent.1 - y_extent.0)).clamp(HEIGHTS.0 * w, HEIGHTS.1 * w);
        let area = Area {
            x: left,
            y: top,
            w,
            h,
        };
        // One unit of both is equally long: whichever needs less room gets more of the plane.
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
        for (i, group) in self.groups.iter().enumerate() {
            svg.open_group(&colour(i), &group.name);
            for &(px, py) in &group.points {
                if drawable(px) && drawable(py) {
                    shape(i).draw(&mut svg, (x.at(px), y.at(py)), radius);
                }
            }
            svg.close_group();
        }
        if count == 0 {
            let at = (area.x + area.w / 2.0, area.y + area.h / 2.0);
            svg.text(Role::Subtitle, "mut", at, Anchor::Middle, "no data");
        }
        let origin = (
            x.at(0.0).clamp(area.x, area.right()),
            y.at(0.0).clamp(area.y, area.bottom()),
        );
        let missing = self.draw_arrows(&mut svg, area, origin);

        let mut under = vec![self.x.clone()];
        let drawn = self.sorted().len().min(self.shown);
        if drawn > 0 {
            let rest = self.sorted().len() - drawn;
            under.push(match rest {
                0 => "Arrows: loadings, to a scale of their own".to_owned(),
                _ => format!(
                    "Arrows: the {drawn} longest loadings of {}, to a scale of their own",
                    rest + drawn
                ),
            });
        }
        if !missing.is_empty() {
            under.push(format!("No room for the names of {}", missing.join(", ")));
        }
        let bottom = area.bottom() + 26.0;
        let middle = area.x + area.w / 2.0;
        let height = caption_under(&mut svg, &under, middle, bottom, width);
        svg.finish(width, height, &self.title, &self.description(count))
    }

    /// The arrows' numbers as a table, longest first.
    fn to_table(&self) -> DataTable {
        let rows = self.sorted().into_iter();
        DataTable {
            caption: self.title.clone(),
            headers: vec!["Feature".to_owned(), self.x.clone(), self.y.clone()],
            rows: rows
                .map(|arrow| vec![arrow.name.clone(), compact(arrow.x), compact(arrow.y)])
                .collect(),
        }
    }
}

fn colour(index: usize) -> String {
    format!("c{}", index % SERIES_COLOURS)
}

/// The ninth group has the first one's colour and the second one's shape.
fn shape(index: usize) -> Marker {
    Marker::Auto.resolve(index + index / SERIES_COLOURS)
}

/// A line with a head at its end.
fn shaft((ox, oy): (f64, f64), (x, y): (f64, f64)) -> Path {
    let mut path = Path::default();
    path.add(&[(ox, oy), (x, y)]);
    let length = (x - ox).hypot(y - oy);
    if length > 0.0 {
        let (ux, uy) = ((x - ox) / length, (y - oy) / length);
        let back = |side: f64| {
            (
                x - 7.0 * ux - side * 3.0 * uy,
                y - 7.0 * uy + side * 3.0 * ux,
            )
        };
        path.add(&[back(1.0), (x, y), back(-1.0)]);
    }
    path
}

/// Where a name by the tip of an arrow touches no other and stays in the plot: beside the tip, then further up or down.
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
    places.map(|(x, y)| Area { x, y, w, h }).find(clear)
}
