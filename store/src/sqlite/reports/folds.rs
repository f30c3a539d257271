//! Folds of buckets as rows: written by the writer's thread, dropped by whatever gives seeds another order.

use std::fs::metadata;

use eigenveil_shared::Result;
use rusqlite::{Connection, OptionalExtension, Transaction, params};

use super::seeds::read_rows;
use crate::{
    contract::{
        engine::{NewFold, ReadSeeds, RowSink, SeedReader, Seeds},
        failure::Failure,
        study::{Study, StudyKey},
    },
    sqlite::{Sqlite, rows, schema, snapshot::accepted},
};

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
    fn keep_fold(&self, study: &Study, bucket: u32, from: i64, fold: NewFold) -> Result<bool> {
        let bytes = (fold.body.len() + fold.run.len()) as u64;
        let size = metadata(self.directory.database()).map_or(0, |file| file.len());
        let limit = self.config.max_store_bytes.unwrap_or(u64::MAX);
        if !self.reserve.has_room_for(bytes) || size.saturating_add(bytes) > limit - limit / 8 {
            return Err(Failure::Full.into_error());
        }
        let (pk, id) = (study.key, study.id());
        self.write_blocking(move |transaction| {
            rows::require(transaction, pk, id)?;
            keep(transaction, pk, bucket, from, &fold)
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

    fn folded(&self, bucket: u32) -> Result<(i64, u64), Failure> {
        let select = "SELECT upto, n FROM folds WHERE study_pk = ? AND bucket = ?";
        let mut statement = self.connection.prepare_cached(select)?;
        let row = statement.query_row(params![self.study_pk, bucket], |row| {
            Ok((row.get(0)?, row.get(1)?))
        });
        Ok(row.optional()?.unwrap_or((-1, 0)))
    }

    fn fold(&self, bucket: u32) -> Result<Option<Vec<u8>>, Failure> {
        let select = "SELECT body FROM folds WHERE study_pk = ? AND bucket = ?";
        let mut statement = self.connection.prepare_cached(select)?;
        let body: Option<Option<Vec<u8>>> = statement
            .query_row(params![self.study_pk, bucket], |row| row.get(0))
            .optional()?;
        Ok(body.flatten())
    }

    fn runs(&self, bucket: u32, take: &mut RowSink<'_>) -> Result<(), Failure> {
        let mut statement = self.connection.prepare_cached(
            "SELECT upto, body FROM fold_runs WHERE study_pk = ? AND bucket = ? ORDER BY upto DESC",
        )?;
        let mut rows = statement.query(params![self.study_pk, bucket])?;
        while let Some(row) = rows.next()? {
            let body = row.get_ref(1)?.as_blob().map_err(Failure::damaged)?;
            if !take(row.get(0)?, body)? {
                break;
            }
        }
        Ok(())
    }

    fn rows(&self, bucket: u32, after: i64, take: &mut RowSink<'_>) -> Result<(), Failure> {
        read_rows(self.connection, self.study_pk, bucket, after, take)
    }
}

fn keep(
    transaction: &Transaction<'_>,
    study_pk: StudyKey,
    bucket: u32,
    from: i64,
    fold: &NewFold,
) -> Result<bool, Failure> {
    let written = transaction.execute(
        "INSERT INTO folds (study_pk, bucket, upto, n, body) SELECT ?1, ?2, ?4, ?5, ?6
         WHERE ?3 = coalesce((SELECT upto FROM folds WHERE study_pk = ?1 AND bucket = ?2), -1)
         ON CONFLICT (study_pk, bucket) DO UPDATE SET upto = excluded.upto, n = excluded.n, body = excluded.body",
        params![study_pk, bucket, from, fold.upto, fold.n, fold.body],
    )?;
    if written == 0 {
        return Ok(false);
    }
    // Runs show which seeds came earlier: nothing of them stays in free pages.
    transaction.pragma_update(None, "secure_delete", true)?;
    transaction.execute(
        "DELETE FROM fold_runs WHERE study_pk = ? AND bucket = ? AND upto > ?",
        params![study_pk, bucket, fold.run_after],
    )?;
    transaction.pragma_update(None, "secure_delete", "FAST")?;
    transaction.execute(
        "INSERT INTO fold_runs (study_pk, bucket, upto, body) VALUES (?, ?, ?, ?)",
        params![study_pk, bucket, fold.upto, fold.run],
    )?;
    Ok(true)
}

/// Before rows of the bucket are sorted and numbered anew: a fold of all seeds stays what it is, and any other is dropped.
/// Runs go in any case, since they show which seeds came earlier.
pub(crate) fn before_sorting(
    transaction: &Transaction<'_>,
    study_pk: StudyKey,
    bucket: u32,
) -> Result<(), Failure> {
    transaction.execute(
        "DELETE FROM fold_runs WHERE study_pk = ? AND bucket = ?",
        params![study_pk, bucket],
    )?;
    // Never twice the same row: whoever has read the seeds before keeps nothing.
    transaction.execute(
        "INSERT INTO folds (study_pk, bucket, upto, n) SELECT ?1, ?2, -2, 0
         WHERE coalesce((SELECT n FROM folds WHERE study_pk = ?1 AND bucket = ?2), 0)
             != (SELECT sum(n) FROM seeds WHERE study_pk = ?1 AND bucket = ?2)
         ON CONFLICT (study_pk, bucket) DO UPDATE SET upto = min(upto, -1) - 1, n = 0, body = NULL",
        params![study_pk, bucket],
    )?;
    Ok(())
}

/// Removes some of what is kept of a study; returns the number of rows.
pub(crate) fn remove(transaction: &Transaction<'_>, study_pk: StudyKey) -> Result<usize, Failure> {
    let mut removed = 0;
    for table in ["folds", "fold_runs"] {
        // Each has up to eight megabytes, or a sum.
        removed += transaction.execute(
            &format!(
                "DELETE FROM {table} WHERE rowid IN (SELECT rowid FROM {table} WHERE study_pk = ? LIMIT 4)"
            ),
            [study_pk],
        )?;
    }
    Ok(removed)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use eigenveil_estimation::{Cancel, sparse_from_seeds::SeedSource as _};
    use eigenveil_shared::api::StudyState;
    use rusqlite::Connection;
    use tokio::runtime::Runtime;

    use crate::{
        Store, Study,
        config::StoreConfig,
        database_path,
        environment::Environment,
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

        fn number(&self, query: &str) -> i64 {
            let result = self.database.query_row(query, [], |row| row.get(0));
            result.unwrap()
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

    /// A fingerprint is written anew as often as its run doubles; copies are found in all runs.
    #[test]
    fn runs_of_equal_length_are_merged() {
        let case = OneBucket::new(|_| ());
        for number in 0..50 {
            case.send(64 * number, 64);
            case.fold();
        }
        let lengths = "SELECT group_concat((length(body) - 8) / 512, ' ') FROM (SELECT body FROM fold_runs ORDER BY upto)";
        let lengths: String = case
            .database
            .query_row(lengths, [], |row| row.get(0))
            .unwrap();
        assert_eq!(lengths, "32 16 2");
        assert_eq!(case.read(), (0, 0));
        // A copy of a seed of the first run, after all folds.
        case.send(9_000, 1);
        assert_eq!(case.read(), (1, 0));
        // Runs that are gone or damaged are made anew of the seeds.
        for change in [
            "UPDATE fold_runs SET body = zeroblob(length(body)) WHERE upto = 49",
            "DELETE FROM fold_runs",
        ] {
            case.database.execute(change, []).unwrap();
            assert_eq!(case.read(), (1, 0));
        }
    }

    /// A closed study is sorted: a fold of some of its seeds goes, one of all stays, and runs go in any case. After that
    /// whoever has read the seeds before keeps nothing.
    #[test]
    fn sorting_drops_what_is_no_longer_true() {
        for last in [10, 64] {
            let case = OneBucket::new(|_| ());
            case.send(0, 100);
            case.send(100, last);
            case.fold();
            assert_eq!(case.read(), (0, u64::from(last % 64)));
            let close = case.store.set_state(&case.study, StudyState::Closed);
            case.runtime.block_on(close).unwrap();
            case.store.sweep(&|| false).unwrap();
            assert!(case.store.is_rewritten(&case.study).unwrap());
            assert_eq!(case.number("SELECT count(*) FROM fold_runs"), 0);
            let (kept, expanded) = if last == 64 { (164, 0) } else { (0, 110) };
            assert_eq!(case.number("SELECT n FROM folds"), kept);
            assert_eq!(case.read(), (0, expanded));
            if kept == 0 {
                assert_eq!(case.number("SELECT upto FROM folds"), -2);
                case.fold();
                assert_eq!(case.read(), (0, 0));
            }
        }
    }

    /// Where the sums are larger than the limit nothing is kept, and everything counts.
    #[test]
    fn the_limit_decides_what_is_kept() {
        // One sum of three features.
        for (limit, kept) in [(8 * 6 - 1, 0), (8 * 6, 1)] {
            let case = OneBucket::new(|config| config.max_fold_bytes = limit);
            case.send(0, 200);
            case.fold();
            assert_eq!(case.number("SELECT count(*) FROM folds"), kept);
            assert_eq!(case.read(), (0, if kept == 1 { 0 } else { 200 }));
        }
    }
}
