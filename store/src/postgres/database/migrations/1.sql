-- No foreign keys to studies: each append would share-lock one hot row.

-- The one clock that decides: of last days, leases and arrivals.
CREATE FUNCTION moment() RETURNS timestamptz LANGUAGE sql VOLATILE AS 'SELECT clock_timestamp()';
CREATE FUNCTION moment_ms() RETURNS bigint LANGUAGE sql VOLATILE
  AS 'SELECT floor(extract(epoch FROM moment()) * 1000)::bigint';

CREATE TABLE settings (key text PRIMARY KEY, value bytea NOT NULL);

-- Keys are never used again: they come from a sequence.
CREATE TABLE studies (
  study             bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  id                bytea NOT NULL UNIQUE CHECK (length(id) = 16),
  name              text NOT NULL,
  state             text NOT NULL CHECK (state IN ('draft', 'open', 'closed')),
  canonical         bytea NOT NULL,
  fingerprint       bytea NOT NULL CHECK (length(fingerprint) = 32),
  default_k         bigint,                      -- NULL: auto
  buckets           int NOT NULL CHECK (buckets BETWEEN 1 AND 32),
  enrolment         text NOT NULL CHECK (enrolment IN ('open', 'token')),
  created_at_ms     bigint NOT NULL,
  closed_at_ms      bigint,
  identifiers_kept  boolean NOT NULL DEFAULT true,
  purpose           text,
  responsible_party text,
  contact           text,
  last_day          bigint CHECK (last_day >= 0) -- days since 1970-01-01 UTC
);
-- Not used any more: a later step removes it.
CREATE TABLE deleted (study bigint PRIMARY KEY);

-- Locked by every commit that accepts a report, and by whoever opens, closes or deletes.
CREATE TABLE buckets (
  study  bigint,
  bucket int,
  open   boolean NOT NULL,
  until  timestamptz NOT NULL DEFAULT 'infinity',
  seq    bigint NOT NULL DEFAULT 0,
  n      bigint NOT NULL DEFAULT 0,
  PRIMARY KEY (study, bucket)
) WITH (fillfactor = 20, autovacuum_vacuum_threshold = 500, autovacuum_vacuum_scale_factor = 0);

CREATE TABLE identifiers (study bigint, id bytea, PRIMARY KEY (study, id));

-- spent: 0 no, 1 yes, 2 yes and rewritten among many others, so that no transaction number pairs it with a report.
-- No index on it: updates stay on their page, which has room for one of each row, all in one commit.
CREATE TABLE tokens (
  study bigint,
  key   bytea,
  spent smallint NOT NULL DEFAULT 0 CHECK (spent IN (0, 1, 2)),
  PRIMARY KEY (study, key)
) WITH (fillfactor = 50);

-- Seeds of the commits first to last of a bucket, sorted. They do not compress.
CREATE TABLE chunks (
  study  bigint,
  bucket int,
  last   bigint,
  first  bigint NOT NULL,
  n      int NOT NULL CHECK (n > 0),
  body   bytea NOT NULL CHECK (length(body) = 16 * n),
  PRIMARY KEY (study, bucket, last)
);
ALTER TABLE chunks ALTER body SET STORAGE EXTERNAL;

-- Packed upper triangle, f64 little-endian; n = 0 and no body before the first. Of seeds the sum of n, those of the
-- commits up to upto: whoever moves it on, or merges chunks, holds the row.
CREATE TABLE sums (
  study  bigint,
  bucket int,
  upto   bigint NOT NULL DEFAULT 0,
  n      bigint NOT NULL DEFAULT 0,
  body   bytea,
  PRIMARY KEY (study, bucket)
) WITH (fillfactor = 50);
ALTER TABLE sums ALTER body SET STORAGE EXTERNAL;

CREATE TABLE imports (
  study          bigint,
  sha256         bytea CHECK (length(sha256) = 32),
  reports        bigint NOT NULL,
  imported_at_ms bigint NOT NULL,
  PRIMARY KEY (study, sha256)
);

-- Counts by minute, later by hour and by day; of each bucket, so that no row is common to all commits.
CREATE TABLE arrivals (
  study   bigint,
  bucket  int,
  seconds int CHECK (seconds IN (60, 3600, 86400)),
  start   bigint,                                -- seconds since 1970-01-01 UTC
  n       bigint NOT NULL CHECK (n > 0),
  PRIMARY KEY (study, bucket, seconds, start)
) WITH (fillfactor = 50);

CREATE TABLE estimates (
  job            bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  study          bigint NOT NULL,
  number         bigint NOT NULL CHECK (number > 0),
  state          text NOT NULL CHECK (state IN ('running', 'done', 'failed', 'cancelled')),
  request        text NOT NULL,
  estimate       text,
  problem        text,
  attempts       bigint NOT NULL DEFAULT 0,
  created_at_ms  bigint NOT NULL,
  finished_at_ms bigint,
  holder         bigint,                         -- the server that computes it, until the lease is over
  lease          timestamptz,
  UNIQUE (study, number)
);
CREATE INDEX estimates_running ON estimates (job) WHERE state = 'running';

-- study NULL: for the estimates of all studies.
CREATE TABLE analysts (
  id            bytea PRIMARY KEY CHECK (length(id) = 8),
  name          text NOT NULL,
  study         bigint,
  created_at_ms bigint NOT NULL,
  hash          bytea NOT NULL UNIQUE CHECK (length(hash) = 32)
);

-- A row a committing connection, written where nothing else is: an answer follows the commit of a write, which waits
-- for the standby.
CREATE TABLE pulse (
  server     bigint,
  connection int,
  v          bigint NOT NULL,
  at         timestamptz NOT NULL,
  PRIMARY KEY (server, connection)
) WITH (fillfactor = 20);
