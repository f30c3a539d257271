//! Sites with a deliberately planted leak: `isotropic-gaussian` over tables implemented again.

use eigenveil_audit::{Device, DeviceOutput, PairKind, Table};
use eigenveil_shared::{
    Result,
    codec::encode_site_report,
    mechanism::{SamplingCost, double_cap::expand},
    packed::{PackedSymmetric, packed_index},
    preprocess::Row,
    report::{Report, ReportId},
    site_study::SiteStudyParams,
    study::Fingerprint,
};
use rand::{Rng, rngs::ChaCha20Rng};

/// Rows e₁ that a site with [`TableLeak::SumInF32`] has beside its table, 2²⁶ + 4: there every eighth whole number is an
/// f32, and one row more crosses the middle between two of them.
const ROWS_BEFORE_F32: f64 = 67_108_868.0;
/// Sum of the rows that a site with [`TableLeak::RowsOf26Bits`] has beside its table: in whole numbers, 2⁶³ less half a
/// row e₁.
const SUM_BEFORE_26_BITS: i64 = i64::MAX - (1 << 51) + 1;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TableLeak {
    /// No leak.
    None,
    /// The time in the identifier is the number of complete rows.
    CountInTheHeader,
    /// Each column is standardised by the table's own mean and standard deviation.
    OwnZScores,
    /// A missing cell becomes the mean of its column.
    OwnMeans,
    /// The sum passes through an f32, as the numbers of a single row's report do, and the noise is added to it in f64.
    SumInF32,
    /// A retry draws the noise again: the average of both reports.
    FreshNoiseOnRetry,
    /// Rows are rounded to 26 bits, so that their sums outgrow an i64.
    RowsOf26Bits,
    /// The rows of a person are not divided by the root of their number.
    RowsNotDivided,
    /// A table without a usable row sends zeros.
    SilentIfUnusable,
    /// A person has the row e₁ twice, in a study that protects rows.
    RowTwice,
}

impl TableLeak {
    /// Each with the pair that shows it.
    pub(crate) const ALL: [(Self, PairKind); 9] = [
        (Self::CountInTheHeader, PairKind::RowUnusable),
        (Self::OwnZScores, PairKind::RowReplaced),
        (Self::OwnMeans, PairKind::RowReplaced),
        (Self::SumInF32, PairKind::AllUnusable),
        (Self::FreshNoiseOnRetry, PairKind::RowAdded),
        (Self::RowsOf26Bits, PairKind::AllUnusable),
        (Self::RowsNotDivided, PairKind::PersonAdded),
        (Self::SilentIfUnusable, PairKind::AllUnusable),
        (Self::RowTwice, PairKind::RowAdded),
    ];

    pub(crate) fn site(self, params: &SiteStudyParams) -> Box<dyn Device<Table>> {
        Box::new(LeakySite {
            leak: self,
            fingerprint: params.fingerprint(),
            params: params.clone(),
        })
    }
}

struct LeakySite {
    leak: TableLeak,
    fingerprint: Fingerprint,
    params: SiteStudyParams,
}

/// The contents of a table.
struct Sum {
    moment: PackedSymmetric,
    count: f64,
    usable: u64,
}

impl Device<Table> for LeakySite {
    fn report(&self, table: &Table, rng: &mut ChaCha20Rng) -> Result<DeviceOutput> {
        let table = self.altered(table);
        let mut sum = self.sum(&table)?;
        match self.leak {
            TableLeak::SumInF32 => {
                sum.moment.as_mut_slice()[0] += ROWS_BEFORE_F32;
                for entry in sum.moment.as_mut_slice() {
                    *entry = f64::from(*entry as f32);
                }
            }
            TableLeak::RowsOf26Bits => sum.moment = self.sum_of_26_bits(&table)?,
            _ => {}
        }
        let numbers = match self.leak {
            TableLeak::SilentIfUnusable if sum.usable == 0 => {
                vec![0; sum.moment.as_slice().len() + 1]
            }
            TableLeak::FreshNoiseOnRetry => {
                let (first, second) = (self.noisy(&sum, rng), self.noisy(&sum, rng));
                let both = first.iter().zip(&second);
                both.map(|(first, second)| (first + second) / 2).collect()
            }
            _ => self.noisy(&sum, rng),
        };
        let mut random = [0; 16];
        rng.fill_bytes(&mut random);
        let time = match self.leak {
            // Identifiers keep time without its last 16 bits.
            TableLeak::CountInTheHeader => sum.usable << 16,
            _ => 0,
        };
        let bytes = encode_site_report(&Report {
            id: ReportId::from_parts(time, random),
            fingerprint: self.fingerprint,
            payload: numbers.iter().flat_map(|n| n.to_le_bytes()).collect(),
        });
        let work = SamplingCost {
            attempts: 1,
            words: numbers.len() as u64,
        };
        Ok(DeviceOutput { bytes, work })
    }
}

impl LeakySite {
    /// The raw table that the site reports in place of its own.
    fn altered(&self, table: &Table) -> Table {
        let mut table = table.clone();
        match self.leak {
            TableLeak::OwnZScores => {
                let columns = columns_of(&table);
                change(&mut table, |column, value| {
                    let (mean, deviation) = columns[column];
                    (value - mean) / deviation
                });
            }
            TableLeak::OwnMeans => {
                let columns = columns_of(&table);
                change(&mut table, |column, value| match value.is_nan() {
                    true => columns[column].0,
                    false => value,
                });
            }
            TableLeak::RowTwice => {
                let is_axis = |row: &&Row| row.values()[0] == 1.0;
                let again: Vec<Row> = table.rows.iter().filter(is_axis).cloned().collect();
                table.rows.extend(again);
            }
            _ => {}
        }
        table
    }

    fn sum(&self, table: &Table) -> Result<Sum> {
        let preprocessor = self.params.preprocessing().preprocessor()?;
        let mut sum = Sum {
            moment: PackedSymmetric::zeros(self.params.report_dimension()),
            count: 0.0,
            usable: 0,
        };
        for (row, part) in table.rows.iter().zip(table.parts(&self.params)) {
            let part = match self.leak {
                TableLeak::RowsNotDivided if part > 0.0 => 1.0,
                _ => part,
            };
            if let (bounded, None) = preprocessor.prepare_with_warning(row)? {
                sum.moment.add_outer(bounded.as_slice(), part);
                sum.count += part;
                sum.usable += 1;
            }
        }
        Ok(sum)
    }

    /// Σxxᵀ of rows in whole numbers of 26 bits, and of the rows beside the table.
    fn sum_of_26_bits(&self, table: &Table) -> Result<PackedSymmetric> {
        let preprocessor = self.params.preprocessing().preprocessor()?;
        let p = self.params.report_dimension();
        let mut moment = PackedSymmetric::zeros(p);
        let mut sums = vec![0_i64; moment.as_slice().len()];
        sums[0] = SUM_BEFORE_26_BITS;
        for row in &table.rows {
            let (bounded, None) = preprocessor.prepare_with_warning(row)? else {
                continue;
            };
            let u = bounded
                .as_slice()
                .iter()
                .map(|x| (x * f64::from(1 << 26)).round());
            let u: Vec<i64> = u.map(|u| u as i64).collect();
            for i in 0..p {
                for j in i..p {
                    let sum = &mut sums[packed_index(p, i, j)];
                    *sum = sum.wrapping_add(u[i] * u[j]);
                }
            }
        }
        for (entry, sum) in moment.as_mut_slice().iter_mut().zip(sums) {
            *entry = sum as f64 / (1_u64 << 52) as f64;
        }
        Ok(moment)
    }

    /// The numbers of a report: with noise, on the grid of the mechanism.
    fn noisy(&self, sum: &Sum, rng: &mut ChaCha20Rng) -> Vec<i64> {
        let sigma = self.params.mechanism().count_sd();
        let off_diagonal = sigma * std::f64::consts::FRAC_1_SQRT_2;
        let step = off_diagonal.log2().floor().exp2() / 64.0;
        let p = sum.moment.dimension();
        let deviations = (0..p)
            .flat_map(|i| (i..p).map(move |j| if i == j { sigma } else { off_diagonal }))
            .chain([sigma]);
        let mut z = vec![0.0; sum.moment.as_slice().len() + 1];
        let mut seed = [0; 16];
        rng.fill_bytes(&mut seed);
        expand(&seed, &mut z);
        let values = sum.moment.as_slice().iter().chain([&sum.count]);
        values
            .zip(deviations)
            .zip(&z)
            .map(|((value, deviation), z)| ((value + deviation * z) / step).round() as i64)
            .collect()
    }
}

/// Mean and standard deviation of the numbers in each column.
fn columns_of(table: &Table) -> Vec<(f64, f64)> {
    let p = table.rows[0].values().len();
    let column = |at: usize| {
        let values = table.rows.iter().map(|row| row.values()[at]);
        let numbers: Vec<f64> = values.filter(|value| value.is_finite()).collect();
        let count = numbers.len() as f64;
        let mean = numbers.iter().sum::<f64>() / count;
        let squares = numbers.iter().map(|value| (value - mean).powi(2));
        (mean, (squares.sum::<f64>() / count).sqrt())
    };
    (0..p).map(column).collect()
}

/// Replaces each value, of which `change` gets the column.
fn change(table: &mut Table, change: impl Fn(usize, f64) -> f64) {
    for row in &mut table.rows {
        let values = row.values().iter().enumerate();
        *row = Row::new(
            values
                .map(|(column, value)| change(column, *value))
                .collect(),
        );
    }
}
