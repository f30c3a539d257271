//! Markers and strokes, which distinguish series without colour.

use crate::drawing::svg::{Path, Svg};

/// Shape of a point.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Marker {
    /// The next shape of the cycle for each series.
    #[default]
    Auto,
    /// Filled circle.
    Circle,
    /// Filled square.
    Square,
    /// Filled triangle, point up.
    Triangle,
    /// Filled diamond.
    Diamond,
    /// Filled triangle, point down.
    TriangleDown,
    /// Diagonal cross.
    Cross,
    /// Open circle.
    Ring,
    /// Upright cross.
    Plus,
    /// No mark.
    None,
}

/// Stroke of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum LineStyle {
    /// Unbroken.
    #[default]
    Solid,
    /// Dashed.
    Dashed,
    /// Dotted.
    Dotted,
    /// No line: only the marks.
    None,
}

impl LineStyle {
    /// Classes of the stroke; `None` when nothing is drawn.
    pub(crate) fn class(self) -> Option<&'static str> {
        match self {
            LineStyle::Solid => Some("ln"),
            LineStyle::Dashed => Some("ln dash"),
            LineStyle::Dotted => Some("ln dot"),
            LineStyle::None => None,
        }
    }
}

impl Marker {
    const CYCLE: [Marker; 8] = [
        Marker::Circle,
        Marker::Square,
        Marker::Triangle,
        Marker::Diamond,
        Marker::TriangleDown,
        Marker::Ring,
        Marker::Cross,
        Marker::Plus,
    ];

    /// The shape for the series at `index`.
    pub(crate) fn resolve(self, index: usize) -> Marker {
        if self == Marker::Auto {
            Self::CYCLE[index % Self::CYCLE.len()]
        } else {
            self
        }
    }

    /// Draws the shape; its colour is that of the enclosing group.
    pub(crate) fn draw(self, svg: &mut Svg, (x, y): (f64, f64), radius: f64) {
        let r = radius;
        let closed = |svg: &mut Svg, points: &[(f64, f64)]| {
            let points: Vec<_> = points
                .iter()
                .map(|(dx, dy)| (x + dx * r, y + dy * r))
                .collect();
            svg.path("mk", &Path::through(&points, true));
        };
        let strokes = |svg: &mut Svg, points: [(f64, f64); 4]| {
            let [a, b, c, d] = points.map(|(dx, dy)| (x + dx * r, y + dy * r));
            let mut path = Path::default();
            path.add(&[a, b]);
            path.add(&[c, d]);
            svg.path("mx", &path);
        };
        match self {
            Marker::Auto | Marker::Circle => svg.circle("mk", (x, y), r),
            Marker::Ring => svg.circle("mo", (x, y), r * 0.85),
            Marker::Square => {
                closed(svg, &[(-0.9, -0.9), (0.9, -0.9), (0.9, 0.9), (-0.9, 0.9)]);
            }
            Marker::Triangle => closed(svg, &[(0.0, -1.2), (1.15, 0.8), (-1.15, 0.8)]),
            Marker::TriangleDown => closed(svg, &[(0.0, 1.2), (1.15, -0.8), (-1.15, -0.8)]),
            Marker::Diamond => closed(svg, &[(0.0, -1.3), (1.3, 0.0), (0.0, 1.3), (-1.3, 0.0)]),
            Marker::Cross => strokes(svg, [(-0.8, -0.8), (0.8, 0.8), (-0.8, 0.8), (0.8, -0.8)]),
            Marker::Plus => strokes(svg, [(-1.0, 0.0), (1.0, 0.0), (0.0, -1.0), (0.0, 1.0)]),
            Marker::None => {}
        }
    }
}
