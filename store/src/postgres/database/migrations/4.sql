-- A larger one each time that the fold of a bucket is kept or dropped, or its chunks are sorted.
ALTER TABLE sums ADD COLUMN generation bigint NOT NULL DEFAULT 0;

-- A fold has fingerprints, a sample and a checksum since this version: those before are made anew.
UPDATE sums SET generation = 1, upto = 0, n = 0, body = NULL WHERE upto != 0;
