//! What figures over two settings have in common: how they are drawn, and how two algorithms are compared on them.

use eigenveil_central::CentralCalibration;
use eigenveil_figures::{ColourScale, ImageGrid, LoadingImage};

use super::{haystack::NOISES, method::Form};
use crate::{Record, Table, Verdict, number::digits, sweep};

/// One algorithm at one noise over a grid, by one column of the table.
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

    /// The lines of an algorithm.
    pub(super) fn lines(self, form: Form) -> Vec<&'a Record> {
        let wanted = [
            ("algorithm", form.name()),
            ("calibration", self.rule.as_str()),
        ];
        let records = self.table.records().iter();
        records.filter(|line| line.matches(&wanted)).collect()
    }

    /// The numbers of an algorithm.
    pub(super) fn numbers(self, form: Form) -> Vec<f64> {
        let lines = self.lines(form);
        lines.iter().map(|line| line.number(self.column)).collect()
    }

    /// Their mean over the lines for which `keep` is true, without those that are no number.
    pub(super) fn mean(self, form: Form, keep: impl Fn(&Record) -> bool) -> f64 {
        let lines = self.lines(form);
        let kept = lines.into_iter().filter(|line| keep(line));
        let numbers: Vec<f64> = kept
            .map(|line| line.number(self.column))
            .filter(|number| !number.is_nan())
            .collect();
        numbers.iter().sum::<f64>() / numbers.len() as f64
    }

    /// In how many cells the first is below the second, of those in which both have a number.
    pub(super) fn below(self, first: Form, second: Form) -> (usize, usize) {
        let pairs = self.numbers(first).into_iter().zip(self.numbers(second));
        let both: Vec<(f64, f64)> = pairs.filter(|(a, b)| !a.is_nan() && !b.is_nan()).collect();
        (both.iter().filter(|(a, b)| a < b).count(), both.len())
    }

    /// The ε that hold for an algorithm on the grid: "0.80", or "0.1 to 0.9".
    pub(super) fn holds(self, form: Form) -> String {
        let lines = self.lines(form);
        let mut found: Vec<f64> = lines.iter().map(|l| l.number("true_epsilon")).collect();
        found.retain(|epsilon| !epsilon.is_nan());
        found.sort_unstable_by(f64::total_cmp);
        match found[..] {
            [] => "none".to_owned(),
            [low, .., high] if digits(low, 3) != digits(high, 3) => {
                format!("{} to {}", digits(low, 3), digits(high, 3))
            }
            [low, ..] => digits(low, 3),
        }
    }
}

/// How a claim names the noise.
pub(super) fn noise_clause(rule: CentralCalibration) -> &'static str {
    match rule {
        CentralCalibration::AsPublished => "at printed noise",
        CentralCalibration::Accounted => "at noise that holds",
    }
}

/// Adds that the first algorithm is below the second in every cell.
pub(super) fn judge_below(
    verdict: Verdict,
    grid: Grid<'_>,
    (first, second): (Form, Form),
    what: &str,
) -> Verdict {
    let (below, cells) = grid.below(first, second);
    verdict.with(
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
            grid.holds(first),
            second.name(),
            grid.holds(second)
        ),
    )
}

/// The two settings that vary, and the number that is drawn.
pub(super) struct Axes<'a> {
    pub(super) down: (&'a str, &'a str),
    pub(super) across: (&'a str, &'a str),
    pub(super) column: &'a str,
}

/// A heat map for each algorithm, a row of them for each kind of noise.
pub(super) fn picture(
    table: &Table,
    forms: &[Form],
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
    for rule in NOISES.into_iter().filter(drawn) {
        let images = forms.iter().filter_map(|form| {
            let cells = rows.iter().flat_map(|row| {
                columns.iter().map(move |column| {
                    let wanted = [
                        ("algorithm", form.name()),
                        ("calibration", rule.as_str()),
                        (axes.down.0, *row),
                        (axes.across.0, *column),
                    ];
                    value(table.number(&wanted, axes.column))
                })
            });
            let values: Vec<f64> = cells.collect();
            let label = format!("{}\u{a0}=\u{a0}{} →", axes.across.1, columns.join(", "));
            LoadingImage::new(form.name(), label, (rows.len(), columns.len()), &values)
        });
        let images: Vec<LoadingImage> = images.collect();
        let name = format!("{rule}: {}\u{a0}=\u{a0}{} ↓", axes.down.1, rows.join(", "));
        chart = chart.with_row(name, images);
    }
    chart.to_svg()
}

/// A row for each setting and kind of noise, a column for each algorithm.
pub(super) fn markdown(table: &Table, settings: &[&str], measure: &str) -> String {
    let rows = [&["calibration"], settings].concat();
    sweep::markdown(table, &rows, "algorithm", measure, &[])
}
