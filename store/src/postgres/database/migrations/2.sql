-- How far the rows of a closed study are written anew (rewrite.rs): those of its first rewritten_seq commits, which its
-- buckets have together; of which kind, and up to which key of that kind.
ALTER TABLE studies
  ADD COLUMN rewritten_seq   bigint,
  ADD COLUMN rewritten_stage smallint NOT NULL DEFAULT 0,
  ADD COLUMN rewritten_key   bytea NOT NULL DEFAULT '';

-- A bucket of arrivals is the number of a connection that counts, and since this version no bucket: beside a minute it
-- would show where a report's seed is. A later step renames it, once no server of the version before needs it.
