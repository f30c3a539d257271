//! The chunks of a bucket, in order.

use tokio_postgres::{Client, Row};

use super::{Inner, connection::Session};
use crate::contract::{
    failure::Failure,
    study::{Study, StudyKey},
};

/// Rows of chunks fetched at once, and seeds after which no further one is.
const FETCH: i64 = 64;
const FETCHED_SEEDS: i64 = 1 << 16;

impl Inner {
    /// The chunks of a bucket in a snapshot, in order. Blocks.
    pub(super) fn read_chunks(
        &self,
        session: &Session,
        study: &Study,
        bucket: u32,
        take: &mut dyn FnMut(&[u8]) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        let mut last = 0;
        loop {
            let rows = self.wait(next_chunks(session, study.key, bucket as i32, last))?;
            let Some(end) = rows.last() else {
                return Ok(());
            };
            last = end.try_get(0)?;
            for row in &rows {
                take(row.try_get(1)?)?;
            }
        }
    }
}

/// The next chunks of a bucket after this commit, in order: `last` and `body` of some; none at the end.
pub(super) async fn next_chunks(
    client: &Client,
    study: StudyKey,
    bucket: i32,
    after: i64,
) -> Result<Vec<Row>, Failure> {
    let select = "SELECT last, body FROM (
            SELECT last, body, sum(n) OVER (ORDER BY last ROWS UNBOUNDED PRECEDING) - n AS before FROM (
                SELECT last, n, body FROM chunks WHERE study = $1 AND bucket = $2 AND last > $3
                ORDER BY last LIMIT $4) c) c
        WHERE before < $5 ORDER BY last";
    let params: [&(dyn tokio_postgres::types::ToSql + Sync); 5] =
        [&study.0, &bucket, &after, &FETCH, &FETCHED_SEEDS];
    Ok(client.query(select, &params).await?)
}
