//! The tables of a ledger of rows.

use super::tables::{LIMITS, MOVED, STUDY_TERMS, write_limits};
use crate::{
    error::Result,
    rules::Limits,
    sqlite::file::{FileSchema, LockedFile},
};

/// Number of low bits of a key that hold the row; the high bits hold the study.
pub(super) const ROW_BITS: u32 = 40;

/// Tables of a ledger of rows, and how its file is recognised.
pub(super) const SCHEMA: FileSchema = FileSchema {
    name: "ledger of rows",
    // "EvRX". Earlier layouts: "EvRW", without the number of acknowledgements; "EvRL" and "EvRl", without the reports
    application_id: 0x4576_5258,
    tables: &[LIMITS, STUDIES, CHARGES, REPORTS, STUDY_TERMS, MOVED, SITES],
    fill: |file| {
        write_limits(file, &Limits::default())?;
        file.execute("INSERT INTO salt VALUES (1, randomblob(32))", [])?;
        Ok(())
    },
    upgrades: &[add_sites],
    consistency_check_sql: "row_count = (SELECT count(*) FROM charge) + (SELECT count(*) FROM report WHERE state = 1)
            + (SELECT count(*) FROM person)
        AND (SELECT total(rows) FROM charge WHERE study NOT IN (SELECT study FROM site))
            = (SELECT count(*) FROM report WHERE key >> 40 NOT IN (SELECT study FROM site))
        AND (SELECT total(rows) FROM charge WHERE study IN (SELECT study FROM site))
            = (SELECT total(units) FROM site_report)
        AND (SELECT count(*) FROM report WHERE key >> 40 IN (SELECT study FROM site))
            = (SELECT count(*) FROM site_report JOIN report USING (key))
        AND (SELECT count(*) FROM report WHERE state <> 1) = (SELECT count(*) FROM payload)
        AND (SELECT count(*) FROM report WHERE state = 2) = (SELECT count(*) FROM refusal)
        AND NOT EXISTS (SELECT 1 FROM payload LEFT JOIN report USING (key) WHERE coalesce(state, 1) = 1)",
};

/// The layout whose tables know of sites.
pub(super) const SITES_LAYOUT: i32 = 2;

/// What held after each change of layout 1.
const CONSISTENCY_CHECK_1: &str = "row_count = (SELECT count(*) FROM charge) + (SELECT count(*) FROM report WHERE state = 1)
    AND (SELECT total(rows) FROM charge) = (SELECT count(*) FROM report)
    AND (SELECT count(*) FROM report WHERE state <> 1) = (SELECT count(*) FROM payload)
    AND (SELECT count(*) FROM report WHERE state = 2) = (SELECT count(*) FROM refusal)
    AND NOT EXISTS (SELECT 1 FROM payload LEFT JOIN report USING (key) WHERE coalesce(state, 1) = 1)";

/// Upgrades layout 1, which had no sites.
fn add_sites(file: &mut LockedFile) -> Result<()> {
    file.check_consistent(CONSISTENCY_CHECK_1)?;
    file.write(|file| {
        file.execute_batch(SITES)?;
        Ok(file.pragma_update(None, "user_version", SITES_LAYOUT)?)
    })
}

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

// Keys are `study << 40 | row`. Payloads have a table of their own: deleting one frees whole pages, which the next one
// uses again.
const REPORTS: &str = "
    CREATE TABLE reading (
        study INTEGER PRIMARY KEY REFERENCES study,
        digest BLOB NOT NULL CHECK (length(digest) = 32)
    ) STRICT;
    CREATE TABLE report (
        key INTEGER PRIMARY KEY,
        id BLOB NOT NULL CHECK (length(id) = 16),
        state INTEGER NOT NULL CHECK (state IN (0, 1, 2))
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
    CREATE TRIGGER payloads_are_fixed BEFORE UPDATE ON payload
        BEGIN SELECT RAISE(ABORT, 'a report of a ledger is never changed'); END;
    CREATE TRIGGER owed_payloads_stay BEFORE DELETE ON payload
        WHEN (SELECT state FROM report WHERE key = OLD.key) IS NOT 1
        BEGIN SELECT RAISE(ABORT, 'a report is kept until it is acknowledged'); END;
";

/// A site's reports: one for many charged rows, under the key of the first of them. Persons are known by the hashes of
/// their identifiers and counted from 0, as rows are; a ledger has either persons or files.
const SITES: &str = "
    CREATE TABLE person (
        hash BLOB PRIMARY KEY CHECK (length(hash) = 32),
        number INTEGER NOT NULL CHECK (number >= 0)
    ) STRICT, WITHOUT ROWID;
    CREATE TABLE site (
        study INTEGER PRIMARY KEY REFERENCES study,
        name TEXT NOT NULL
    ) STRICT;
    CREATE TABLE site_report (
        key INTEGER PRIMARY KEY,
        units INTEGER NOT NULL CHECK (units > 0),
        day INTEGER NOT NULL
    ) STRICT;
    CREATE TRIGGER persons_stay BEFORE DELETE ON person
        BEGIN SELECT RAISE(ABORT, 'a person of a ledger is never deleted'); END;
    CREATE TRIGGER persons_are_fixed BEFORE UPDATE ON person
        BEGIN SELECT RAISE(ABORT, 'a person of a ledger is never changed'); END;
    CREATE TRIGGER sites_stay BEFORE DELETE ON site
        BEGIN SELECT RAISE(ABORT, 'a site of a ledger is never deleted'); END;
    CREATE TRIGGER sites_are_fixed BEFORE UPDATE ON site
        BEGIN SELECT RAISE(ABORT, 'a site of a ledger is never changed'); END;
    CREATE TRIGGER site_reports_stay BEFORE DELETE ON site_report
        BEGIN SELECT RAISE(ABORT, 'a report of a ledger is never deleted'); END;
    CREATE TRIGGER site_reports_are_fixed BEFORE UPDATE ON site_report
        BEGIN SELECT RAISE(ABORT, 'a report of a ledger is never changed'); END;
";

/// The key of a row of a study; both must be in range.
pub(super) fn key(study: i64, row: u64) -> i64 {
    study << ROW_BITS | row.cast_signed()
}

pub(super) fn row_of(key: i64) -> u64 {
    key.cast_unsigned() & ((1 << ROW_BITS) - 1)
}
