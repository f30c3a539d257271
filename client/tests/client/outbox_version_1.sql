-- The layout of an outbox in version 1: the reports of one study, by row.
PRAGMA journal_mode = WAL;
BEGIN;
CREATE TABLE binding (
    id INTEGER PRIMARY KEY CHECK (id = 1),
    server TEXT NOT NULL,
    study TEXT NOT NULL,
    fingerprint BLOB NOT NULL CHECK (length(fingerprint) = 32),
    payload_len INTEGER NOT NULL
) STRICT;
CREATE TABLE meta (key TEXT PRIMARY KEY, value BLOB NOT NULL) STRICT, WITHOUT ROWID;
CREATE TABLE report (
    participant INTEGER PRIMARY KEY,
    id BLOB NOT NULL CHECK (length(id) = 16),
    state INTEGER NOT NULL CHECK (state IN (0, 1, 2))
) STRICT;
CREATE TABLE payload (participant INTEGER PRIMARY KEY, bytes BLOB NOT NULL) STRICT;
CREATE TABLE token (
    participant INTEGER PRIMARY KEY,
    bytes BLOB NOT NULL CHECK (length(bytes) = 32)
) STRICT;
CREATE TABLE refusal (
    participant INTEGER PRIMARY KEY,
    code TEXT NOT NULL,
    detail TEXT NOT NULL
) STRICT;
CREATE TABLE file_state (
    id INTEGER PRIMARY KEY CHECK (id = 1),
    revision BLOB NOT NULL CHECK (length(revision) = 16),
    previous_revision BLOB NOT NULL CHECK (length(previous_revision) = 16),
    row_count INTEGER NOT NULL
) STRICT;
INSERT INTO file_state VALUES (1, randomblob(16), randomblob(16), 0);
CREATE TRIGGER report_is_counted AFTER INSERT ON report
    BEGIN UPDATE file_state SET row_count = row_count + 1; END;
INSERT INTO meta VALUES ('rows_sha256', x'0102'), ('rows_read_as', x'03');
PRAGMA application_id = 1165381442; -- "EvOB"
PRAGMA user_version = 1;
COMMIT;
