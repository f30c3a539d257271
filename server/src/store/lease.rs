//! Whose database it is: one server's at a time, whatever became of the lock file, and lying where it was left.
//!
//! Whoever opens the database for writing puts a number of his own into it, and each of his transactions looks whether
//! it is still there: a second server that came in because somebody removed the lock file ends the first, and neither
//! counts what the other has counted. A mark says that the log (`-wal`) belongs to the database; it is on disk before
//! anything is acknowledged, and goes when everything is in the main file.

use std::{os::unix::fs::MetadataExt as _, path::Path};

use eigenveil_shared::Result;
use rusqlite::{Connection, OptionalExtension, Transaction, TransactionBehavior, params};

use super::{
    directory::DataDirectory,
    failure::{Failure, unavailable},
    schema,
};

/// Of the last server that opened it: 16 random bytes.
const LEASE_HOLDER: &str = "server";
/// There while the log may hold what the main file does not.
const IN_USE: &str = "in-use";
/// Device and inode of the main file, as the last server found them.
const FILE_ID: &str = "file-id";

/// The right to write, until another server takes it.
#[derive(Clone, Copy)]
pub(super) struct WriterLease([u8; 16]);

/// Whether the log lies beside the database. To be asked before the database is opened, which makes one.
#[derive(Clone, Copy)]
pub(super) struct WalFile {
    exists: bool,
}

impl WalFile {
    pub(super) fn in_directory(directory: &DataDirectory) -> Self {
        let exists = directory.wal_path().exists();
        Self { exists }
    }
}

impl WriterLease {
    /// Takes the database over, which is checked where it does not lie where the last server left it.
    ///
    /// # Errors
    /// `store-unavailable` for a database whose log is missing, or a copy that is torn; those of the store.
    pub(super) fn acquire(
        connection: &mut Connection,
        directory: &DataDirectory,
        wal: WalFile,
    ) -> Result<Self, Failure> {
        let was_in_use = setting(connection, IN_USE)?.is_some();
        if was_in_use && !wal.exists {
            // What opening it has made must not be taken for the log next time.
            schema::keep_wal(connection, false)?;
            return Err(wal_missing_error(directory).into());
        }
        let file_id = file_id(&directory.database())?;
        let before = setting(connection, FILE_ID)?;
        if before.as_deref() != Some(&file_id) {
            check(connection)?;
            if before.is_some() {
                tracing::warn!(
                    "the database is an undamaged copy; what was acknowledged after it was made is not in it"
                );
            }
        }
        let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        // Nobody may guess or not guess it: it has to be another one each time.
        let number: [u8; 16] =
            transaction.query_row("SELECT randomblob(16)", [], |row| row.get(0))?;
        for (key, value) in [
            (LEASE_HOLDER, &number[..]),
            (FILE_ID, &file_id),
            (IN_USE, &[1][..]),
        ] {
            // The mark is rewritten only where it is missing: it stays where a crash left it.
            transaction.execute(
                "INSERT INTO settings (key, value) VALUES (?1, ?2)
                 ON CONFLICT (key) DO UPDATE SET value = excluded.value WHERE value != excluded.value",
                params![key, value],
            )?;
        }
        transaction.commit()?;
        if !was_in_use {
            // Into the main file, before anything is acknowledged that only the log has.
            checkpoint(connection, "TRUNCATE")?;
        }
        Ok(Self(number))
    }

    /// A transaction that writes; [`Failure::LeaseLost`] when another server has taken the database over.
    pub(super) fn transaction<'a>(
        &self,
        connection: &'a mut Connection,
    ) -> Result<Transaction<'a>, Failure> {
        let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        let same = transaction
            .prepare_cached("SELECT value = ? FROM settings WHERE key = ?")?
            .query_row(params![self.0, LEASE_HOLDER], |row| row.get(0))
            .optional()?;
        match same {
            Some(true) => Ok(transaction),
            _ => Err(Failure::LeaseLost),
        }
    }

    /// Leaves a database that is whole without its log.
    pub(super) fn checkpoint_and_release(
        &self,
        connection: &mut Connection,
    ) -> Result<(), Failure> {
        let transaction = self.transaction(connection)?;
        transaction.execute("DELETE FROM settings WHERE key = ?", [IN_USE])?;
        transaction.commit()?;
        // Empty where nobody reads just now: it cannot be taken for that of another database.
        checkpoint(connection, "TRUNCATE")
    }
}

/// Brings what the log holds into the main file, as far as no reader needs it; the next write begins the log anew.
pub(super) fn checkpoint(connection: &Connection, how: &str) -> Result<(), Failure> {
    connection.query_row(&format!("PRAGMA wal_checkpoint({how})"), [], |_| Ok(()))?;
    Ok(())
}

/// Makes a copy that is whole, such as a backup, one that may be opened anywhere.
pub(super) fn detach_copy(copy: &Path) -> Result<(), Failure> {
    let connection = Connection::open(copy)?;
    connection.execute(
        "DELETE FROM settings WHERE key IN (?, ?)",
        params![IN_USE, FILE_ID],
    )?;
    connection.close().map_err(|(_, error)| error.into())
}

fn setting(connection: &Connection, key: &str) -> Result<Option<Vec<u8>>, Failure> {
    Ok(connection
        .query_row("SELECT value FROM settings WHERE key = ?", [key], |row| {
            row.get(0)
        })
        .optional()?)
}

fn file_id(database: &Path) -> Result<Vec<u8>, Failure> {
    let file = std::fs::metadata(database).map_err(Failure::file)?;
    Ok([file.dev(), file.ino()].map(u64::to_le_bytes).concat())
}

fn wal_missing_error(directory: &DataDirectory) -> eigenveil_shared::Error {
    let wal = directory.wal_path();
    unavailable(format!(
        "the store {} was in use when it was copied or its server ended, and its log {} is missing: what was acknowledged last is lost with it. \
         Put the log beside it, or restore a backup (eigenveil backup). Where there is neither, make an empty file of that name to go on without; \
         devices do not send again what was acknowledged. Nothing is lost where another program has opened the store since",
        directory.database().display(),
        wal.display()
    ))
}

/// Looks for what a copy of a database in use would lack: pages, and reports that are counted but not there.
fn check(connection: &Connection) -> Result<(), Failure> {
    let said: String = connection.query_row("PRAGMA quick_check(1)", [], |row| row.get(0))?;
    if said != "ok" {
        return Err(Failure::damaged(said));
    }
    let torn: Option<(String, u64)> = connection
        .query_row(
            "SELECT name, reports_accepted FROM studies AS s
             WHERE study_pk NOT IN (SELECT study_pk FROM deleted_studies)
             AND (reports_accepted != coalesce((SELECT sum(n) FROM buckets AS b WHERE b.study_pk = s.study_pk), 0)
                                    + coalesce((SELECT sum(n) FROM seeds AS d WHERE d.study_pk = s.study_pk), 0)
                  OR closed_at_ms IS NULL
                  AND reports_accepted != (SELECT count(*) FROM report_ids AS r WHERE r.study_pk = s.study_pk)
                      + coalesce((SELECT sum(length(ids)) / 16 FROM recent_ids AS i WHERE i.study_pk = s.study_pk), 0))
             LIMIT 1",
            [],
            |row| Ok((row.get(0)?, row.get(1)?)),
        )
        .optional()?;
    match torn {
        Some((name, reports)) => Err(Failure::damaged(format!(
            "the study {name:?} has accepted {reports} reports, and its sums or identifiers are of another number"
        ))),
        None => Ok(()),
    }
}
