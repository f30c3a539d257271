//! The tables of a ledger of rows.

use super::tables::{LIMITS, MOVED, STUDY_TERMS, write_limits};
use crate::{
    error::Result,
    rules::Limits,
    sqlite::file::{Failure, FileSchema, LockedFile},
};

/// Number of low bits of a key that hold the row; the high bits hold the study.
pub(super) const ROW_BITS: u32 = 40;

/// Tables of a ledger of rows, and how its file is recognised.
pub(super) const SCHEMA: FileSchema = FileSchema {
    name: "ledger of rows",
    // "EvRX". Earlier layouts: "EvRW", without the number of acknowledgements; "EvRL" and "EvRl", without the reports
    application_id: 0x4576_5258,
    tables: &[
        LIMITS,
        STUDIES,
        CHARGES,
        REPORTS,
        PAYLOADS,
        REPORT_TRIGGERS,
        STUDY_TERMS,
        MOVED,
        SITES,
    ],
    fill: |file| {
        write_limits(file, &Limits::default())?;
        file.execute("INSERT INTO salt VALUES (1, randomblob(32))", [])?;
        Ok(())
    },
    upgrades: &[to_layout_2, to_layout_3],
    consistency_check_sql: CONSISTENCY_CHECK,
};

/// SQL expression that holds after each change: exactly the reports that are pending or refused have bytes. Those that
/// are acknowledged or given up are counted. Each charged row has a report, or counts in that of a site.
const CONSISTENCY_CHECK: &str = "
    row_count = (SELECT count(*) FROM charge) + (SELECT count(*) FROM report WHERE state IN (1, 3))
        + (SELECT count(*) FROM person) + (SELECT count(*) FROM spelling)
    AND (SELECT total(rows) FROM charge WHERE study NOT IN (SELECT study FROM site))
        = (SELECT count(*) FROM report WHERE key >> 40 NOT IN (SELECT study FROM site))
    AND (SELECT total(rows) FROM charge WHERE study IN (SELECT study FROM site))
        = (SELECT total(units) FROM site_report)
    AND (SELECT count(*) FROM report WHERE key >> 40 IN (SELECT study FROM site))
        = (SELECT count(*) FROM site_report JOIN report USING (key))
    AND (SELECT count(*) FROM report WHERE state IN (0, 2)) = (SELECT count(*) FROM payload)
    AND (SELECT count(*) FROM report WHERE state = 2) = (SELECT count(*) FROM refusal)
    AND NOT EXISTS (SELECT 1 FROM payload LEFT JOIN report USING (key) WHERE coalesce(state, 1) IN (1, 3))";

/// SQL expression that held after each change of layout 1.
const CONSISTENCY_CHECK_1: &str = "
    row_count = (SELECT count(*) FROM charge) + (SELECT count(*) FROM report WHERE state = 1)
    AND (SELECT total(rows) FROM charge) = (SELECT count(*) FROM report)
    AND (SELECT count(*) FROM report WHERE state <> 1) = (SELECT count(*) FROM payload)
    AND (SELECT count(*) FROM report WHERE state = 2) = (SELECT count(*) FROM refusal)
    AND NOT EXISTS (SELECT 1 FROM payload LEFT JOIN report USING (key) WHERE coalesce(state, 1) = 1)";

const STUDIES: &str = "
    CREATE TABLE salt (
        id INTEGER PRIMARY KEY CHECK (id = 1),
        bytes BLOB NOT NULL CHECK (length(bytes) = 32)
    ) STRICT;
    CREATE TABLE file (digest BLOB PRIMARY KEY CHECK (length(digest) = 32)) STRICT;
    CREATE TABLE study (
        number INTEGER PRIMARY KEY,
        server TEXT NOT NULL,
        study TEXT NOT NULL UNIQUE,
        fingerprint BLOB NOT NULL CHECK (length(fingerprint) = 32),
        mechanism TEXT NOT NULL,
        dimension INTEGER NOT NULL CHECK (dimension > 0),
        neighbours TEXT NOT NULL,
        sentence TEXT NOT NULL,
        epsilon REAL NOT NULL CHECK (epsilon > 0),
        delta REAL NOT NULL CHECK (delta >= 0 AND delta < 1),
        day INTEGER NOT NULL
    ) STRICT;
    CREATE TRIGGER studies_stay BEFORE DELETE ON study
        BEGIN SELECT RAISE(ABORT, 'a study of a ledger is never deleted'); END;
    CREATE TRIGGER what_studies_cost_stays BEFORE UPDATE ON study
        BEGIN SELECT RAISE(ABORT, 'what a ledger says of a study is never changed'); END;
";

/// Charges of consecutive rows.
const CHARGES: &str = "
    CREATE TABLE charge (
        number INTEGER PRIMARY KEY,
        study INTEGER NOT NULL REFERENCES study,
        first INTEGER NOT NULL CHECK (first >= 0),
        rows INTEGER NOT NULL CHECK (rows > 0)
    ) STRICT;
    CREATE INDEX charge_of_row ON charge (study, first, rows);
    CREATE TRIGGER charge_is_counted AFTER INSERT ON charge
        BEGIN UPDATE file_state SET row_count = row_count + 1; END;
    CREATE TRIGGER charges_stay BEFORE DELETE ON charge
        BEGIN SELECT RAISE(ABORT, 'a charge of a ledger is never deleted'); END;
    CREATE TRIGGER charges_are_fixed BEFORE UPDATE ON charge
        BEGIN SELECT RAISE(ABORT, 'a charge of a ledger is never changed'); END;
";

/// Reports by key, which is `study << 40 | row`.
const REPORTS: &str = "
    CREATE TABLE report (
        key INTEGER PRIMARY KEY,
        id BLOB NOT NULL CHECK (length(id) = 16),
        state INTEGER NOT NULL CHECK (state IN (0, 1, 2, 3))
    ) STRICT;
";

// Payloads have a table of their own: deleting one frees whole pages, which the next one uses again.
const PAYLOADS: &str = "
    CREATE TABLE reading (
        study INTEGER PRIMARY KEY REFERENCES study,
        digest BLOB NOT NULL CHECK (length(digest) = 32)
    ) STRICT;
    CREATE TABLE payload (key INTEGER PRIMARY KEY, bytes BLOB NOT NULL) STRICT;
    CREATE TABLE token (
        key INTEGER PRIMARY KEY,
        bytes BLOB NOT NULL CHECK (length(bytes) = 32)
    ) STRICT;
    CREATE TABLE refusal (
        key INTEGER PRIMARY KEY,
        code TEXT NOT NULL,
        detail TEXT NOT NULL
    ) STRICT;
    CREATE TRIGGER payloads_are_fixed BEFORE UPDATE ON payload
        BEGIN SELECT RAISE(ABORT, 'a report of a ledger is never changed'); END;
";

const REPORT_TRIGGERS: &str = "
    CREATE TRIGGER reports_are_charged BEFORE INSERT ON report
        WHEN coalesce((SELECT first + rows FROM charge
            WHERE study = NEW.key >> 40 AND first <= NEW.key & 0xffffffffff ORDER BY first DESC LIMIT 1), 0)
            <= NEW.key & 0xffffffffff
        BEGIN SELECT RAISE(ABORT, 'a report is only within a charge of its study'); END;
    CREATE TRIGGER reports_stay BEFORE DELETE ON report
        BEGIN SELECT RAISE(ABORT, 'a report of a ledger is never deleted'); END;
    CREATE TRIGGER reports_are_fixed BEFORE UPDATE OF key, id ON report
        BEGIN SELECT RAISE(ABORT, 'a report of a ledger is never changed'); END;
    CREATE TRIGGER acknowledged_stays BEFORE UPDATE OF state ON report WHEN OLD.state = 1
        BEGIN SELECT RAISE(ABORT, 'an acknowledged report is never sent again'); END;
    CREATE TRIGGER given_up_stays BEFORE UPDATE OF state ON report WHEN OLD.state = 3 AND NEW.state <> 1
        BEGIN SELECT RAISE(ABORT, 'a report that was given up is never sent again'); END;
    CREATE TRIGGER owed_payloads_stay BEFORE DELETE ON payload
        WHEN coalesce((SELECT state FROM report WHERE key = OLD.key), 0) NOT IN (1, 3)
        BEGIN SELECT RAISE(ABORT, 'a report is kept until it is acknowledged or given up'); END;
";

/// A site's reports: one for many charged rows, under the key of the first of them. Persons are known by the hashes of
/// their identifiers and counted from 0, as rows are; a ledger has either persons or files. A number that an identifier
/// can mean, but that is spelled otherwise, has a hash of its own.
const SITES: &str = "
    CREATE TABLE IF NOT EXISTS person (
        hash BLOB PRIMARY KEY CHECK (length(hash) = 32),
        number INTEGER NOT NULL CHECK (number >= 0)
    ) STRICT, WITHOUT ROWID;
    CREATE TABLE IF NOT EXISTS spelling (
        number BLOB PRIMARY KEY CHECK (length(number) = 32),
        person BLOB NOT NULL REFERENCES person
    ) STRICT, WITHOUT ROWID;
    CREATE TABLE IF NOT EXISTS site (
        study INTEGER PRIMARY KEY REFERENCES study,
        name TEXT NOT NULL
    ) STRICT;
    CREATE TABLE IF NOT EXISTS site_report (
        key INTEGER PRIMARY KEY,
        units INTEGER NOT NULL CHECK (units > 0),
        day INTEGER NOT NULL
    ) STRICT;
    CREATE TRIGGER IF NOT EXISTS persons_stay BEFORE DELETE ON person
        BEGIN SELECT RAISE(ABORT, 'a person of a ledger is never deleted'); END;
    CREATE TRIGGER IF NOT EXISTS persons_are_fixed BEFORE UPDATE ON person
        BEGIN SELECT RAISE(ABORT, 'a person of a ledger is never changed'); END;
    CREATE TRIGGER IF NOT EXISTS spellings_stay BEFORE DELETE ON spelling
        BEGIN SELECT RAISE(ABORT, 'a person of a ledger is never deleted'); END;
    CREATE TRIGGER IF NOT EXISTS spellings_are_fixed BEFORE UPDATE ON spelling
        BEGIN SELECT RAISE(ABORT, 'a person of a ledger is never changed'); END;
    CREATE TRIGGER IF NOT EXISTS sites_stay BEFORE DELETE ON site
        BEGIN SELECT RAISE(ABORT, 'a site of a ledger is never deleted'); END;
    CREATE TRIGGER IF NOT EXISTS sites_are_fixed BEFORE UPDATE ON site
        BEGIN SELECT RAISE(ABORT, 'a site of a ledger is never changed'); END;
    CREATE TRIGGER IF NOT EXISTS site_reports_stay BEFORE DELETE ON site_report
        BEGIN SELECT RAISE(ABORT, 'a report of a ledger is never deleted'); END;
    CREATE TRIGGER IF NOT EXISTS site_reports_are_fixed BEFORE UPDATE ON site_report
        BEGIN SELECT RAISE(ABORT, 'a report of a ledger is never changed'); END;
";

/// Upgrades to layout 2, in which reports may be given up (state 3) and features are described.
fn to_layout_2(file: &mut LockedFile) -> Result<()> {
    file.check_consistent(CONSISTENCY_CHECK_1)?;
    file.write(|file| {
        file.execute_batch(
            "DROP TRIGGER owed_payloads_stay;
             DROP TRIGGER reports_are_charged; DROP TRIGGER reports_stay;
             DROP TRIGGER reports_are_fixed; DROP TRIGGER acknowledged_stays;
             ALTER TABLE report RENAME TO report_of_layout_1",
        )?;
        file.execute_batch(REPORTS)?;
        file.execute_batch(
            "INSERT INTO report SELECT key, id, state FROM report_of_layout_1;
             DROP TABLE report_of_layout_1",
        )?;
        file.execute_batch(REPORT_TRIGGERS)?;
        Ok(file.execute_batch(
            "ALTER TABLE study_terms ADD COLUMN features TEXT; PRAGMA user_version = 2",
        )?)
    })
}

/// Upgrades to layout 3, in which sites report. Before it had a number a ledger of layout 2 might have these tables, or
/// those of them that came first.
fn to_layout_3(file: &mut LockedFile) -> Result<()> {
    let damaged = file.incomplete_error();
    file.write(|file| {
        file.execute_batch(SITES)?;
        let query = format!("SELECT {CONSISTENCY_CHECK} FROM file_state");
        match file.query_row(&query, [], |row| row.get(0))? {
            true => Ok(file.execute_batch("PRAGMA user_version = 3")?),
            false => Err(Failure::Other(damaged)),
        }
    })
}

/// The key of a row of a study; both must be in range.
pub(super) fn key(study: i64, row: u64) -> i64 {
    study << ROW_BITS | row.cast_signed()
}

pub(super) fn row_of(key: i64) -> u64 {
    key.cast_unsigned() & ((1 << ROW_BITS) - 1)
}
