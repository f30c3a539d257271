//! The statements of a commit, prepared on its connection, and rehearsed.

use tokio_postgres::Statement;

use super::connection::Connection;
use crate::{
    contract::{failure::Failure, study::StudyKey},
    postgres::unsigned,
};

/// Reports of a rehearsed commit: 64 KiB of seeds.
const REHEARSED: usize = 4_096;

// Arrays are sorted by their key, without repetition, so that locks are taken in one order.
//
// `>=` beside `=`: PostgreSQL makes no bitmap of what it believes to be the whole index, as one row is, and reads that
// for each key.
const ADMISSION_RULES: &str =
    "SELECT study, bool_and(open), bool_or(moment() >= until), sum(n)::bigint FROM buckets
    WHERE study = ANY ($1) GROUP BY study";
// Before it is known whether the reports are accepted: a row that was only locked would be looked up, and written,
// twice. Returns the tokens that it has not spent, as they were when it began: unspent ones were spent by whoever was
// waited for, which SPENT sees.
//
// This and TAKE return what mostly is little: PostgreSQL waits without end for a client that has stopped to read what
// it is sent, and holds the locks.
pub(crate) const SPEND: &str = "WITH u AS MATERIALIZED (SELECT * FROM unnest($1::bigint[], $2::bytea[]) u(study, key)),
    now AS (UPDATE tokens t SET spent = 1 FROM u WHERE t.study = u.study AND t.key = u.key
        AND t.key >= u.key AND t.spent = 0 RETURNING t.study, t.key)
    SELECT o.study, o.key, t.spent FROM (SELECT study, key FROM u EXCEPT SELECT study, key FROM now) o
    LEFT JOIN tokens t ON t.study = o.study AND t.key = o.key AND t.key >= o.key";
pub(crate) const SPENT: &str =
    "SELECT count(*) FROM tokens t JOIN unnest($1::bigint[], $2::bytea[]) u(s, k)
    ON t.study = u.s AND t.key = u.k AND t.key >= u.k AND t.spent > 0";
pub(crate) const TAKE: &str = "WITH u AS MATERIALIZED (SELECT * FROM unnest($1::bigint[], $2::bytea[]) u(study, id)),
    new AS (INSERT INTO identifiers (study, id) SELECT * FROM u ON CONFLICT DO NOTHING RETURNING study, id)
    SELECT study, id FROM u EXCEPT SELECT study, id FROM new";
// Of studies whose last day has just passed: reports in flight, which came in time, are waited for before they are
// looked up.
const IN_FLIGHT: &str =
    "SELECT 1 FROM buckets WHERE study = ANY ($1) ORDER BY study, bucket FOR SHARE";
// A statement after the tokens were locked, never joined with it: what was waited for is seen.
pub(crate) const KNOWN: &str = "SELECT i.study, i.id FROM identifiers i
    JOIN unnest($1::bigint[], $2::bytea[]) u(s, k) ON i.study = u.s AND i.id = u.k AND i.id >= u.k";
pub(crate) const TAKE_BACK: &str =
    "DELETE FROM identifiers i USING unnest($1::bigint[], $2::bytea[]) u(s, k)
    WHERE i.study = u.s AND i.id = u.k AND i.id >= u.k";
pub(crate) const GIVE_BACK: &str =
    "UPDATE tokens t SET spent = 0 FROM unnest($1::bigint[], $2::bytea[]) u(s, k)
    WHERE t.study = u.s AND t.key = u.k AND t.key >= u.k AND t.spent = 1";
// Whatever `open` says: a row that is passed over here and found open by the next statement would be locked out of
// order.
const LOCK_BUCKETS: &str = "SELECT b.study FROM buckets b
    JOIN unnest($1::bigint[], $2::int[]) u(s, k) ON b.study = u.s AND b.bucket = u.k
    ORDER BY b.study, b.bucket FOR NO KEY UPDATE OF b";
pub(crate) const SUM: &str = "SELECT n, body FROM sums WHERE study = $1 AND bucket = $2";
pub(crate) const KEEP_SUM: &str =
    "UPDATE sums SET n = $3, body = $4 WHERE study = $1 AND bucket = $2";
const KEEP_TABLE: &str = "INSERT INTO site_reports (study, site, payload) VALUES ($1, $2, $3)";
// The clock is asked again, with the locks held: a last day may have passed while they were waited for. Arrivals are
// counted under the number of the connection: so no row is common to all commits, and none has a bucket.
const COUNT: &str = "WITH c AS MATERIALIZED (
        SELECT * FROM unnest($1::bigint[], $2::int[], $3::bigint[], $4::bytea[]) c(study, bucket, n, body)),
    w AS (UPDATE buckets b SET seq = b.seq + 1, n = b.n + c.n FROM c
        WHERE b.study = c.study AND b.bucket = c.bucket AND b.open AND moment() < b.until
        RETURNING b.study, b.bucket, b.seq),
    k AS (INSERT INTO chunks (study, bucket, last, first, n, body)
        SELECT w.study, w.bucket, w.seq, w.seq, c.n, c.body FROM w JOIN c USING (study, bucket)
        WHERE c.body IS NOT NULL RETURNING 1),
    a AS (INSERT INTO arrivals AS a (study, bucket, seconds, start, n)
        SELECT w.study, $5::int, 60, moment_ms() / 60000 * 60, c.n FROM w JOIN c USING (study, bucket)
        ON CONFLICT (study, bucket, seconds, start) DO UPDATE SET n = a.n + excluded.n RETURNING 1)
    SELECT (SELECT count(*) FROM w), (SELECT count(*) FROM k), (SELECT count(*) FROM a)";
const COUNTED: &str =
    "SELECT study, sum(n)::bigint FROM buckets WHERE study = ANY ($1) GROUP BY study";
const PULSE: &str =
    "INSERT INTO pulse AS p (server, connection, v, at) VALUES ($1, $2, 1, moment())
    ON CONFLICT (server, connection) DO UPDATE SET v = p.v + 1, at = moment()";

/// A connection that commits.
pub(crate) struct Prepared {
    pub(crate) connection: Connection,
    pub(crate) admission_rules: Statement,
    pub(crate) spend: Statement,
    pub(crate) spent: Statement,
    pub(crate) take: Statement,
    pub(crate) in_flight: Statement,
    pub(crate) known: Statement,
    pub(crate) take_back: Statement,
    pub(crate) give_back: Statement,
    pub(crate) lock_buckets: Statement,
    pub(crate) sum: Statement,
    pub(crate) keep_sum: Statement,
    pub(crate) keep_table: Statement,
    pub(crate) count: Statement,
    pub(crate) counted: Statement,
    pub(crate) pulse: Statement,
}

impl Prepared {
    pub(crate) async fn new(connection: Connection) -> Result<Self, Failure> {
        Ok(Self {
            admission_rules: connection.prepare(ADMISSION_RULES).await?,
            spend: connection.prepare(SPEND).await?,
            spent: connection.prepare(SPENT).await?,
            take: connection.prepare(TAKE).await?,
            in_flight: connection.prepare(IN_FLIGHT).await?,
            known: connection.prepare(KNOWN).await?,
            take_back: connection.prepare(TAKE_BACK).await?,
            give_back: connection.prepare(GIVE_BACK).await?,
            lock_buckets: connection.prepare(LOCK_BUCKETS).await?,
            sum: connection.prepare(SUM).await?,
            keep_sum: connection.prepare(KEEP_SUM).await?,
            keep_table: connection.prepare(KEEP_TABLE).await?,
            count: connection.prepare(COUNT).await?,
            counted: connection.prepare(COUNTED).await?,
            pulse: connection.prepare(PULSE).await?,
            connection,
        })
    }

    /// Writes as a commit does, and rolls back: of as many reports as fill several pages of each table, since a row
    /// that fits its page would be written on a full disk, too; but first of one, which leaves less to be vacuumed
    /// where that fails already, each second. `study` is none that there is.
    pub(crate) async fn rehearse(&self, study: StudyKey) -> Result<(), Failure> {
        for reports in [1, REHEARSED] {
            self.rehearse_with(study, reports).await?;
        }
        Ok(())
    }

    async fn rehearse_with(&self, study: StudyKey, reports: usize) -> Result<(), Failure> {
        let client = &self.connection;
        let StudyKey(study) = study;
        let keys: Vec<String> = (0..reports).map(|number| format!("{number:032}")).collect();
        let tokens: Vec<&[u8]> = keys.iter().map(String::as_bytes).collect();
        let ids: Vec<&[u8]> = tokens.iter().map(|key| &key[16..]).collect();
        let studies = vec![study; reports];
        let (one, bucket, n) = (vec![study], vec![0_i32], vec![reports as i64]);
        let seeds = vec![Some(vec![0_u8; 16 * reports])];
        client
            .batch_execute("BEGIN ISOLATION LEVEL READ COMMITTED")
            .await?;
        for begin in [
            "INSERT INTO buckets (study, bucket, open) VALUES ($1, 0, true)",
            "INSERT INTO sums (study, bucket) VALUES ($1, 0)",
        ] {
            require("tables", client.execute(begin, &[&study]).await?, 1)?;
        }
        let issue =
            "INSERT INTO tokens (study, key) SELECT * FROM unnest($1::bigint[], $2::bytea[])";
        let rows = client.execute(issue, &[&studies, &tokens]).await?;
        require("tokens", rows, reports)?;
        client.query(&self.admission_rules, &[&one]).await?;
        client.query(&self.spend, &[&studies, &tokens]).await?;
        client.query(&self.spent, &[&studies, &tokens]).await?;
        client.query(&self.take, &[&studies, &ids]).await?;
        client.query(&self.in_flight, &[&one]).await?;
        client.query(&self.known, &[&studies, &ids]).await?;
        let rows = client.execute(&self.take_back, &[&studies, &ids]).await?;
        require("identifiers", rows, reports)?;
        let rows = client
            .execute(&self.give_back, &[&studies, &tokens])
            .await?;
        require("tokens", rows, reports)?;
        client.query(&self.lock_buckets, &[&one, &bucket]).await?;
        client.query(&self.sum, &[&study, &0]).await?;
        let rows = client
            .execute(&self.keep_sum, &[&study, &0, &n[0], &seeds[0]])
            .await?;
        require("sums", rows, 1)?;
        let rows = client
            .execute(&self.keep_table, &[&study, &"", &tokens[0]])
            .await?;
        require("site_reports", rows, 1)?;
        let row = client
            .query_one(&self.count, &[&one, &bucket, &n, &seeds, &0_i32])
            .await?;
        for (column, table) in ["buckets", "chunks", "arrivals"].into_iter().enumerate() {
            require(table, unsigned(row.try_get(column)?), 1)?;
        }
        client.query(&self.counted, &[&one]).await?;
        client.batch_execute("ROLLBACK").await?;
        Ok(())
    }

    /// A commit that changes nothing but a row of this server's own.
    pub(crate) async fn beat(&self, server: i64, connection: i32) -> Result<(), Failure> {
        let client = &self.connection;
        let beaten = client.execute(&self.pulse, &[&server, &connection]).await?;
        require("pulse", beaten, 1)?;
        self.connection.commit().await
    }
}

/// Each statement says how many rows it has changed; before a commit that is what was asked for.
pub(crate) fn require(table: &str, changed: u64, wanted: usize) -> Result<(), Failure> {
    match changed == wanted as u64 {
        true => Ok(()),
        false => Err(Failure::Unavailable(format!(
            "{changed} rows of {table} were changed where {wanted} should have been; the transaction was rolled back"
        ))),
    }
}
