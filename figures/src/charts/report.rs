//! Rows, and what is sent of them.

use crate::{
    drawing::{
        frame::{MARGIN, RowNames, caption_left, clamp_width, draw_lines, heading},
        svg::{Anchor, Area, Svg},
        text::Role,
    },
    figure::Figure,
    number::{compact, drawable},
    table::DataTable,
};

/// A row, and the bytes of reports made from it.
#[derive(Clone, Debug, PartialEq)]
pub struct ReportedRow {
    /// The values of the row.
    pub values: Vec<f64>,
    /// The payload of each report.
    pub reports: Vec<Vec<u8>>,
}

/// Rows as bars beside their reports, byte by byte: what an observer sees of a row.
#[derive(Clone, Debug, PartialEq)]
pub struct ReportPicture {
    /// Title.
    pub title: String,
    /// Names of the features.
    pub features: Vec<String>,
    /// The rows.
    pub rows: Vec<ReportedRow>,
}

/// Maximum number of values of a row, and of bytes of a report.
const MAX_VALUES: usize = 8;
const MAX_BYTES: usize = 256;
const ROW: f64 = 20.0;
const BAR: f64 = 12.0;
const MAX_CELL: f64 = 18.0;
const GAP: f64 = 12.0;

/// How the bytes of a report are laid out.
struct Grid {
    columns: usize,
    cell: f64,
    width: f64,
    height: f64,
}

impl Grid {
    fn new(bytes: usize, room: f64) -> Self {
        let bytes = bytes.clamp(1, MAX_BYTES);
        let columns = if bytes <= 16 { 4 } else { 16 };
        let cell = (room / columns as f64).floor().clamp(3.0, MAX_CELL);
        Self {
            columns,
            cell,
            width: cell * columns as f64,
            height: cell * bytes.div_ceil(columns) as f64,
        }
    }

    fn draw(&self, svg: &mut Svg, (x, y): (f64, f64), bytes: &[u8]) {
        svg.open_group("c0", &format!("a report of {} bytes", bytes.len()));
        for (i, byte) in bytes.iter().take(MAX_BYTES).enumerate() {
            let (row, column) = (i / self.columns, i % self.columns);
            let (left, top) = (x + self.cell * column as f64, y + self.cell * row as f64);
            let cell_area = Area::new(left, top, self.cell - 1.0, self.cell - 1.0);
            svg.tinted("fill", cell_area, 0.06 + 0.94 * f64::from(*byte) / 255.0);
        }
        svg.close_group();
    }
}

impl ReportPicture {
    /// Bytes of the longest report.
    fn bytes(&self) -> usize {
        let reports = self.rows.iter().flat_map(|row| &row.reports);
        reports.map(Vec::len).max().unwrap_or(0)
    }

    fn notes(&self) -> Vec<String> {
        let (bytes, features) = (self.bytes(), self.features.len());
        let mut notes =
            vec!["Each square is a byte of a report, fuller where it is larger".to_owned()];
        if bytes > MAX_BYTES {
            notes.push(format!("The first {MAX_BYTES} bytes of {bytes}"));
        }
        if features > MAX_VALUES {
            notes.push(format!("The first {MAX_VALUES} features of {features}"));
        }
        notes
    }
}

/// Bytes as hexadecimal digits, the first few.
fn hex(bytes: &[u8]) -> String {
    let digits: String = bytes
        .iter()
        .take(16)
        .map(|byte| format!("{byte:02x}"))
        .collect();
    let more = if bytes.len() > 16 { "…" } else { "" };
    digits + more
}

impl Figure for ReportPicture {
    fn to_svg_of_width(&self, width: f64) -> String {
        let width = clamp_width(width);
        let named = self.features.iter().take(MAX_VALUES).map(String::as_str);
        let names = RowNames::new(named, width * 0.24, ROW);
        let bars = (width * 0.2).min(140.0);
        let zero = MARGIN + names.width + 8.0 + bars / 2.0;
        let left = (zero + bars / 2.0 + 1.5 * GAP).max(MARGIN + Role::Label.width("row 1") + GAP);
        let grid = Grid::new(self.bytes(), width - MARGIN - left);
        let beside = left + 2.0 * grid.width + GAP <= width - MARGIN;
        let step = match beside {
            true => (grid.width + GAP, 0.0),
            false => (0.0, grid.height + GAP),
        };
        let mut svg = Svg::default();
        let mut y = heading(&mut svg, &self.title, None, width) + 10.0;
        for (i, row) in self.rows.iter().enumerate() {
            for (x, text) in [
                (MARGIN, format!("row {}", i + 1)),
                (left, "its reports".to_owned()),
            ] {
                draw_lines(&mut svg, Role::Label, &[text], x, y, Anchor::Start);
            }
            let top = y + Role::Label.line_height() + 6.0;
            let shown_count = self.features.len().min(MAX_VALUES);
            for place in 0..shown_count {
                let centre = top + names.centre(place);
                names.draw(&mut svg, place, MARGIN + names.width, centre);
                let value = row.values.get(place).copied().filter(|x| drawable(*x));
                let value = value.unwrap_or(0.0).clamp(-1.0, 1.0);
                let class = if value < 0.0 { "fill neg" } else { "fill pos" };
                let (from, length) = (
                    zero.min(zero + value * bars / 2.0),
                    (value * bars / 2.0).abs(),
                );
                svg.rect(class, Area::new(from, centre - BAR / 2.0, length, BAR));
            }
            svg.line("axis", (zero, top), (zero, top + names.height()));
            let mut at = (left, top);
            for report in &row.reports {
                grid.draw(&mut svg, at, report);
                at = (at.0 + step.0, at.1 + step.1);
            }
            let reports = row.reports.len().max(1) as f64;
            let height = if beside {
                grid.height
            } else {
                reports * (grid.height + GAP)
            };
            y = top + names.height().max(height) + 1.5 * GAP;
        }
        let height = caption_left(&mut svg, &self.notes(), y - 4.0, width);
        let description = format!(
            "{} rows as bars, and beside each its reports of {} bytes, drawn as squares. Reports of one row differ from each other.",
            self.rows.len(),
            self.bytes()
        );
        svg.finish(width, height, &self.title, &description)
    }

    /// A line for each row: its first values, and the first bytes of its reports in hexadecimal digits.
    fn to_table(&self) -> DataTable {
        let reports = self.rows.iter().map(|row| row.reports.len()).max();
        let reports = (1..=reports.unwrap_or(0)).map(|i| format!("Report {i}"));
        let headers = ["Row".to_owned(), "Values".to_owned()];
        let headers: Vec<String> = headers.into_iter().chain(reports).collect();
        let rows = self.rows.iter().enumerate().map(|(i, row)| {
            let values = row.values.iter().take(MAX_VALUES);
            let more = (row.values.len() > MAX_VALUES).then(|| "…".to_owned());
            let values: Vec<String> = values
                .map(|x| compact((100.0 * x).round() / 100.0))
                .chain(more)
                .collect();
            let mut cells = vec![(i + 1).to_string(), values.join(", ")];
            cells.extend(row.reports.iter().map(|report| hex(report)));
            cells.resize(headers.len(), String::new());
            cells
        });
        let rows: Vec<Vec<String>> = rows.collect();
        DataTable::new(&self.title, headers, rows)
    }
}
