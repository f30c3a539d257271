-- Database and users of a fleet, on a new primary: by the container's first start (compose.yml), or
--   sudo -u postgres env EIGENVEIL_DB_PASSWORD=PASSWORD psql < packaging/fleet/primary.sql
\set ON_ERROR_STOP 1
\getenv password EIGENVEIL_DB_PASSWORD
-- The primary may already have been told to wait for a standby, which cannot exist yet.
SET synchronous_commit = local;
CREATE ROLE eigenveil LOGIN PASSWORD :'password';
CREATE ROLE standby LOGIN REPLICATION PASSWORD :'password';
CREATE DATABASE eigenveil OWNER eigenveil;
