//! Centers and scales of a study's features, from public rows or published statistics.

use eigenveil_shared::{
    Result,
    preprocess::{Feature, LengthShares, MAX_CENTER, OBSERVED_RANGE},
    wording::{MAX_NAMED, first_few, percent},
};
use serde::{Deserialize, Serialize};

use super::{
    missing::{sections, shares_of_sections},
    sample::PublicRows,
    target::reject,
};

/// A spread of at most this share of the mean (a few units in the last place) is only rounding: all values count as
/// equal.
const MAX_ROUNDING: f64 = 4.0 * f64::EPSILON;
/// Fourth moment, in squares of the variance, from which tails are called heavy: a normal column has 3. Of six such
/// columns of published tables, 800 rows gave scales within two standard errors in 51 to 94 of a hundred draws
/// (docs/tables.md, "Heavy tails").
const HEAVY_TAILS: f64 = 20.0;

/// One column with its constants.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Column {
    /// Name, center and scale.
    #[serde(flatten)]
    pub feature: Feature,
    /// Where center and scale come from.
    pub reason: String,
    /// The scale of all people like the public ones is within this factor in 19 of 20 cases, where tails are not heavy;
    /// `null` without rows, for a column of equal values, and for categories with a common scale.
    pub scale_factor: Option<f64>,
    /// Share of the squared length of the raw rows.
    pub share_of_squared_length: f64,
    /// Share of the squared length of the mean of the raw rows.
    pub share_of_squared_mean: f64,
}

#[derive(Debug)]
pub(super) struct ColumnStatistics {
    pub(super) name: String,
    pub(super) mean: f64,
    pub(super) deviation: f64,
    /// Where mean and scale come from.
    source: String,
    category_of: Option<usize>,
    /// Share of the people who have a value.
    pub(super) observed: f64,
    /// Name of the section whose cells are missing together.
    pub(super) section: Option<String>,
    /// How far its values are spread, where there are rows.
    tails: Option<Tails>,
}

/// The tails of a column of public rows.
#[derive(Clone, Copy, Debug)]
struct Tails {
    /// People with a value.
    people: f64,
    /// Fourth moment around the mean, in squares of the variance.
    fourth: f64,
    /// Share of the variance that one row has alone.
    largest: f64,
    /// Whether there are more than two values.
    many_values: bool,
}

impl Tails {
    /// The factor within which the standard deviation of all people is, to two standard errors.
    fn scale_factor(self) -> f64 {
        (2.0 * (0.25 * (self.fourth - 1.0).max(0.0) / self.people).sqrt()).exp()
    }

    fn are_heavy(self) -> bool {
        self.many_values && self.fourth >= HEAVY_TAILS
    }
}

/// Running sums of a column.
#[derive(Clone, Copy, Default)]
struct Sums {
    weight: f64,
    mean: f64,
    square: f64,
    missing: usize,
    /// Its first value, and whether another one differs from it.
    first: Option<f64>,
    second: Option<f64>,
    many_values: bool,
    fourth: f64,
    largest: f64,
}

impl Sums {
    /// Welford's sums: the mean of equal values is that value, to the bit.
    fn add(&mut self, x: f64, weight: f64) {
        if x.is_nan() {
            self.missing += 1;
            return;
        }
        let first = *self.first.get_or_insert(x);
        if x != first {
            let second = *self.second.get_or_insert(x);
            self.many_values |= x != second;
        }
        self.weight += weight;
        let from_mean = x - self.mean;
        self.mean += from_mean * weight / self.weight;
        self.square += weight * from_mean * (x - self.mean);
    }

    fn deviation(&self) -> f64 {
        (self.square / self.weight).sqrt()
    }

    /// In a second pass, with the mean and the deviation of all rows.
    fn add_to_tails(&mut self, x: f64, weight: f64, deviation: f64) {
        if !x.is_nan() && deviation > 0.0 {
            let square = ((x - self.mean) / deviation).powi(2);
            let share = weight / self.weight;
            self.fourth += share * square * square;
            self.largest = self.largest.max(share * square);
        }
    }
}

/// Means, standard deviations and shares of missing cells of public rows.
///
/// # Errors
/// `invalid-request` for a single person, who has no spread, and for columns that hardly anybody has.
pub(super) fn from_rows(public: &PublicRows<'_>) -> Result<Vec<ColumnStatistics>> {
    let (table, weights, people) = (public.table, public.weights(), public.people());
    if people < 2 {
        return reject(
            "the table has the rows of one person, and one person has no spread; give the rows of at least two",
        );
    }
    let mut sums = vec![Sums::default(); table.columns];
    for (index, &weight) in weights.iter().enumerate() {
        let row = (table.row)(index);
        for (sums, &x) in sums.iter_mut().zip(row.values()) {
            sums.add(x, weight);
        }
    }
    let total = people as f64;
    let observed = sums.iter().map(|sums| match sums.missing {
        0 => 1.0,
        _ => sums.weight / total,
    });
    let observed: Vec<f64> = observed.collect();
    check_observed(public, &observed)?;
    let deviations: Vec<f64> = sums.iter().map(Sums::deviation).collect();
    for (index, &weight) in weights.iter().enumerate() {
        let row = (table.row)(index);
        for ((sums, &x), &deviation) in sums.iter_mut().zip(row.values()).zip(&deviations) {
            sums.add_to_tails(x, weight, deviation);
        }
    }
    let missing: Vec<usize> = (0..table.columns)
        .filter(|&column| sums[column].missing > 0)
        .collect();
    let sections = sections(table, &missing);
    let observed = shares_of_sections(&observed, &sections);
    let source = match public.persons {
        None => format!("of {people} public rows"),
        Some(_) => format!("of the public rows of {people} persons, who count alike"),
    };
    let columns = public.columns.iter().zip(&sums).enumerate();
    let columns = columns.map(|(at, (column, sums))| ColumnStatistics {
        name: column.name.clone(),
        mean: sums.mean,
        deviation: deviations[at],
        source: source.clone(),
        category_of: column.category_of,
        observed: observed[at],
        section: sections[at].map(|first| public.columns[first].name.clone()),
        tails: Some(Tails {
            people: sums.weight,
            fourth: sums.fourth,
            largest: sums.largest,
            many_values: sums.many_values,
        }),
    });
    Ok(columns.collect())
}

/// Refuses columns that fewer people have than a study allows.
fn check_observed(public: &PublicRows<'_>, observed: &[f64]) -> Result<()> {
    let least = *OBSERVED_RANGE.start();
    let columns = public.columns.iter().zip(observed);
    let seldom = columns.filter(|(_, share)| **share < least);
    let seldom = seldom.map(|(column, share)| format!("{:?} ({})", column.name, percent(*share)));
    let seldom: Vec<String> = seldom.collect();
    if seldom.is_empty() {
        return Ok(());
    }
    let named = first_few(seldom.into_iter(), MAX_NAMED, |more| {
        format!(" and {more} more")
    });
    reject(format!(
        "too few people have a value of {named}; a study needs {} of them: leave such columns out with `drop`",
        percent(least)
    ))
}

/// A warning that names the columns with heavy tails.
pub(super) fn heavy_tails_warning(statistics: &[ColumnStatistics]) -> Option<String> {
    let heavy = statistics.iter().filter_map(|column| {
        let tails = column.tails.filter(|tails| tails.are_heavy())?;
        let (name, largest) = (&column.name, percent(tails.largest));
        Some(format!("{name:?} (one row has {largest} of its variance)"))
    });
    let heavy: Vec<String> = heavy.collect();
    if heavy.is_empty() {
        return None;
    }
    let named = first_few(heavy.into_iter(), MAX_NAMED, |more| {
        format!(" and {more} more")
    });
    Some(format!(
        "heavy tails: {named}. A few rows make the scale, so that of all people may be further off than by the factor given, and nearly everybody is close to the center. Where ratios matter more than differences (money, durations), a column of logarithms, here and on every device, may show more"
    ))
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
            (Some(mean), Some(sd), None, None) => (mean, sd, "as described".to_owned()),
            // A range alone suggests a uniform distribution.
            (None, None, Some(min), Some(max)) => (
                0.5 * (min + max),
                (max - min) / 12_f64.sqrt(),
                format!("of a column spread evenly from {min} to {max}"),
            ),
            _ => {
                return reject(format!(
                    "{name:?} must have either mean and sd or min and max, and not both"
                ));
            }
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
            observed: 1.0,
            section: None,
            tails: None,
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
    let may_be_missing = statistics.iter().any(|column| column.observed < 1.0);
    let columns: Vec<Column> = statistics
        .iter()
        .zip(&shares.columns)
        .map(|(column, &share)| {
            let (center, scale, reason) = constants(column, statistics);
            let own_scale = column.category_of.is_none() && column.deviation > 0.0;
            let tails = column.tails.filter(|_| own_scale);
            Column {
                feature: Feature {
                    observed: may_be_missing.then(|| rounded(column.observed)),
                    section: column.section.clone(),
                    ..Feature::new(&column.name, center, scale)
                },
                reason,
                scale_factor: tails.map(|tails| rounded(tails.scale_factor())),
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
pub(crate) fn rounded(x: f64) -> f64 {
    format!("{x:.2e}").parse().unwrap_or(x)
}

/// Rounded to about a hundredth of the scale.
pub(crate) fn round_to_scale(x: f64, scale: f64) -> f64 {
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

    use super::{super::sample::PublicColumn, *};
    use crate::Table;

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
        of_persons(values, None)
    }

    fn of_persons(values: &[f64], persons: Option<&[Vec<usize>]>) -> Result<Vec<ColumnStatistics>> {
        let name = PublicColumn {
            name: "a".to_owned(),
            category_of: None,
        };
        from_rows(&PublicRows {
            table: Table {
                len: values.len(),
                columns: 1,
                row: &|index| Row::new(vec![values[index]]),
            },
            columns: &[name],
            persons,
        })
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

    /// Nine rows of one person and one of another: each is half of the sample.
    #[test]
    fn persons_count_alike() {
        let values = [[1.0; 9].as_slice(), &[3.0]].concat();
        let persons: [Vec<usize>; 2] = [(0..9).collect(), vec![9]];
        let statistics = of_persons(&values, Some(&persons[..])).unwrap();
        assert!((statistics[0].mean - 2.0).abs() < 1e-12);
        assert!((statistics[0].deviation - 1.0).abs() < 1e-12);
        assert_eq!(statistics[0].observed, 1.0);
        let one: [Vec<usize>; 1] = [(0..10).collect()];
        assert!(of_persons(&values, Some(&one[..])).is_err());
    }

    /// Two standard errors of the logarithm of a standard deviation: ½√((κ − 1)/n) each, κ = 1.8 for a uniform column.
    #[test]
    fn a_scale_is_known_to_a_factor_and_heavy_tails_are_named() {
        let even: Vec<f64> = (0..200).map(f64::from).collect();
        let factor = |values: &[f64]| {
            let statistics = of_values(values).unwrap();
            let heavy = heavy_tails_warning(&statistics);
            (statistics[0].tails.unwrap().scale_factor(), heavy)
        };
        let (known, heavy) = factor(&even);
        assert!((known - (0.8_f64 / 200.0).sqrt().exp()).abs() < 1e-3 && heavy.is_none());
        let few: Vec<f64> = (0..20).map(f64::from).collect();
        assert!(factor(&few).0 > 1.2);
        let mut spending: Vec<f64> = (0..200).map(|i| f64::from(i % 50)).collect();
        spending[7] = 2_000.0;
        let (known, heavy) = factor(&spending);
        assert!(
            known > 1.5 && heavy.unwrap().contains("\"a\" (one row has 98"),
            "{known}"
        );
        // Few have one of two values: that is no tail.
        let rare: Vec<f64> = (0..200).map(|i| f64::from(u8::from(i < 3))).collect();
        assert_eq!(factor(&rare).1, None);
    }

    #[test]
    fn a_column_that_hardly_anybody_has_is_refused() {
        let mut values = [f64::NAN; 40];
        values[..3].copy_from_slice(&[1.0, 2.0, 4.0]);
        let error = of_values(&values).unwrap_err().to_string();
        assert!(
            error.contains("\"a\" (7.5 %)") && error.contains("`drop`"),
            "{error}"
        );
        values[3] = 5.0;
        let statistics = of_values(&values).unwrap();
        assert_eq!(statistics[0].observed, 0.1);
        assert!((statistics[0].mean - 3.0).abs() < 1e-12);
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
            [Some(1.0), Some(2.0), Some(0.0), Some(3.0)],
        ] {
            assert!(described("a", bad).is_err(), "{bad:?}");
        }
    }
}
