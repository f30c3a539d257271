//! The identifiers of the latest commits, before they are moved into the index `report_ids`.
//!
//! Identifiers are random within 65.5 s, so that nearly every insertion changes another page of the index. The
//! identifiers of a large commit are therefore appended to an id log as one row, and held in memory as a set. A full
//! log is sorted and split into chunks; every later commit moves some chunks, whose identifiers are neighbours in the
//! index. An identifier is either in the index or here, never in both.
//!
//! The identifiers of a closed study are moved soon after it was closed. Closing does not wait for that: it must work
//! on a full disk, since deletion needs it.

use std::collections::{BTreeMap, HashMap, HashSet};

use rusqlite::{CachedStatement, Connection, Transaction, params};

use crate::contract::{failure::Failure, study::StudyKey};

/// The sizes of an id log.
#[derive(Clone, Copy)]
pub(crate) struct LogSizes {
    /// Commits with fewer reports of a study insert their identifiers into the index at once: at low traffic the id log
    /// would show for a while which identifiers came in one commit.
    min_reports: usize,
    /// Identifiers in a full id log. The set in memory has up to three times as many.
    capacity: usize,
    /// Identifiers in a sorted chunk.
    chunk: usize,
}

impl LogSizes {
    /// The set in memory has about 6 MiB.
    const FULL: Self = Self {
        min_reports: 8,
        capacity: 65_536,
        chunk: 256,
    };
    /// Tests fill it with a few commits.
    const SMALL: Self = Self {
        min_reports: 3,
        capacity: 12,
        chunk: 4,
    };

    pub(crate) fn new(is_small: bool) -> Self {
        match is_small {
            true => Self::SMALL,
            false => Self::FULL,
        }
    }
}

/// Identifier of a report, as it is stored.
pub(crate) type Id = [u8; 16];

/// The set in memory, and how many of its identifiers are in the id log and in sorted chunks.
pub(crate) struct RecentIds {
    sizes: LogSizes,
    ids: HashMap<StudyKey, HashSet<Id>>,
    logged: usize,
    sorted: usize,
    /// The set may differ from what is committed.
    stale: bool,
}

impl RecentIds {
    pub(crate) fn load(connection: &Connection, sizes: LogSizes) -> Result<Self, Failure> {
        let mut recent = Self {
            sizes,
            ids: HashMap::new(),
            logged: 0,
            sorted: 0,
            stale: false,
        };
        let mut statement = connection.prepare("SELECT study_pk, sorted, ids FROM recent_ids")?;
        let mut rows = statement.query([])?;
        while let Some(row) = rows.next()? {
            let study_pk = row.get(0)?;
            let ids = identifiers(row.get_ref(2)?)?;
            if row.get(1)? {
                recent.sorted += ids.len();
            } else {
                recent.logged += ids.len();
            }
            recent.ids.entry(study_pk).or_default().extend(ids);
        }
        Ok(recent)
    }

    /// After a failed transaction, or one that changed the table directly: the set is reloaded before its next use.
    pub(crate) fn mark_stale(&mut self) {
        self.stale = true;
    }

    /// Must be called at the start of every transaction that stores reports.
    pub(crate) fn refresh(&mut self, connection: &Connection) -> Result<(), Failure> {
        if self.stale {
            *self = Self::load(connection, self.sizes)?;
        }
        Ok(())
    }

    /// Begins the identifiers of one commit, which has this number of reports of the study.
    pub(crate) fn begin<'a>(
        &'a mut self,
        transaction: &'a Transaction<'_>,
        study_pk: StudyKey,
        reports: usize,
    ) -> Result<CommitIds<'a>, Failure> {
        Ok(CommitIds {
            fresh: (reports >= self.sizes.min_reports).then(Vec::new),
            known: self.ids.entry(study_pk).or_default(),
            study_pk,
            find: transaction
                .prepare_cached("SELECT 1 FROM report_ids WHERE study_pk = ? AND id = ?")?,
            insert: transaction.prepare_cached(INTO_INDEX)?,
        })
    }

    /// Appends the new identifiers of a commit to the id log, and moves some of the waiting ones into the index.
    pub(crate) fn end(
        &mut self,
        transaction: &Transaction<'_>,
        study_pk: StudyKey,
        mut fresh: Vec<Id>,
    ) -> Result<(), Failure> {
        if !fresh.is_empty() {
            // Sorted, so that their order of arrival is not stored.
            fresh.sort_unstable();
            append(transaction, study_pk, false, &fresh)?;
            self.logged += fresh.len();
        }
        if self.sorted > 0 {
            self.index_chunks(transaction, 2 * fresh.len())?;
        } else if self.logged >= self.sizes.capacity {
            self.sort_log(transaction)?;
        }
        Ok(())
    }

    fn sort_log(&mut self, transaction: &Transaction<'_>) -> Result<(), Failure> {
        let mut by_study: BTreeMap<StudyKey, Vec<Id>> = BTreeMap::new();
        {
            let mut statement =
                transaction.prepare_cached("SELECT study_pk, ids FROM recent_ids")?;
            let mut rows = statement.query([])?;
            while let Some(row) = rows.next()? {
                let ids = identifiers(row.get_ref(1)?)?;
                by_study.entry(row.get(0)?).or_default().extend(ids);
            }
        }
        transaction.execute("DELETE FROM recent_ids", [])?;
        for (study_pk, mut ids) in by_study {
            ids.sort_unstable();
            for chunk in ids.chunks(self.sizes.chunk) {
                append(transaction, study_pk, true, chunk)?;
            }
        }
        self.sorted = std::mem::take(&mut self.logged);
        Ok(())
    }

    /// Moves one chunk, and more until `at_least` identifiers are moved: twice as many as come in, so that the last
    /// chunk is gone before the log is full again.
    fn index_chunks(
        &mut self,
        transaction: &Transaction<'_>,
        at_least: usize,
    ) -> Result<(), Failure> {
        // Later log rows have larger numbers.
        let mut first = transaction.prepare_cached(
            "SELECT part, study_pk, ids FROM recent_ids WHERE sorted ORDER BY part LIMIT 1",
        )?;
        let mut moved = 0;
        while self.sorted > 0 {
            let (part, study_pk, ids): (i64, StudyKey, Vec<Id>) = first.query_row([], |row| {
                let ids = row.get_ref(2)?.as_blob()?.as_chunks().0.to_vec();
                Ok((row.get(0)?, row.get(1)?, ids))
            })?;
            into_index(transaction, study_pk, &ids)?;
            transaction
                .prepare_cached("DELETE FROM recent_ids WHERE part = ?")?
                .execute([part])?;
            if let Some(known) = self.ids.get_mut(&study_pk) {
                for id in &ids {
                    known.remove(id);
                }
                if known.is_empty() {
                    self.ids.remove(&study_pk);
                }
            }
            self.sorted = self.sorted.saturating_sub(ids.len());
            moved += ids.len();
            if moved >= at_least {
                break;
            }
        }
        Ok(())
    }
}

/// The identifiers of one study while a commit is assembled.
pub(crate) struct CommitIds<'a> {
    known: &'a mut HashSet<Id>,
    /// New ones for the id log; `None` if they are inserted into the index at once.
    fresh: Option<Vec<Id>>,
    study_pk: StudyKey,
    find: CachedStatement<'a>,
    insert: CachedStatement<'a>,
}

impl CommitIds<'_> {
    pub(crate) fn insert(&mut self, id: &Id) -> Result<bool, Failure> {
        let Some(fresh) = &mut self.fresh else {
            return Ok(
                !self.known.contains(id) && self.insert.execute(params![self.study_pk, id])? == 1
            );
        };
        if !self.known.insert(*id) {
            return Ok(false);
        }
        if self.find.exists(params![self.study_pk, id])? {
            self.known.remove(id);
            return Ok(false);
        }
        fresh.push(*id);
        Ok(true)
    }

    pub(crate) fn contains(&mut self, id: &Id) -> Result<bool, Failure> {
        Ok(self.known.contains(id) || self.find.exists(params![self.study_pk, id])?)
    }

    pub(crate) fn into_fresh(self) -> Vec<Id> {
        self.fresh.unwrap_or_default()
    }
}

const INTO_INDEX: &str =
    "INSERT INTO report_ids (study_pk, id) VALUES (?, ?) ON CONFLICT DO NOTHING";

fn into_index(
    transaction: &Transaction<'_>,
    study_pk: StudyKey,
    ids: &[Id],
) -> Result<(), Failure> {
    let mut insert = transaction.prepare_cached(INTO_INDEX)?;
    for id in ids {
        if insert.execute(params![study_pk, id])? != 1 {
            return Err(Failure::damaged("an identifier is stored twice"));
        }
    }
    Ok(())
}

fn append(
    transaction: &Transaction<'_>,
    study_pk: StudyKey,
    sorted: bool,
    ids: &[Id],
) -> Result<(), Failure> {
    transaction
        .prepare_cached("INSERT INTO recent_ids (study_pk, sorted, ids) VALUES (?, ?, ?)")?
        .execute(params![study_pk, sorted, ids.as_flattened()])?;
    Ok(())
}

fn identifiers(blob: rusqlite::types::ValueRef<'_>) -> Result<&[Id], Failure> {
    let (ids, rest) = blob.as_blob().map_err(Failure::damaged)?.as_chunks();
    if rest.is_empty() {
        Ok(ids)
    } else {
        Err(Failure::damaged("a row of identifiers is truncated"))
    }
}

/// The identifiers of a study that are not in the index yet, in ascending order.
pub(crate) fn of_study(connection: &Connection, study_pk: StudyKey) -> Result<Vec<Id>, Failure> {
    let mut all = Vec::new();
    let mut statement =
        connection.prepare_cached("SELECT ids FROM recent_ids WHERE study_pk = ?")?;
    let mut rows = statement.query([study_pk])?;
    while let Some(row) = rows.next()? {
        all.extend_from_slice(identifiers(row.get_ref(0)?)?);
    }
    all.sort_unstable();
    Ok(all)
}

/// Moves all identifiers of a study into the index. Call [`RecentIds::mark_stale`] after the commit.
pub(crate) fn move_all(transaction: &Transaction<'_>, study_pk: StudyKey) -> Result<(), Failure> {
    into_index(transaction, study_pk, &of_study(transaction, study_pk)?)?;
    remove(transaction, study_pk)
}

/// Deletes the identifiers of a study that are not in the index yet. Call [`RecentIds::mark_stale`] after the commit.
pub(crate) fn remove(transaction: &Transaction<'_>, study_pk: StudyKey) -> Result<(), Failure> {
    transaction.execute("DELETE FROM recent_ids WHERE study_pk = ?", [study_pk])?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use rand::{RngExt, SeedableRng, rngs::ChaCha12Rng};
    use rusqlite::TransactionBehavior;

    use super::*;
    use crate::sqlite::schema;

    fn id(number: u16) -> Id {
        // Consecutive numbers are far apart in the index.
        let mixed = number.wrapping_mul(40_503).to_be_bytes();
        let mut id = [0; 16];
        id[..2].copy_from_slice(&mixed);
        id
    }

    fn count(connection: &Connection, sql: &str) -> usize {
        connection.query_row(sql, [], |row| row.get(0)).unwrap()
    }

    /// Commits of all sizes with duplicates, some rolled back, some followed by a restart or the closing of the study:
    /// each identifier is accepted once and stored in one place.
    #[test]
    fn every_identifier_is_accepted_once() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("ids.db");
        let mut connection = schema::open_for_writing(&path).unwrap();
        for study_pk in [1, 2] {
            connection
                .execute(
                    "INSERT INTO studies (study_pk, id, name, state, canonical, fingerprint, buckets, created_at_ms)
                     VALUES (?1, randomblob(16), '', 'open', x'', randomblob(32), 1, 0)",
                    [study_pk],
                )
                .unwrap();
        }
        let mut rng = ChaCha12Rng::seed_from_u64(6);
        let mut recent = RecentIds::load(&connection, LogSizes::SMALL).unwrap();
        let mut model: HashMap<StudyKey, HashSet<u16>> =
            [1, 2].map(|pk| (StudyKey(pk), HashSet::new())).into();
        let (mut chunks, mut logs) = (0, 0);
        for _ in 0..3_000 {
            let study_pk = StudyKey(rng.random_range(1..=2));
            let numbers: Vec<u16> = (0..rng.random_range(1..=9))
                .map(|_| rng.random_range(0..4_000))
                .collect();
            let rolled_back = rng.random_bool(0.1);
            let transaction = connection
                .transaction_with_behavior(TransactionBehavior::Immediate)
                .unwrap();
            recent.refresh(&transaction).unwrap();
            let known = model.get_mut(&study_pk).unwrap();
            let mut after = known.clone();
            let mut ids = recent.begin(&transaction, study_pk, numbers.len()).unwrap();
            for number in numbers {
                assert_eq!(ids.contains(&id(number)).unwrap(), after.contains(&number));
                let new = ids.insert(&id(number)).unwrap();
                assert_eq!(new, after.insert(number));
            }
            let fresh = ids.into_fresh();
            recent.end(&transaction, study_pk, fresh).unwrap();
            if rolled_back {
                drop(transaction);
                recent.mark_stale();
            } else {
                if rng.random_bool(0.01) {
                    move_all(&transaction, study_pk).unwrap();
                    recent.mark_stale();
                    assert!(of_study(&transaction, study_pk).unwrap().is_empty());
                }
                transaction.commit().unwrap();
                *known = after;
            }
            if rng.random_bool(0.05) {
                recent = RecentIds::load(&connection, LogSizes::SMALL).unwrap();
            }
            chunks += count(&connection, "SELECT count(*) FROM recent_ids WHERE sorted");
            logs += count(
                &connection,
                "SELECT count(*) FROM recent_ids WHERE NOT sorted",
            );
            for (study_pk, known) in &model {
                let indexed = count(
                    &connection,
                    &format!(
                        "SELECT count(*) FROM report_ids WHERE study_pk = {}",
                        study_pk.0
                    ),
                );
                assert_eq!(
                    indexed + of_study(&connection, *study_pk).unwrap().len(),
                    known.len()
                );
            }
            // Twice a full log and the largest commit: memory is bounded.
            assert!(
                recent.logged + recent.sorted <= 2 * LogSizes::SMALL.capacity + 9 || rolled_back
            );
        }
        assert!(chunks > 1_000 && logs > 1_000, "{chunks} {logs}");
        for (study_pk, known) in model {
            let transaction = connection.transaction().unwrap();
            move_all(&transaction, study_pk).unwrap();
            transaction.commit().unwrap();
            let mut stored: Vec<Id> = connection
                .prepare("SELECT id FROM report_ids WHERE study_pk = ? ORDER BY id")
                .unwrap()
                .query_map([study_pk], |row| row.get(0))
                .unwrap()
                .map(Result::unwrap)
                .collect();
            let mut expected: Vec<Id> = known.into_iter().map(id).collect();
            expected.sort_unstable();
            stored.sort_unstable();
            assert_eq!(stored, expected);
        }
    }
}
