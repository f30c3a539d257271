//! The records of a device's book as tables: the whole contents of its ledger.

use rusqlite::{Connection, params};

use super::file::LockedFile;
use crate::{book::Write, error::Result};

/// The tables. Triggers of the database enforce that a charge stays, and so does its report. Payloads have their own
/// table: SQLite leaves copies in unused bytes when rows grow and are moved, and these rows never grow.
pub(super) const RECORDS: &str = "
    CREATE TABLE record (
        key TEXT PRIMARY KEY,
        value BLOB NOT NULL,
        study TEXT UNIQUE AS (CAST(value AS TEXT) ->> 'study'),
        state TEXT AS (CAST(value AS TEXT) ->> 'state'),
        fixed TEXT AS (json_remove(CAST(value AS TEXT), '$.servers', '$.state', '$.token'))
    ) STRICT;
    CREATE TABLE payload (key TEXT PRIMARY KEY, value BLOB NOT NULL) STRICT;
    CREATE TRIGGER record_is_counted AFTER INSERT ON record
        BEGIN UPDATE file_state SET row_count = row_count + 1; END;
    CREATE TRIGGER records_stay BEFORE DELETE ON record
        BEGIN SELECT RAISE(ABORT, 'a record of a ledger is never deleted'); END;
    CREATE TRIGGER entries_are_fixed BEFORE UPDATE ON record
        WHEN NEW.key <> OLD.key OR OLD.key <> 'head' AND NEW.fixed IS NOT OLD.fixed
        BEGIN SELECT RAISE(ABORT, 'what an entry of a ledger says is never changed'); END;
    CREATE TRIGGER reports_stay BEFORE UPDATE ON payload
        BEGIN SELECT RAISE(ABORT, 'a report of a ledger is never changed'); END;
";

/// Triggers of the states: a report that is acknowledged or given up is never sent again, and any other is kept. (A
/// server may turn out to have what was given up.)
pub(super) const STATES: &str = "
    CREATE TRIGGER acknowledged_stays BEFORE UPDATE ON record
        WHEN OLD.state = 'acknowledged' AND NEW.state IS NOT 'acknowledged'
        BEGIN SELECT RAISE(ABORT, 'an acknowledged report is never sent again'); END;
    CREATE TRIGGER given_up_stays BEFORE UPDATE ON record
        WHEN OLD.state = 'given-up' AND coalesce(NEW.state, '') NOT IN ('given-up', 'acknowledged')
        BEGIN SELECT RAISE(ABORT, 'a report that was given up is never sent again'); END;
    CREATE TRIGGER pending_reports_stay BEFORE DELETE ON payload
        WHEN coalesce((SELECT state FROM record WHERE key = replace(OLD.key, 'payload', 'entry')), '')
            NOT IN ('given-up', 'acknowledged')
        BEGIN SELECT RAISE(ABORT, 'a report is kept until it is acknowledged or given up'); END;
";

/// SQL expression that holds after each change: exactly the reports that can still be sent have bytes.
pub(super) const CONSISTENCY_CHECK: &str = "row_count = (SELECT count(*) FROM record)
    AND (SELECT count(*) FROM record WHERE state NOT IN ('acknowledged', 'given-up')) = (SELECT count(*) FROM payload)
    AND NOT EXISTS (SELECT 1 FROM payload
        LEFT JOIN record ON record.key = replace(payload.key, 'payload', 'entry')
        WHERE coalesce(state, 'acknowledged') IN ('acknowledged', 'given-up'))";

/// Upgrades to layout 3, in which reports may be given up.
pub(super) fn to_layout_3(file: &mut LockedFile) -> Result<()> {
    file.check_consistent(CONSISTENCY_CHECK)?;
    file.write(|file| {
        file.execute_batch("DROP TRIGGER IF EXISTS acknowledged_stays; DROP TRIGGER IF EXISTS pending_reports_stay")?;
        file.execute_batch(STATES)?;
        Ok(file.execute_batch("PRAGMA user_version = 3")?)
    })
}

/// Does a write; the transaction is the caller's.
pub(super) fn put(file: &Connection, write: &Write) -> rusqlite::Result<()> {
    for (key, value) in &write.put {
        let table = table_of(key);
        let put = format!(
            "INSERT INTO {table} (key, value) VALUES (?1, ?2)
             ON CONFLICT (key) DO UPDATE SET value = excluded.value"
        );
        file.execute(&put, params![key, value])?;
    }
    for key in &write.delete {
        let delete = format!("DELETE FROM {} WHERE key = ?1", table_of(key));
        file.execute(&delete, [key])?;
    }
    Ok(())
}

fn table_of(key: &str) -> &'static str {
    match key.starts_with("payload/") {
        true => "payload",
        false => "record",
    }
}
