//! The snapshot that an estimate reads: folds and the seeds after them, as of one moment.

use std::{
    fs::File,
    io::{BufWriter, Write as _},
    os::unix::fs::FileExt as _,
    panic::resume_unwind,
};

use eigenveil_estimation::{
    Cancel, accumulate::Accumulator, linalg::Threads, sparse_from_seeds::SeedSource, sum_ranges,
};
use eigenveil_shared::{
    Result, error,
    mechanism::double_cap::{SEED_LEN, Seed},
    packed::packed_len,
};
use rustix::fs::statvfs;

use super::{
    copies::{Copies, Place, fingerprint, repeated},
    fold::{
        FINGERPRINT, FIRST, Fold, bytes_of, drop_damaged, fingerprints_of, range_seeds,
        read_ranges, sum_bytes,
    },
};
use crate::{
    config::StoreConfig,
    contract::{
        engine::{Engine, Kept, SeedReader},
        failure::{Failure, unavailable},
        study::Study,
        sums::{decode_sum, encode_sum},
    },
};

/// Bytes of the file that are read at once.
const PIECE: usize = 1 << 20;
/// Bytes of the disk that are left to reports, or half of a smaller one.
const SPARE: u64 = 32 << 20;

/// A snapshot of a study's seeds, which can be read repeatedly: the sums that are kept of the first ones of each bucket,
/// and those after them. Copies of a seed are counted once.
///
/// It lies in an unnamed file, so that an estimate reads it as often as it likes while the snapshot of the database
/// lasts as long as the copying.
pub struct StoredSeeds {
    p: usize,
    memory_bytes: u64,
    file: File,
    buckets: Vec<Bucket>,
    /// Reports stored.
    stored: u64,
    copies: Copies,
    sample: Vec<Seed>,
}

/// Where the file has what of a bucket: the fold's sum, its seeds or their fingerprints, the seeds after it.
struct Bucket {
    /// Seeds in the fold.
    folded: u64,
    sum_at: u64,
    folded_at: u64,
    has_folded_seeds: bool,
    /// Whether its fold's seeds, if they were copied, are those that were added up.
    is_whole: bool,
    at: u64,
    /// Lengths of the ranges of the seeds after the fold.
    ranges: Vec<usize>,
    sample: Vec<Seed>,
}

impl Bucket {
    fn after_fold(&self) -> u64 {
        self.ranges.iter().map(|length| *length as u64).sum()
    }

    fn end(&self) -> u64 {
        self.at + SEED_LEN as u64 * self.after_fold()
    }
}

/// The parts of a study that are read.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Use {
    /// Folds, and the other seeds.
    Folds,
    /// These, and the seeds of the folds.
    FoldsAndSeeds,
    /// Every seed.
    Seeds,
}

impl StoredSeeds {
    /// Reads folds or seeds; with copies among folds, which fingerprints show, the seeds of these, too.
    pub(crate) fn read(
        engine: &dyn Engine,
        config: &StoreConfig,
        study: &Study,
        what: Use,
        cancel: Cancel<'_>,
    ) -> Result<Self> {
        let reading = Reading {
            engine,
            config,
            study,
            cancel,
            check_room: &|bytes| check_disk(config, bytes),
        };
        let mut seeds = reading.copied(what)?;
        let mut suspects = seeds.suspects(cancel).map_err(Failure::into_error)?;
        if !suspects.is_empty() && !seeds.has_all_seeds() {
            // Read again, since all are to be of one moment.
            seeds = reading.copied(Use::FoldsAndSeeds)?;
            suspects = seeds.suspects(cancel).map_err(Failure::into_error)?;
        }
        seeds.copies = seeds
            .find_copies(&suspects, cancel)
            .map_err(Failure::into_error)?;
        for (number, bucket) in (0..).zip(&mut seeds.buckets) {
            let sample = bucket.sample.drain(..);
            let counted = sample.filter(|seed| seeds.copies.counts_in(seed, number));
            seeds.sample.extend(counted);
        }
        seeds.sample.sort_unstable();
        seeds.sample.dedup();
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

    fn has_all_seeds(&self) -> bool {
        let mut buckets = self.buckets.iter();
        buckets.all(|bucket| bucket.folded == 0 || bucket.has_folded_seeds)
    }

    /// Fingerprints that came more than once.
    fn suspects(&self, cancel: Cancel<'_>) -> Result<Vec<u64>, Failure> {
        let read = |take: &mut dyn FnMut(&[u64])| -> Result<(), Failure> {
            for bucket in &self.buckets {
                cancel.check()?;
                let of_seeds = match bucket.has_folded_seeds {
                    true => bucket.folded_at,
                    false => bucket.at,
                };
                self.pass_bytes(bucket.folded_at, of_seeds, &mut |bytes| {
                    take(&fingerprints_of(bytes));
                })?;
                self.pass_bytes(of_seeds, bucket.end(), &mut |bytes| {
                    let (seeds, _) = bytes.as_chunks::<SEED_LEN>();
                    take(&seeds.iter().map(fingerprint).collect::<Vec<_>>());
                })?;
            }
            Ok(())
        };
        repeated(self.stored, self.memory_bytes, &read)
    }

    /// Looks for the seeds with these fingerprints, which the file has; on [`Threads::current`] threads.
    fn find_copies(&self, suspects: &[u64], cancel: Cancel<'_>) -> Result<Copies, Failure> {
        if suspects.is_empty() {
            return Ok(Copies::default());
        }
        let mut places = Vec::new();
        let numbered: Vec<(u32, &Bucket)> = (0..).zip(&self.buckets).collect();
        for some in numbered.chunks(Threads::current().count()) {
            cancel.check()?;
            std::thread::scope(|scope| {
                let threads: Vec<_> = some
                    .iter()
                    .map(|(number, bucket)| {
                        scope.spawn(move || self.places(*number, bucket, suspects))
                    })
                    .collect();
                threads.into_iter().try_for_each(|thread| {
                    let of_bucket = thread.join().unwrap_or_else(|panic| resume_unwind(panic))?;
                    places.extend(of_bucket);
                    Ok::<_, Failure>(())
                })
            })?;
        }
        Ok(Copies::of(places))
    }

    /// Where suspected seeds are in a bucket.
    fn places(
        &self,
        number: u32,
        bucket: &Bucket,
        suspects: &[u64],
    ) -> Result<Vec<(Seed, Place)>, Failure> {
        let mut places = Vec::new();
        for (is_after_fold, from, to) in [
            (false, bucket.folded_at, bucket.at),
            (true, bucket.at, bucket.end()),
        ] {
            let position = Place {
                bucket: number,
                is_after_fold,
            };
            self.pass_bytes(from, to, &mut |bytes| {
                let (seeds, _) = bytes.as_chunks::<SEED_LEN>();
                let is_suspected =
                    |seed: &&Seed| suspects.binary_search(&fingerprint(seed)).is_ok();
                let suspected = seeds.iter().filter(is_suspected);
                places.extend(suspected.map(|seed| (*seed, position)));
            })?;
        }
        Ok(places)
    }

    /// Passes the bytes between two places of the file, piece by piece.
    fn pass_bytes(&self, from: u64, to: u64, take: &mut dyn FnMut(&[u8])) -> Result<(), Failure> {
        let (mut at, mut piece) = (from, Vec::new());
        while at < to {
            let length = usize::try_from(to - at).unwrap_or(PIECE).min(PIECE);
            piece.resize(length, 0);
            let read = self.file.read_exact_at(&mut piece, at);
            read.map_err(Failure::file)?;
            at += length as u64;
            take(&piece);
        }
        Ok(())
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
    fn sum(&self, number: u32, bucket: &Bucket, cancel: Cancel<'_>) -> Result<Accumulator> {
        let mut body = vec![0; 8 * packed_len(self.p)];
        let read = self.file.read_exact_at(&mut body, bucket.sum_at);
        read.map_err(|why| Failure::file(why).into_error())?;
        let mut sum = decode_sum(self.p, bucket.folded, &body).map_err(Failure::into_error)?;
        let copies = self.copies.in_fold(number);
        if !copies.is_empty() {
            sum_ranges::<()>(
                self.p,
                self.memory_bytes,
                cancel,
                |add| copies.chunks(1 << 10).try_for_each(|some| add((), some)),
                |(), some| sum.subtract(some),
            )?;
        }
        Ok(sum)
    }
}

/// A study on its way into a file.
struct Reading<'a> {
    engine: &'a dyn Engine,
    config: &'a StoreConfig,
    study: &'a Study,
    cancel: Cancel<'a>,
    /// Refuses a file of so many bytes where there is no room for it.
    check_room: &'a dyn Fn(u64) -> Result<()>,
}

impl Reading<'_> {
    /// A copy, in which copies of seeds have not been looked for. Folds that are damaged are dropped.
    fn copied(&self, mut what: Use) -> Result<StoredSeeds> {
        loop {
            let (mut copied, mut damaged) = (None, Vec::new());
            self.engine.read_seeds(self.study, &mut |reader| {
                copied = Some(self.copy(reader, what, &mut damaged)?);
                Ok(())
            })?;
            for (bucket, kept) in damaged {
                let dropped = drop_damaged(self.engine, self.study, bucket, kept);
                if let Err(error) = dropped {
                    tracing::warn!(study = %self.study.id(), %error, "it could not be dropped");
                }
            }
            match copied {
                Some(Some(seeds)) => return Ok(seeds),
                Some(None) => what = Use::Seeds,
                None => return Err(unavailable("the store has not read its seeds")),
            }
        }
    }

    /// `None` if folds are not of the seeds that are there, which are then damaged, or have no room: sums may need more
    /// than seeds.
    fn copy(
        &self,
        reader: &dyn SeedReader,
        what: Use,
        damaged: &mut Vec<(u32, Kept)>,
    ) -> Result<Option<StoredSeeds>, Failure> {
        let (study, stored) = (self.study, reader.accepted());
        let kept_folds: Vec<Kept> = (0..study.buckets())
            .map(|bucket| match what {
                Use::Seeds => Ok(Kept::default()),
                _ => reader.kept(bucket),
            })
            .collect::<Result<_, _>>()?;
        let refused = (self.check_room)(self.file_bytes(what, stored, &kept_folds));
        if refused.is_err() && what != Use::Seeds {
            return Ok(None);
        }
        refused?;
        let file = self.engine.temporary_file()?;
        let mut out = Out {
            file: BufWriter::new(&file),
            at: 0,
            reading: self,
            reader,
            has_folded_seeds: what == Use::FoldsAndSeeds,
        };
        let mut buckets = Vec::new();
        for (bucket, kept) in (0..).zip(&kept_folds) {
            let fold = match Fold::kept(reader, study, bucket, *kept)? {
                Some(fold) => fold,
                None => {
                    damaged.push((bucket, *kept));
                    Fold::new(study, bucket)?
                }
            };
            buckets.push(out.bucket(bucket, fold)?);
        }
        out.file.flush().map_err(Failure::file)?;
        drop(out);
        let copied: u64 = buckets.iter().map(|of| of.folded + of.after_fold()).sum();
        if copied != stored || !buckets.iter().all(|of| of.is_whole) {
            let of_folds = (0..).zip(kept_folds).filter(|(_, kept)| kept.n > 0);
            *damaged = of_folds.collect();
            if damaged.is_empty() {
                return Err(Failure::damaged(format!(
                    "{stored} reports were accepted but there are {copied} seeds"
                )));
            }
            return Ok(None);
        }
        Ok(Some(StoredSeeds {
            p: study.params().sum_dimension(),
            memory_bytes: self.config.sum_cache_bytes,
            file,
            buckets,
            stored,
            copies: Copies::default(),
            sample: Vec::new(),
        }))
    }

    /// Length of the file.
    fn file_bytes(&self, what: Use, stored: u64, kept: &[Kept]) -> u64 {
        let folds = kept.iter().filter(|kept| kept.n > 0).count() as u64;
        // A damaged number may be any.
        let folded = kept.iter().fold(0_u64, |n, kept| n.saturating_add(kept.n));
        let folded = folded.min(stored);
        let of_folded = match what {
            Use::Folds => FINGERPRINT,
            Use::FoldsAndSeeds | Use::Seeds => SEED_LEN,
        };
        let sums = folds.saturating_mul(sum_bytes(self.study));
        let later = (stored - folded).saturating_mul(SEED_LEN as u64);
        sums.saturating_add(folded.saturating_mul(of_folded as u64))
            .saturating_add(later)
    }
}

/// Refuses a file of so many bytes that would leave too little of the data directory's disk to reports.
fn check_disk(config: &StoreConfig, bytes: u64) -> Result<()> {
    // If it cannot be determined, assume that there is enough.
    let Ok(disk) = statvfs(&config.data_dir) else {
        return Ok(());
    };
    let of_blocks = |blocks: u64| blocks.saturating_mul(disk.f_frsize);
    check_room(bytes, of_blocks(disk.f_bavail), of_blocks(disk.f_blocks))
}

fn check_room(bytes: u64, free: u64, disk: u64) -> Result<()> {
    let spare = SPARE.min(disk / 2);
    if bytes.saturating_add(spare) <= free {
        return Ok(());
    }
    Err(error!(
        StoreFull,
        "an estimate copies these seeds into a file of {bytes} bytes; the disk of the data directory has {free} free, of which {spare} are left to reports; nothing was changed: free disk space, or move the data directory to a larger disk"
    ))
}

/// The file on its way.
struct Out<'a> {
    file: BufWriter<&'a File>,
    at: u64,
    reading: &'a Reading<'a>,
    reader: &'a dyn SeedReader,
    has_folded_seeds: bool,
}

impl Out<'_> {
    fn write(&mut self, bytes: &[u8]) -> Result<(), Failure> {
        self.at += bytes.len() as u64;
        self.file.write_all(bytes).map_err(Failure::file)
    }

    /// Copies a bucket's fold and the seeds after it.
    fn bucket(&mut self, number: u32, mut fold: Fold) -> Result<Bucket, Failure> {
        let (reader, reading) = (self.reader, self.reading);
        let (sum_at, folded) = (self.at, fold.sum.count());
        if folded > 0 {
            self.write(&encode_sum(&fold.sum))?;
        }
        let (folded_at, mut is_whole) = (self.at, true);
        if self.has_folded_seeds {
            let mut fingerprints: Vec<u64> = Vec::new();
            reader.rows(number, FIRST, &mut |row, bytes| {
                reading.cancel.check()?;
                if row <= fold.upto {
                    fingerprints.extend(bytes.as_chunks::<SEED_LEN>().0.iter().map(fingerprint));
                    self.write(bytes)?;
                }
                Ok(row < fold.upto)
            })?;
            fingerprints.sort_unstable();
            is_whole = fingerprints == fold.fingerprints;
        } else {
            self.write(&bytes_of(&fold.fingerprints))?;
        }
        let (at, mut ranges) = (self.at, Vec::new());
        let mut copy = |seeds: &[Seed]| -> Result<(), Failure> {
            reading.cancel.check()?;
            fold.sample.add(seeds);
            ranges.push(seeds.len());
            self.write(seeds.as_flattened())
        };
        let later = (fold.upto, i64::MAX);
        let least = range_seeds(reading.config);
        let rest = read_ranges(reader, number, later, least, &mut |_, seeds| {
            copy(seeds)?;
            Ok(true)
        })?;
        if !rest.is_empty() {
            copy(&rest)?;
        }
        Ok(Bucket {
            folded,
            sum_at,
            folded_at,
            has_folded_seeds: self.has_folded_seeds,
            is_whole,
            at,
            ranges,
            sample: fold.sample.seeds().to_vec(),
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
                take(number, self.sum(number, bucket, cancel)?)?;
            }
        }
        Ok(())
    }

    fn sample(&self, _cancel: Cancel<'_>) -> Result<Vec<Seed>> {
        Ok(self.sample.clone())
    }
}

#[cfg(test)]
mod tests {
    use eigenveil_shared::ErrorCode;
    use tokio::runtime::Runtime;

    use super::*;
    use crate::{
        Store,
        environment::Environment,
        testing::fixtures::{create, of_seeds, with_payload},
    };

    /// Four seeds have 64 bytes; their sum and their fingerprints have 48 and 32.
    #[test]
    fn without_room_for_sums_seeds_are_read() {
        let folder = tempfile::tempdir().unwrap();
        let config = StoreConfig {
            min_folded_seeds: 1,
            ..StoreConfig::new(folder.path().join("data"))
        };
        let store = Store::open(&config, Environment::system()).unwrap();
        let runtime = Runtime::new().unwrap();
        let study = runtime.block_on(create(&store, &of_seeds()));
        let reports = (0..4).map(|number| with_payload(&study, number, number));
        let sent = store.submit(&study, reports.collect());
        runtime.block_on(sent).unwrap();
        store.fold(&study, Cancel::NEVER).unwrap();
        let folded = |free: u64, what| -> Result<u64> {
            let reading = Reading {
                engine: &*store.shared.engine,
                config: &config,
                study: &study,
                cancel: Cancel::NEVER,
                check_room: &|bytes| check_room(bytes, free, 0),
            };
            let copied = reading.copied(what)?;
            Ok(copied.buckets.iter().map(|bucket| bucket.folded).sum())
        };
        for (what, bytes) in [(Use::Folds, 80), (Use::FoldsAndSeeds, 112)] {
            assert_eq!(folded(bytes, what).unwrap(), 4);
            assert_eq!(folded(bytes - 1, what).unwrap(), 0);
            let error = folded(63, what).unwrap_err();
            assert_eq!(error.code(), ErrorCode::StoreFull);
        }
    }

    #[test]
    fn a_file_without_room_is_refused_with_a_way_out() {
        let disk = 100 << 20;
        check_room(68 << 20, disk, disk).unwrap();
        let error = check_room((68 << 20) + 1, disk, disk).unwrap_err();
        assert_eq!(error.code(), ErrorCode::StoreFull);
        for word in ["71303169", "104857600", "33554432", "larger disk"] {
            assert!(error.detail().contains(word), "{error}");
        }
        // Half of a small disk is left.
        check_room(3 << 20, 8 << 20, 10 << 20).unwrap();
        assert!(check_room(4 << 20, 8 << 20, 10 << 20).is_err());
    }
}
