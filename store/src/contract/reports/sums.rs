//! What a study has counted, as of one moment.

use bytes::Bytes;
use eigenveil_estimation::{SiteSum, accumulate::Accumulator};
use eigenveil_shared::{
    Result,
    codec::SiteReportFormat,
    mechanism::{Payload, double_cap::Seed, table::TablePayload},
    packed::{PackedSymmetric, packed_len},
    preparation::PreparationParams,
    site_study::SiteStudyParams,
};

use super::report::Content;
use crate::contract::failure::Failure;

/// A snapshot of a study's bucket sums. Their total, decoded, is the second-moment matrix.
#[derive(Clone, Debug, PartialEq)]
pub struct BucketSums {
    /// Reports stored.
    pub n: u64,
    /// Reports excluded from the sums because they are duplicate seeds.
    pub duplicates: u64,
    /// The sums of the buckets with reports, by bucket number.
    pub buckets: Vec<(u32, Accumulator)>,
}

impl BucketSums {
    /// The sums of a study that has accepted `n` reports.
    pub(crate) fn of(n: u64, buckets: Vec<(u32, Accumulator)>) -> Result<Self, Failure> {
        let summed: u64 = buckets.iter().map(|(_, sums)| sums.count()).sum();
        if summed != n {
            return Err(Failure::damaged(format!(
                "{n} reports were accepted but the sums contain {summed}"
            )));
        }
        Ok(Self {
            n,
            duplicates: 0,
            buckets,
        })
    }
}

/// The addition of a commit to a bucket.
#[derive(Default)]
pub(crate) struct Delta {
    /// Reports.
    pub(crate) n: u64,
    /// Seeds are appended as they are.
    pub(crate) seeds: Vec<Seed>,
    /// Numbers are added to a sum.
    pub(crate) sum: Option<Accumulator>,
    /// Tables of sites are kept apart.
    pub(crate) tables: Vec<KeptTable>,
}

/// A site's report as it is stored: the name of the site and the payload.
pub(crate) struct KeptTable {
    pub(crate) site: String,
    pub(crate) payload: TablePayload<Bytes>,
}

impl Delta {
    /// `begin`: what the first numbers are added to.
    pub(crate) fn add(
        &mut self,
        content: &Content,
        begin: impl FnOnce() -> Result<Accumulator, Failure>,
    ) -> Result<(), Failure> {
        self.n += 1;
        let payload = match content {
            Content::Row(payload) => payload,
            Content::Table(table) => {
                // One that was accepted without its token looked up, say.
                let Some(Ok(site)) = &table.site else {
                    let why = "a site's report was not tested";
                    return Err(Failure::Unavailable(why.into()));
                };
                self.tables.push(KeptTable {
                    site: site.clone(),
                    payload: table.payload.clone(),
                });
                return Ok(());
            }
        };
        let current = &mut self.sum;
        let sum = || match current {
            Some(sum) => Ok(sum),
            empty => Ok::<_, Failure>(empty.insert(begin()?)),
        };
        match payload {
            Payload::Seed(seed) => self.seeds.push(*seed),
            Payload::Floats(numbers) => sum()?.add(numbers)?,
            Payload::Integers(numbers) => sum()?.add(numbers)?,
            Payload::Answer(answer) => sum()?.count_at(answer.count())?,
        }
        Ok(())
    }
}

/// The decoder of a study's stored reports of sites.
pub(crate) struct SiteDecoder<'a> {
    params: &'a SiteStudyParams,
    format: SiteReportFormat,
}

impl<'a> SiteDecoder<'a> {
    pub(crate) fn new(params: &'a SiteStudyParams) -> Self {
        Self {
            params,
            format: SiteReportFormat::new(params),
        }
    }

    pub(crate) fn decode(&self, site: String, payload: &[u8]) -> Result<SiteSum, Failure> {
        let payload = self.format.payload(payload);
        let payload = payload.map_err(|error| Failure::damaged(error.detail()))?;
        let table = self.params.mechanism().decode(&payload);
        Ok(SiteSum {
            site,
            rows_noisy: table.rows,
            sum: table.moment,
        })
    }
}

/// Fails unless a study that has accepted so many reports has as many.
pub(crate) fn require_all(accepted: u64, sums: &[SiteSum]) -> Result<(), Failure> {
    match accepted == sums.len() as u64 {
        true => Ok(()),
        false => Err(Failure::damaged(format!(
            "{accepted} reports were accepted but there are {} of sites",
            sums.len()
        ))),
    }
}

/// The counts of all answers of a preparation from a sum of them, with zeros behind them; `None` if no reports have
/// these: a count is a whole number of at least 0, and together they are as many as the reports.
pub(crate) fn answer_counts(params: &PreparationParams, sum: &Accumulator) -> Option<Vec<u64>> {
    let entries = sum.sum().as_slice().iter();
    let counts = entries.map(|entry| {
        let count = *entry as u64;
        (count as f64 == *entry).then_some(count)
    });
    let mut counts: Vec<u64> = counts.collect::<Option<_>>()?;
    let total = counts.iter().try_fold(0_u64, |sum, n| sum.checked_add(*n));
    let padding = counts.split_off(params.mechanism().counts().min(counts.len()));
    (total == Some(sum.count()) && padding.iter().all(|n| *n == 0)).then_some(counts)
}

/// A sum as it is stored.
pub(crate) fn encode_sum(sum: &Accumulator) -> Vec<u8> {
    let entries = sum.sum().as_slice().iter();
    entries.flat_map(|entry| entry.to_le_bytes()).collect()
}

/// The sum of `n` reports from its stored bytes.
pub(crate) fn decode_sum(p: usize, n: u64, bytes: &[u8]) -> Result<Accumulator, Failure> {
    let (numbers, rest) = bytes.as_chunks::<8>();
    let entries: Vec<f64> = numbers.iter().map(|b| f64::from_le_bytes(*b)).collect();
    match PackedSymmetric::from_entries(p, entries) {
        Some(sum) if rest.is_empty() => {
            Accumulator::from_parts(sum, n).map_err(|error| Failure::damaged(error.detail()))
        }
        _ => Err(Failure::damaged(format!(
            "a stored sum has {} bytes but dimension {p} needs {}",
            bytes.len(),
            8 * packed_len(p)
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_round_trip_through_bytes() {
        let entries = vec![1.5, -0.0, f64::MIN_POSITIVE / 4.0, 3.0, f64::MAX, -7.25];
        let bytes: Vec<u8> = entries.iter().flat_map(|x| x.to_le_bytes()).collect();
        let sums = decode_sum(3, 9, &bytes).unwrap();
        assert_eq!(sums.count(), 9);
        for (a, b) in sums.sum().as_slice().iter().zip(&entries) {
            assert_eq!(a.to_bits(), b.to_bits());
        }
        assert!(decode_sum(3, 9, &bytes[1..]).is_err());
        assert!(decode_sum(2, 9, &bytes).is_err());
    }
}
