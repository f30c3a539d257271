-- The fingerprints of the seeds that a row of sums counts, in sorted runs, each of the commits up to upto and after the
-- run before. They do not compress.
CREATE TABLE fold_runs (
  study  bigint,
  bucket int,
  upto   bigint,
  body   bytea NOT NULL,
  PRIMARY KEY (study, bucket, upto)
);
ALTER TABLE fold_runs ALTER body SET STORAGE EXTERNAL;

-- Sums of seeds have a checksum and a sample since this version: they are made anew.
UPDATE sums SET upto = least(upto, 0) - 1, n = 0, body = NULL WHERE upto > 0;
