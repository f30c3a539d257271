//! The chunks of a bucket, in order, and others in their place.

use eigenveil_shared::mechanism::double_cap::{SEED_LEN, Seed};
use tokio_postgres::{Client, Row};

use super::{Inner, connection::Session, statements::require, unsigned};
use crate::contract::{
    engine::RowSink,
    failure::Failure,
    study::{Study, StudyKey},
};

/// Rows of chunks fetched at once, and seeds after which no further one is.
const FETCH: i64 = 64;
const FETCHED_SEEDS: i64 = 1 << 16;

impl Inner {
    /// The chunks of a bucket after this commit in a snapshot, in order. Blocks.
    pub(super) fn read_chunks(
        &self,
        session: &Session,
        study: &Study,
        bucket: u32,
        after: i64,
        take: &mut RowSink<'_>,
    ) -> Result<(), Failure> {
        let mut last = after;
        loop {
            let rows = self.wait(next_chunks(session, study.key, bucket as i32, last))?;
            let Some(end) = rows.last() else {
                return Ok(());
            };
            last = end.try_get(0)?;
            for row in &rows {
                if !take(row.try_get(0)?, row.try_get(3)?)? {
                    return Ok(());
                }
            }
        }
    }
}

/// The next chunks of a bucket after this commit, in order: `last`, `first`, `n` and `body` of some; none at the end.
pub(super) async fn next_chunks(
    client: &Client,
    study: StudyKey,
    bucket: i32,
    after: i64,
) -> Result<Vec<Row>, Failure> {
    let select = "SELECT last, first, n, body FROM (
            SELECT *, sum(n) OVER (ORDER BY last ROWS UNBOUNDED PRECEDING) - n AS before FROM (
                SELECT last, first, n, body FROM chunks WHERE study = $1 AND bucket = $2 AND last > $3
                ORDER BY last LIMIT $4) c) c
        WHERE before < $5 ORDER BY last";
    let params: [&(dyn tokio_postgres::types::ToSql + Sync); 5] =
        [&study.0, &bucket, &after, &FETCH, &FETCHED_SEEDS];
    Ok(client.query(select, &params).await?)
}

/// Chunks that follow each other, on their way into others.
#[derive(Default)]
pub(super) struct Run {
    /// The first commit.
    from: i64,
    /// The last commit of each.
    lasts: Vec<i64>,
    seeds: Vec<Seed>,
}

impl Run {
    /// Adds the next one: `last`, `first`, `n` and `body`.
    pub(super) fn add(&mut self, row: &Row) -> Result<(), Failure> {
        let (last, first): (i64, i64) = (row.try_get(0)?, row.try_get(1)?);
        match self.lasts.last() {
            None => self.from = first,
            Some(before) if before + 1 == first => {}
            Some(_) => return Err(Failure::damaged("a chunk of seeds is missing")),
        }
        self.lasts.push(last);
        let (whole, rest) = row.try_get::<_, &[u8]>(3)?.as_chunks::<SEED_LEN>();
        if !rest.is_empty() || whole.len() as u64 != unsigned(row.try_get::<_, i32>(2)?.into()) {
            return Err(Failure::damaged(
                "a chunk of seeds has another length than it says",
            ));
        }
        self.seeds.extend_from_slice(whole);
        Ok(())
    }

    /// Number of seeds.
    pub(super) fn len(&self) -> usize {
        self.seeds.len()
    }

    /// Puts chunks with the same seeds, sorted, in the place of these: of at most so many seeds, as far as there are
    /// commits to number them by. The row of sums is held.
    pub(super) async fn replace(
        mut self,
        client: &Client,
        study: StudyKey,
        bucket: i32,
        most: usize,
    ) -> Result<(), Failure> {
        let Some(&end) = self.lasts.last() else {
            return Ok(());
        };
        self.seeds.sort_unstable();
        let delete = "DELETE FROM chunks WHERE study = $1 AND bucket = $2 AND last = ANY ($3)";
        let removed = client
            .execute(delete, &[&study.0, &bucket, &self.lasts])
            .await?;
        require("chunks", removed, self.lasts.len())?;
        let commits = usize::try_from(end - self.from + 1).unwrap_or(usize::MAX);
        let number = self.seeds.len().div_ceil(most).min(commits).max(1);
        let size = self.seeds.len().div_ceil(number).max(1);
        let insert = "INSERT INTO chunks (study, bucket, last, first, n, body) VALUES ($1, $2, $3, $4, $5, $6)";
        let mut first = self.from;
        let mut parts = self.seeds.chunks(size).peekable();
        while let Some(part) = parts.next() {
            // The last one has all commits that are left.
            let last = parts.peek().map_or(end, |_| first);
            let (n, body) = (part.len() as i32, part.as_flattened());
            let params: [&(dyn tokio_postgres::types::ToSql + Sync); 6] =
                [&study.0, &bucket, &last, &first, &n, &body];
            require("chunks", client.execute(insert, &params).await?, 1)?;
            first = last + 1;
        }
        Ok(())
    }
}
