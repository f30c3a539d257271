//! Figures over two parameters: drawing them and comparing two algorithms on them.

use eigenveil_central::CentralCalibration;
use eigenveil_figures::{ColourScale, ImageGrid, LoadingImage};

use super::{haystack::CALIBRATIONS, method::Variant};
use crate::{PaperVerdict, Record, Table, number::digits, sweep};

/// One column of the table over a grid, at one calibration.
#[derive(Clone, Copy)]
pub(super) struct Grid<'a> {
    pub(super) table: &'a Table,
    rule: CentralCalibration,
    column: &'a str,
}

impl<'a> Grid<'a> {
    pub(super) fn new(table: &'a Table, rule: CentralCalibration, column: &'a str) -> Self {
        Self {
            table,
            rule,
            column,
        }
    }

    pub(super) fn lines(self, variant: Variant) -> Vec<&'a Record> {
        self.table.matching(&variant.lines(self.rule)).collect()
    }

    pub(super) fn numbers(self, variant: Variant) -> Vec<f64> {
        let lines = self.lines(variant);
        lines.iter().map(|line| line.number(self.column)).collect()
    }

    /// Their mean over the lines for which `keep` is true; NaN values are left out.
    pub(super) fn mean(self, variant: Variant, keep: impl Fn(&Record) -> bool) -> f64 {
        let lines = self.lines(variant);
        let selected = lines.into_iter().filter(|line| keep(line));
        let numbers: Vec<f64> = selected
            .map(|line| line.number(self.column))
            .filter(|number| !number.is_nan())
            .collect();
        numbers.iter().sum::<f64>() / numbers.len() as f64
    }

    /// In how many cells the first is below the second, and in how many both have a number.
    pub(super) fn below(self, first: Variant, second: Variant) -> (usize, usize) {
        let pairs = self.numbers(first).into_iter().zip(self.numbers(second));
        let both: Vec<(f64, f64)> = pairs.filter(|(a, b)| !a.is_nan() && !b.is_nan()).collect();
        (both.iter().filter(|(a, b)| a < b).count(), both.len())
    }

    /// The range of true ε of an algorithm on the grid: "0.80", or "0.1 to 0.9".
    pub(super) fn true_epsilons(self, variant: Variant) -> String {
        let lines = self.lines(variant);
        let mut epsilons: Vec<f64> = lines.iter().map(|l| l.number("true_epsilon")).collect();
        epsilons.retain(|epsilon| !epsilon.is_nan());
        epsilons.sort_unstable_by(f64::total_cmp);
        match epsilons[..] {
            [] => "none".to_owned(),
            [low, .., high] if digits(low, 3) != digits(high, 3) => {
                format!("{} to {}", digits(low, 3), digits(high, 3))
            }
            [low, ..] => digits(low, 3),
        }
    }
}

/// The words of a claim for the calibration.
pub(super) fn noise_clause(rule: CentralCalibration) -> &'static str {
    match rule {
        CentralCalibration::AsPublished => "at printed noise",
        CentralCalibration::Accounted => "at noise that holds",
    }
}

/// Adds the claim that the first algorithm is below the second in every cell.
pub(super) fn check_below(
    verdict: PaperVerdict,
    grid: Grid<'_>,
    (first, second): (Variant, Variant),
    what: &str,
) -> PaperVerdict {
    let (below, cells) = grid.below(first, second);
    verdict.with_claim(
        format!(
            "{} {what} {} {}",
            first.name(),
            second.name(),
            noise_clause(grid.rule)
        ),
        below == cells && cells > 0,
        format!(
            "in {below} of {cells} cells; the true ε of {} is {}, of {} {}",
            first.name(),
            grid.true_epsilons(first),
            second.name(),
            grid.true_epsilons(second)
        ),
    )
}

/// The two parameters that vary, and the column that is drawn.
pub(super) struct Axes<'a> {
    pub(super) down: (&'a str, &'a str),
    pub(super) across: (&'a str, &'a str),
    pub(super) column: &'a str,
}

/// A heat map for each algorithm, one row of maps for each calibration.
pub(super) fn svg(
    table: &Table,
    variants: &[Variant],
    axes: &Axes<'_>,
    title: &str,
    subtitle: &str,
    value: fn(f64) -> f64,
) -> String {
    let (rows, columns) = (table.values(axes.down.0), table.values(axes.across.0));
    let mut chart = ImageGrid {
        subtitle: Some(subtitle.to_owned()),
        scale: ColourScale::Shared,
        ..ImageGrid::new(title)
    };
    let drawn = |rule: &CentralCalibration| table.values("calibration").contains(&rule.as_str());
    for rule in CALIBRATIONS.into_iter().filter(drawn) {
        let images = variants.iter().filter_map(|variant| {
            let cells = rows.iter().flat_map(|row| {
                columns.iter().map(move |column| {
                    let cell = [(axes.down.0, *row), (axes.across.0, *column)];
                    let wanted = [&variant.lines(rule)[..], &cell].concat();
                    value(table.number(&wanted, axes.column))
                })
            });
            let values: Vec<f64> = cells.collect();
            let label = format!("{}\u{a0}=\u{a0}{} →", axes.across.1, columns.join(", "));
            LoadingImage::new(variant.name(), label, (rows.len(), columns.len()), &values)
        });
        let images: Vec<LoadingImage> = images.collect();
        let name = format!("{rule}: {}\u{a0}=\u{a0}{} ↓", axes.down.1, rows.join(", "));
        chart = chart.with_row(name, images);
    }
    chart.to_svg()
}

/// A row for each setting and calibration, a column for each algorithm, under a line that says what the numbers are.
pub(super) fn markdown(table: &Table, settings: &[&str], measure: &str) -> String {
    let caption = match measure {
        "log10_error" => "log₁₀ of the error",
        "reached" => "Share of the repeats whose error stays within the tolerance",
        _ => "Seconds until the error stays within the tolerance, of the repeats in which it does",
    };
    let rows = [&["calibration"], settings].concat();
    let text = sweep::markdown(table, &rows, "algorithm", measure, &[]);
    format!("{caption}:\n\n{text}")
}
