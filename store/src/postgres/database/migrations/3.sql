-- What a study tells people of its features, JSON in their order; NULL: nothing.
ALTER TABLE studies ADD COLUMN features text;

-- In a study of sites each token is of a site, for a report of at most so many rows; elsewhere both are NULL.
ALTER TABLE tokens
  ADD COLUMN site     text,
  ADD COLUMN max_rows bigint CHECK (max_rows > 0);

-- The reports of a study of sites, each kept apart, in the order in which they came. They do not compress.
CREATE TABLE site_reports (
  study   bigint,
  number  bigint GENERATED ALWAYS AS IDENTITY,
  site    text NOT NULL,
  payload bytea NOT NULL,
  PRIMARY KEY (study, number)
);
ALTER TABLE site_reports ALTER payload SET STORAGE EXTERNAL;
