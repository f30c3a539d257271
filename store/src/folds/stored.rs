//! The snapshot that an estimate reads: folds and the seeds after them, as of one moment.

use std::{
    fs::File,
    io::{BufWriter, Write as _},
    os::unix::fs::FileExt as _,
};

use eigenveil_estimation::{
    Cancel,
    accumulate::{Accumulator, SeedSum},
    sparse_from_seeds::SeedSource,
};
use eigenveil_shared::{
    Result,
    mechanism::double_cap::{SEED_LEN, Seed},
    packed::packed_len,
};

use super::{
    copies::{Copies, Place, Places, fingerprint, repeated},
    fold::{FIRST, Fold, decode_run, read_ranges},
};
use crate::{
    config::StoreConfig,
    contract::{
        engine::{Engine, SeedReader},
        failure::{Failure, unavailable},
        study::Study,
        sums::{decode_sum, encode_sum},
    },
};

/// A snapshot of a study's seeds, which can be read repeatedly: the sums that are kept of the first ones of each bucket,
/// and those after them. Copies of a seed are counted once.
///
/// It lies in an unnamed file, so that an estimate reads it as often as it likes while the snapshot of the database
/// lasts as long as the copying.
pub struct StoredSeeds {
    p: usize,
    file: File,
    buckets: Vec<Bucket>,
    /// Reports stored.
    stored: u64,
    copies: Copies,
    sample: Vec<Seed>,
}

struct Bucket {
    /// The last row of the fold.
    upto: i64,
    /// Seeds in the fold.
    folded: u64,
    /// First byte of its sum.
    sum_at: u64,
    /// First byte of the seeds after it.
    at: u64,
    /// Lengths of their ranges.
    ranges: Vec<usize>,
    sample: Vec<Seed>,
}

impl Bucket {
    fn after_fold(&self) -> u64 {
        self.ranges.iter().map(|length| *length as u64).sum()
    }
}

/// Whether what is kept of a study is used, or every seed is read.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Use {
    Folds,
    Seeds,
}

impl StoredSeeds {
    pub(crate) fn read(
        engine: &dyn Engine,
        config: &StoreConfig,
        study: &Study,
        what: Use,
        cancel: Cancel<'_>,
    ) -> Result<Self> {
        let mut read = None;
        engine.read_seeds(study, &mut |reader| {
            let file = engine.temporary_file()?;
            read = Some(Self::copy(reader, file, config, study, what, cancel)?);
            Ok(())
        })?;
        read.ok_or_else(|| unavailable("the store has not read its seeds"))
    }

    fn copy(
        reader: &dyn SeedReader,
        file: File,
        config: &StoreConfig,
        study: &Study,
        what: Use,
        cancel: Cancel<'_>,
    ) -> Result<Self, Failure> {
        let mut out = Out {
            file: BufWriter::new(&file),
            at: 0,
        };
        let mut buckets = Vec::new();
        for bucket in 0..study.buckets() {
            let fold = match what {
                Use::Folds => Fold::kept(reader, study, bucket)?,
                Use::Seeds => None,
            };
            let fold = match fold {
                Some(fold) => fold,
                None => Fold::new(study, bucket)?,
            };
            let least = config.min_folded_seeds;
            buckets.push(out.bucket(reader, bucket, fold, least, cancel)?);
        }
        out.file.flush().map_err(Failure::file)?;
        drop(out);
        let copied: u64 = buckets.iter().map(|of| of.folded + of.after_fold()).sum();
        let stored = reader.accepted();
        if copied != stored {
            return Err(Failure::damaged(format!(
                "{stored} reports were accepted but there are {copied} seeds"
            )));
        }
        let mut seeds = Self {
            p: study.params().sum_dimension(),
            file,
            buckets,
            stored,
            copies: Copies::default(),
            sample: Vec::new(),
        };
        seeds.copies = seeds.find_copies(reader, config, study, cancel)?;
        for (number, bucket) in (0..).zip(&mut seeds.buckets) {
            let sample = bucket.sample.drain(..);
            let counted = sample.filter(|seed| seeds.copies.counts_in(seed, number));
            seeds.sample.extend(counted);
        }
        Ok(seeds)
    }

    /// Number of seeds without copies.
    pub fn count(&self) -> u64 {
        self.stored.saturating_sub(self.repeated())
    }

    /// Reports stored.
    pub(crate) fn stored(&self) -> u64 {
        self.stored
    }

    /// Sorts fingerprints, those of folds as they are kept. Where some are equal, all seeds are read once.
    fn find_copies(
        &self,
        reader: &dyn SeedReader,
        config: &StoreConfig,
        study: &Study,
        cancel: Cancel<'_>,
    ) -> Result<Copies, Failure> {
        let read = |take: &mut dyn FnMut(&[u64])| -> Result<(), Failure> {
            for (number, bucket) in (0..).zip(&self.buckets) {
                cancel.check()?;
                take(&bucket.fingerprints(reader, study, number)?);
                self.pass_bucket(bucket, &mut |seeds| {
                    take(&seeds.iter().map(fingerprint).collect::<Vec<_>>());
                    Ok(())
                })?;
            }
            Ok(())
        };
        let suspects = repeated(self.stored, config.sum_cache_bytes, &read)?;
        if suspects.is_empty() {
            return Ok(Copies::default());
        }
        let mut places = Places::new();
        let mut look = |place: Place, seeds: &[Seed]| {
            for seed in seeds {
                if suspects.binary_search(&fingerprint(seed)).is_ok() {
                    *places.entry((*seed, place)).or_default() += 1;
                }
            }
        };
        for (number, bucket) in (0..).zip(&self.buckets) {
            let in_bucket = |is_after_fold| Place {
                bucket: number,
                is_after_fold,
            };
            bucket.pass_folded(reader, number, &mut |seeds| {
                look(in_bucket(false), seeds);
                Ok(cancel.check()?)
            })?;
            self.pass_bucket(bucket, &mut |seeds| {
                look(in_bucket(true), seeds);
                Ok(cancel.check()?)
            })?;
        }
        Ok(Copies::of(places))
    }

    /// The seeds of a bucket after its fold, range by range.
    fn pass_bucket(
        &self,
        bucket: &Bucket,
        take: &mut dyn FnMut(&[Seed]) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        let (mut seeds, mut at) = (Vec::new(), bucket.at);
        for &length in &bucket.ranges {
            seeds.resize(length, [0; SEED_LEN]);
            let bytes = seeds.as_flattened_mut();
            self.file.read_exact_at(bytes, at).map_err(Failure::file)?;
            at += bytes.len() as u64;
            take(&seeds)?;
        }
        Ok(())
    }

    /// The sum of a bucket's fold, without the seeds that count elsewhere.
    fn sum(&self, number: u32, bucket: &Bucket) -> Result<Accumulator, Failure> {
        let mut body = vec![0; 8 * packed_len(self.p)];
        let read = self.file.read_exact_at(&mut body, bucket.sum_at);
        read.map_err(Failure::file)?;
        let mut sum = decode_sum(self.p, bucket.folded, &body)?;
        let mut excluded: Option<SeedSum> = None;
        for (seed, times) in self.copies.in_fold(number) {
            let excluded = match &mut excluded {
                Some(excluded) => excluded,
                none => none.insert(SeedSum::new(self.p)?),
            };
            excluded.add_times(seed, times);
        }
        if let Some(excluded) = excluded {
            sum.subtract(excluded.finish()?)?;
        }
        Ok(sum)
    }
}

/// The file on its way.
struct Out<'a> {
    file: BufWriter<&'a File>,
    at: u64,
}

impl Out<'_> {
    fn write(&mut self, bytes: &[u8]) -> Result<(), Failure> {
        self.at += bytes.len() as u64;
        self.file.write_all(bytes).map_err(Failure::file)
    }

    /// Copies a bucket's fold and the seeds after it.
    fn bucket(
        &mut self,
        reader: &dyn SeedReader,
        number: u32,
        mut fold: Fold,
        least: usize,
        cancel: Cancel<'_>,
    ) -> Result<Bucket, Failure> {
        let (sum_at, folded) = (self.at, fold.sum.count());
        if folded > 0 {
            self.write(&encode_sum(&fold.sum))?;
        }
        let (at, mut ranges) = (self.at, Vec::new());
        let mut copy = |seeds: &[Seed]| -> Result<(), Failure> {
            cancel.check()?;
            fold.sample.add(seeds);
            ranges.push(seeds.len());
            self.write(seeds.as_flattened())
        };
        let rest = read_ranges(reader, number, fold.upto, least, &mut |_, seeds| {
            copy(seeds)?;
            Ok(true)
        })?;
        if !rest.is_empty() {
            copy(&rest)?;
        }
        Ok(Bucket {
            upto: fold.upto,
            folded,
            sum_at,
            at,
            ranges,
            sample: fold.sample.seeds().copied().collect(),
        })
    }
}

impl Bucket {
    /// The fingerprints in the fold. Runs that are not all there, as where the rows were sorted since, are made anew of
    /// the seeds.
    fn fingerprints(
        &self,
        reader: &dyn SeedReader,
        study: &Study,
        number: u32,
    ) -> Result<Vec<u64>, Failure> {
        let mut all = Vec::new();
        if self.folded > 0 {
            reader.runs(number, &mut |upto, body| {
                all.extend(decode_run(study, number, upto, body));
                Ok(true)
            })?;
            if all.len() as u64 != self.folded {
                all.clear();
                self.pass_folded(reader, number, &mut |seeds| {
                    all.extend(seeds.iter().map(fingerprint));
                    Ok(())
                })?;
            }
        }
        Ok(all)
    }

    fn pass_folded(
        &self,
        reader: &dyn SeedReader,
        number: u32,
        take: &mut dyn FnMut(&[Seed]) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        if self.folded == 0 {
            return Ok(());
        }
        reader.rows(number, FIRST, &mut |row, bytes| {
            if row > self.upto {
                return Ok(false);
            }
            take(bytes.as_chunks::<SEED_LEN>().0)?;
            Ok(true)
        })
    }
}

impl SeedSource for StoredSeeds {
    fn buckets(&self) -> u32 {
        self.buckets.len() as u32
    }

    fn repeated(&self) -> u64 {
        self.copies.excluded()
    }

    fn pass(&self, take: &mut dyn FnMut(u32, &[Seed]) -> Result<()>) -> Result<()> {
        let mut filter = self.copies.filter();
        let mut buckets = (0..).zip(&self.buckets);
        let passed = buckets.try_for_each(|(number, bucket)| {
            self.pass_bucket(bucket, &mut |seeds| match filter.retain(number, seeds) {
                [] => Ok(()),
                seeds => Ok(take(number, seeds)?),
            })
        });
        passed.map_err(Failure::into_error)
    }

    fn folded(
        &self,
        cancel: Cancel<'_>,
        take: &mut dyn FnMut(u32, Accumulator) -> Result<()>,
    ) -> Result<()> {
        for (number, bucket) in (0..).zip(&self.buckets) {
            if bucket.folded > 0 {
                cancel.check()?;
                take(
                    number,
                    self.sum(number, bucket).map_err(Failure::into_error)?,
                )?;
            }
        }
        Ok(())
    }

    fn sample(&self, _cancel: Cancel<'_>) -> Result<Vec<Seed>> {
        Ok(self.sample.clone())
    }
}
