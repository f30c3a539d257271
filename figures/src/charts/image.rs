//! Components of image data, drawn as images.

use crate::{
    drawing::{
        frame::{MARGIN, block_height, draw_lines, heading},
        svg::{Anchor, Area, Path, Svg},
        text::Role,
    },
    number::{compact, drawable},
};

/// An image of signed values, such as the loadings of one component of image data.
#[derive(Clone, Debug, PartialEq)]
pub struct LoadingImage {
    title: String,
    label: String,
    rows: usize,
    cols: usize,
    values: Vec<f64>,
}

impl LoadingImage {
    /// An image of `rows × cols` values in row order, with a title above and a label below; `None` if their number does
    /// not match or is 0.
    pub fn new(
        title: impl Into<String>,
        label: impl Into<String>,
        (rows, cols): (usize, usize),
        values: &[f64],
    ) -> Option<Self> {
        let fits = !values.is_empty() && rows.checked_mul(cols) == Some(values.len());
        fits.then(|| Self {
            title: title.into(),
            label: label.into(),
            rows,
            cols,
            values: values.to_vec(),
        })
    }

    /// The picture, negated if its inner product with `other` is negative: the sign of a component is arbitrary, and
    /// two of them compare best with the same sign.
    #[must_use]
    pub fn with_sign_of(mut self, other: &LoadingImage) -> Self {
        let pairs = self.values.iter().zip(&other.values);
        let product: f64 = pairs.map(|(a, b)| a * b).filter(|v| v.is_finite()).sum();
        if product < 0.0 {
            self.values.iter_mut().for_each(|v| *v = -*v);
        }
        self
    }

    fn largest(&self) -> f64 {
        let drawn = self.values.iter().filter(|v| drawable(**v));
        drawn.fold(0.0, |m, v| m.max(v.abs()))
    }
}

/// The value of the strongest colour.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ColourScale {
    /// The largest magnitude in each image: also shows the shape of weak images.
    #[default]
    Each,
    /// The largest magnitude in all images: shows which are weak.
    Shared,
}

/// Rows of images, for comparing components.
#[derive(Clone, Debug, PartialEq)]
pub struct ImageGrid {
    /// Title.
    pub title: String,
    /// A line under the title.
    pub subtitle: Option<String>,
    /// The rows, such as one of private and one of exact components: a name, and images side by side.
    pub rows: Vec<(String, Vec<LoadingImage>)>,
    /// The value of the strongest colour.
    pub scale: ColourScale,
    /// Width of one image, in pixels.
    pub cell: f64,
}

const GAP: f64 = 20.0;
/// Cells of the colour key: ten for each sign, and one for zero.
const KEY_CELLS: f64 = 21.0;

impl ImageGrid {
    /// An empty grid of images 112 pixels wide.
    pub fn new(title: impl Into<String>) -> Self {
        Self {
            title: title.into(),
            subtitle: None,
            rows: Vec::new(),
            scale: ColourScale::default(),
            cell: 112.0,
        }
    }

    /// Adds a row.
    #[must_use]
    pub fn with_row(
        mut self,
        label: impl Into<String>,
        images: impl IntoIterator<Item = LoadingImage>,
    ) -> Self {
        self.rows.push((label.into(), images.into_iter().collect()));
        self
    }

    /// The grid as SVG.
    #[must_use]
    pub fn to_svg(&self) -> String {
        let cell = match self.cell.is_finite() {
            true => self.cell.clamp(48.0, 1000.0).round(),
            false => 112.0,
        };
        let most = self.rows.iter().map(|(_, images)| images.len()).max();
        let most = most.unwrap_or(0).max(1) as f64;
        // Long names of rows are wrapped.
        let names = match Role::Label.widest(self.rows.iter().map(|(name, _)| name)) {
            0.0 => 0.0,
            widest => widest.min(112.0) + 16.0,
        };
        let width = 2.0 * MARGIN + names + most * cell + (most - 1.0) * GAP;
        let width = width.max(320.0);
        let width = width.max(2.0 * MARGIN + self.key_width(3.0)).ceil();

        let mut svg = Svg::default();
        let mut y = heading(&mut svg, &self.title, self.subtitle.as_deref(), width);
        y += if y > MARGIN + 4.0 { 12.0 } else { 0.0 };
        let shared = self.largest();
        for row in &self.rows {
            y = draw_row(
                &mut svg,
                row,
                (MARGIN, MARGIN + names),
                y,
                cell,
                |image| match self.scale {
                    ColourScale::Shared => shared,
                    ColourScale::Each => image.largest(),
                },
            );
        }
        if self.images().next().is_none() {
            let at = (MARGIN, y + 12.0);
            svg.text(Role::Label, "mut", at, Anchor::Start, "no data");
            y += Role::Label.line_height() + 6.0;
        }
        let height = self.draw_key(&mut svg, (MARGIN + names, y), width) + MARGIN;
        svg.finish(width, height.round(), &self.title, &self.description())
    }

    fn images(&self) -> impl Iterator<Item = &LoadingImage> {
        self.rows.iter().flat_map(|(_, images)| images)
    }

    fn key_ends(&self) -> (String, String) {
        if self.own_scales() {
            ("−max".to_owned(), "+max".to_owned())
        } else {
            let largest = self.largest();
            (compact(-largest), format!("+{}", compact(largest)))
        }
    }

    fn own_scales(&self) -> bool {
        self.scale == ColourScale::Each && self.images().nth(1).is_some()
    }

    fn largest(&self) -> f64 {
        self.images().map(LoadingImage::largest).fold(0.0, f64::max)
    }

    fn key_width(&self, step: f64) -> f64 {
        let (low, high) = self.key_ends();
        Role::Small.width(&low) + Role::Small.width(&high) + 14.0 + KEY_CELLS * step
    }

    /// The colour key; returns the y below it.
    fn draw_key(&self, svg: &mut Svg, (x, y): (f64, f64), width: f64) -> f64 {
        let room = width - 2.0 * MARGIN;
        let step = if self.key_width(5.0) <= room {
            5.0
        } else {
            3.0
        };
        let beyond = x + self.key_width(step) > width - MARGIN;
        let x = if beyond { MARGIN } else { x };
        let (low, high) = self.key_ends();
        let middle = y + 10.0;
        let baseline = middle + Role::Small.size() * 0.35;
        svg.text(Role::Small, "mut", (x, baseline), Anchor::Start, &low);
        let left = (x + Role::Small.width(&low) + 7.0).round();
        let bar = KEY_CELLS * step;
        for i in 0..KEY_CELLS as i32 {
            let value = f64::from(i - 10) / 10.0;
            let swatch = Area::new(left + f64::from(i) * step, middle - 5.0, step, 10.0);
            draw_cell(svg, value, 1.0, swatch);
        }
        let frame = Area::new(left - 0.5, middle - 5.5, bar + 1.0, 11.0);
        svg.rect("edge", frame);
        let end = (left + bar + 6.0, baseline);
        svg.text(Role::Small, "mut", end, Anchor::Start, &high);
        if !self.own_scales() {
            return y + 20.0;
        }
        let note = Role::Small.wrap(
            "each image scaled to its own maximum",
            width - MARGIN - x,
            3,
        );
        draw_lines(svg, Role::Small, &note, x, y + 20.0, Anchor::Start);
        y + 22.0 + block_height(Role::Small, &note)
    }

    fn description(&self) -> String {
        let mut text = String::from("Images of signed values: orange positive, blue negative.");
        for (name, images) in &self.rows {
            let titles = images.iter().map(|i| format!("{} {}", i.title, i.label));
            let titles: Vec<String> = titles.collect();
            text.push_str(&format!(" {name}: {}.", titles.join("; ")));
        }
        text
    }
}

/// Draws a row from `top`; returns the y below it.
fn draw_row(
    svg: &mut Svg,
    (name, images): &(String, Vec<LoadingImage>),
    (name_x, left): (f64, f64),
    top: f64,
    cell: f64,
    largest: impl Fn(&LoadingImage) -> f64,
) -> f64 {
    let lines = |text: &str| Role::Small.wrap(text, cell + GAP - 6.0, 3);
    let height = |text: fn(&LoadingImage) -> &str| {
        let heights = images.iter();
        let heights = heights.map(|i| block_height(Role::Small, &lines(text(i))));
        heights.fold(0.0, f64::max)
    };
    let titles = height(|i| &i.title);
    let labels = height(|i| &i.label);
    let picture_top = (top + titles + if titles > 0.0 { 6.0 } else { 0.0 }).round();
    let name = Role::Label.wrap(name, left - name_x - 16.0, 6);
    let mut tallest = cell.max(block_height(Role::Label, &name));
    for (i, image) in images.iter().enumerate() {
        let x = (left + i as f64 * (cell + GAP)).round();
        let title = lines(&image.title);
        let own_top = top + titles - block_height(Role::Small, &title);
        draw_lines(svg, Role::Small, &title, x, own_top, Anchor::Start);
        // Cells of whole pixels have equal size and join without seams.
        let size = (cell / image.cols.max(1) as f64).floor().max(1.0);
        let (w, h) = (size * image.cols as f64, size * image.rows as f64);
        tallest = tallest.max(h);
        svg.open_group("", &format!("{} {}", image.title, image.label));
        let scale = largest(image);
        for (k, &value) in image.values.iter().enumerate() {
            let (r, c) = (k / image.cols, k % image.cols);
            let (left, top) = (x + c as f64 * size, picture_top + r as f64 * size);
            draw_cell(svg, value, scale, Area::new(left, top, size, size));
        }
        let frame = Area::new(x - 0.5, picture_top - 0.5, w + 1.0, h + 1.0);
        svg.rect("edge", frame);
        svg.close_group();
        let (label, under) = (lines(&image.label), picture_top + h + 5.0);
        draw_lines(svg, Role::Small, &label, x, under, Anchor::Start);
    }
    for (i, line) in name.iter().enumerate() {
        let spare = cell - block_height(Role::Label, &name);
        let first = picture_top + (spare / 2.0).max(0.0);
        let y = first + Role::Label.line_height() * i as f64 + Role::Label.size();
        svg.text(Role::Label, "", (name_x, y), Anchor::Start, line);
    }
    picture_top + tallest + if labels > 0.0 { labels + 5.0 } else { 0.0 } + 18.0
}

/// One value: the background at zero, full colour at the largest magnitude, and a cross if it is not a number.
fn draw_cell(svg: &mut Svg, value: f64, largest: f64, place: Area) {
    if !drawable(value) {
        let Area { x, y, .. } = place;
        let mut path = Path::default();
        path.add(&[(x, y), (place.right(), place.bottom())]);
        path.add(&[(x, place.bottom()), (place.right(), y)]);
        svg.path("edge", &path);
        return;
    }
    let share = match largest > 0.0 {
        true => (value.abs() / largest).min(1.0),
        false => 0.0,
    };
    if share >= 0.005 {
        let sign = if value > 0.0 { "fill pos" } else { "fill neg" };
        svg.tinted(sign, place, share);
    }
}
