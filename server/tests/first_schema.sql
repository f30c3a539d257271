-- A store of the first released schema (version 1), as that program wrote it: a study of integers with two reports in two
-- buckets, a closed study of seeds with three reports in two commits, and their estimates. Never changed.
PRAGMA page_size = 8192;
PRAGMA application_id = 0x45695665;
PRAGMA user_version = 1;

CREATE TABLE settings (
    key   TEXT PRIMARY KEY,
    value BLOB NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE studies (
    study            INTEGER PRIMARY KEY,
    id               BLOB NOT NULL UNIQUE CHECK (length(id) = 16),
    name             TEXT NOT NULL,
    state            TEXT NOT NULL CHECK (state IN ('draft', 'open', 'closed')),
    canonical        BLOB NOT NULL,
    fingerprint      BLOB NOT NULL CHECK (length(fingerprint) = 32),
    default_k        INTEGER,          -- NULL: auto
    buckets          INTEGER NOT NULL CHECK (buckets BETWEEN 1 AND 32),
    created_at_ms    INTEGER NOT NULL,
    reports_accepted INTEGER NOT NULL DEFAULT 0 CHECK (reports_accepted >= 0),
    commit_seq       INTEGER NOT NULL DEFAULT 0 CHECK (commit_seq >= 0)
) STRICT;

-- The insert itself decides whether a report is new.
CREATE TABLE report_ids (
    study INTEGER NOT NULL REFERENCES studies,
    id    BLOB NOT NULL,
    PRIMARY KEY (study, id)
) STRICT, WITHOUT ROWID;

-- sum: packed upper triangle, f64 little-endian. A bucket without reports has no row.
CREATE TABLE buckets (
    study  INTEGER NOT NULL REFERENCES studies,
    bucket INTEGER NOT NULL,
    n      INTEGER NOT NULL CHECK (n > 0),
    sum    BLOB NOT NULL,
    PRIMARY KEY (study, bucket)
) STRICT;

-- The seeds of one commit, without their identifiers. A study has rows here or in buckets, never both.
CREATE TABLE seeds (
    study      INTEGER NOT NULL REFERENCES studies,
    bucket     INTEGER NOT NULL,
    commit_seq INTEGER NOT NULL,
    n          INTEGER NOT NULL CHECK (n > 0),
    seeds      BLOB NOT NULL CHECK (length(seeds) = 16 * n),
    PRIMARY KEY (study, bucket, commit_seq)
) STRICT, WITHOUT ROWID;

CREATE TABLE estimates (
    job            INTEGER PRIMARY KEY AUTOINCREMENT,
    study          INTEGER NOT NULL REFERENCES studies,
    number         INTEGER NOT NULL CHECK (number > 0),
    state          TEXT NOT NULL CHECK (state IN ('running', 'done', 'failed', 'cancelled')),
    request        TEXT NOT NULL,
    estimate       TEXT,
    problem        TEXT,
    attempts       INTEGER NOT NULL DEFAULT 0,
    created_at_ms  INTEGER NOT NULL,
    finished_at_ms INTEGER,
    UNIQUE (study, number)
) STRICT;
CREATE INDEX estimates_running ON estimates (job) WHERE state = 'running';

-- SHA-256 of the operator's token, which is 'token-of-the-first-release'.
INSERT INTO settings VALUES ('operator-token-sha256', x'e019ada371030593a2ae88444848f004c6ec78d427d21bd7fffb644435a9e8fd');

-- The canonical bytes are those of shared/tests/vectors/study_params_*.hex.
INSERT INTO studies VALUES
    (1, x'000102030405060708090a0b0c0d0e0f', 'integers', 'open',
     x'01000200000000000000000000000000000000000000001040000000000000b03e040002000000000000000000000000002840000000000011bb40',
     x'288bc46303d5ee4b5d60ab7c05c6ae6d9eb6e6f6c71ed04c291d996969ef5e8d',
     1, 32, 1700000000000, 2, 2),
    (2, x'101112131415161718191a1b1c1d1e1f', 'seeds', 'closed',
     x'0100020000000000000000000000000001000000000000e03f0000000000001040000000000000000003000300000000000000ae20ae2f2a0aea3fda147ccd8e11b93fea3322431034f63f',
     x'b4554905ff825977bee9353ab2b9d178e4c23009bcd42449b3cd7d3f1a4d9e85',
     NULL, 32, 1700000000001, 3, 2);

INSERT INTO report_ids VALUES
    (1, x'018bcfe56800700080000000000000a1'),
    (1, x'018bcfe56800700080000000000000a2'),
    (2, x'018bcfe56800700080000000000000b1'),
    (2, x'018bcfe56800700080000000000000b2'),
    (2, x'018bcfe56800700080000000000000b3');

-- Sums of three f64: (100, -7, 30) and (1, 2, 3).
INSERT INTO buckets VALUES
    (1, 7, 1, x'00000000000059400000000000001cc00000000000003e40'),
    (1, 21, 1, x'000000000000f03f00000000000000400000000000000840');

INSERT INTO seeds VALUES
    (2, 4, 0, 2, x'0000000000000000000000000000000111111111111111111111111111111111'),
    (2, 9, 1, 1, x'22222222222222222222222222222222');

INSERT INTO estimates (study, number, state, request, problem, attempts, created_at_ms, finished_at_ms) VALUES
    (2, 1, 'cancelled', '{"k":null,"sparse":null}', NULL, 1, 1700000000002, 1700000000003),
    (1, 1, 'running', '{"k":1,"sparse":null}', NULL, 0, 1700000000004, NULL);
