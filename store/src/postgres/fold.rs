//! Sums of seeds, kept beside the seeds: an estimate decodes what has come since.
//!
//! Of a bucket, the row of `sums` says that the seeds of its commits up to `upto` are `n`, copies included, and their sum
//! `body`. It is used while the chunks up to there hold `n` seeds, and `n` directions can have this sum; otherwise it is
//! made anew. A fold moves it on by compare-and-swap on `upto`, with the row held, and stops at a small chunk: those are
//! merged first, so that a kept sum never keeps them small (`tidy.rs`). Whoever merges holds the row, too. That two do not
//! add up the same seeds is left to a lock of the session, which ends with it, and saves nothing but work.

use std::{
    collections::VecDeque,
    sync::{
        Mutex,
        atomic::{AtomicBool, Ordering},
    },
    thread::{ScopedJoinHandle, sleep},
    time::{Duration, Instant},
};

use eigenveil_estimation::{
    Cancel,
    accumulate::{Accumulator, SeedSum},
    linalg::Threads,
};
use eigenveil_shared::{
    Result,
    mechanism::double_cap::{SEED_LEN, Seed},
    packed::packed_len,
};
use tokio_postgres::Client;

use super::{
    Inner, Postgres,
    chunks::next_chunks,
    connection::{Session, value},
    lock,
    studies::require_study,
    tidy::{WHOLE, merge_chunks},
    unsigned,
};
use crate::contract::{
    engine::Engine as _,
    failure::Failure,
    job::estimate_settings,
    study::{Study, StudyKey},
    sums::{decode_sum, encode_sum},
};

/// Seeds that are added up before their sum is kept: four megabytes.
const STEP: usize = 1 << 18;
/// Beyond it a sum has more than 134 MB.
const MAX_DIMENSION: usize = 4_096;
/// Half of the connections.
const MAX_THREADS: usize = 4;
/// Seeds between two checks for cancellation.
const BLOCK: usize = 256;
const PAUSE: Duration = Duration::from_millis(50);
/// For another one that adds up the same seeds.
const PATIENCE: Duration = Duration::from_secs(60);

/// The seeds in chunks of the bucket of `sums s` up to a commit.
macro_rules! seeds_up_to {
    ($commit:literal) => {
        concat!(
            "(SELECT coalesce(sum(c.n), 0) FROM chunks c
              WHERE c.study = s.study AND c.bucket = s.bucket AND c.last <= ",
            $commit,
            ")"
        )
    };
}
const FOLDED: &str = concat!(
    "SELECT s.upto, s.n, s.body, s.n = ",
    seeds_up_to!("s.upto"),
    " FROM sums s WHERE s.study = $1 AND s.bucket = $2"
);
// At random: servers that begin at once go different ways.
const WAITING: &str = concat!(
    "SELECT b.bucket, b.seq, s.upto FROM buckets b JOIN sums s USING (study, bucket)
     WHERE b.study = $1 AND b.n >= $2 + CASE WHEN s.body IS NOT NULL AND s.n = ",
    seeds_up_to!("s.upto"),
    " THEN s.n ELSE 0 END ORDER BY random()"
);
const HOLD: &str = "SELECT upto FROM sums WHERE study = $1 AND bucket = $2 FOR NO KEY UPDATE";
// A statement after the row is held: whatever was merged meanwhile is seen.
const SWAP: &str = concat!(
    "UPDATE sums s SET upto = $4, n = $5, body = $6 WHERE study = $1 AND bucket = $2 AND upto = $3 AND $5 = ",
    seeds_up_to!("$4")
);

/// Unread seeds of a bucket from which on their sum is worth a write: fewer take less time than the 4p² bytes.
fn worth(p: usize) -> i64 {
    (8 * p as i64).max(4_096)
}

/// The kept sum of a bucket.
pub(super) struct Folded {
    /// Up to which commit the row says that it counts.
    stored: i64,
    /// If it can be used.
    pub(super) sum: Option<Accumulator>,
}

/// In a snapshot.
pub(super) async fn folded(client: &Client, study: &Study, bucket: i32) -> Result<Folded, Failure> {
    let row = client.query_one(FOLDED, &[&study.key.0, &bucket]).await?;
    let (stored, n) = (row.try_get(0)?, unsigned(row.try_get(1)?));
    let mut sum = None;
    if let (Some(body), true) = (row.try_get::<_, Option<&[u8]>>(2)?, row.try_get(3)?) {
        let decoded = decode_sum(study.params().sum_dimension(), n, body).ok();
        sum = decoded.filter(is_of_directions);
        if sum.is_none() {
            tracing::warn!(study = %study.id(), bucket, "a kept sum of seeds is damaged; they are added up again");
        }
    }
    Ok(Folded { stored, sum })
}

/// Directions have length one.
fn is_of_directions(sum: &Accumulator) -> bool {
    let n = sum.count() as f64;
    (sum.sum().trace() - n).abs() <= 1e-5 * n
}

/// The kept sum of a bucket, and the next seeds.
struct Unread {
    before: Folded,
    /// Their last commit.
    to: i64,
    seeds: Vec<Seed>,
}

impl Unread {
    /// All of it.
    fn sum(&self, p: usize, cancel: Cancel<'_>) -> Result<Accumulator, Failure> {
        let mut sum = SeedSum::new(p)?;
        for block in self.seeds.chunks(BLOCK) {
            cancel.check()?;
            block.iter().for_each(|seed| sum.add(seed));
        }
        let mut sum = sum.finish()?;
        if let Some(before) = &self.before.sum {
            sum.merge(before)?;
        }
        Ok(sum)
    }
}

enum Step {
    Done,
    /// There is more, or another one was faster.
    Again,
    /// Another one is at it, and has come up to this commit.
    Busy(i64),
}

struct Bucket {
    number: i32,
    /// Its last commit.
    end: i64,
    /// Up to where its sum was kept when somebody was last seen to get on with it.
    upto: i64,
    seen: Instant,
}

impl Postgres {
    pub(super) fn fold_seeds(&self, study: &Study, cancel: Cancel<'_>) -> Result<()> {
        self.check_running()?;
        let folded = self.inner.fold(study, cancel);
        folded.map_err(|failure| self.inner.note(failure))
    }

    /// Adds up seeds for estimates that other servers compute.
    pub(super) fn help(&self, stopping: &dyn Fn() -> bool) -> Result<()> {
        let config = &self.inner.config;
        if !config.computes_estimates {
            return Ok(());
        }
        let jobs = self.wait(async {
            let session = self.inner.pool.take().await?;
            let select =
                "SELECT job, study, request FROM estimates WHERE state = 'running' ORDER BY job";
            let rows = session.query(select, &[]).await?;
            session.done();
            rows.iter()
                .map(|row| {
                    let study = StudyKey(row.try_get(1)?);
                    Ok((row.try_get(0)?, study, row.try_get::<_, String>(2)?))
                })
                .collect::<Result<Vec<(i64, _, _)>, Failure>>()
        })?;
        for (job, study, request) in jobs {
            let Some(study) = self.studies.by_key(study) else {
                continue;
            };
            // Of a newer program, perhaps.
            let Ok(request) = serde_json::from_str(&request) else {
                continue;
            };
            // The reports of sites are not added up.
            let Ok(params) = study.params().rows() else {
                continue;
            };
            if !estimate_settings(&study, &request, config).streams(params) {
                *lock(&self.inner.helped) = Some(job);
                let has_ended = || lock(&self.inner.helped).is_none();
                let folded = self.fold_seeds(&study, Cancel::when(&|| stopping() || has_ended()));
                if stopping() {
                    return Ok(());
                }
                if !has_ended() {
                    folded?;
                }
            }
        }
        Ok(())
    }
}

impl Inner {
    /// Blocks.
    fn fold(&self, study: &Study, cancel: Cancel<'_>) -> Result<(), Failure> {
        let p = study.params().sum_dimension();
        // A square in single precision, and four packed sums.
        let fit = self.config.sum_cache_bytes / (40 * packed_len(p) as u64).max(1);
        let threads = Threads::current()
            .count()
            .min(MAX_THREADS)
            .min(fit as usize);
        if !study.has_seeds() || p > MAX_DIMENSION || threads == 0 {
            return Ok(());
        }
        let waiting = self.wait(async {
            let session = self.pool.take().await?;
            let rows = session.query(WAITING, &[&study.key.0, &worth(p)]).await?;
            session.done();
            let mut waiting = VecDeque::new();
            for row in &rows {
                waiting.push_back(Bucket {
                    number: row.try_get(0)?,
                    end: row.try_get(1)?,
                    upto: row.try_get(2)?,
                    seen: Instant::now(),
                });
            }
            Ok::<_, Failure>(waiting)
        })?;
        if waiting.is_empty() {
            return Ok(());
        }
        let (waiting, stop) = (Mutex::new(waiting), AtomicBool::new(false));
        let stopping = || stop.load(Ordering::Relaxed);
        let work = || self.fold_all(study, &waiting, Cancel::when(&stopping));
        std::thread::scope(|scope| {
            let threads: Vec<ScopedJoinHandle<'_, _>> =
                (0..threads).map(|_| scope.spawn(work)).collect();
            while !threads.iter().all(ScopedJoinHandle::is_finished) {
                stop.fetch_or(cancel.check().is_err(), Ordering::Relaxed);
                sleep(Duration::from_millis(5));
            }
            let ended = threads.into_iter().map(|thread| {
                thread
                    .join()
                    .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
            });
            ended.collect()
        })
    }

    fn fold_all(
        &self,
        study: &Study,
        waiting: &Mutex<VecDeque<Bucket>>,
        cancel: Cancel<'_>,
    ) -> Result<(), Failure> {
        loop {
            cancel.check()?;
            let Some(mut bucket) = lock(waiting).pop_front() else {
                return Ok(());
            };
            match self.fold_some(study, &bucket, cancel)? {
                Step::Done => {}
                Step::Again => lock(waiting).push_front(bucket),
                Step::Busy(upto) => {
                    if upto != bucket.upto {
                        (bucket.upto, bucket.seen) = (upto, Instant::now());
                    }
                    // Whoever waits no longer adds it up for itself.
                    if bucket.seen.elapsed() < PATIENCE {
                        lock(waiting).push_back(bucket);
                        sleep(PAUSE);
                    }
                }
            }
        }
    }

    /// A step of a bucket towards its end.
    fn fold_some(
        &self,
        study: &Study,
        bucket: &Bucket,
        cancel: Cancel<'_>,
    ) -> Result<Step, Failure> {
        let p = study.params().sum_dimension();
        let session = self.wait(self.pool.take())?;
        // Of two studies it may be the same.
        let (key, number) = (study.key.0 as i32, bucket.number);
        let try_lock = "SELECT pg_try_advisory_lock($1, $2)";
        let is_free: bool = self.wait(value(&session, try_lock, &[&key, &number]))?;
        if !is_free {
            let upto = self.wait(async {
                let select = "SELECT upto FROM sums WHERE study = $1 AND bucket = $2";
                let row = session.query_opt(select, &[&study.key.0, &number]).await?;
                row.map_or(Ok(bucket.upto), |row| row.try_get(0))
            })?;
            session.done();
            return Ok(Step::Busy(upto));
        }
        while self.wait(merge_small(&session, study.key, number))? {
            cancel.check()?;
        }
        let unread = self.wait(unread(&session, study, number))?;
        let mut step = Step::Done;
        if unread.seeds.len() as i64 >= worth(p) {
            let sum = unread.sum(p, cancel)?;
            let swapped = self.wait(swap(&session, study.key, number, &unread, &sum))?;
            if !swapped || unread.to < bucket.end {
                step = Step::Again;
            }
        }
        self.wait(session.query_one("SELECT pg_advisory_unlock($1, $2)", &[&key, &number]))?;
        session.done();
        Ok(step)
    }
}

/// Keeps a sum unless another one was kept meanwhile, or its last chunk was merged. Whether the answer comes is of no
/// interest: what is kept is right, and what is not is made again.
async fn swap(
    client: &Client,
    study: StudyKey,
    bucket: i32,
    unread: &Unread,
    sum: &Accumulator,
) -> Result<bool, Failure> {
    client
        .batch_execute("BEGIN ISOLATION LEVEL READ COMMITTED")
        .await?;
    client.query_opt(HOLD, &[&study.0, &bucket]).await?;
    let from = unread.before.stored;
    let (n, body) = (sum.count() as i64, encode_sum(sum));
    let swapped = client
        .execute(SWAP, &[&study.0, &bucket, &from, &unread.to, &n, &body])
        .await?;
    client.batch_execute("COMMIT").await?;
    Ok(swapped == 1)
}

async fn merge_small(session: &Session, study: StudyKey, bucket: i32) -> Result<bool, Failure> {
    session
        .batch_execute("BEGIN ISOLATION LEVEL READ COMMITTED")
        .await?;
    let merged = merge_chunks(session, Some((study, bucket))).await?;
    session.batch_execute("COMMIT").await?;
    Ok(merged)
}

/// In a snapshot that ends before they are decoded.
async fn unread(session: &Session, study: &Study, bucket: i32) -> Result<Unread, Failure> {
    session
        .batch_execute("BEGIN ISOLATION LEVEL REPEATABLE READ, READ ONLY")
        .await?;
    require_study(session, study).await?;
    let before = folded(session, study, bucket).await?;
    let (mut to, mut seeds) = (before.sum.as_ref().map_or(0, |_| before.stored), Vec::new());
    'read: while seeds.len() < STEP {
        let rows = next_chunks(session, study.key, bucket, to).await?;
        if rows.is_empty() {
            break;
        }
        for row in &rows {
            let (chunk, _) = row.try_get::<_, &[u8]>(3)?.as_chunks::<SEED_LEN>();
            if (chunk.len() as i64) < WHOLE {
                break 'read;
            }
            to = row.try_get(0)?;
            seeds.extend_from_slice(chunk);
        }
    }
    session.batch_execute("COMMIT").await?;
    Ok(Unread { before, to, seeds })
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use eigenveil_shared::api::{EstimateRequest, StudyState};
    use tokio::task::spawn_blocking;

    use super::{
        super::{
            rewrite::{Sizes, sort_bucket},
            testing::{Servers, commit, eventually, fleet, with_one_bucket},
        },
        *,
    };
    use crate::{
        Store,
        config::StoreConfig,
        contract::{sums::BucketSums, transfer::VerifiedExport},
        environment::Environment,
    };

    fn sums(store: &Store, study: &Study) -> BucketSums {
        store.bucket_sums(study, Cancel::NEVER).unwrap()
    }

    /// Sums of an embedded store that imports the study.
    async fn embedded_sums(store: &Store, study: &Study) -> BucketSums {
        let directory = tempfile::tempdir().unwrap();
        let config = StoreConfig::new(directory.path().join("data"));
        let embedded = Store::open(&config, Environment::system()).unwrap();
        let export = VerifiedExport::read(store.export(study).unwrap()).unwrap();
        let imported = embedded.import(export, None).await.unwrap();
        sums(&embedded, &imported.study)
    }

    fn assert_close(found: &BucketSums, wanted: &BucketSums, tolerance: f64) {
        assert_eq!((found.n, found.duplicates), (wanted.n, wanted.duplicates));
        assert_eq!(found.buckets.len(), wanted.buckets.len());
        for ((_, found), (_, wanted)) in found.buckets.iter().zip(&wanted.buckets) {
            assert_eq!(found.count(), wanted.count());
            for (a, b) in found.sum().as_slice().iter().zip(wanted.sum().as_slice()) {
                assert!(
                    (a - b).abs() <= tolerance * wanted.count() as f64,
                    "{a} {b}"
                );
            }
        }
    }

    /// Seeds that an estimate decodes.
    fn unfolded(store: &Store, study: &Study) -> u64 {
        let mut n = 0;
        let seeds = store.seeds(study, Cancel::NEVER).unwrap();
        let count = &mut |_, seeds: &[Seed]| {
            n += seeds.len() as u64;
            Ok(())
        };
        seeds.pass_unfolded(count).unwrap();
        n
    }

    const KEPT: &str = "SELECT upto || ' ' || n FROM eigenveil.sums";

    fn kept(servers: &Servers) -> String {
        servers.sql(KEPT)
    }

    /// The last commit of each.
    fn chunks(servers: &Servers) -> String {
        servers.sql("SELECT string_agg(last::text, ' ' ORDER BY last) FROM eigenveil.chunks")
    }

    /// The other one takes over; what is kept is what the embedded engine adds up.
    #[test]
    fn two_add_up_one_bucket_and_one_is_killed() {
        with_one_bucket(2, async |servers, studies| {
            let (store, study) = (&servers.stores[0], &studies[0]);
            commit(store, study, 0..16, |number| number).await;
            store.sweep(&|| false).unwrap();
            let fold = |number: usize| {
                let (store, study) = (servers.stores[number].clone(), Arc::clone(&studies[number]));
                spawn_blocking(move || store.fold(&study, Cancel::NEVER))
            };
            let hold =
                "BEGIN; SELECT 1 FROM eigenveil.sums FOR UPDATE; SELECT hold_until_waited_for();
                SELECT pg_terminate_backend(pid) FROM pg_stat_activity
                WHERE pg_backend_pid() = ANY (pg_blocking_pids(pid)); COMMIT";
            let held = servers.hold(hold).await;
            let (first, second) = tokio::join!(fold(0), fold(1));
            assert!(first.unwrap().is_err() != second.unwrap().is_err());
            held.await.unwrap();
            assert_eq!(kept(servers), "16 8192");
            assert_eq!(unfolded(store, study), 0);
            assert_close(
                &sums(store, study),
                &embedded_sums(store, study).await,
                1e-12,
            );
            // The next estimate decodes what is new.
            commit(store, study, 16..19, |number| number).await;
            assert_eq!(unfolded(store, study), 3 * 512);
            assert_close(
                &sums(store, study),
                &embedded_sums(store, study).await,
                1e-12,
            );
        });
    }

    /// One that has begun before another one, and comes last, keeps nothing.
    #[test]
    fn what_is_kept_does_not_go_back() {
        with_one_bucket(1, async |servers, studies| {
            let (store, study) = (&servers.stores[0], &studies[0]);
            commit(store, study, 0..8, |number| number).await;
            store.sweep(&|| false).unwrap();
            let session = fleet(store).inner.pool.take().await.unwrap();
            let old = unread(&session, study, 0).await.unwrap();
            commit(store, study, 8..16, |number| number).await;
            store.fold(study, Cancel::NEVER).unwrap();
            assert_eq!(kept(servers), "16 8192");
            let sum = old.sum(3, Cancel::NEVER).unwrap();
            let swapped = swap(&session, study.key, 0, &old, &sum).await;
            assert!(!swapped.unwrap());
            assert_eq!(kept(servers), "16 8192");
        });
    }

    /// Copies within a sum, between sum and rest, and within the rest, while chunks are merged: also as programs of the
    /// version before merged them.
    #[test]
    fn copies_and_merged_chunks_are_counted_once() {
        with_one_bucket(1, async |servers, studies| {
            let (store, study) = (&servers.stores[0], &studies[0]);
            let seed = |number: u32| {
                if number % 9 == 8 {
                    number % 100
                } else {
                    number
                }
            };
            let commit = async |commits| commit(store, study, commits, seed).await;
            let fold = || store.fold(study, Cancel::NEVER).unwrap();
            let merge_by_hand = |from: u32, to: u32| {
                servers.sql(&format!(
                    "WITH old AS (DELETE FROM eigenveil.chunks WHERE last BETWEEN {from} AND {to} RETURNING *)
                     INSERT INTO eigenveil.chunks SELECT study, bucket, max(last), min(first), sum(n)::int, string_agg(body, '')
                     FROM old GROUP BY study, bucket"
                ));
            };
            // Blocks of other seeds are rounded otherwise.
            let check = async || {
                let wanted = embedded_sums(store, study).await;
                assert!(wanted.duplicates > 400);
                assert_close(&sums(store, study), &wanted, 1e-6);
            };
            commit(0..9).await;
            fold();
            commit(9..12).await;
            assert_eq!(kept(servers), "9 4608");
            check().await;
            // What a fold has read may be merged before it ends.
            commit(12..17).await;
            store.sweep(&|| false).unwrap();
            let session = fleet(store).inner.pool.take().await.unwrap();
            let before = unread(&session, study, 0).await.unwrap();
            assert_eq!(before.to, 17);
            commit(17..18).await;
            merge_by_hand(17, 18);
            let sum = before.sum(3, Cancel::NEVER).unwrap();
            let swapped = swap(&session, study.key, 0, &before, &sum).await;
            assert!(!swapped.unwrap());
            // Across what is kept: nothing of it is used until it is made anew.
            merge_by_hand(9, 18);
            assert_eq!(
                unfolded(store, study) + sums(store, study).duplicates,
                18 * 512
            );
            check().await;
            fold();
            assert_eq!(kept(servers), "18 9216");
            check().await;
            commit(18..21).await;
            store.set_state(study, StudyState::Closed).await.unwrap();
            store.sweep(&|| false).unwrap();
            assert_eq!(
                (chunks(servers), kept(servers)),
                ("21".into(), "-1 0".into())
            );
            check().await;
            fold();
            assert_eq!(kept(servers), "21 10752");
            check().await;
            // What is kept goes with the study.
            store.delete_study(study).await.unwrap();
            store.sweep(&|| false).unwrap();
            assert_eq!(kept(servers), "");
        });
    }

    /// Small chunks are merged as they would be without a kept sum; a damaged sum is not used.
    #[test]
    fn a_kept_sum_keeps_no_chunk_small() {
        with_one_bucket(1, async |servers, studies| {
            let (store, study) = (&servers.stores[0], &studies[0]);
            let commit = async |commits| commit(store, study, commits, |number| number).await;
            let fold = || store.fold(study, Cancel::NEVER).unwrap();
            commit(0..9).await;
            fold();
            commit(9..12).await;
            fold();
            assert_eq!(kept(servers), "9 4608");
            commit(12..17).await;
            store.sweep(&|| false).unwrap();
            assert_eq!(chunks(servers), "9 17");
            fold();
            assert_eq!(
                (kept(servers), unfolded(store, study)),
                ("17 8704".into(), 0)
            );
            let wanted = embedded_sums(store, study).await;
            servers.sql("UPDATE eigenveil.sums SET body = set_byte(body, 7, 127)");
            assert_eq!(unfolded(store, study), 17 * 512);
            assert_close(&sums(store, study), &wanted, 1e-12);
            commit(17..18).await;
            store.set_state(study, StudyState::Closed).await.unwrap();
            store.sweep(&|| false).unwrap();
            assert_eq!(
                (chunks(servers), kept(servers)),
                ("18".into(), "-1 0".into())
            );
            fold();
            assert_eq!(kept(servers), "18 9216");
        });
    }

    /// Sorted seeds lie in chunks that may end where others did: who has read those keeps nothing, and a sum of all of
    /// them stays as it is.
    #[test]
    fn what_is_kept_is_of_the_seeds_as_they_lie() {
        with_one_bucket(1, async |servers, studies| {
            let (store, study) = (&servers.stores[0], &studies[0]);
            // The last bytes decide the order of seeds, and the first ones that of commits.
            let seed = |number: u32| number.swap_bytes() ^ 0x5a;
            commit(store, study, 0..8, seed).await;
            store.sweep(&|| false).unwrap();
            let session = fleet(store).inner.pool.take().await.unwrap();
            let old = unread(&session, study, 0).await.unwrap();
            assert_eq!((old.to, old.seeds.len()), (8, 4_096));
            commit(store, study, 8..16, seed).await;
            let before = sums(store, study);
            let sizes = Sizes {
                together: usize::MAX,
                chunk: 4_096,
            };
            session.batch_execute("BEGIN").await.unwrap();
            let sorted = sort_bucket(&session, study.key, 0, sizes).await;
            assert!(sorted.unwrap());
            session.batch_execute("COMMIT").await.unwrap();
            assert_eq!(chunks(servers), "1 16");
            let sum = old.sum(3, Cancel::NEVER).unwrap();
            let swapped = swap(&session, study.key, 0, &old, &sum).await;
            assert!(!swapped.unwrap());
            store.fold(study, Cancel::NEVER).unwrap();
            assert_eq!(kept(servers), "16 8192");
            let summed = sums(store, study);
            assert_close(&summed, &before, 1e-6);
            store.set_state(study, StudyState::Closed).await.unwrap();
            store.sweep(&|| false).unwrap();
            assert_eq!(
                (chunks(servers), kept(servers)),
                ("16".into(), "16 8192".into())
            );
            assert_eq!(sums(store, study), summed);
        });
    }

    /// A bucket that is too large for one run is sorted in several; chunks have a commit each at least.
    #[test]
    fn runs_of_a_bucket_are_sorted_one_after_the_other() {
        with_one_bucket(1, async |servers, studies| {
            let (store, study) = (&servers.stores[0], &studies[0]);
            commit(store, study, 0..66, |number| number).await;
            let before = sums(store, study);
            let session = fleet(store).inner.pool.take().await.unwrap();
            for (together, chunk, wanted) in [
                // As many rows as are fetched at once.
                (1, usize::MAX, "64 66"),
                (usize::MAX, 20_000, "1 66"),
                (usize::MAX, 100, ""),
                (usize::MAX, usize::MAX, "66"),
            ] {
                let sizes = Sizes { together, chunk };
                session.batch_execute("BEGIN").await.unwrap();
                let sorted = sort_bucket(&session, study.key, 0, sizes).await;
                assert!(sorted.unwrap());
                session.batch_execute("COMMIT").await.unwrap();
                match wanted {
                    "" => assert_eq!(chunks(servers).split(' ').count(), 66),
                    _ => assert_eq!(chunks(servers), wanted),
                }
                let numbered = "SELECT string_agg(first || '-' || last, ' ' ORDER BY last) FROM (
                    SELECT first, last, lag(last, 1, 0::bigint) OVER (ORDER BY last) AS before FROM eigenveil.chunks) c
                    WHERE first != before + 1";
                assert_eq!(servers.sql(numbered), "");
                assert_close(&sums(store, study), &before, 1e-6);
            }
        });
    }

    /// Whoever helps with an estimate stops when it is cancelled.
    #[test]
    fn nobody_adds_up_for_an_estimate_that_was_cancelled() {
        with_one_bucket(2, async |servers, studies| {
            let (store, study) = (&servers.stores[0], &studies[0]);
            commit(store, study, 0..8, |number| number).await;
            store
                .add_job(study, EstimateRequest::default())
                .await
                .unwrap();
            store.claim_job().unwrap().unwrap();
            // Somebody who is at it for a minute.
            let session = fleet(store).inner.pool.take().await.unwrap();
            let hold = "SELECT pg_advisory_lock($1, 0)";
            let key = study.key.0 as i32;
            session.query(hold, &[&key]).await.unwrap();
            let helper = servers.stores[1].clone();
            let helping = spawn_blocking(move || fleet(&helper).help(&|| false));
            let helped = &fleet(&servers.stores[1]).inner.helped;
            eventually(async || lock(helped).is_some().then_some(())).await;
            store.cancel_job(study, 1).await.unwrap();
            let ended = tokio::time::timeout(PATIENCE / 2, helping).await;
            ended.expect("it helps on").unwrap().unwrap();
            assert_eq!(kept(servers), "0 0");
        });
    }
}
