-- The layout of a ledger of rows in version 1: reports were in files of their own.
PRAGMA journal_mode = WAL;
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
CREATE TABLE charge (
    number INTEGER PRIMARY KEY,
    study INTEGER NOT NULL REFERENCES study,
    first INTEGER NOT NULL CHECK (first >= 0),
    rows INTEGER NOT NULL CHECK (rows > 0),
    reports_digest BLOB NOT NULL CHECK (length(reports_digest) = 32)
) STRICT;
CREATE TRIGGER studies_stay BEFORE DELETE ON study
    BEGIN SELECT RAISE(ABORT, 'a study of a ledger is never deleted'); END;
CREATE TRIGGER what_studies_cost_stays BEFORE UPDATE ON study
    BEGIN SELECT RAISE(ABORT, 'what a ledger says of a study is never changed'); END;
CREATE TRIGGER charges_stay BEFORE DELETE ON charge
    BEGIN SELECT RAISE(ABORT, 'a charge of a ledger is never deleted'); END;
CREATE TRIGGER charges_are_fixed BEFORE UPDATE ON charge
    BEGIN SELECT RAISE(ABORT, 'a charge of a ledger is never changed'); END;
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
CREATE TRIGGER charge_is_counted AFTER INSERT ON charge
    BEGIN UPDATE file_state SET row_count = row_count + 1; END;
INSERT INTO limits VALUES (1, 8.001, 16.01, 1e-5);
INSERT INTO salt VALUES (1, zeroblob(32));
-- SHA-256 of the salt, the number 5 and "five rows".
INSERT INTO file VALUES (x'b65c9778b4755f3d2331b30da791d7566a5cb98c108c3a1087a81073af0928dc');
PRAGMA application_id = 1165382220; -- "EvRL"
PRAGMA user_version = 1;
COMMIT;
