//! Centers and scales of a study's features, from public rows or published statistics.

use eigenveil_shared::{
    Result,
    preprocess::{Feature, LengthShares, MAX_CENTER},
};
use serde::{Deserialize, Serialize};

use super::target::reject;
use crate::Table;

/// A spread of at most this share of the mean (a few units in the last place) is only rounding: all values count as
/// equal.
const MAX_ROUNDING: f64 = 4.0 * f64::EPSILON;

/// A column of public rows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PublicColumn {
    /// The name of its feature.
    pub name: String,
    /// Number of the column of text of which this is a category; all categories of a column share one scale.
    pub category_of: Option<usize>,
}

/// One column with its constants.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Column {
    /// Name, center and scale.
    #[serde(flatten)]
    pub feature: Feature,
    /// Where center and scale come from.
    pub reason: String,
    /// Share of the squared length of the raw rows.
    pub share_of_squared_length: f64,
    /// Share of the squared length of the mean of the raw rows.
    pub share_of_squared_mean: f64,
}

pub(super) struct ColumnStatistics {
    pub(super) name: String,
    pub(super) mean: f64,
    pub(super) deviation: f64,
    /// Where mean and scale come from.
    source: String,
    category_of: Option<usize>,
}

/// Means and standard deviations of public rows.
///
/// # Errors
/// `invalid-request` for a single row, which has no spread.
pub(super) fn from_rows(names: &[PublicColumn], table: Table<'_>) -> Result<Vec<ColumnStatistics>> {
    if table.len < 2 {
        return reject(
            "the table has one row, and one row has no spread; give at least two public rows",
        );
    }
    // Welford's sums: the mean of equal values is that value, to the bit.
    let (mut means, mut squares) = (vec![0.0; table.columns], vec![0.0; table.columns]);
    for index in 0..table.len {
        let count = index as f64 + 1.0;
        let row = (table.row)(index);
        for ((mean, square), x) in means.iter_mut().zip(&mut squares).zip(row.values()) {
            let from_mean: f64 = x - *mean;
            *mean += from_mean / count;
            *square += from_mean * (x - *mean);
        }
    }
    let source = format!("of {} public rows", table.len);
    let columns = names.iter().zip(means.into_iter().zip(squares));
    let columns = columns.map(|(column, (mean, square))| ColumnStatistics {
        name: column.name.clone(),
        mean,
        deviation: (square / table.len as f64).sqrt(),
        source: source.clone(),
        category_of: column.category_of,
    });
    Ok(columns.collect())
}

/// A column as data sheets describe it: by mean and standard deviation, or by its range.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ColumnDescription {
    /// The name of its feature.
    pub name: String,
    /// Mean.
    pub mean: Option<f64>,
    /// Standard deviation.
    pub sd: Option<f64>,
    /// Smallest value.
    pub min: Option<f64>,
    /// Largest value.
    pub max: Option<f64>,
}

impl ColumnDescription {
    pub(super) fn statistics(&self) -> Result<ColumnStatistics> {
        let name = &self.name;
        let (mean, deviation, source) = match (self.mean, self.sd, self.min, self.max) {
            (Some(mean), Some(sd), _, _) => (mean, sd, "as described".to_owned()),
            // A range alone suggests a uniform distribution.
            (_, _, Some(min), Some(max)) => (
                0.5 * (min + max),
                (max - min) / 12_f64.sqrt(),
                format!("of a column spread evenly from {min} to {max}"),
            ),
            _ => return reject(format!("{name:?} has neither mean and sd nor min and max")),
        };
        // Written so that NaN fails.
        if !(mean.is_finite() && deviation.is_finite() && deviation >= 0.0) {
            return reject(format!(
                "{name:?} has a number that is not finite, a negative sd or a max below its min"
            ));
        }
        Ok(ColumnStatistics {
            name: name.clone(),
            mean,
            deviation,
            source,
            category_of: None,
        })
    }
}

/// Centers and scales of few digits, with the reason for each.
///
/// # Errors
/// `invalid-request`, naming the columns whose spread is too small relative to their values for any study.
pub(super) fn columns(
    statistics: &[ColumnStatistics],
    shares: &LengthShares,
) -> Result<Vec<Column>> {
    let squared: f64 = statistics.iter().map(|c| c.mean * c.mean).sum();
    let columns: Vec<Column> = statistics
        .iter()
        .zip(&shares.columns)
        .map(|(column, &share)| {
            let (center, scale, reason) = constants(column, statistics);
            Column {
                feature: Feature::new(&column.name, center, scale),
                reason,
                share_of_squared_length: share,
                share_of_squared_mean: match squared > 0.0 {
                    true => column.mean * column.mean / squared,
                    false => 0.0,
                },
            }
        })
        .collect();
    let flat = columns.iter().filter_map(|column| {
        let (center, scale) = (column.feature.center, column.feature.scale);
        let says = || {
            format!(
                "{:?} varies by {scale} around {center}",
                column.feature.name
            )
        };
        (center.abs() > MAX_CENTER * scale).then(says)
    });
    let flat: Vec<String> = flat.collect();
    if flat.is_empty() {
        return Ok(columns);
    }
    reject(format!(
        "{}: a study's center is at most {MAX_CENTER:.1e} scales from 0; count from another origin, here and on every device (subtract about that value first)",
        flat.join("; ")
    ))
}

fn constants(column: &ColumnStatistics, all: &[ColumnStatistics]) -> (f64, f64, String) {
    let (mean, from) = (column.mean, &column.source);
    if column.deviation <= MAX_ROUNDING * mean.abs() {
        // The smallest power of ten that a center so far from 0 allows.
        let scale = match mean.abs() / MAX_CENTER {
            least if least > 1.0 => 10_f64.powf(least.log10().ceil()),
            _ => 1.0,
        };
        let why = "which says nothing about other values";
        return (
            mean,
            scale,
            format!("center is its only value, {from}, {why}"),
        );
    }
    let (deviation, why) = match column.category_of {
        None => (
            column.deviation,
            "center and scale are the mean and standard deviation",
        ),
        Some(of) => {
            let group = all.iter().filter(|c| c.category_of == Some(of));
            let squared: f64 = group.map(|c| c.deviation * c.deviation).sum();
            (
                squared.sqrt(),
                "center is the share of the category; the categories of the column share the scale at which they together count as one column,",
            )
        }
    };
    let scale = rounded(deviation);
    (round_to_scale(mean, scale), scale, format!("{why} {from}"))
}

/// Rounded to three significant digits, so that people can read and type it.
pub(super) fn rounded(x: f64) -> f64 {
    format!("{x:.2e}").parse().unwrap_or(x)
}

/// Rounded to about a hundredth of the scale.
fn round_to_scale(x: f64, scale: f64) -> f64 {
    let digits = 2.0 - scale.log10().floor();
    if (0.0..=15.0).contains(&digits) {
        // Adding 0 makes −0 a 0.
        format!("{x:.*}", digits as usize).parse().unwrap_or(x) + 0.0
    } else if digits < 0.0 {
        let step = 10_f64.powf(-digits);
        (x / step).round() * step + 0.0
    } else {
        x
    }
}

#[cfg(test)]
mod tests {
    use eigenveil_shared::preprocess::Row;

    use super::*;

    fn described(name: &str, [mean, sd, min, max]: [Option<f64>; 4]) -> Result<ColumnStatistics> {
        let name = name.to_owned();
        ColumnDescription {
            name,
            mean,
            sd,
            min,
            max,
        }
        .statistics()
    }

    fn of_values(values: &[f64]) -> Result<Vec<ColumnStatistics>> {
        let name = PublicColumn {
            name: "a".to_owned(),
            category_of: None,
        };
        let table = Table {
            len: values.len(),
            columns: 1,
            row: &|index| Row::new(vec![values[index]]),
        };
        from_rows(&[name], table)
    }

    #[test]
    fn constants_are_rounded_to_few_digits() {
        assert_eq!((rounded(3.5240), rounded(0.001_234_5)), (3.52, 0.00123));
        assert_eq!(round_to_scale(14.127_291, 3.52), 14.13);
        assert_eq!(round_to_scale(880.583, 569.0), 881.0);
        assert_eq!(round_to_scale(123_456.0, 56_900.0), 123_500.0);
        for (small, scale) in [(-0.000_1, 1.0), (-3.0, 5e4)] {
            assert!(round_to_scale(small, scale).is_sign_positive());
        }
    }

    /// A column at the allowed ratio of center to scale is accepted, such as milliseconds since 1970 with a spread of
    /// 1500; a narrower one is not.
    #[test]
    fn a_spread_counts_as_long_as_a_study_may_have_it() {
        let constants_of = |lines: &[(&str, f64, f64)]| {
            let statistics = lines.iter().map(|(name, mean, sd)| {
                described(name, [Some(*mean), Some(*sd), None, None]).unwrap()
            });
            let statistics = Vec::from_iter(statistics);
            let zeros = vec![0.0; statistics.len()];
            columns(&statistics, &LengthShares::from_moments(&zeros, &zeros))
        };
        let columns = constants_of(&[
            ("time", 1.7e12, 1500.0),
            ("constant", 1.7e12, 0.0),
            ("seven", 7.0, 0.0),
        ]);
        let columns = columns.unwrap();
        let features = columns.iter().map(|c| (c.feature.center, c.feature.scale));
        assert!(features.eq([(1.7e12, 1500.0), (1.7e12, 1000.0), (7.0, 1.0)]));
        let error = constants_of(&[
            ("time", 1.7e12, 300.0),
            ("height", 1.0, 1.0),
            ("day", -5e13, 2.0),
        ]);
        let error = error.unwrap_err().to_string();
        assert!(
            error.contains("\"time\" varies by 300 around 1700000000000"),
            "{error}"
        );
        assert!(
            error.contains("\"day\"") && !error.contains("height"),
            "{error}"
        );
    }

    /// Equal values have exactly their value for a center, whatever rounding a sum of them has.
    #[test]
    fn constants_are_exact() {
        for value in [7.0, 0.1, -1.7e12] {
            let statistics = of_values(&[value; 1000]).unwrap();
            assert_eq!((statistics[0].mean, statistics[0].deviation), (value, 0.0));
        }
        let values = (0..1000).map(|i| 1.7e12 + 1500.0 * f64::from(i % 2 * 2 - 1));
        let statistics = of_values(&Vec::from_iter(values)).unwrap();
        assert_eq!(rounded(statistics[0].deviation), 1500.0);
        assert!(of_values(&[1.0]).is_err());
    }

    #[test]
    fn a_column_is_described_by_range_or_mean_and_sd() {
        let height = described("height", [Some(170.0), Some(10.0), None, None]).unwrap();
        assert_eq!((height.mean, height.deviation), (170.0, 10.0));
        let share = described("share", [None, None, Some(0.0), Some(12.0)]).unwrap();
        assert_eq!(share.mean, 6.0);
        assert!((share.deviation - 12_f64.sqrt()).abs() < 1e-12);
        for bad in [
            [Some(1.0), None, None, None],
            [Some(1.0), Some(-2.0), None, None],
            [None, None, Some(2.0), Some(1.0)],
            [Some(f64::NAN), Some(1.0), None, None],
        ] {
            assert!(described("a", bad).is_err(), "{bad:?}");
        }
    }
}
