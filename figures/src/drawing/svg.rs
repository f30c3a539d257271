//! Writing SVG: elements, escaping and finite coordinates.

use std::fmt::Write as _;

use crate::drawing::{style::STYLESHEET, text::Role};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Anchor {
    Start,
    Middle,
    End,
}

#[derive(Debug, Default)]
pub(crate) struct Svg {
    body: String,
}

impl Svg {
    pub(crate) fn line(&mut self, class: &str, from: (f64, f64), to: (f64, f64)) {
        let _ = write!(
            self.body,
            "<line class=\"{class}\" x1=\"{}\" y1=\"{}\" x2=\"{}\" y2=\"{}\"/>",
            num(from.0),
            num(from.1),
            num(to.0),
            num(to.1)
        );
    }

    pub(crate) fn rect(&mut self, class: &str, area: Area) {
        self.rect_with(class, area, "");
    }

    /// A translucent rectangle.
    pub(crate) fn tinted(&mut self, class: &str, area: Area, opacity: f64) {
        // Cells of a grid join without seams if their edges fall on whole pixels.
        let more = format!(
            " shape-rendering=\"crispEdges\" fill-opacity=\"{}\"",
            num(opacity)
        );
        self.rect_with(class, area, &more);
    }

    fn rect_with(&mut self, class: &str, area: Area, more: &str) {
        let _ = write!(
            self.body,
            "<rect class=\"{class}\" x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\"{more}/>",
            num(area.x),
            num(area.y),
            num(area.w.max(0.0)),
            num(area.h.max(0.0))
        );
    }

    pub(crate) fn circle(&mut self, class: &str, centre: (f64, f64), radius: f64) {
        let _ = write!(
            self.body,
            "<circle class=\"{class}\" cx=\"{}\" cy=\"{}\" r=\"{}\"/>",
            num(centre.0),
            num(centre.1),
            num(radius)
        );
    }

    pub(crate) fn path(&mut self, class: &str, path: &Path) {
        let _ = write!(self.body, "<path class=\"{class}\" d=\"{}\"/>", path.0);
    }

    /// A translucent area.
    pub(crate) fn tinted_path(&mut self, class: &str, path: &Path, opacity: f64) {
        let opacity = num(opacity);
        let _ = write!(
            self.body,
            "<path class=\"{class}\" fill-opacity=\"{opacity}\" d=\"{}\"/>",
            path.0
        );
    }

    /// A line of text with its baseline at `at`; `class` may be empty.
    pub(crate) fn text(
        &mut self,
        role: Role,
        class: &str,
        at: (f64, f64),
        anchor: Anchor,
        text: &str,
    ) {
        let space = if class.is_empty() { "" } else { " " };
        let anchor = match anchor {
            Anchor::Start => "",
            Anchor::Middle => " text-anchor=\"middle\"",
            Anchor::End => " text-anchor=\"end\"",
        };
        let _ = write!(
            self.body,
            "<text class=\"{}{space}{class}\" x=\"{}\" y=\"{}\"{anchor}>{}</text>",
            role.class(),
            num(at.0),
            num(at.1),
            escape(text)
        );
    }

    /// Lines of text, vertically centred at a height.
    pub(crate) fn lines_around(&mut self, lines: &[String], at: (f64, f64), anchor: Anchor) {
        let (role, step) = (Role::Label, Role::Label.line_height());
        let first = at.1 - step * (lines.len() as f64 - 1.0) / 2.0 + role.size() * 0.35;
        for (i, line) in lines.iter().enumerate() {
            self.text(role, "", (at.0, first + step * i as f64), anchor, line);
        }
    }

    pub(crate) fn open_group(&mut self, class: &str, tooltip: &str) {
        let _ = write!(self.body, "<g class=\"{class}\">");
        if !tooltip.is_empty() {
            let _ = write!(self.body, "<title>{}</title>", escape(tooltip));
        }
    }

    pub(crate) fn close_group(&mut self) {
        self.body.push_str("</g>");
    }

    /// Opens a part clipped to `area` (a nested figure, which needs no `id`).
    pub(crate) fn open_clip(&mut self, area: Area) {
        let Area { x, y, w, h } = area;
        let (x, y, w, h) = (num(x), num(y), num(w.max(1.0)), num(h.max(1.0)));
        let _ = write!(
            self.body,
            "<svg x=\"{x}\" y=\"{y}\" width=\"{w}\" height=\"{h}\" viewBox=\"{x} {y} {w} {h}\">"
        );
    }

    pub(crate) fn close_clip(&mut self) {
        self.body.push_str("</svg>");
    }

    pub(crate) fn finish(self, width: f64, height: f64, title: &str, description: &str) -> String {
        let (w, h) = (num(width), num(height));
        let title = escape(title);
        let description = escape(description);
        format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" class=\"ev-plot\" role=\"img\" \
             aria-label=\"{title}\" width=\"{w}\" height=\"{h}\" viewBox=\"0 0 {w} {h}\">\
             <title>{title}</title><desc>{description}</desc><style>{STYLESHEET}</style>\
             <rect class=\"bg\" width=\"{w}\" height=\"{h}\"/>{}</svg>\n",
            self.body
        )
    }
}

/// A rectangle in pixels: its upper left corner, width and height.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Area {
    pub(crate) x: f64,
    pub(crate) y: f64,
    pub(crate) w: f64,
    pub(crate) h: f64,
}

impl Area {
    pub(crate) fn new(x: f64, y: f64, w: f64, h: f64) -> Self {
        Self { x, y, w, h }
    }

    pub(crate) fn centre(self) -> (f64, f64) {
        (self.x + self.w / 2.0, self.y + self.h / 2.0)
    }

    pub(crate) fn right(self) -> f64 {
        self.x + self.w
    }

    pub(crate) fn bottom(self) -> f64 {
        self.y + self.h
    }
}

/// The `d` of a path.
#[derive(Debug, Default)]
pub(crate) struct Path(String);

impl Path {
    /// A path through points, closed or not.
    pub(crate) fn through(points: &[(f64, f64)], closed: bool) -> Self {
        let mut path = Path::default();
        path.add(points);
        if closed {
            path.0.push('Z');
        }
        path
    }

    pub(crate) fn add(&mut self, points: &[(f64, f64)]) {
        for (i, &(x, y)) in points.iter().enumerate() {
            let command = if i == 0 { 'M' } else { 'L' };
            let _ = write!(self.0, "{command}{} {}", num(x), num(y));
        }
    }
}

/// A coordinate: finite, two decimals below 100 and one above.
pub(crate) fn num(value: f64) -> String {
    if !value.is_finite() {
        return "0".to_owned();
    }
    let value = value.clamp(-1e5, 1e5);
    let text = if value.abs() < 100.0 {
        format!("{value:.2}")
    } else {
        format!("{value:.1}")
    };
    let text = text.trim_end_matches('0').trim_end_matches('.');
    if text == "-0" {
        "0".to_owned()
    } else {
        text.to_owned()
    }
}

/// Text made safe for element content and quoted attributes; characters XML forbids are replaced.
pub(crate) fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            '\t' | '\n' | '\r' => out.push(' '),
            '\u{0}'..='\u{1f}' | '\u{7f}'..='\u{9f}' | '\u{fffe}' | '\u{ffff}' => {
                out.push('\u{fffd}');
            }
            _ => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn coordinates_are_short_and_finite() {
        for (value, text) in [
            (0.0, "0"),
            (-0.001, "0"),
            (12.346, "12.35"),
            (123.456, "123.5"),
            (50.0, "50"),
            (100.0, "100"),
            (f64::NAN, "0"),
            (f64::INFINITY, "0"),
        ] {
            assert_eq!(num(value), text);
        }
    }

    #[test]
    fn escapes() {
        assert_eq!(escape("<&\">'"), "&lt;&amp;&quot;&gt;&#39;");
        assert_eq!(escape("a\nb\u{1}"), "a b\u{fffd}");
    }
}
