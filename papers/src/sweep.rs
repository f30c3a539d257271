//! Helpers for exhibits that plot an error over one parameter.

use eigenveil_figures::{Axis, Figure, LineChart, Series};

use crate::{PaperVerdict, Record, Table, number::digits};

/// A measure over one column, with the other columns fixed.
pub(crate) struct Sweep<'a> {
    pub(crate) table: &'a Table,
    pub(crate) fixed: &'a [(&'a str, &'a str)],
    pub(crate) x: &'a str,
    pub(crate) measure: &'a str,
}

impl Sweep<'_> {
    /// Adds the claim that the measure falls (or grows) from the first to the last value of x by more than two standard
    /// errors of the difference of the means.
    pub(crate) fn check_trend(
        &self,
        verdict: PaperVerdict,
        says: &str,
        falls: bool,
    ) -> PaperVerdict {
        let mut lines: Vec<_> = self.table.matching(self.fixed).collect();
        lines.sort_by(|a, b| a.number(self.x).total_cmp(&b.number(self.x)));
        let (Some(first), Some(last)) = (lines.first(), lines.last()) else {
            return verdict.with_claim(says, false, "nothing was run");
        };
        let [mean, sd] = ["mean", "sd"].map(|what| format!("{}_{what}", self.measure));
        let variance = |line: &Record| line.number(&sd).powi(2) / line.number("repeats").max(1.0);
        let sign = if falls { 1.0 } else { -1.0 };
        let difference = sign * (first.number(&mean) - last.number(&mean));
        let noise = (variance(first) + variance(last)).sqrt();
        let described = |line: &Record| {
            format!(
                "{} ± {} at {}",
                digits(line.number(&mean), 3),
                digits(line.number(&sd), 1),
                line.text(self.x)
            )
        };
        verdict.with_claim(
            says,
            difference > 2.0 * noise && difference > 0.0,
            format!("{}, {}", described(first), described(last)),
        )
    }
}

/// A line of a chart: mean and standard deviation of a measure over x, with the other columns fixed.
pub(crate) fn series(
    table: &Table,
    name: impl Into<String>,
    fixed: &[(&str, &str)],
    x: &str,
    measure: &str,
) -> Series {
    let sd = format!("{measure}_sd");
    Series::new(name, table.line(fixed, x, &format!("{measure}_mean")))
        .with_error_bars(table.matching(fixed).map(|record| record.number(&sd)))
}

/// A line chart with reference lines.
pub(crate) fn chart(
    title: &str,
    x: Axis,
    y: Axis,
    lines: impl IntoIterator<Item = Series>,
    compared: impl IntoIterator<Item = (String, f64)>,
) -> String {
    let mut chart = LineChart::new(title, x, y);
    chart.series.extend(lines);
    chart.reference_lines.extend(compared);
    chart.to_svg()
}

/// A Markdown table; the cells of heads and rows are separated by ` | `.
pub(crate) fn grid(heads: &str, rows: impl IntoIterator<Item = String>) -> String {
    let columns = heads.split(" | ").count();
    let mut text = format!("| {heads} |\n|{}\n", "---|".repeat(columns));
    for row in rows {
        text.push_str(&format!("| {row} |\n"));
    }
    text
}

/// A Markdown table: a row for each setting, a column for each value of `across`, mean ± standard deviation in the
/// cells, then the per-cell numbers of the first column.
pub(crate) fn markdown(
    table: &Table,
    rows: &[&str],
    across: &str,
    measure: &str,
    per_cell: &[&str],
) -> String {
    let columns = table.values(across);
    let named = per_cell.iter().map(|constant| constant.replace('_', " "));
    let heads: Vec<String> = [rows, &columns]
        .concat()
        .into_iter()
        .map(str::to_owned)
        .chain(named)
        .collect();
    let mut lines = Vec::new();
    let mut seen: Vec<Vec<(&str, &str)>> = Vec::new();
    for record in table.records() {
        let key: Vec<(&str, &str)> = rows.iter().map(|row| (*row, record.text(row))).collect();
        if seen.contains(&key) {
            continue;
        }
        let mut cells: Vec<String> = key.iter().map(|(_, value)| (*value).to_owned()).collect();
        for column in &columns {
            let wanted = [key.as_slice(), &[(across, *column)]].concat();
            let mean = table.number(&wanted, &format!("{measure}_mean"));
            let sd = table.number(&wanted, &format!("{measure}_sd"));
            let holds = table.number(&wanted, "true_epsilon");
            let mut cell = if mean.is_nan() {
                String::new()
            } else {
                format!("{} ± {}", digits(mean, 3), digits(sd, 1))
            };
            if !holds.is_nan() {
                cell.push_str(&format!(" [{}]", digits(holds, 2)));
            }
            cells.push(cell);
        }
        let constants = per_cell.iter().map(|name| record.number(name));
        cells.extend(constants.map(|number| digits(number, 2)));
        lines.push(cells.join(" | "));
        seen.push(key);
    }
    grid(&heads.join(" | "), lines)
}
