//! Folds of buckets as rows of `sums`, and runs beside them. Whoever moves one on, merges chunks or sorts them, holds the
//! bucket's row of `sums`.

use eigenveil_shared::Result;
use tokio_postgres::Client;

use super::{
    Inner, Postgres,
    connection::{Session, value},
    statements::require,
    unsigned,
};
use crate::contract::{
    engine::{Engine as _, NewFold, ReadSeeds, RowSink, SeedReader, Seeds},
    failure::Failure,
    study::{Study, StudyKey},
};

const HOLD: &str = "SELECT upto FROM sums WHERE study = $1 AND bucket = $2 FOR NO KEY UPDATE";
// A statement after the row is held: whatever was merged meanwhile, perhaps beyond the fold's end, is seen.
const SWAP: &str =
    "UPDATE sums s SET upto = $4, n = $5, body = $6 WHERE study = $1 AND bucket = $2 AND upto = $3
    AND $5 = (SELECT coalesce(sum(c.n), 0) FROM chunks c
        WHERE c.study = s.study AND c.bucket = s.bucket AND c.last <= $4)";

impl Seeds for Postgres {
    fn read_seeds(&self, study: &Study, read: &mut ReadSeeds<'_>) -> Result<()> {
        self.check_running()?;
        let inner: &Inner = &self.inner;
        let mut read_all = || -> Result<(), Failure> {
            let (session, accepted) = inner.wait(inner.snapshot_of(study))?;
            read(&Reader {
                inner,
                session: &session,
                study,
                accepted,
            })?;
            inner.wait(session.end())
        };
        read_all().map_err(|failure| inner.note(failure))
    }

    /// Whether the answer to the COMMIT comes is of no interest: what is kept is right, and what is not is made again.
    fn keep_fold(&self, study: &Study, bucket: u32, from: i64, fold: NewFold) -> Result<bool> {
        let (study, bucket) = (study.key.0, bucket as i32);
        self.wait(async {
            let session = self.inner.pool.begin().await?;
            session.query_opt(HOLD, &[&study, &bucket]).await?;
            let n = fold.n as i64;
            let swapped = session
                .execute(SWAP, &[&study, &bucket, &from, &fold.upto, &n, &fold.body])
                .await?;
            if swapped > 0 {
                let delete = "DELETE FROM fold_runs WHERE study = $1 AND bucket = $2 AND upto > $3";
                session
                    .execute(delete, &[&study, &bucket, &fold.run_after])
                    .await?;
                let insert =
                    "INSERT INTO fold_runs (study, bucket, upto, body) VALUES ($1, $2, $3, $4)";
                session
                    .execute(insert, &[&study, &bucket, &fold.upto, &fold.run])
                    .await?;
            }
            session.batch_execute("COMMIT").await?;
            session.done();
            Ok(swapped > 0)
        })
    }
}

/// A snapshot.
struct Reader<'a> {
    inner: &'a Inner,
    session: &'a Session,
    study: &'a Study,
    accepted: u64,
}

impl SeedReader for Reader<'_> {
    fn accepted(&self) -> u64 {
        self.accepted
    }

    fn folded(&self, bucket: u32) -> Result<(i64, u64), Failure> {
        let (study, bucket) = (self.study.key.0, bucket as i32);
        let select = "SELECT upto, n FROM sums WHERE study = $1 AND bucket = $2";
        let row = self
            .inner
            .wait(self.session.query_one(select, &[&study, &bucket]))?;
        Ok((row.try_get(0)?, unsigned(row.try_get(1)?)))
    }

    fn fold(&self, bucket: u32) -> Result<Option<Vec<u8>>, Failure> {
        let (study, bucket) = (self.study.key.0, bucket as i32);
        let select = "SELECT body FROM sums WHERE study = $1 AND bucket = $2";
        self.inner
            .wait(value(self.session, select, &[&study, &bucket]))
    }

    fn runs(&self, bucket: u32, take: &mut RowSink<'_>) -> Result<(), Failure> {
        let (study, bucket) = (self.study.key.0, bucket as i32);
        let mut before = i64::MAX;
        loop {
            // One at a time: each may have eight megabytes.
            let select =
                "SELECT upto, body FROM fold_runs WHERE study = $1 AND bucket = $2 AND upto < $3
                 ORDER BY upto DESC LIMIT 1";
            let next = self
                .inner
                .wait(self.session.query_opt(select, &[&study, &bucket, &before]));
            let Some(row) = next? else { return Ok(()) };
            before = row.try_get(0)?;
            if !take(before, row.try_get(1)?)? {
                return Ok(());
            }
        }
    }

    fn rows(&self, bucket: u32, after: i64, take: &mut RowSink<'_>) -> Result<(), Failure> {
        self.inner
            .read_chunks(self.session, self.study, bucket, after, take)
    }
}

/// Before the chunks of a bucket, whose row of sums is held, are sorted: drops its runs, since they show which seeds came
/// earlier, and its sum, too, unless that is of all seeds. Never twice with the same `upto`: whoever has read the chunks
/// before keeps nothing.
pub(super) async fn drop_fold(
    client: &Client,
    study: StudyKey,
    bucket: i32,
    has_some_only: bool,
) -> Result<(), Failure> {
    let delete = "DELETE FROM fold_runs WHERE study = $1 AND bucket = $2";
    client.execute(delete, &[&study.0, &bucket]).await?;
    if has_some_only {
        let reset = "UPDATE sums SET upto = least(upto, 0) - 1, n = 0, body = NULL WHERE study = $1 AND bucket = $2";
        let rows = client.execute(reset, &[&study.0, &bucket]).await?;
        require("sums", rows, 1)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use eigenveil_estimation::{Cancel, sparse_from_seeds::SeedSource as _};
    use eigenveil_shared::{api::StudyState, mechanism::double_cap::Seed};
    use tokio::task::spawn_blocking;

    use super::super::{
        rewrite::{Sizes, sort_bucket},
        testing::{Servers, commit, fleet, with_one_bucket},
    };
    use crate::{
        Store, Study,
        config::StoreConfig,
        contract::{
            engine::{NewFold, Seeds as _},
            sums::BucketSums,
            transfer::VerifiedExport,
        },
        environment::Environment,
    };

    fn sums(store: &Store, study: &Study) -> BucketSums {
        store.bucket_sums(study, Cancel::NEVER).unwrap()
    }

    /// Sums of an embedded store that imports the study.
    async fn embedded_sums(store: &Store, study: &Study) -> BucketSums {
        let directory = tempfile::tempdir().unwrap();
        let config = StoreConfig::new(directory.path().join("data"));
        let embedded = Store::open(&config, Environment::system()).unwrap();
        let export = VerifiedExport::read(store.export(study).unwrap()).unwrap();
        let imported = embedded.import(export, None).await.unwrap();
        sums(&embedded, &imported.study)
    }

    fn assert_close(found: &BucketSums, wanted: &BucketSums, tolerance: f64) {
        assert_eq!((found.n, found.duplicates), (wanted.n, wanted.duplicates));
        assert_eq!(found.buckets.len(), wanted.buckets.len());
        for ((_, found), (_, wanted)) in found.buckets.iter().zip(&wanted.buckets) {
            assert_eq!(found.count(), wanted.count());
            for (a, b) in found.sum().as_slice().iter().zip(wanted.sum().as_slice()) {
                assert!(
                    (a - b).abs() <= tolerance * wanted.count() as f64,
                    "{a} {b}"
                );
            }
        }
    }

    /// Seeds that an estimate decodes.
    fn unfolded(store: &Store, study: &Study) -> u64 {
        let mut n = 0;
        let seeds = store.folded_seeds(study, Cancel::NEVER).unwrap();
        let count = &mut |_, seeds: &[Seed]| {
            n += seeds.len() as u64;
            Ok(())
        };
        seeds.pass(count).unwrap();
        n
    }

    fn kept(servers: &Servers) -> String {
        servers.sql("SELECT upto || ' ' || n FROM eigenveil.sums")
    }

    /// The last commit of each.
    fn chunks(servers: &Servers) -> String {
        servers.sql("SELECT string_agg(last::text, ' ' ORDER BY last) FROM eigenveil.chunks")
    }

    /// The other one takes over; what is kept is what the embedded engine adds up.
    #[test]
    fn two_add_up_one_bucket_and_one_is_killed() {
        with_one_bucket(2, async |servers, studies| {
            let (store, study) = (&servers.stores[0], &studies[0]);
            commit(store, study, 0..16, |number| number).await;
            let fold = |number: usize| {
                let (store, study) = (servers.stores[number].clone(), Arc::clone(&studies[number]));
                spawn_blocking(move || store.fold(&study, Cancel::NEVER))
            };
            let hold =
                "BEGIN; SELECT 1 FROM eigenveil.sums FOR UPDATE; SELECT hold_until_waited_for();
                SELECT pg_terminate_backend(pid) FROM pg_stat_activity
                WHERE pg_backend_pid() = ANY (pg_blocking_pids(pid)); COMMIT";
            let held = servers.hold(hold).await;
            let (first, second) = tokio::join!(fold(0), fold(1));
            assert!(first.unwrap().is_err() || second.unwrap().is_err());
            held.await.unwrap();
            store.fold(study, Cancel::NEVER).unwrap();
            assert_eq!(kept(servers), "16 8192");
            assert_eq!(unfolded(store, study), 0);
            let wanted = embedded_sums(store, study).await;
            assert_close(&sums(store, study), &wanted, 1e-12);
            // The next estimate decodes what is new.
            commit(store, study, 16..19, |number| number).await;
            assert_eq!(unfolded(store, study), 3 * 512);
            let wanted = embedded_sums(store, study).await;
            assert_close(&sums(store, study), &wanted, 1e-12);
        });
    }

    /// A fold that was begun before another one, or whose last chunk was merged with the next, is not kept.
    #[test]
    fn what_is_kept_does_not_go_back() {
        with_one_bucket(1, async |servers, studies| {
            let (store, study) = (&servers.stores[0], &studies[0]);
            let engine = fleet(store);
            let fold = |upto, n| NewFold {
                upto,
                n,
                body: Vec::new(),
                run: Vec::new(),
                run_after: -1,
            };
            commit(store, study, 0..16, |number| number).await;
            assert!(!engine.keep_fold(study, 0, 0, fold(8, 4_097)).unwrap());
            store.fold(study, Cancel::NEVER).unwrap();
            assert_eq!(kept(servers), "16 8192");
            assert!(!engine.keep_fold(study, 0, 0, fold(8, 4_096)).unwrap());
            assert_eq!(kept(servers), "16 8192");
            commit(store, study, 16..26, |number| number).await;
            // All that is not folded becomes one chunk.
            store.sweep(&|| false).unwrap();
            assert_eq!(chunks(servers), "16 26");
            assert!(!engine.keep_fold(study, 0, 16, fold(24, 12_288)).unwrap());
            assert!(engine.keep_fold(study, 0, 16, fold(26, 13_312)).unwrap());
        });
    }

    /// Small chunks are merged on either side of a fold's end; a damaged sum is not used; a closed study's is dropped
    /// unless it is of all seeds, and goes with the study.
    #[test]
    fn a_fold_keeps_no_chunk_small() {
        with_one_bucket(1, async |servers, studies| {
            let (store, study) = (&servers.stores[0], &studies[0]);
            let commit = async |commits| commit(store, study, commits, |number| number).await;
            let fold = || store.fold(study, Cancel::NEVER).unwrap();
            let sweep = || store.sweep(&|| false).unwrap();
            commit(0..9).await;
            fold();
            assert_eq!(kept(servers), "8 4096");
            commit(9..17).await;
            sweep();
            assert_eq!(chunks(servers), "8 17");
            fold();
            assert_eq!(
                (kept(servers).as_str(), unfolded(store, study)),
                ("17 8704", 0)
            );
            let wanted = embedded_sums(store, study).await;
            servers
                .sql("UPDATE eigenveil.sums SET body = set_byte(body, 7, get_byte(body, 7) # 1)");
            assert_eq!(unfolded(store, study), 17 * 512);
            assert_close(&sums(store, study), &wanted, 1e-6);
            commit(17..18).await;
            store.set_state(study, StudyState::Closed).await.unwrap();
            sweep();
            assert_eq!(
                (chunks(servers), kept(servers)),
                ("18".into(), "-1 0".into())
            );
            fold();
            assert_eq!(kept(servers), "18 9216");
            // As an import into the closed study begins the rewriting anew.
            let summed = sums(store, study);
            servers.sql("UPDATE eigenveil.studies SET rewritten_stage = 0");
            sweep();
            let runs = "SELECT count(*) FROM eigenveil.fold_runs";
            assert_eq!(
                (kept(servers), servers.sql(runs)),
                ("18 9216".into(), "0".into())
            );
            assert_eq!(sums(store, study), summed);
            store.delete_study(study).await.unwrap();
            sweep();
            assert_eq!(kept(servers), "");
        });
    }

    /// Sorted seeds lie in chunks that may end where others did: who has read those keeps nothing.
    #[test]
    fn what_is_kept_is_of_the_seeds_as_they_lie() {
        with_one_bucket(1, async |servers, studies| {
            let (store, study) = (&servers.stores[0], &studies[0]);
            // The last bytes decide the order of seeds, and the first ones that of commits.
            let seed = |number: u32| number.swap_bytes() ^ 0x5a;
            commit(store, study, 0..16, seed).await;
            let before = sums(store, study);
            let session = fleet(store).inner.pool.take().await.unwrap();
            let sizes = Sizes {
                together: usize::MAX,
                chunk: 4_096,
            };
            session.batch_execute("BEGIN").await.unwrap();
            let sorted = sort_bucket(&session, study.key, 0, sizes).await;
            assert!(sorted.unwrap());
            session.batch_execute("COMMIT").await.unwrap();
            assert_eq!(chunks(servers), "1 16");
            let old = NewFold {
                upto: 1,
                n: 4_096,
                body: Vec::new(),
                run: Vec::new(),
                run_after: -1,
            };
            assert!(!fleet(store).keep_fold(study, 0, 0, old).unwrap());
            store.fold(study, Cancel::NEVER).unwrap();
            assert_eq!(kept(servers), "16 8192");
            assert_close(&sums(store, study), &before, 1e-6);
        });
    }

    /// A bucket that is too large for one run is sorted in several; chunks have a commit each at least.
    #[test]
    fn runs_of_a_bucket_are_sorted_one_after_the_other() {
        with_one_bucket(1, async |servers, studies| {
            let (store, study) = (&servers.stores[0], &studies[0]);
            commit(store, study, 0..66, |number| number).await;
            let before = sums(store, study);
            let session = fleet(store).inner.pool.take().await.unwrap();
            for (together, chunk, wanted) in [
                // As many rows as are fetched at once.
                (1, usize::MAX, "64 66"),
                (usize::MAX, 20_000, "1 66"),
                (usize::MAX, 100, ""),
                (usize::MAX, usize::MAX, "66"),
            ] {
                let sizes = Sizes { together, chunk };
                session.batch_execute("BEGIN").await.unwrap();
                let sorted = sort_bucket(&session, study.key, 0, sizes).await;
                assert!(sorted.unwrap());
                session.batch_execute("COMMIT").await.unwrap();
                match wanted {
                    "" => assert_eq!(chunks(servers).split(' ').count(), 66),
                    _ => assert_eq!(chunks(servers), wanted),
                }
                let numbered = "SELECT string_agg(first || '-' || last, ' ' ORDER BY last) FROM (
                    SELECT first, last, lag(last, 1, 0::bigint) OVER (ORDER BY last) AS before FROM eigenveil.chunks) c
                    WHERE first != before + 1";
                assert_eq!(servers.sql(numbered), "");
                assert_close(&sums(store, study), &before, 1e-6);
            }
        });
    }
}
