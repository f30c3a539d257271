//! Seeds of closed studies, written anew: sorted within their bucket. The order of their commits, beside identifiers
//! that have a time, shows which seed came with which identifier. What they lay in is overwritten, and the write-ahead
//! log is emptied.

use std::{
    sync::PoisonError,
    thread::sleep,
    time::{Duration, Instant},
};

use eigenveil_shared::Result;
use rusqlite::{OptionalExtension, Transaction, params};

use super::{
    Sqlite,
    folds::before_sorting,
    seeds::{read_chunk, replace},
    writer::Writer,
};
use crate::contract::{failure::Failure, study::StudyKey};

/// Seeds that are sorted together, in one transaction: 8 MiB. Of a larger bucket, so many after the others.
const TOGETHER: usize = 1 << 19;
/// For whoever reads the log.
const PATIENCE: Duration = Duration::from_secs(60);
const PAUSE: Duration = Duration::from_millis(100);

/// How far the seeds of a closed study are sorted.
#[derive(Clone, Copy)]
pub(super) struct Position {
    study_pk: StudyKey,
    /// The study's commits: after an import, or reports that came when a wrong clock was right again, it begins anew.
    commits: u64,
    /// A bucket that there is not, after all of them.
    bucket: u32,
    /// The bucket's first commit that is not sorted.
    from: u64,
    /// Its rows before that.
    rows: u64,
}

impl Sqlite {
    /// Sorts the seeds of closed studies, while the disk has room for what only tidies up.
    pub(super) fn sort_closed(&self, stopping: &dyn Fn() -> bool) -> Result<()> {
        let mut sorted = self.sorted.lock().unwrap_or_else(PoisonError::into_inner);
        while !stopping() && self.reserve.has_room() {
            let before = *sorted;
            let step =
                self.write_blocking(move |transaction| sort_some(transaction, before, TOGETHER))?;
            let Some((position, is_all)) = step else {
                break;
            };
            *sorted = Some(position);
            if is_all {
                if !self.empty_log(stopping)? {
                    break;
                }
                self.write_blocking(move |transaction| {
                    let update = "UPDATE studies SET rewritten_seq = ?2 WHERE study_pk = ?1 AND commit_seq = ?2";
                    Ok(transaction.execute(update, params![position.study_pk, position.commits])?)
                })?;
            }
        }
        Ok(())
    }

    /// Whether the log could be emptied.
    fn empty_log(&self, stopping: &dyn Fn() -> bool) -> Result<bool> {
        let begun = Instant::now();
        while !stopping() && begun.elapsed() < PATIENCE {
            if self.on_writer(Writer::empty_log)? {
                return Ok(true);
            }
            sleep(PAUSE);
        }
        Ok(false)
    }
}

/// Sorts some seeds of a closed study. Returns how far it is, and whether that is all of it; `None` where there is no
/// such study.
fn sort_some(
    transaction: &Transaction<'_>,
    before: Option<Position>,
    together: usize,
) -> Result<Option<(Position, bool)>, Failure> {
    let closed = "SELECT study_pk, commit_seq, buckets FROM studies
                  WHERE state = 'closed' AND commit_seq > 0 AND rewritten_seq IS NOT commit_seq
                  AND study_pk NOT IN (SELECT study_pk FROM deleted_studies) ORDER BY study_pk LIMIT 1";
    let next: Option<(StudyKey, u64, u32)> = transaction
        .query_row(closed, [], |row| {
            Ok((row.get(0)?, row.get(1)?, row.get(2)?))
        })
        .optional()?;
    let Some((study_pk, commits, buckets)) = next else {
        return Ok(None);
    };
    let same = before.filter(|same| (same.study_pk, same.commits) == (study_pk, commits));
    let mut position = same.unwrap_or(Position {
        study_pk,
        commits,
        bucket: 0,
        from: 0,
        rows: 0,
    });
    // Freed pages are overwritten, too.
    transaction.pragma_update(None, "secure_delete", true)?;
    while position.bucket < buckets && !sort_bucket(transaction, &mut position, together)? {
        (position.bucket, position.from, position.rows) = (position.bucket + 1, 0, 0);
    }
    transaction.pragma_update(None, "secure_delete", "FAST")?;
    Ok(Some((position, position.bucket == buckets)))
}

/// Sorts the next seeds of a bucket; false if there are none.
fn sort_bucket(
    transaction: &Transaction<'_>,
    at: &mut Position,
    together: usize,
) -> Result<bool, Failure> {
    let (pk, bucket, mut seeds) = (at.study_pk, at.bucket, Vec::new());
    let rest = at.from..at.commits;
    let Some(end) = read_chunk(transaction, pk, bucket, rest, together, &mut seeds)? else {
        return Ok(false);
    };
    before_sorting(transaction, pk, bucket)?;
    seeds.sort_unstable();
    let commits = at.from..end;
    at.rows = replace(transaction, pk, bucket, commits, at.rows, &seeds)?;
    at.from = end;
    Ok(true)
}

#[cfg(test)]
mod tests {
    use std::{cell::Cell, collections::HashSet, io::Read as _, path::Path, sync::Arc};

    use eigenveil_estimation::{Cancel, sums_of_seeds};
    use eigenveil_shared::mechanism::double_cap::Seed;
    use rand::{RngExt as _, SeedableRng as _, rngs::ChaCha12Rng};
    use rusqlite::Connection;
    use serde_json::json;
    use tempfile::TempDir;
    use tokio::runtime::Runtime;

    use super::*;
    use crate::{
        Store,
        config::StoreConfig,
        database_path,
        environment::Environment,
        sqlite::{schema, seeds::append_chunks},
        testing::{
            fixtures::{SetClock, create, report},
            insider::{DEVICES, Sent, assert_counted, close, right, send},
        },
    };

    /// A study of a store in a folder of its own, and what its devices sent.
    struct Collected {
        store: Store,
        data: std::path::PathBuf,
        study: Arc<crate::Study>,
        all: Vec<Sent>,
        _folder: TempDir,
    }

    impl Collected {
        async fn new(at_once: usize) -> Self {
            let folder = tempfile::tempdir().unwrap();
            let config = StoreConfig::new(folder.path().join("data"));
            let clock = SetClock::new();
            let environment = Environment {
                clock: Arc::<SetClock>::clone(&clock),
                ..Environment::system()
            };
            let store = Store::open(&config, environment).unwrap();
            let (study, all) = send(&store, at_once, |now_ms| clock.set(now_ms)).await;
            Self {
                store,
                data: config.data_dir,
                study,
                all,
                _folder: folder,
            }
        }

        /// The files as they are now, elsewhere.
        fn copy(&self) -> TempDir {
            let copy = tempfile::tempdir().unwrap();
            for name in ["eigenveil.db", "eigenveil.db-wal"] {
                std::fs::copy(self.data.join(name), copy.path().join(name)).unwrap();
            }
            copy
        }

        /// Identifiers paired with seeds by their order, in this database.
        fn paired(&self, database: &Path) -> usize {
            let connection = Connection::open(database).unwrap();
            let column = |select: &str| -> Vec<Vec<u8>> {
                let mut statement = connection.prepare(select).unwrap();
                let rows = statement.query_map([], |row| row.get(0)).unwrap();
                let rows: Vec<Vec<u8>> = rows.map(Result::unwrap).collect();
                rows.iter()
                    .flat_map(|row| row.chunks(16).map(<[u8]>::to_vec))
                    .collect()
            };
            // Another study of the store has a later key and no seeds.
            let mut ids = column(
                "SELECT id FROM report_ids WHERE study_pk = 1
                 UNION ALL SELECT ids FROM recent_ids WHERE study_pk = 1",
            );
            ids.sort();
            let seeds = column("SELECT seeds FROM seeds ORDER BY commit_seq, bucket");
            assert_eq!((ids.len(), seeds.len()), (DEVICES, DEVICES));
            right(&self.all, ids.iter().zip(&seeds))
        }

        fn backed_up(&self) -> usize {
            let (mut bytes, copy) = (Vec::new(), tempfile::tempdir().unwrap());
            self.store
                .backup()
                .unwrap()
                .read_to_end(&mut bytes)
                .unwrap();
            let path = copy.path().join("backup");
            std::fs::write(&path, bytes).unwrap();
            self.paired(&path)
        }

        /// How many of these texts of one length the files have anywhere.
        fn traces(&self, texts: &HashSet<Vec<u8>>) -> usize {
            let copy = self.copy();
            let mut left = HashSet::new();
            for name in ["eigenveil.db", "eigenveil.db-wal"] {
                let bytes = std::fs::read(copy.path().join(name)).unwrap();
                let length = texts.iter().map(Vec::len).max().unwrap();
                let parts = bytes.windows(length);
                left.extend(parts.filter_map(|part| texts.get(part)).cloned());
            }
            left.len()
        }
    }

    /// Rows of seeds as they came: with the checksum, which depends on the commit's number. The first number is also
    /// that of a row that is written anew.
    fn rows_as_they_came(data: &Path) -> HashSet<Vec<u8>> {
        let connection = Connection::open(database_path(data)).unwrap();
        let select = "SELECT seeds, checksum FROM seeds WHERE commit_seq > 0";
        let mut statement = connection.prepare(select).unwrap();
        let rows = statement.query_map([], |row| {
            Ok([row.get::<_, Vec<u8>>(0)?, row.get(1)?].concat())
        });
        rows.unwrap().map(Result::unwrap).collect()
    }

    /// A hundred devices: while the study is open, nearly all where they come one by one, as chance has it where ten
    /// come at once; once it is closed and swept, as chance has it, in files, backups, and pages free after a deletion.
    #[test]
    fn an_insider_pairs_seeds_until_the_study_is_closed() {
        // More once in a hundred million runs.
        for (at_once, open, by_chance) in [(1, 80..=DEVICES, 10), (10, 0..=30, 20)] {
            let runtime = Runtime::new().unwrap();
            let case = runtime.block_on(Collected::new(at_once));
            let paired = || case.paired(&database_path(case.copy().path()));
            assert!(open.contains(&paired()), "{at_once}: {}", paired());
            assert!(open.contains(&case.backed_up()), "{at_once}");
            let rows = rows_as_they_came(&case.data);
            assert_eq!(case.traces(&rows), rows.len());
            assert!(!case.store.is_rewritten(&case.study).unwrap());
            let before = case.store.bucket_sums(&case.study, Cancel::NEVER).unwrap();
            runtime.block_on(close(&case.store, &case.study));
            assert!(!case.store.is_rewritten(&case.study).unwrap());
            case.store.sweep(&|| false).unwrap();
            assert!(case.store.is_rewritten(&case.study).unwrap());
            assert!(paired() <= by_chance, "{at_once}: {}", paired());
            assert!(case.backed_up() <= by_chance, "{at_once}");
            assert_eq!(case.traces(&rows), 0, "{at_once}");
            let after = case.store.bucket_sums(&case.study, Cancel::NEVER).unwrap();
            for ((bucket, after), (of_bucket, before)) in after.buckets.iter().zip(&before.buckets)
            {
                assert_eq!((bucket, after.count()), (of_bucket, before.count()));
                for (a, b) in after.sum().as_slice().iter().zip(before.sum().as_slice()) {
                    assert!((a - b).abs() < 1e-4, "{a} {b}");
                }
            }
            runtime.block_on(assert_counted(&case.store, &case.study, &case.all));
            runtime
                .block_on(case.store.delete_study(&case.study))
                .unwrap();
            case.store.sweep(&|| false).unwrap();
            assert_eq!(case.traces(&rows), 0, "{at_once}");
        }
    }

    /// Nor do the files have earlier sums, between two of which is a report.
    #[test]
    fn nothing_is_left_of_earlier_sums() {
        let folder = tempfile::tempdir().unwrap();
        let config = StoreConfig {
            // One bucket.
            sum_cache_bytes: 8 * 6,
            ..StoreConfig::new(folder.path().join("data"))
        };
        let store = Store::open(&config, Environment::system()).unwrap();
        let runtime = Runtime::new().unwrap();
        let study = runtime.block_on(create(&store, &json!({})));
        let database = || Connection::open(database_path(&config.data_dir)).unwrap();
        let mut sums: Vec<Vec<u8>> = Vec::new();
        for number in 1..=20 {
            let sent = store.submit(&study, vec![report(&study, number)]);
            runtime.block_on(sent).unwrap();
            let select = "SELECT sum FROM buckets";
            sums.push(database().query_row(select, [], |row| row.get(0)).unwrap());
        }
        let last = sums.pop().unwrap();
        let counts = || {
            let files = ["eigenveil.db", "eigenveil.db-wal"];
            let bytes = files.map(|name| std::fs::read(config.data_dir.join(name)).unwrap());
            let bytes = bytes.concat();
            let has = |sum: &&Vec<u8>| bytes.windows(sum.len()).any(|part| part == &sum[..]);
            (sums.iter().filter(has).count(), has(&&last))
        };
        assert!(counts().0 > 10);
        runtime.block_on(close(&store, &study));
        store.sweep(&|| false).unwrap();
        assert_eq!(counts(), (0, true));
    }

    /// Wherever it stops, everything is counted, and the next start goes on; whoever has read seeds before has what there
    /// was.
    #[test]
    fn steps_that_are_cut_off_lose_nothing() {
        let runtime = Runtime::new().unwrap();
        let case = runtime.block_on(Collected::new(1));
        let other = runtime.block_on(create(&case.store, &json!({})));
        let before = case.store.bucket_sums(&case.study, Cancel::NEVER).unwrap();
        runtime.block_on(close(&case.store, &case.study));
        let seeds = case.store.seeds(&case.study, Cancel::NEVER).unwrap();
        let mut steps = 0;
        while !case.store.is_rewritten(&case.study).unwrap() {
            // A killed server leaves what a copy has.
            let copy = case.copy();
            let config = StoreConfig::new(copy.path());
            let store = Store::open(&config, Environment::system()).unwrap();
            let study = store.study(case.study.id()).unwrap();
            runtime.block_on(assert_counted(&store, &study, &case.all));
            let counted = store.bucket_sums(&study, Cancel::NEVER).unwrap();
            assert_eq!(counted.n, DEVICES as u64);
            store.sweep(&|| false).unwrap();
            assert!(store.is_rewritten(&study).unwrap());
            assert!(case.paired(&database_path(&config.data_dir)) <= 10);

            let asked = Cell::new(0);
            // After the step that finds nothing to remove, two more.
            let stop = || asked.replace(asked.get() + 1) > 2;
            case.store.sweep(&stop).unwrap();
            steps += 1;
            let sent = case.store.submit(&other, vec![report(&other, steps)]);
            runtime.block_on(sent).unwrap();
        }
        assert!(steps > 5, "{steps}");
        assert_eq!(other.reports_accepted(), u64::from(steps));
        // What was read before stays what it was.
        let sums = sums_of_seeds(&seeds, 3, u64::MAX, Cancel::NEVER).unwrap();
        assert_eq!(sums, before.buckets);
    }

    /// A bucket that is too large for one step is sorted in parts, and rows get numbers that no commit after them has.
    #[test]
    fn parts_of_a_bucket_are_sorted_one_after_the_other() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("parts.db");
        let mut connection = schema::open_for_writing(&path).unwrap();
        connection
            .execute(
                "INSERT INTO studies
                 (study_pk, id, name, state, canonical, fingerprint, buckets, created_at_ms, commit_seq)
                 VALUES (1, randomblob(16), '', 'closed', x'', randomblob(32), 3, 0, 40)",
                [],
            )
            .unwrap();
        let mut rng = ChaCha12Rng::seed_from_u64(25);
        let transaction = connection.transaction().unwrap();
        let pk = StudyKey(1);
        for commit in 0..40 {
            let seeds: Vec<Seed> = (0..1 + commit % 3).map(|_| rng.random()).collect();
            // The last bucket is empty.
            let bucket = (commit % 2) as u32;
            append_chunks(&transaction, pk, bucket, commit, seeds.as_flattened()).unwrap();
        }
        let read = |bucket: u32| {
            let mut seeds = Vec::new();
            let all = read_chunk(&transaction, pk, bucket, 0..40, usize::MAX, &mut seeds);
            all.unwrap();
            seeds
        };
        let before = [read(0), read(1)];
        let mut position = None;
        loop {
            let (reached, is_all) = sort_some(&transaction, position, 7).unwrap().unwrap();
            position = Some(reached);
            if is_all {
                break;
            }
        }
        for (bucket, mut wanted) in (0..).zip(before) {
            let mut sorted = read(bucket);
            // Parts of seven to nine of some forty seeds.
            let runs = sorted.chunk_by(|a, b| a <= b).count();
            assert!(runs <= 5, "{runs}");
            sorted.sort_unstable();
            wanted.sort_unstable();
            assert_eq!(sorted, wanted);
        }
        let rows = "SELECT count(*) = 1 + max(commit_seq) FROM seeds GROUP BY bucket";
        let mut statement = transaction.prepare(rows).unwrap();
        let numbered = statement.query_map([], |row| row.get(0)).unwrap();
        let numbered: Vec<bool> = numbered.map(Result::unwrap).collect();
        assert_eq!(numbered, [true, true]);
    }

    /// An import into a closed study is sorted, too.
    #[test]
    fn what_comes_later_is_sorted_too() {
        let runtime = Runtime::new().unwrap();
        let case = runtime.block_on(Collected::new(10));
        runtime.block_on(close(&case.store, &case.study));
        case.store.sweep(&|| false).unwrap();
        assert!(case.store.is_rewritten(&case.study).unwrap());
        let export = crate::VerifiedExport::read(case.store.export(&case.study).unwrap()).unwrap();
        let design = json!({"mechanism": "double-cap", "delta": null});
        let into = runtime.block_on(create(&case.store, &design));
        runtime.block_on(close(&case.store, &into));
        case.store.sweep(&|| false).unwrap();
        assert!(case.store.is_rewritten(&into).unwrap());
        let imported = case.store.import(export, Some(Arc::clone(&into)));
        runtime.block_on(imported).unwrap();
        assert!(!case.store.is_rewritten(&into).unwrap());
        case.store.sweep(&|| false).unwrap();
        assert!(case.store.is_rewritten(&into).unwrap());
        assert_eq!(into.reports_accepted(), DEVICES as u64);
    }
}
