//! Folds of buckets as rows of `sums`. Whoever moves one on, merges chunks or sorts them, holds the bucket's row.

use eigenveil_shared::Result;
use tokio_postgres::Client;

use super::{
    Inner, Postgres,
    connection::{Session, value},
    statements::require,
    unsigned,
};
use crate::contract::{
    engine::{Engine as _, Kept, NewFold, ReadSeeds, RowSink, SeedReader, Seeds},
    failure::Failure,
    study::{Study, StudyKey},
};

const HOLD: &str = "SELECT upto FROM sums WHERE study = $1 AND bucket = $2 FOR NO KEY UPDATE";
// A statement after the row is held: whatever was merged meanwhile, perhaps beyond the fold's end, is seen. Nothing is
// inserted: of a deleted study nothing comes back. A generation that is damaged may be the largest number: it wraps.
const SWAP: &str = "UPDATE sums s SET generation = generation % 9223372036854775807 + 1, upto = $4, n = $5, body = $6
    WHERE study = $1 AND bucket = $2 AND generation = $3
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

    /// The database's disk is not known here.
    fn has_room(&self, _bytes: u64) -> bool {
        true
    }

    /// Whether the answer to the COMMIT comes is of no interest: what is kept is right, and what is not is made again.
    fn keep_fold(
        &self,
        study: &Study,
        bucket: u32,
        generation: i64,
        fold: NewFold,
    ) -> Result<bool> {
        let (study, bucket) = (study.key.0, bucket as i32);
        self.wait(async {
            let session = self.inner.pool.begin().await?;
            session.query_opt(HOLD, &[&study, &bucket]).await?;
            let (upto, n) = (fold.upto, fold.n as i64);
            let swapped = session
                .execute(SWAP, &[&study, &bucket, &generation, &upto, &n, &fold.body])
                .await?;
            session.batch_execute("COMMIT").await?;
            session.done();
            Ok(swapped > 0)
        })
    }

    fn drop_fold(&self, study: &Study, bucket: u32, generation: i64) -> Result<()> {
        let (study, bucket) = (study.key.0, bucket as i32);
        self.wait(async {
            let session = self.inner.pool.take().await?;
            let drop = format!("{DROP} AND generation = $3");
            session
                .execute(drop.as_str(), &[&study, &bucket, &generation])
                .await?;
            session.done();
            Ok(())
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

    fn kept(&self, bucket: u32) -> Result<Kept, Failure> {
        let (study, bucket) = (self.study.key.0, bucket as i32);
        let select = "SELECT generation, upto, n FROM sums WHERE study = $1 AND bucket = $2";
        let row = self
            .inner
            .wait(self.session.query_one(select, &[&study, &bucket]))?;
        let n = unsigned(row.try_get(2)?);
        Ok(Kept {
            generation: row.try_get(0)?,
            upto: if n == 0 { 0 } else { row.try_get(1)? },
            n,
        })
    }

    fn fold(&self, bucket: u32) -> Result<Option<Vec<u8>>, Failure> {
        let (study, bucket) = (self.study.key.0, bucket as i32);
        let select = "SELECT body FROM sums WHERE study = $1 AND bucket = $2";
        self.inner
            .wait(value(self.session, select, &[&study, &bucket]))
    }

    fn last(&self, bucket: u32) -> Result<i64, Failure> {
        let (study, bucket) = (self.study.key.0, bucket as i32);
        let select = "SELECT seq FROM buckets WHERE study = $1 AND bucket = $2";
        self.inner
            .wait(value(self.session, select, &[&study, &bucket]))
    }

    fn rows(&self, bucket: u32, after: i64, take: &mut RowSink<'_>) -> Result<(), Failure> {
        self.inner
            .read_chunks(self.session, self.study, bucket, after, take)
    }
}

const DROP: &str = "UPDATE sums SET generation = generation % 9223372036854775807 + 1, upto = 0, n = 0, body = NULL
    WHERE study = $1 AND bucket = $2";

/// After the chunks of a bucket, whose row of sums is held, were sorted: drops its fold, since that shows which seeds came
/// earlier, unless it is of all. Whoever has read the chunks before keeps nothing.
pub(super) async fn after_sorting(
    client: &Client,
    study: StudyKey,
    bucket: i32,
    has_all: bool,
) -> Result<(), Failure> {
    let update = match has_all {
        true => {
            "UPDATE sums SET generation = generation % 9223372036854775807 + 1 WHERE study = $1 AND bucket = $2"
        }
        false => DROP,
    };
    let rows = client.execute(update, &[&study.0, &bucket]).await?;
    require("sums", rows, 1)
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
            };
            commit(store, study, 0..16, |number| number).await;
            assert!(!engine.keep_fold(study, 0, 0, fold(8, 4_097)).unwrap());
            store.fold(study, Cancel::NEVER).unwrap();
            assert_eq!(kept(servers), "16 8192");
            assert!(!engine.keep_fold(study, 0, 0, fold(8, 4_096)).unwrap());
            engine.drop_fold(study, 0, 0).unwrap();
            assert_eq!(kept(servers), "16 8192");
            commit(store, study, 16..26, |number| number).await;
            // All that is not folded becomes one chunk.
            store.sweep(&|| false).unwrap();
            assert_eq!(chunks(servers), "16 26");
            assert!(!engine.keep_fold(study, 0, 1, fold(24, 12_288)).unwrap());
            assert!(engine.keep_fold(study, 0, 1, fold(26, 13_312)).unwrap());
        });
    }

    /// Small chunks are merged on either side of a fold's end; a damaged fold is made anew; a closed study's is dropped
    /// unless it is of all seeds, and goes with the study, whoever was about to keep another one.
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
            servers.sql(
                "UPDATE eigenveil.sums SET generation = 9223372036854775807,
                 body = set_byte(body, 7, get_byte(body, 7) # 1)",
            );
            assert_eq!(unfolded(store, study), 17 * 512);
            assert_eq!(kept(servers), "0 0");
            assert!(!store.is_damaged());
            assert_close(&sums(store, study), &wanted, 1e-6);
            fold();
            assert_eq!(kept(servers), "17 8704");
            commit(17..18).await;
            store.set_state(study, StudyState::Closed).await.unwrap();
            sweep();
            assert_eq!(
                (chunks(servers), kept(servers)),
                ("18".into(), "0 0".into())
            );
            fold();
            assert_eq!(kept(servers), "18 9216");
            // As an import into the closed study begins the rewriting anew.
            let summed = sums(store, study);
            servers.sql("UPDATE eigenveil.studies SET rewritten_stage = 0");
            sweep();
            assert_eq!(kept(servers), "18 9216");
            assert_eq!(sums(store, study), summed);
            store.delete_study(study).await.unwrap();
            let generation = servers.sql("SELECT generation FROM eigenveil.sums");
            let generation: i64 = generation.parse().unwrap();
            let keep = |generation| {
                let fold = NewFold {
                    upto: 18,
                    n: 9_216,
                    body: Vec::new(),
                };
                let engine = fleet(store);
                engine.keep_fold(study, 0, generation, fold).unwrap()
            };
            assert!(keep(generation));
            sweep();
            assert_eq!(kept(servers), "");
            assert!(!keep(generation + 1));
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
