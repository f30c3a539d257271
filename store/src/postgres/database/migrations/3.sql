-- What a study tells people of its features, JSON in their order; NULL: nothing.
ALTER TABLE studies ADD COLUMN features text;
