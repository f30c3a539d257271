//! Folds of buckets as rows: written by the writer's thread, dropped by whatever gives seeds another order.

use eigenveil_shared::Result;
use rusqlite::{Connection, OptionalExtension, Transaction, params};

use super::seeds::read_rows;
use crate::{
    contract::{
        engine::{Kept, NewFold, ReadSeeds, RowSink, SeedReader, Seeds},
        failure::Failure,
        study::{Study, StudyKey},
    },
    sqlite::{Sqlite, rows, schema, schema::PAGE_BYTES, snapshot::accepted},
};

/// Bytes of folds that are dropped in one transaction.
const DROPPED_TOGETHER: u64 = 4 << 20;

impl Seeds for Sqlite {
    /// In a read transaction, on a connection of its own: reading must not block others.
    fn read_seeds(&self, study: &Study, read: &mut ReadSeeds<'_>) -> Result<()> {
        let mut read_all = || -> Result<(), Failure> {
            let mut connection = schema::open_for_reading(&self.directory.database())?;
            let transaction = connection.transaction()?;
            read(&Reader {
                accepted: accepted(&transaction, study)?,
                connection: &transaction,
                study_pk: study.key,
            })
        };
        self.note_damage(read_all())
    }

    /// Leaves the last of the space to reports.
    fn has_room(&self, bytes: u64) -> bool {
        let select =
            "SELECT page_count - freelist_count FROM pragma_page_count(), pragma_freelist_count()";
        let pages = self.reader().query_row(select, [], |row| row.get(0));
        let used = pages.map_or(0, |pages: u64| pages * PAGE_BYTES);
        let limit = self.config.max_store_bytes.unwrap_or(u64::MAX);
        self.reserve.has_room_for(bytes) && used.saturating_add(bytes) <= limit - limit / 8
    }

    fn keep_fold(
        &self,
        study: &Study,
        bucket: u32,
        generation: i64,
        fold: NewFold,
    ) -> Result<bool> {
        self.write_fold(study, move |transaction, pk| {
            keep(transaction, pk, bucket, generation, &fold)
        })
    }

    fn drop_fold(&self, study: &Study, bucket: u32, generation: i64) -> Result<()> {
        self.write_fold(study, move |transaction, pk| {
            let before = kept(transaction, pk, bucket)?;
            if before.generation == generation {
                put(transaction, pk, bucket, after(before, None), None)?;
            }
            Ok(())
        })
    }
}

impl Sqlite {
    /// A transaction after which nothing of replaced folds is left in free pages: they show which seeds came earlier.
    fn write_fold<T: Send + 'static>(
        &self,
        study: &Study,
        write: impl FnOnce(&Transaction<'_>, StudyKey) -> Result<T, Failure> + Send + 'static,
    ) -> Result<T> {
        let (pk, id) = (study.key, study.id());
        self.write_blocking(move |transaction| {
            rows::require(transaction, pk, id)?;
            transaction.pragma_update(None, "secure_delete", true)?;
            let written = write(transaction, pk);
            transaction.pragma_update(None, "secure_delete", "FAST")?;
            written
        })
    }
}

struct Reader<'a> {
    connection: &'a Connection,
    study_pk: StudyKey,
    accepted: u64,
}

impl SeedReader for Reader<'_> {
    fn accepted(&self) -> u64 {
        self.accepted
    }

    fn kept(&self, bucket: u32) -> Result<Kept, Failure> {
        kept(self.connection, self.study_pk, bucket)
    }

    fn fold(&self, bucket: u32) -> Result<Option<Vec<u8>>, Failure> {
        let select = "SELECT body FROM folds WHERE study_pk = ? AND bucket = ?";
        let mut statement = self.connection.prepare_cached(select)?;
        // Of another type it is damaged.
        let body: Option<Option<Vec<u8>>> = statement
            .query_row(params![self.study_pk, bucket], |row| Ok(row.get(0).ok()))
            .optional()?;
        Ok(body.flatten())
    }

    fn last(&self, bucket: u32) -> Result<i64, Failure> {
        let select =
            "SELECT coalesce(max(commit_seq), -1) FROM seeds WHERE study_pk = ? AND bucket = ?";
        let mut statement = self.connection.prepare_cached(select)?;
        Ok(statement.query_row(params![self.study_pk, bucket], |row| row.get(0))?)
    }

    fn rows(&self, bucket: u32, after: i64, take: &mut RowSink<'_>) -> Result<(), Failure> {
        read_rows(self.connection, self.study_pk, bucket, after, take)
    }
}

/// A damaged number stops nothing: with it no fold is decoded, and the row can be replaced.
fn kept(connection: &Connection, study_pk: StudyKey, bucket: u32) -> Result<Kept, Failure> {
    let select = "SELECT generation, upto, n FROM folds WHERE study_pk = ? AND bucket = ?";
    let mut statement = connection.prepare_cached(select)?;
    let row = statement.query_row(params![study_pk, bucket], |row| {
        Ok(Kept {
            generation: row.get(0).unwrap_or_default(),
            upto: row.get(1).unwrap_or(i64::MIN),
            n: row.get(2).unwrap_or(u64::MAX),
        })
    });
    let fold = row.optional()?.unwrap_or_default();
    Ok(match fold.n {
        0 => Kept { upto: -1, ..fold },
        _ => fold,
    })
}

/// The one that is kept in its place: a fold, or none.
fn after(before: Kept, fold: Option<&NewFold>) -> Kept {
    Kept {
        generation: before.generation.wrapping_add(1),
        upto: fold.map_or(-1, |fold| fold.upto),
        n: fold.map_or(0, |fold| fold.n),
    }
}

fn put(
    transaction: &Transaction<'_>,
    study_pk: StudyKey,
    bucket: u32,
    kept: Kept,
    body: Option<&[u8]>,
) -> Result<(), Failure> {
    transaction.execute(
        "INSERT INTO folds (study_pk, bucket, generation, upto, n, body) VALUES (?, ?, ?, ?, ?, ?)
         ON CONFLICT (study_pk, bucket) DO UPDATE SET
             generation = excluded.generation, upto = excluded.upto, n = excluded.n, body = excluded.body",
        params![study_pk, bucket, kept.generation, kept.upto, kept.n, body],
    )?;
    Ok(())
}

fn keep(
    transaction: &Transaction<'_>,
    study_pk: StudyKey,
    bucket: u32,
    generation: i64,
    fold: &NewFold,
) -> Result<bool, Failure> {
    let before = kept(transaction, study_pk, bucket)?;
    // Of the new rows only: what those before are is said by the generation.
    let added: u64 = transaction.query_row(
        "SELECT coalesce(sum(n), 0) FROM seeds
         WHERE study_pk = ? AND bucket = ? AND commit_seq > ? AND commit_seq <= ?",
        params![study_pk, bucket, before.upto, fold.upto],
        |row| row.get(0),
    )?;
    if before.generation != generation || before.n.checked_add(added) != Some(fold.n) {
        return Ok(false);
    }
    let moved_on = after(before, Some(fold));
    put(transaction, study_pk, bucket, moved_on, Some(&fold.body))?;
    Ok(true)
}

/// Before rows of the bucket are sorted and numbered anew, where whatever is replaced is overwritten: a fold of all seeds
/// stays what it is, and any other is dropped, since it shows which seeds came earlier.
pub(crate) fn before_sorting(
    transaction: &Transaction<'_>,
    study_pk: StudyKey,
    bucket: u32,
) -> Result<(), Failure> {
    let before = kept(transaction, study_pk, bucket)?;
    let all: u64 = transaction.query_row(
        "SELECT coalesce(sum(n), 0) FROM seeds WHERE study_pk = ? AND bucket = ?",
        params![study_pk, bucket],
        |row| row.get(0),
    )?;
    if before.n != all {
        return put(transaction, study_pk, bucket, after(before, None), None);
    }
    transaction.execute(
        "UPDATE folds SET generation = ? WHERE study_pk = ? AND bucket = ?",
        params![before.generation.wrapping_add(1), study_pk, bucket],
    )?;
    Ok(())
}

/// Drops some folds of studies whose folds have more bytes than this; returns whether there may be more. A full disk is
/// no hindrance: free pages are not overwritten, which would take as much of the disk as it frees.
pub(crate) fn drop_above(transaction: &Transaction<'_>, bytes: u64) -> Result<bool, Failure> {
    let rows = above(transaction, bytes)?;
    for (row, generation) in &rows {
        transaction.execute(
            "UPDATE folds SET generation = ?, upto = -1, n = 0, body = NULL WHERE rowid = ?",
            [generation.wrapping_add(1), *row],
        )?;
    }
    Ok(!rows.is_empty())
}

/// Some of these folds: rows with their generation.
fn above(connection: &Connection, bytes: u64) -> Result<Vec<(i64, i64)>, Failure> {
    let most = i64::try_from(bytes).unwrap_or(i64::MAX);
    let select =
        "SELECT rowid, generation, length(body) FROM folds WHERE body IS NOT NULL AND study_pk IN
                  (SELECT study_pk FROM folds GROUP BY study_pk HAVING sum(length(body)) > ?)";
    let mut statement = connection.prepare(select)?;
    let mut rows = statement.query([most])?;
    let (mut folds, mut bytes) = (Vec::new(), 0);
    while bytes < DROPPED_TOGETHER
        && let Some(row) = rows.next()?
    {
        folds.push((row.get(0)?, row.get(1).unwrap_or_default()));
        bytes += row.get::<_, u64>(2)?;
    }
    Ok(folds)
}

/// Removes some of what is kept of a study; returns the number of rows.
pub(crate) fn remove(transaction: &Transaction<'_>, study_pk: StudyKey) -> Result<usize, Failure> {
    // By default each has up to 32 MiB.
    Ok(transaction.execute(
        "DELETE FROM folds WHERE rowid IN (SELECT rowid FROM folds WHERE study_pk = ? LIMIT 4)",
        [study_pk],
    )?)
}

#[cfg(test)]
mod tests {
    use std::{cell::Cell, path::Path, sync::Arc};

    use eigenveil_estimation::{Cancel, sparse_from_seeds::SeedSource as _};
    use eigenveil_shared::api::StudyState;
    use rusqlite::Connection;
    use tokio::runtime::Runtime;

    use crate::{
        Store, Study,
        config::StoreConfig,
        contract::engine::NewFold,
        database_path,
        environment::Environment,
        folds::{Folding, fold_study},
        sqlite::seeds::replace,
        testing::fixtures::{create, of_seeds, with_payload},
    };

    /// A store with a study of one bucket, of which 64 seeds or more are folded together.
    struct OneBucket {
        runtime: Runtime,
        store: Store,
        study: Arc<Study>,
        database: Connection,
        _folder: tempfile::TempDir,
    }

    impl OneBucket {
        fn new(change: impl Fn(&mut StoreConfig)) -> Self {
            let folder = tempfile::tempdir().unwrap();
            let mut config = StoreConfig {
                min_folded_seeds: 64,
                ..StoreConfig::new(folder.path().join("data"))
            };
            change(&mut config);
            let runtime = Runtime::new().unwrap();
            let open = || Store::open(&config, Environment::system()).unwrap();
            let store = open();
            let id = runtime.block_on(create(&store, &of_seeds())).id();
            drop(store);
            let connect = || Connection::open(database_path(&config.data_dir)).unwrap();
            connect()
                .execute("UPDATE studies SET buckets = 1", [])
                .unwrap();
            let (store, database) = (open(), connect());
            Self {
                study: store.study(id).unwrap(),
                runtime,
                store,
                database,
                _folder: folder,
            }
        }

        /// A commit of so many reports, from this number on.
        fn send(&self, first: u32, count: u32) {
            let numbers = first..first + count;
            let reports = numbers.map(|number| with_payload(&self.study, number, number % 9_000));
            let sent = self.store.submit(&self.study, reports.collect());
            self.runtime.block_on(sent).unwrap();
        }

        /// Generation, last row and seeds of the fold; zeros where there never was one.
        fn kept(&self) -> (i64, i64, i64) {
            let select = "SELECT coalesce(max(generation), 0), coalesce(max(upto), 0), coalesce(max(n), 0) FROM folds";
            let row = self.database.query_row(select, [], |row| {
                Ok((row.get(0)?, row.get(1)?, row.get(2)?))
            });
            row.unwrap()
        }

        /// Closed and sorted.
        fn close(&self) {
            let close = self.store.set_state(&self.study, StudyState::Closed);
            self.runtime.block_on(close).unwrap();
            self.store.sweep(&|| false).unwrap();
            assert!(self.store.is_rewritten(&self.study).unwrap());
        }

        /// Copies, and seeds that an estimate expands.
        fn read(&self) -> (u64, u64) {
            let seeds = self.store.folded_seeds(&self.study, Cancel::NEVER).unwrap();
            let mut expanded = 0;
            let count = &mut |_, seeds: &[[u8; 16]]| {
                expanded += seeds.len() as u64;
                Ok(())
            };
            seeds.pass(count).unwrap();
            (seeds.repeated(), expanded)
        }

        fn fold(&self) {
            self.store.fold(&self.study, Cancel::NEVER).unwrap();
        }
    }

    /// The larger a fold is, the more seeds it takes to write it anew; fewer are left to estimates. Copies are found in
    /// folds and after them.
    #[test]
    fn a_fold_is_seldom_written_anew() {
        let case = OneBucket::new(|_| ());
        for number in 0..50 {
            case.send(64 * number, 64);
            case.fold();
        }
        // 64 at a time up to an eighth of 512, then 128, …
        assert_eq!(case.kept(), (21, 49, 3_200));
        assert_eq!(case.read(), (0, 0));
        case.send(3_200, 64);
        case.fold();
        assert_eq!((case.kept(), case.read()), ((21, 49, 3_200), (0, 64)));
        // A copy of a seed of the fold.
        case.send(9_000, 1);
        assert_eq!(case.read(), (1, 64));
    }

    /// However many reports come meanwhile: what came after it had begun is left for later.
    #[test]
    fn folding_ends_while_seeds_come() {
        let case = OneBucket::new(|_| ());
        let next = Cell::new(0);
        let send = || {
            assert!(next.get() < 20_000, "it never ends");
            case.send(next.get(), 100);
            next.set(next.get() + 100);
        };
        (0..3).for_each(|_| send());
        let folding = Folding {
            config: case.store.config(),
            cancel: Cancel::NEVER,
            pause: &|| (0..4).for_each(|_| send()),
        };
        fold_study(&*case.store.shared.engine, &case.study, &folding).unwrap();
        assert_eq!(case.kept(), (1, 2, 300));
        // Before each of three ranges, and before the fold was kept.
        assert_eq!(case.read(), (0, 1_600));
    }

    /// A fold is a cache: the store is not damaged, one without copies is what an estimate gets meanwhile, and the fold is
    /// made anew.
    #[test]
    fn a_damaged_fold_is_made_anew() {
        for damage in [
            "UPDATE folds SET body = zeroblob(length(body))",
            "UPDATE folds SET body = substr(body, 1, 100)",
            "UPDATE folds SET body = NULL",
            "UPDATE folds SET n = n + 1",
            "UPDATE folds SET n = 1 << 62",
            "UPDATE folds SET upto = upto + 1",
        ] {
            let case = OneBucket::new(|_| ());
            case.send(0, 100);
            case.fold();
            case.send(100, 100);
            case.database.execute_batch(damage).unwrap();
            assert_eq!(case.read(), (0, 200), "{damage}");
            assert_eq!(case.kept(), (2, -1, 0), "{damage}");
            assert!(!case.store.is_damaged());
            case.fold();
            assert_eq!((case.kept(), case.read()), ((3, 1, 200), (0, 0)));
        }
    }

    /// A number or a body of any kind: estimates and sorting go on, and the next fold is kept.
    #[test]
    fn a_damaged_row_is_replaced() {
        let damages = [
            "n = -1",
            "n = NULL",
            "n = 'many'",
            "n = 0",
            "n = 0, body = NULL, upto = 5",
            "upto = NULL",
            "body = 'text'",
            "generation = NULL",
            "generation = 9223372036854775807",
        ];
        for (damage, closes) in damages
            .iter()
            .flat_map(|damage| [(damage, false), (damage, true)])
        {
            let case = OneBucket::new(|_| ());
            case.send(0, 100);
            case.fold();
            // Without types and checks.
            let update = format!(
                "ALTER TABLE folds RENAME TO typed;
                 CREATE TABLE folds (study_pk, bucket, generation, upto, n, body, PRIMARY KEY (study_pk, bucket));
                 INSERT INTO folds SELECT * FROM typed; UPDATE folds SET {damage}"
            );
            case.database.execute_batch(&update).unwrap();
            let all = match closes {
                true => {
                    case.close();
                    100
                }
                false => {
                    case.send(100, 100);
                    200
                }
            };
            let (copies, expanded) = case.read();
            assert!(copies == 0 && [0, 100, all].contains(&expanded), "{damage}");
            case.fold();
            assert_eq!(case.kept().2, all as i64, "{damage}");
            assert_eq!(case.read(), (0, 0), "{damage}");
            assert!(!case.store.is_damaged());
        }
    }

    /// A fold of rows as they were before they were sorted is no longer of those that are there.
    #[test]
    fn a_fold_of_other_seeds_is_made_anew() {
        let case = OneBucket::new(|_| ());
        case.send(0, 100);
        case.fold();
        let before = "CREATE TABLE saved AS SELECT upto, n, body FROM folds";
        case.database.execute_batch(before).unwrap();
        case.send(100, 100);
        case.close();
        let put_back = "UPDATE folds SET (upto, n, body) = (SELECT upto, n, body FROM saved)";
        case.database.execute_batch(put_back).unwrap();
        assert_eq!(case.read(), (0, 200));
        assert!(!case.store.is_damaged());
        case.fold();
        assert_eq!(case.read(), (0, 0));
    }

    /// Nor a fold of as many other seeds: its own are elsewhere, so all are read.
    #[test]
    fn a_fold_of_as_many_other_seeds_is_made_anew() {
        let case = OneBucket::new(|_| ());
        case.send(0, 100);
        case.fold();
        case.send(100, 100);
        let seeds_of = |commit: u64| -> Vec<u8> {
            let select = "SELECT seeds FROM seeds WHERE commit_seq = ?";
            let row = case.database.query_row(select, [commit], |row| row.get(0));
            row.unwrap()
        };
        let seeds = [seeds_of(0), seeds_of(1)];
        let transaction = case.database.unchecked_transaction().unwrap();
        for (commit, others) in [(0, &seeds[1]), (1, &seeds[0])] {
            let (others, _) = others.as_chunks::<16>();
            let commits = commit..commit + 1;
            replace(&transaction, case.study.key, 0, commits, commit, others).unwrap();
        }
        transaction.commit().unwrap();
        assert_eq!((case.read(), case.kept().2), ((0, 200), 0));
        assert!(!case.store.is_damaged());
        case.fold();
        assert_eq!(case.read(), (0, 0));
    }

    /// A closed study is sorted: a fold of some of its seeds goes, and one of all stays. Whoever has read the seeds before
    /// keeps nothing, nor a fold of too few.
    #[test]
    fn sorting_drops_what_is_no_longer_true() {
        for last in [10, 64] {
            let case = OneBucket::new(|_| ());
            case.send(0, 100);
            case.send(100, last);
            case.fold();
            assert_eq!(case.read(), (0, u64::from(last % 64)));
            let (before, ..) = case.kept();
            case.close();
            let (generation, _, kept) = case.kept();
            assert_eq!(kept, if last == 64 { 164 } else { 0 });
            let expanded = if last == 64 { 0 } else { 110 };
            assert_eq!(case.read(), (0, expanded));
            let keep = |generation, n| {
                let fold = NewFold {
                    upto: 1,
                    n,
                    body: Vec::new(),
                };
                let engine = &case.store.shared.engine;
                engine.keep_fold(&case.study, 0, generation, fold).unwrap()
            };
            let all = u64::from(100 + last);
            assert!(generation > before && !keep(before, all));
            assert!(!keep(generation, all - 1) && !keep(generation, all + 1));
            case.fold();
            assert_eq!(case.read(), (0, 0));
        }
    }

    /// Nor do free pages have what shows which seeds came earlier.
    #[test]
    fn nothing_is_left_of_a_fold_that_was_dropped() {
        let case = OneBucket::new(|_| ());
        case.send(0, 4_000);
        case.fold();
        let select = "SELECT body FROM folds";
        let body: Vec<u8> = case
            .database
            .query_row(select, [], |row| row.get(0))
            .unwrap();
        // Those that lie in pages of their own.
        let pieces = body.chunks_exact(1_000).skip(9).map(|some| &some[..64]);
        let pieces: Vec<&[u8]> = pieces.collect();
        let left = || {
            let folder = tempfile::tempdir().unwrap();
            let main = Path::new(case.database.path().unwrap());
            let copy = folder.path().join("copy.db");
            std::fs::copy(main, &copy).unwrap();
            let logs = [main, &*copy].map(|path| path.with_extension("db-wal"));
            std::fs::copy(&logs[0], &logs[1]).unwrap();
            let database = Connection::open(&copy).unwrap();
            let checkpoint = "PRAGMA wal_checkpoint(TRUNCATE)";
            database.query_row(checkpoint, [], |_| Ok(())).unwrap();
            let bytes = std::fs::read(&copy).unwrap();
            let is_left = |piece: &&&[u8]| bytes.windows(64).any(|part| part == **piece);
            pieces.iter().filter(is_left).count()
        };
        assert!(left() > 15, "{}", left());
        let (generation, ..) = case.kept();
        let engine = &case.store.shared.engine;
        engine.drop_fold(&case.study, 0, generation).unwrap();
        assert_eq!(left(), 0);
    }

    /// Where what is kept would be larger than the limit nothing is kept, and everything counts.
    #[test]
    fn the_limit_decides_what_is_kept() {
        // Of all samples, a head, a sum of three features, and the fingerprints.
        let needed = (1 << 20) + 16 + 8 * 6 + 8 * 200;
        for (limit, kept) in [(needed - 1, 0), (needed, 200)] {
            let case = OneBucket::new(|config| config.max_fold_bytes = limit);
            case.send(0, 200);
            case.fold();
            assert_eq!(case.kept().2, kept);
            assert_eq!(case.read(), (0, 200 - kept as u64));
        }
    }

    /// The last eighth of what the store may have is left to reports.
    #[test]
    fn a_fold_leaves_room_to_reports() {
        let case = OneBucket::new(|config| config.max_store_bytes = Some(1 << 20));
        let select =
            "SELECT page_count - freelist_count FROM pragma_page_count(), pragma_freelist_count()";
        let pages: u64 = case
            .database
            .query_row(select, [], |row| row.get(0))
            .unwrap();
        let left = (7 << 17) - 8_192 * pages;
        let has_room = |bytes| case.store.shared.engine.has_room(bytes);
        assert!(has_room(left) && !has_room(left + 1));
    }

    /// Folds that are larger than a lowered limit go when the store is tidied, which a server does at its start, and
    /// little is written for that: a full disk has it.
    #[test]
    fn a_lowered_limit_gives_the_space_back() {
        let case = OneBucket::new(|_| ());
        case.send(0, 20_000);
        case.fold();
        let config = case.store.config().clone();
        let OneBucket {
            store, database, ..
        } = case;
        drop(store);
        let fold = || -> (u64, u64) {
            let select = "SELECT n, coalesce(length(body), 0) FROM folds";
            let row = database.query_row(select, [], |row| Ok((row.get(0)?, row.get(1)?)));
            row.unwrap()
        };
        let (n, bytes) = fold();
        assert_eq!((n, bytes), (20_000, 16 + 8 * 6 + 8 * 20_000));
        let log = database_path(&config.data_dir).with_extension("db-wal");
        for (limit, left) in [(bytes, (n, bytes)), (bytes - 1, (0, 0))] {
            let config = StoreConfig {
                max_fold_bytes: limit,
                ..config.clone()
            };
            let store = Store::open(&config, Environment::system()).unwrap();
            store.sweep(&|| false).unwrap();
            assert_eq!(fold(), left);
            let written = std::fs::metadata(&log).unwrap().len();
            assert!(written < bytes / 2, "{written}");
        }
    }

    /// A panic is told, and neither ends the folding nor comes again at once.
    #[test]
    fn folding_in_the_background_survives_a_panic() {
        let case = OneBucket::new(|_| ());
        case.send(0, 100);
        let asked = Cell::new(0);
        let panics = || {
            asked.set(asked.get() + 1);
            assert!(asked.get() != 2, "a bug");
            false
        };
        let fold = || while case.store.fold_in_background(&panics).unwrap() {};
        fold();
        fold();
        assert_eq!(case.kept().2, 0);
        case.send(100, 100);
        fold();
        assert_eq!(case.kept().2, 200);
    }
}
