-- The tables of a device's ledger in layout 1, and what the ledger `new` (of today) says in them.
BEGIN;
CREATE TABLE limits (
    id INTEGER PRIMARY KEY CHECK (id = 1),
    epsilon_per_study REAL NOT NULL,
    epsilon_total REAL NOT NULL,
    delta_total REAL NOT NULL
) STRICT;
CREATE TABLE entry (
    number INTEGER PRIMARY KEY,
    server TEXT NOT NULL,
    study TEXT NOT NULL UNIQUE,
    fingerprint BLOB NOT NULL CHECK (length(fingerprint) = 32),
    payload_len INTEGER NOT NULL CHECK (payload_len > 0),
    mechanism TEXT NOT NULL,
    dimension INTEGER NOT NULL CHECK (dimension > 0),
    neighbours TEXT NOT NULL,
    sentence TEXT NOT NULL,
    epsilon REAL NOT NULL CHECK (epsilon > 0),
    delta REAL NOT NULL CHECK (delta >= 0 AND delta < 1),
    day INTEGER NOT NULL,
    report BLOB NOT NULL UNIQUE CHECK (length(report) = 16),
    state INTEGER NOT NULL CHECK (state IN (0, 1, 2)),
    code TEXT,
    detail TEXT,
    CHECK ((state = 2) = (code IS NOT NULL AND detail IS NOT NULL))
) STRICT;
CREATE TABLE payload (number INTEGER PRIMARY KEY REFERENCES entry, bytes BLOB NOT NULL) STRICT;
CREATE TABLE token (
    number INTEGER PRIMARY KEY REFERENCES entry,
    bytes BLOB NOT NULL CHECK (length(bytes) = 32)
) STRICT;
CREATE TRIGGER entries_stay BEFORE DELETE ON entry
    BEGIN SELECT RAISE(ABORT, 'an entry of a ledger is never deleted'); END;
CREATE TRIGGER charges_stay
    BEFORE UPDATE OF number, server, study, fingerprint, payload_len, mechanism, dimension,
        neighbours, sentence, epsilon, delta, day, report ON entry
    BEGIN SELECT RAISE(ABORT, 'what an entry of a ledger says is never changed'); END;
CREATE TRIGGER acknowledged_stays BEFORE UPDATE OF state ON entry WHEN OLD.state = 1
    BEGIN SELECT RAISE(ABORT, 'an acknowledged report is never sent again'); END;
CREATE TRIGGER reports_stay BEFORE UPDATE ON payload
    BEGIN SELECT RAISE(ABORT, 'a report of a ledger is never changed'); END;
CREATE TRIGGER owed_reports_stay BEFORE DELETE ON payload
    WHEN (SELECT state FROM entry WHERE number = OLD.number) IS NOT 1
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
CREATE TRIGGER entry_is_counted AFTER INSERT ON entry
    BEGIN UPDATE file_state SET row_count = row_count + 1; END;

INSERT INTO limits
SELECT 1, head ->> '$.limits.epsilon_per_study', head ->> '$.limits.epsilon_total', head ->> '$.limits.delta_total'
FROM (SELECT CAST(value AS TEXT) AS head FROM new.record WHERE key = 'head');

CREATE TEMP VIEW said AS
SELECT CAST(value AS TEXT) ->> 'number' AS number, CAST(value AS TEXT) AS entry FROM new.record WHERE key <> 'head';

INSERT INTO entry
SELECT number, entry ->> '$.servers[0]', entry ->> 'study', unhex(entry ->> 'fingerprint'), entry ->> 'payload_len',
    entry ->> 'mechanism', entry ->> 'dimension', entry ->> 'neighbours', entry ->> 'sentence',
    entry ->> '$.charge.epsilon', entry ->> '$.charge.delta', entry ->> 'day', unhex(entry ->> 'report'),
    CASE entry ->> 'state' WHEN 'owed' THEN 0 WHEN 'acknowledged' THEN 1 ELSE 2 END,
    entry ->> '$.state.refused.code', entry ->> '$.state.refused.detail'
FROM said ORDER BY number;

INSERT INTO payload SELECT substr(key, 9), value FROM new.payload;
INSERT INTO token SELECT number, unhex(entry ->> 'token') FROM said WHERE entry ->> 'token' IS NOT NULL;

INSERT INTO study_terms
SELECT number, entry ->> 'name', entry ->> '$.about.purpose', entry ->> '$.about.responsible_party',
    entry ->> '$.about.contact', unixepoch(entry ->> '$.about.last_day') / 86400, unhex(entry ->> 'canonical_params')
FROM said;

INSERT INTO moved (number, server)
SELECT number, address.value FROM said, json_each(entry -> 'servers') AS address
WHERE address.key > 0 ORDER BY number, address.key;

-- "EvDL"
PRAGMA application_id = 1165378636;
PRAGMA user_version = 1;
COMMIT;
PRAGMA journal_mode = WAL;
