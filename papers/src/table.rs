//! The results of an exhibit, as in its CSV.

use std::collections::BTreeMap;

use crate::{
    number::short,
    plan::{Point, RunSize},
};

/// One line: a cell, at one coordinate.
#[derive(Clone, Debug, PartialEq)]
pub struct Record(BTreeMap<String, String>);

impl Record {
    /// The text in this column; empty if there is none.
    pub fn text(&self, column: &str) -> &str {
        self.0.get(column).map_or("", String::as_str)
    }

    /// The number in this column; NaN if there is none.
    pub fn number(&self, column: &str) -> f64 {
        self.text(column).parse().unwrap_or(f64::NAN)
    }

    /// Whether these columns have these values.
    pub fn matches(&self, wanted: &[(&str, &str)]) -> bool {
        wanted
            .iter()
            .all(|&(column, value)| self.text(column) == value)
    }
}

/// All lines of an exhibit.
#[derive(Clone, Debug, PartialEq)]
pub struct Table {
    header: Vec<String>,
    records: Vec<Record>,
}

impl Table {
    /// The lines in their order.
    pub fn records(&self) -> &[Record] {
        &self.records
    }

    /// The lines whose columns have these values.
    pub fn matching(&self, wanted: &[(&str, &str)]) -> impl Iterator<Item = &Record> {
        self.records.iter().filter(|record| record.matches(wanted))
    }

    /// The number in `column` of the first line whose columns have these values; NaN if there is none.
    pub fn number(&self, wanted: &[(&str, &str)], column: &str) -> f64 {
        self.matching(wanted)
            .next()
            .map_or(f64::NAN, |record| record.number(column))
    }

    /// The distinct values of a column, in order of appearance.
    pub fn values(&self, column: &str) -> Vec<&str> {
        let mut values: Vec<&str> = Vec::new();
        for record in &self.records {
            let value = record.text(column);
            if !values.contains(&value) {
                values.push(value);
            }
        }
        values
    }

    /// Points (`x`, `y`) of the lines whose columns have these values.
    pub fn line(&self, wanted: &[(&str, &str)], x: &str, y: &str) -> Vec<(f64, f64)> {
        self.matching(wanted)
            .map(|record| (record.number(x), record.number(y)))
            .collect()
    }

    /// Reads a CSV with this header; `None` if it has another.
    pub(crate) fn parse(header: Vec<String>, text: &str) -> Option<Self> {
        let mut lines = text.lines();
        if lines.next() != Some(header.join(",").as_str()) {
            return None;
        }
        let records = lines
            .map(|line| {
                let fields = line.split(',').map(str::to_owned);
                Record(header.iter().cloned().zip(fields).collect())
            })
            .collect();
        Some(Self { header, records })
    }

    /// The CSV.
    pub fn to_csv(&self) -> String {
        let mut text = self.header.join(",") + "\n";
        for record in &self.records {
            let fields: Vec<&str> = self.header.iter().map(|c| record.text(c)).collect();
            text.push_str(&fields.join(","));
            text.push('\n');
        }
        text
    }

    /// Mean and spread over the repeats of each cell, whose points have so many constants and measures.
    pub(crate) fn summarize(
        header: Vec<String>,
        has_coordinate: bool,
        (constants, measures): (usize, usize),
        size: RunSize,
        cells: &[(Vec<String>, Vec<Vec<Point>>)],
    ) -> Self {
        let mut records = Vec::new();
        for (key, repeats) in cells {
            let most = repeats.iter().map(Vec::len).max().unwrap_or(0);
            for place in 0..most {
                let points: Vec<&Point> = repeats.iter().filter_map(|run| run.get(place)).collect();
                let mut fields = key.clone();
                if has_coordinate {
                    let at = points.first().and_then(|point| point.at);
                    fields.push(short(at.unwrap_or(f64::NAN)));
                }
                if let Some(first) = points.first() {
                    fields.extend(first.values[..constants].iter().map(|&v| short(v)));
                }
                for measure in constants..constants + measures {
                    let values: Vec<f64> = points.iter().map(|p| p.values[measure]).collect();
                    fields.extend(spread(&values).map(short));
                }
                fields.push(points.len().to_string());
                fields.push(size.to_string());
                records.push(Record(header.iter().cloned().zip(fields).collect()));
            }
        }
        Self { header, records }
    }
}

/// Mean, standard deviation (denominator R − 1; 0 for a single value), lower quartile, median and upper quartile; NaN
/// values are left out.
fn spread(values: &[f64]) -> [f64; 5] {
    let mut values: Vec<f64> = values.iter().copied().filter(|v| !v.is_nan()).collect();
    if values.is_empty() {
        return [f64::NAN; 5];
    }
    values.sort_unstable_by(f64::total_cmp);
    let count = values.len() as f64;
    let mean = values.iter().sum::<f64>() / count;
    let squares: f64 = values.iter().map(|v| (v - mean).powi(2)).sum();
    let [q1, median, q3] = [0.25, 0.5, 0.75].map(|share| {
        let position = share * (count - 1.0);
        let below = position.floor() as usize;
        let above = values[(below + 1).min(values.len() - 1)];
        values[below] + position.fract() * (above - values[below])
    });
    [
        mean,
        (squares / (count - 1.0).max(1.0)).sqrt(),
        q1,
        median,
        q3,
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spread_matches_numpy() {
        // numpy: mean 4, std(ddof=1) 3.1622776601683795, percentiles 25, 50, 75.
        assert_eq!(
            spread(&[1.0, 9.0, 3.0, 5.0, 2.0]),
            [4.0, 10.0_f64.sqrt(), 2.0, 3.0, 5.0]
        );
        assert_eq!(spread(&[1.0, 2.0]), [1.5, 0.5_f64.sqrt(), 1.25, 1.5, 1.75]);
        assert_eq!(spread(&[7.0]), [7.0, 0.0, 7.0, 7.0, 7.0]);
        assert_eq!(spread(&[f64::NAN, 7.0])[0], 7.0);
        assert!(spread(&[]).iter().all(|v| v.is_nan()));
    }
}
