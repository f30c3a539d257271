//! The rows of closed studies, written anew: among many others and in the order of their keys, and each bucket's seeds
//! in the order of their values. Until then the transaction that wrote a row, and the page on which it lies, show which
//! identifier, token and seed came together. A VACUUM then removes what was rewritten.
//!
//! A step is a transaction. It holds the row of its study, which says how far the study is, so that another server, or
//! a later start, goes on where one was cut off.

use std::sync::Arc;

use tokio_postgres::Client;

use super::{
    Inner,
    chunks::{Run, next_chunks},
    connection::value,
    folds::after_sorting,
    statements::require,
    unsigned,
};
use crate::contract::{
    failure::Failure,
    study::{Study, StudyKey},
};

/// Identifiers or tokens of a step.
const ROWS: i64 = 20_000;
/// Numbers of seeds.
#[derive(Clone, Copy)]
pub(super) struct Sizes {
    /// Sorted together: 32 MiB. Of a larger bucket, so many after the others.
    pub(super) together: usize,
    pub(super) chunk: usize,
}

impl Sizes {
    const FULL: Self = Self {
        together: 1 << 21,
        chunk: 1 << 16,
    };
}

// Stages of a study.
const IDENTIFIERS: i16 = 0;
const TOKENS: i16 = 1;
const SEEDS: i16 = 2;
// 3: arrivals.
/// Everything is written; the rows before are still there.
const WRITTEN: i16 = 4;
const VACUUMED: i16 = 5;

/// Held by whoever runs a VACUUM: one at a time.
const LOCK: i64 = 0x0045_6956_5300_0002;

// A study has been rewritten as it was after so many commits of its buckets: an import, or reports after a wrong clock
// had closed it, begin anew.
const NEXT: &str = "SELECT s.study, b.seq,
        CASE WHEN s.rewritten_seq = b.seq THEN s.rewritten_stage ELSE 0::smallint END,
        CASE WHEN s.rewritten_seq = b.seq THEN s.rewritten_key ELSE '' END
    FROM studies s, LATERAL (SELECT sum(seq)::bigint AS seq FROM buckets WHERE study = s.study) b
    WHERE s.state = 'closed' AND b.seq > 0 AND (s.rewritten_seq IS DISTINCT FROM b.seq OR s.rewritten_stage < $1)
    ORDER BY s.study LIMIT 1 FOR NO KEY UPDATE OF s SKIP LOCKED";
const REACHED: &str =
    "UPDATE studies SET rewritten_seq = $2, rewritten_stage = $3, rewritten_key = $4
    WHERE study = $1";
const IS_REWRITTEN: &str = "SELECT b.seq = 0 OR s.rewritten_stage = $2 AND s.rewritten_seq = b.seq
    FROM studies s, LATERAL (SELECT coalesce(sum(seq), 0) AS seq FROM buckets WHERE study = s.study) b
    WHERE s.study = $1 AND s.state = 'closed'";

/// The key with which a step ends, and what writes the rows up to it in its order; each statement is atomic for whoever
/// reads meanwhile.
const IDENTIFIER_ROWS: [&str; 2] = [
    "SELECT id FROM (SELECT id FROM identifiers WHERE study = $1 AND id > $2 ORDER BY id LIMIT $3) i
     ORDER BY id DESC LIMIT 1",
    "WITH old AS (DELETE FROM identifiers WHERE study = $1 AND id > $2 AND id <= $3 RETURNING id),
     new AS (INSERT INTO identifiers (study, id) SELECT $1, id FROM old ORDER BY id RETURNING 1)
     SELECT (SELECT count(*) FROM old), (SELECT count(*) FROM new)",
];
const TOKEN_ROWS: [&str; 2] = [
    "SELECT key FROM (SELECT key FROM tokens WHERE study = $1 AND key > $2 ORDER BY key LIMIT $3) t
     ORDER BY key DESC LIMIT 1",
    "WITH old AS (DELETE FROM tokens WHERE study = $1 AND key > $2 AND key <= $3 AND spent > 0
         RETURNING key, site, max_rows),
     new AS (INSERT INTO tokens (study, key, spent, site, max_rows)
         SELECT $1, key, 2, site, max_rows FROM old ORDER BY key RETURNING 1)
     SELECT (SELECT count(*) FROM old), (SELECT count(*) FROM new)",
];
const ARRIVAL_ROWS: &str =
    "WITH old AS (DELETE FROM arrivals WHERE study = $1 RETURNING seconds, start, n)
    INSERT INTO arrivals AS a (study, bucket, seconds, start, n)
    SELECT $1, 0, seconds, start, sum(n)::bigint FROM old GROUP BY seconds, start ORDER BY start
    ON CONFLICT (study, bucket, seconds, start) DO UPDATE SET n = a.n + excluded.n";

const VACUUM: &str =
    "VACUUM (FREEZE, INDEX_CLEANUP ON) identifiers, tokens, chunks, sums, arrivals";
// Frozen up to a transaction later than the study's last step: so nothing is left of what that step replaced, as it
// would be for a snapshot that somebody holds, or without the right to a VACUUM.
const ENDED: &str = "UPDATE studies s SET rewritten_stage = $2
    WHERE state = 'closed' AND rewritten_stage = $1 AND NOT EXISTS (
        WITH vacuumed AS (SELECT oid, reltoastrelid, relfrozenxid FROM pg_class WHERE oid IN ('identifiers'::regclass,
            'tokens'::regclass, 'chunks'::regclass, 'sums'::regclass, 'arrivals'::regclass))
        SELECT 1 FROM pg_class c WHERE age(c.relfrozenxid) >= age(s.xmin) AND (
            c.oid IN (SELECT oid FROM vacuumed)
            OR c.oid IN (SELECT reltoastrelid FROM vacuumed WHERE reltoastrelid != 0)))";

impl Inner {
    /// A step of a closed study; returns whether there may be more.
    pub(super) async fn rewrite_closed(&self) -> Result<bool, Failure> {
        let session = self.pool.begin().await?;
        let Some(row) = session.query_opt(NEXT, &[&WRITTEN]).await? else {
            session.end().await?;
            return Ok(false);
        };
        let (study, seq) = (StudyKey(row.try_get(0)?), row.try_get::<_, i64>(1)?);
        let (stage, key): (i16, Vec<u8>) = (row.try_get(2)?, row.try_get(3)?);
        let reached = match stage {
            IDENTIFIERS => rewrite_rows(&session, IDENTIFIER_ROWS, study, &key).await?,
            TOKENS => rewrite_rows(&session, TOKEN_ROWS, study, &key).await?,
            SEEDS => {
                let bucket = key.first().map_or(0, |before| before + 1);
                let is_there = sort_bucket(&session, study, bucket.into(), Sizes::FULL).await?;
                is_there.then(|| vec![bucket])
            }
            _ => {
                session.execute(ARRIVAL_ROWS, &[&study.0]).await?;
                None
            }
        };
        let (stage, key) = match reached {
            Some(key) => (stage, key),
            None => (stage + 1, Vec::new()),
        };
        let rows = session
            .execute(REACHED, &[&study.0, &seq, &stage, &key])
            .await?;
        require("studies", rows, 1)?;
        session.commit().await?;
        Ok(true)
    }

    pub(super) async fn is_rewritten(&self, study: &Study) -> Result<bool, Failure> {
        let session = self.pool.take().await?;
        let row = session
            .query_opt(IS_REWRITTEN, &[&study.key.0, &VACUUMED])
            .await?;
        session.done();
        let is_rewritten: Option<bool> = match row {
            Some(row) => row.try_get(0)?,
            None => None,
        };
        Ok(is_rewritten.unwrap_or(false))
    }

    /// Runs a VACUUM in the background, if a study waits for one: it may take as long as the tables are large.
    pub(super) fn begin_vacuum(self: &Arc<Self>) {
        let inner = Arc::clone(self);
        self.handle.spawn(async move {
            if let Err(failure) = inner.vacuum().await {
                inner.note(failure);
            }
        });
    }

    async fn vacuum(&self) -> Result<(), Failure> {
        let session = self.pool.take().await?;
        let waits =
            "SELECT EXISTS (SELECT 1 FROM studies WHERE state = 'closed' AND rewritten_stage = $1)";
        let try_lock = "SELECT pg_try_advisory_lock($1)";
        if value::<bool>(&session, waits, &[&WRITTEN]).await?
            && value::<bool>(&session, try_lock, &[&LOCK]).await?
        {
            session.batch_execute(VACUUM).await?;
            session.execute(ENDED, &[&WRITTEN, &VACUUMED]).await?;
            let unlock = "SELECT pg_advisory_unlock($1)";
            session.query_one(unlock, &[&LOCK]).await?;
        }
        session.done();
        Ok(())
    }
}

/// Writes the next rows of a table anew, and returns the last key; `None` after all of them.
async fn rewrite_rows(
    client: &Client,
    [last, rewrite]: [&str; 2],
    study: StudyKey,
    after: &[u8],
) -> Result<Option<Vec<u8>>, Failure> {
    let last = client.query_opt(last, &[&study.0, &after, &ROWS]).await?;
    let Some(row) = last else {
        return Ok(None);
    };
    let last: Vec<u8> = row.try_get(0)?;
    let row = client
        .query_one(rewrite, &[&study.0, &after, &last])
        .await?;
    let (old, new): (i64, i64) = (row.try_get(0)?, row.try_get(1)?);
    require("identifiers or tokens", unsigned(new), old as usize)?;
    Ok(Some(last))
}

/// Sorts the seeds of a bucket; false where there is no such bucket.
pub(super) async fn sort_bucket(
    client: &Client,
    study: StudyKey,
    bucket: i32,
    sizes: Sizes,
) -> Result<bool, Failure> {
    let held = "SELECT n FROM sums WHERE study = $1 AND bucket = $2 FOR NO KEY UPDATE";
    let Some(row) = client.query_opt(held, &[&study.0, &bucket]).await? else {
        return Ok(false);
    };
    let folded: i64 = row.try_get(0)?;
    let (mut last, mut seeds) = (0, 0);
    loop {
        let mut run = Run::default();
        while run.len() < sizes.together {
            let rows = next_chunks(client, study, bucket, last).await?;
            let Some(end) = rows.last() else { break };
            last = end.try_get(0)?;
            for row in &rows {
                run.add(row)?;
            }
        }
        if run.len() == 0 {
            break;
        }
        seeds += run.len() as i64;
        run.replace(client, study, bucket, sizes.chunk).await?;
    }
    if seeds > 0 {
        // The sum of all of them is that in any order.
        after_sorting(client, study, bucket, folded == seeds).await?;
    }
    Ok(true)
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use eigenveil_estimation::{Cancel, sums_of_seeds};
    use serde_json::json;
    use tokio::task::spawn_blocking;

    use super::super::testing::{SLEEPS, Servers, eventually, fleet, numbered, with_servers};
    use crate::{
        Store,
        contract::{decide::SubmitOutcome, study::Study},
        testing::{
            fixtures::create,
            insider::{DEVICES, Sent, assert_counted, close, right, send},
        },
    };

    /// Identifiers beside seeds, or tokens, that one transaction wrote: in the pages of the tables, with what was
    /// replaced and lies there still. A seed that came alone is a row of 53 bytes.
    const SAME_TRANSACTION: &str = "WITH id AS (SELECT t_xmin, encode(substr(t_data, 10, 16), 'hex') AS id
            FROM generate_series(0, (pg_relation_size('eigenveil.identifiers') / 8192 - 1)::int) page,
            heap_page_items(get_raw_page('eigenveil.identifiers', page)) WHERE length(t_data) = 25),
        seed AS (SELECT t_xmin, encode(substr(t_data, 38, 16), 'hex') AS other
            FROM generate_series(0, (pg_relation_size('eigenveil.chunks') / 8192 - 1)::int) page,
            heap_page_items(get_raw_page('eigenveil.chunks', page)) WHERE length(t_data) = 53),
        token AS (SELECT t_xmin, encode(substr(t_data, 10, 32), 'hex') AS other
            FROM generate_series(0, (pg_relation_size('eigenveil.tokens') / 8192 - 1)::int) page,
            heap_page_items(get_raw_page('eigenveil.tokens', page))
            WHERE length(t_data) = 44 AND get_byte(t_data, 42) > 0),
        one AS (SELECT t_xmin FROM id GROUP BY t_xmin HAVING count(*) = 1)
        SELECT DISTINCT id || ' ' || other FROM one JOIN id USING (t_xmin) JOIN ";
    const ORDER: [&str; 3] = [
        "SELECT encode(id, 'hex') FROM eigenveil.identifiers ORDER BY ctid",
        "SELECT encode(substr(body, 16 * i + 1, 16), 'hex') FROM eigenveil.chunks, generate_series(0, n - 1) i
         ORDER BY chunks.ctid, i",
        "SELECT encode(key, 'hex') FROM eigenveil.tokens WHERE spent > 0 ORDER BY ctid",
    ];

    fn bytes(hex: &str) -> Vec<u8> {
        let digits = hex.as_bytes().chunks(2);
        let byte =
            |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap();
        digits.map(byte).collect()
    }

    /// Right pairs of identifiers with seeds and tokens: by their transactions, and by the order in which they lie.
    fn paired(servers: &Servers, all: &[Sent]) -> [usize; 4] {
        let [seeds, tokens] = ["seed", "token"].map(|table| {
            let lines = servers.sql(&format!("{SAME_TRANSACTION}{table} USING (t_xmin)"));
            let pairs: Vec<_> = lines
                .lines()
                .filter_map(|line| line.split_once(' '))
                .map(|(id, other)| (bytes(id), bytes(other)))
                .collect();
            right(all, pairs.iter().map(|(id, other)| (id, other)))
        });
        let [ids, by_seed, by_token] =
            ORDER.map(|select| servers.sql(select).lines().map(bytes).collect::<Vec<_>>());
        assert_eq!(
            (ids.len(), by_seed.len(), by_token.len()),
            (DEVICES, DEVICES, DEVICES)
        );
        [
            seeds,
            tokens,
            right(all, ids.iter().zip(&by_seed)),
            right(all, ids.iter().zip(&by_token)),
        ]
    }

    /// Until all is written anew and vacuumed, which may need another try where a snapshot was held.
    async fn swept(store: &Store, study: &Study) {
        eventually(async || {
            store.sweep(&|| false).unwrap();
            store.is_rewritten(study).unwrap().then_some(())
        })
        .await;
    }

    /// A hundred devices: while the study is open, all of them and their tokens where they come one by one, as chance
    /// has it where ten come at once; once it is closed and swept, as chance has it.
    #[test]
    fn an_insider_pairs_seeds_and_tokens_until_the_study_is_closed() {
        for at_once in [1, 10] {
            with_servers(1, async |servers| {
                let inspects =
                    "SELECT count(*) FROM pg_available_extensions WHERE name = 'pageinspect'";
                if servers.sql(inspects) == "0" {
                    println!("SKIPPED: PostgreSQL has no pageinspect (postgresql-contrib)");
                    return;
                }
                servers.sql("CREATE EXTENSION pageinspect");
                let store = &servers.stores[0];
                let set_clock = |now_ms| servers.database.set_clock(now_ms);
                let (study, all) = send(store, at_once, set_clock).await;
                let open = paired(servers, &all);
                match at_once {
                    1 => assert_eq!(open[..3], [DEVICES, DEVICES, DEVICES]),
                    _ => assert!(open[..2] == [0, 0] && open[2] <= 30, "{open:?}"),
                }
                let in_bucket = "SELECT count(*) FROM eigenveil.arrivals JOIN eigenveil.chunks USING (study, bucket)";
                assert_eq!(servers.sql(in_bucket), "0");
                close(store, &study).await;
                assert!(!store.is_rewritten(&study).unwrap());
                swept(store, &study).await;
                let closed = paired(servers, &all);
                // More once in a hundred million runs.
                let by_chance = [0, 0, 20, 20];
                assert!(
                    closed
                        .iter()
                        .zip(by_chance)
                        .all(|(pairs, most)| *pairs <= most),
                    "{closed:?}"
                );
                assert_counted(store, &study, &all).await;
                assert_eq!(store.token_counts(&study).unwrap().spent, DEVICES as u64);
                let arrived = store.arrivals(&study).unwrap();
                assert_eq!(
                    arrived.iter().map(|some| some.n).sum::<u64>(),
                    DEVICES as u64
                );
            });
        }
    }

    /// Wherever it is cut off: everything is counted, others' uploads go on, and another server goes on with it;
    /// whoever has begun to read gets what there was.
    #[test]
    fn steps_that_are_cut_off_lose_nothing() {
        with_servers(2, async |servers| {
            let [first, second] = [&servers.stores[0], &servers.stores[1]];
            let (study, all) = send(first, 1, |_| ()).await;
            let other = create(first, &json!({})).await;
            let everywhere = servers.everywhere(&study).await;
            let before = first.bucket_sums(&study, Cancel::NEVER).unwrap();
            let seeds = first.seeds(&study, Cancel::NEVER).unwrap();
            close(first, &study).await;
            servers.sql(
                "CREATE FUNCTION slow() RETURNS trigger LANGUAGE plpgsql
                 AS 'BEGIN PERFORM pg_sleep(600); RETURN NULL; END';
                 CREATE TRIGGER slow BEFORE INSERT ON eigenveil.identifiers EXECUTE FUNCTION slow()",
            );
            let store = first.clone();
            let sweeping = spawn_blocking(move || store.sweep(&|| false));
            servers.until(SLEEPS, "1").await;
            servers.database.cut_off();
            assert!(sweeping.await.unwrap().is_err());
            servers.sql("DROP FUNCTION slow() CASCADE");
            // A server may notice only when it asks that a connection is gone.
            for store in [first, second] {
                eventually(async || store.is_rewritten(&study).ok()).await;
            }
            assert_counted(first, &study, &all).await;
            let mut steps = 0;
            while !first.is_rewritten(&study).unwrap() {
                let (store, asked) = ([first, second][steps % 2], Cell::new(0));
                store.sweep(&|| asked.replace(asked.get() + 1) > 0).unwrap();
                let sent = first.submit(&other, vec![numbered(&other, steps as u32)]);
                assert_eq!(sent.await.unwrap(), [SubmitOutcome::Accepted]);
                let counted = first.bucket_sums(&study, Cancel::NEVER).unwrap();
                assert_eq!(counted.n, DEVICES as u64);
                steps += 1;
                // Then it waits for a VACUUM.
                if steps > 40 {
                    swept(second, &everywhere[1]).await;
                }
            }
            assert!(steps > 30, "{steps}");
            assert_counted(first, &study, &all).await;
            let sums = sums_of_seeds(&seeds, 3, u64::MAX, Cancel::NEVER).unwrap();
            assert_eq!(sums, before.buckets);
            let after = first.bucket_sums(&study, Cancel::NEVER).unwrap();
            for ((bucket, after), (of_bucket, before)) in after.buckets.iter().zip(&before.buckets)
            {
                assert_eq!((bucket, after.count()), (of_bucket, before.count()));
                for (a, b) in after.sum().as_slice().iter().zip(before.sum().as_slice()) {
                    assert!((a - b).abs() < 1e-4, "{a} {b}");
                }
            }
        });
    }

    /// Nothing of before is gone as long as somebody has a snapshot of it.
    #[test]
    fn what_is_not_vacuumed_is_not_said_to_be() {
        with_servers(1, async |servers| {
            let store = &servers.stores[0];
            let (study, _) = send(store, 50, |_| ()).await;
            let inner = &fleet(store).inner;
            let snapshot = inner.pool.snapshot().await.unwrap();
            let look = "SELECT count(*) FROM identifiers";
            snapshot.query_one(look, &[]).await.unwrap();
            close(store, &study).await;
            store.sweep(&|| false).unwrap();
            inner.vacuum().await.unwrap();
            let stage = "SELECT rewritten_stage FROM eigenveil.studies";
            assert_eq!(servers.sql(stage), "4");
            assert!(!store.is_rewritten(&study).unwrap());
            snapshot.end().await.unwrap();
            swept(store, &study).await;
            assert_eq!(servers.sql(stage), "5");
            // An import begins anew.
            servers.sql("UPDATE eigenveil.buckets SET seq = seq + 1 WHERE bucket = 0");
            assert!(!store.is_rewritten(&study).unwrap());
            swept(store, &study).await;
        });
    }
}
