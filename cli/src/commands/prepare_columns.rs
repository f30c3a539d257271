//! Centers and scales of a study's features, from public rows or published statistics.

use std::path::Path;

use eigenveil_shared::preprocess::{Feature, MAX_CENTER};
use serde::{Deserialize, Serialize};

use crate::{
    error::{CliError, Result},
    files,
    rows::RowTable,
    shares::LengthShares,
};

/// A spread of at most this share of the mean, a few units in its last place, is rounding: all values are equal.
const MAX_ROUNDING: f64 = 4.0 * f64::EPSILON;

/// One column with its constants.
#[derive(Serialize)]
pub(super) struct Column {
    #[serde(flatten)]
    pub(super) feature: Feature,
    pub(super) reason: String,
    /// Share of the squared length of the raw rows.
    pub(super) share_of_squared_length: f64,
    /// Share of the squared length of the mean of the raw rows.
    pub(super) share_of_squared_mean: f64,
}

pub(super) struct ColumnStatistics {
    pub(super) name: String,
    pub(super) mean: f64,
    pub(super) deviation: f64,
    /// Where mean and scale come from.
    source: String,
    /// The column of text that it is a category of: the categories have one scale.
    text_column: Option<usize>,
}

/// Means and standard deviations of public rows.
/// Wrong usage for a single row, which has no spread.
pub(super) fn from_rows(table: &RowTable) -> Result<Vec<ColumnStatistics>> {
    if table.len() < 2 {
        return Err(CliError::usage(
            "it has one row, and one row has no spread; give at least two public rows",
        ));
    }
    // Welford's sums: the mean of equal values is that value, to the bit.
    let (mut means, mut squares) = (vec![0.0; table.dimension()], vec![0.0; table.dimension()]);
    for index in 0..table.len() {
        let count = index as f64 + 1.0;
        let row = table.row(index);
        for ((mean, square), x) in means.iter_mut().zip(&mut squares).zip(row.values()) {
            let from_mean: f64 = x - *mean;
            *mean += from_mean / count;
            *square += from_mean * (x - *mean);
        }
    }
    let source = format!("of {} public rows", table.len());
    let column = |(at, (mean, square)): (usize, (f64, f64))| ColumnStatistics {
        name: table
            .names()
            .map_or_else(|| format!("column_{}", at + 1), |names| names[at].clone()),
        mean,
        deviation: (square / table.len() as f64).sqrt(),
        source: source.clone(),
        text_column: table.is_category(at).then(|| table.taken()[at]),
    };
    let columns = means.into_iter().zip(squares).enumerate();
    Ok(columns.map(column).collect())
}

/// A line of a description.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct DescriptionLine {
    name: String,
    mean: Option<f64>,
    sd: Option<f64>,
    min: Option<f64>,
    max: Option<f64>,
}

pub(super) fn from_description(path: &Path) -> Result<Vec<ColumnStatistics>> {
    let refused = |why: String| {
        CliError::usage(format!(
            "{}: {why}; it must have the columns name,mean,sd or name,min,max",
            path.display()
        ))
    };
    // The text of the error may quote a cell: a value, if it is a table of rows.
    let unlike = |error: csv::Error| {
        let line = error.position().map_or(1, csv::Position::line);
        refused(format!("line {line} is not a column's description"))
    };
    let text = files::read_text(path)?;
    let mut statistics = Vec::new();
    let mut reader = csv::ReaderBuilder::new();
    let mut reader = reader.trim(csv::Trim::All).from_reader(text.as_bytes());
    for line in reader.deserialize() {
        let line: DescriptionLine = line.map_err(unlike)?;
        let (mean, deviation, source) = match (line.mean, line.sd, line.min, line.max) {
            (Some(mean), Some(sd), _, _) => (mean, sd, "as described".to_owned()),
            // A range alone suggests a uniform distribution.
            (_, _, Some(min), Some(max)) => (
                0.5 * (min + max),
                (max - min) / 12_f64.sqrt(),
                format!("of a column spread evenly from {min} to {max}"),
            ),
            _ => {
                return Err(refused(format!(
                    "{:?} has neither mean and sd nor min and max",
                    line.name
                )));
            }
        };
        // Written so that NaN fails.
        if !(mean.is_finite() && deviation.is_finite() && deviation >= 0.0) {
            return Err(refused(format!(
                "{:?} has a number that is not finite, a negative sd or a max below its min",
                line.name
            )));
        }
        statistics.push(ColumnStatistics {
            name: line.name,
            mean,
            deviation,
            source,
            text_column: None,
        });
    }
    if statistics.is_empty() {
        return Err(refused("it has no lines".to_owned()));
    }
    Ok(statistics)
}

/// Constants of few digits, and where they come from.
/// Wrong usage that names the columns whose spread is too small beside their values for any study.
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
    Err(CliError::usage(format!(
        "{}: a study's center is at most {MAX_CENTER:.1e} scales from 0; count from another origin, here and on every device (subtract about that value first)",
        flat.join("; ")
    )))
}

fn constants(column: &ColumnStatistics, all: &[ColumnStatistics]) -> (f64, f64, String) {
    let (mean, from) = (column.mean, &column.source);
    if column.deviation <= MAX_ROUNDING * mean.abs() {
        // As wide as a center so far from 0 needs it.
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
    let (deviation, why) = match column.text_column {
        None => (
            column.deviation,
            "center and scale are the mean and standard deviation",
        ),
        Some(of) => {
            let group = all.iter().filter(|c| c.text_column == Some(of));
            let squared: f64 = group.map(|c| c.deviation * c.deviation).sum();
            (
                squared.sqrt(),
                "center is the share of the category; all categories of the column have the scale with which they count as one column,",
            )
        }
    };
    let scale = rounded(deviation);
    (round_to_scale(mean, scale), scale, format!("{why} {from}"))
}

/// Three significant digits: a constant that people can read and type.
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
    use super::*;
    use crate::error::assert_says;

    fn described(text: &str) -> Result<Vec<ColumnStatistics>> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("columns.csv");
        std::fs::write(&path, text).unwrap();
        from_description(&path)
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

    /// What a study may have is used: milliseconds since 1970 with a spread of 1500, and no more than that.
    #[test]
    fn a_spread_counts_as_long_as_a_study_may_have_it() {
        let of = |text: &str| {
            let statistics = described(text).unwrap();
            let zeros = vec![0.0; statistics.len()];
            columns(&statistics, &LengthShares::from_moments(&zeros, &zeros))
        };
        let columns = of("name,mean,sd\ntime,1.7e12,1500\nconstant,1.7e12,0\nseven,7,0\n").unwrap();
        let features = columns.iter().map(|c| (c.feature.center, c.feature.scale));
        assert!(features.eq([(1.7e12, 1500.0), (1.7e12, 1000.0), (7.0, 1.0)]));
        let error = of("name,mean,sd\ntime,1.7e12,300\nheight,1,1\nday,-5e13,2\n");
        let error = error.err().unwrap().to_string();
        assert_says(
            &error,
            &["\"time\" varies by 300 around 1700000000000", "\"day\""],
            &["height"],
        );
    }

    /// Equal values have exactly their value for a center, whatever rounding a sum of them has.
    #[test]
    fn constants_are_exact() {
        for value in [7.0, 0.1, -1.7e12] {
            let table = RowTable::new(1, vec![value; 1000], None).unwrap();
            let statistics = from_rows(&table).unwrap();
            assert_eq!((statistics[0].mean, statistics[0].deviation), (value, 0.0));
        }
        let values = (0..1000).map(|i| 1.7e12 + 1500.0 * f64::from(i % 2 * 2 - 1));
        let table = RowTable::new(1, values.collect(), None).unwrap();
        let statistics = from_rows(&table).unwrap();
        assert_eq!(rounded(statistics[0].deviation), 1500.0);
        assert!(from_rows(&RowTable::new(2, vec![1.0, 2.0], None).unwrap()).is_err());
    }

    #[test]
    fn a_column_is_described_by_range_or_mean_and_sd() {
        let statistics =
            described("name,mean,sd,min,max\nheight,170,10,,\nshare,,,0,12\n").unwrap();
        assert_eq!((statistics[0].mean, statistics[0].deviation), (170.0, 10.0));
        assert_eq!(statistics[1].mean, 6.0);
        assert!((statistics[1].deviation - 12_f64.sqrt()).abs() < 1e-12);
        for bad in [
            "name,mean\na,1\n",
            "name,mean,sd\na,1,-2\n",
            "name,min,max\na,2,1\n",
            "name,mean,sd\n",
        ] {
            assert!(described(bad).is_err(), "{bad}");
        }
        // A table of rows by mistake.
        for (bad, line) in [
            ("8641.25,SECRETNAME\n1,2\n", "line 2"),
            ("name,mean,sd\nSECRETNAME,8641.25,x8641\n", "line 2"),
            ("name,mean,sd\na,1,2\nSECRETNAME,8641.25\n", "line 3"),
        ] {
            let error = described(bad).err().unwrap().to_string();
            assert_says(&error, &[line], &["SECRET", "8641"]);
        }
    }
}
