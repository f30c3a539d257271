//! Studies that have moved to another address: http became https, a name or a port changed.
//!
//! The report stays the same bytes, so wherever it is counted it is counted once. A server at the new address could be
//! somebody else's, with a copy of the study: whoever the rows belong to says that the study moved, and both addresses
//! stay in the receipt.

use eigenveil_shared::study::Fingerprint;
use rusqlite::{Connection, params};

use super::terms;
use crate::{
    error::Result,
    file::LockedFile,
    outbox::StudyRef,
    reporter::{Reporter, check_fingerprint},
};

/// The table, in either kind of ledger; its numbers are those of the studies.
pub(super) const MOVED: &str = "
    CREATE TABLE moved (
        id INTEGER PRIMARY KEY,
        number INTEGER NOT NULL,
        server TEXT NOT NULL
    ) STRICT;
    CREATE TRIGGER moves_stay BEFORE DELETE ON moved
        BEGIN SELECT RAISE(ABORT, 'the addresses of a study are never deleted'); END;
";

/// The addresses that a study moved to, the latest last.
pub(super) fn addresses(store: &LockedFile, number: i64) -> Result<Vec<String>> {
    store.all(
        "SELECT server FROM moved WHERE number = ?1 ORDER BY id",
        [number],
        |row| row.get(0),
    )
}

/// Refuses a move to another study, or to one that states another purpose or responsible party.
pub(super) fn check(
    store: &LockedFile,
    number: i64,
    recorded: Fingerprint,
    reporter: &Reporter,
    to: &StudyRef,
) -> Result<()> {
    check_fingerprint(to.fingerprint(), recorded)?;
    check_fingerprint(reporter.fingerprint(), recorded)?;
    terms::read(store, number)?.check_unchanged(reporter.about())
}

pub(super) fn record(file: &Connection, number: i64, to: &StudyRef) -> rusqlite::Result<usize> {
    file.execute(
        "INSERT INTO moved (number, server) VALUES (?1, ?2)",
        params![number, to.server()],
    )
}
