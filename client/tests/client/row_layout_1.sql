-- The tables of a ledger of rows in layout 1, and what the ledger `new` (of today, without sites) says in them.
BEGIN;
CREATE TABLE limits (
    id INTEGER PRIMARY KEY CHECK (id = 1),
    epsilon_per_study REAL NOT NULL,
    epsilon_total REAL NOT NULL,
    delta_total REAL NOT NULL
) STRICT;
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
CREATE TABLE study_terms (
    number INTEGER PRIMARY KEY,
    name TEXT,
    purpose TEXT,
    responsible_party TEXT,
    contact TEXT,
    last_day INTEGER CHECK (last_day >= 0),
    canonical_params BLOB NOT NULL
) STRICT;
CREATE TRIGGER study_terms_stay BEFORE DELETE ON study_terms
    BEGIN SELECT RAISE(ABORT, 'what a device was told is never deleted'); END;
CREATE TRIGGER study_terms_are_fixed BEFORE UPDATE ON study_terms
    BEGIN SELECT RAISE(ABORT, 'what a device was told is never changed'); END;
CREATE TABLE moved (
    id INTEGER PRIMARY KEY,
    number INTEGER NOT NULL,
    server TEXT NOT NULL
) STRICT;
CREATE TRIGGER moves_stay BEFORE DELETE ON moved
    BEGIN SELECT RAISE(ABORT, 'the addresses of a study are never deleted'); END;
CREATE TABLE file_state (
    id INTEGER PRIMARY KEY CHECK (id = 1),
    revision BLOB NOT NULL CHECK (length(revision) = 16),
    previous_revision BLOB NOT NULL CHECK (length(previous_revision) = 16),
    row_count INTEGER NOT NULL
) STRICT;
INSERT INTO file_state VALUES (1, randomblob(16), randomblob(16), 0);

INSERT INTO limits SELECT * FROM new.limits;
INSERT INTO salt SELECT * FROM new.salt;
INSERT INTO file SELECT * FROM new.file;
INSERT INTO study SELECT * FROM new.study;
INSERT INTO study_terms
    SELECT number, name, purpose, responsible_party, contact, last_day, canonical_params FROM new.study_terms;
INSERT INTO moved SELECT * FROM new.moved;
INSERT INTO charge SELECT * FROM new.charge;
INSERT INTO reading SELECT * FROM new.reading;
INSERT INTO report SELECT * FROM new.report;
INSERT INTO payload SELECT * FROM new.payload;
INSERT INTO token SELECT * FROM new.token;
INSERT INTO refusal SELECT * FROM new.refusal;
UPDATE file_state SET row_count = row_count + (SELECT count(*) FROM report WHERE state = 1);

-- "EvRX"
PRAGMA application_id = 1165382232;
PRAGMA user_version = 1;
COMMIT;
PRAGMA journal_mode = WAL;
