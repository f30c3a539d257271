//! What every engine has to do and the scenarios (`server/src/scenarios/`) do not play, as checks of a [`Store`] over it;
//! and mistakes that they notice.

use std::{
    future::Future,
    panic::{AssertUnwindSafe, catch_unwind},
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    task::{Context, Poll, Waker},
    time::Duration,
};

use eigenveil_estimation::Cancel;
use eigenveil_shared::{
    ErrorCode,
    api::{EstimateRequest, EstimateState, StudyState},
    enrolment::{Admission, ParticipantToken},
};
use serde_json::json;
use tempfile::TempDir;
use tokio::{runtime::Runtime, task::block_in_place, time::timeout};

use super::{
    fixtures::{
        SetClock, admissions, answer, create, create_of_sites, create_preparation, report,
        site_admissions, site_report,
    },
    folds::{a_fold_changes_no_sum, copies_are_counted_once_in_folds, folds_follow_their_study},
};
#[cfg(feature = "postgres")]
use crate::postgres::testing::Database;
use crate::{
    Store,
    config::StoreConfig,
    contract::{
        credentials::Identity, decide::SubmitOutcome, listener::Notice, report::NewReport,
        study::Study, token::TokenHash, transfer::VerifiedExport,
    },
    database_path,
    environment::Environment,
    faults::Faults,
};

pub(super) struct Fixture {
    pub(super) store: Store,
    clock: Arc<SetClock>,
    faults: Faults,
    /// The fleet's, which has the clock.
    #[cfg(feature = "postgres")]
    database: Option<Database>,
    _directory: TempDir,
}

#[derive(Clone, Copy)]
pub(crate) enum Kind {
    Sqlite,
    #[cfg(feature = "postgres")]
    Postgres,
}

impl Fixture {
    /// A store in whose database this SQL, if any, makes a mistake.
    fn new(kind: Kind, mistake: &str) -> Self {
        let directory = tempfile::tempdir().unwrap();
        #[cfg_attr(not(feature = "postgres"), expect(unused_mut, reason = "of the fleet"))]
        let mut config = StoreConfig {
            retain_ids_days: Some(30),
            // Three reports of three features: six numbers and the count.
            max_site_bytes: 3 * 7 * 8,
            min_folded_seeds: 64,
            ..StoreConfig::new(directory.path().join("data"))
        };
        let clock = SetClock::new();
        let environment = Environment {
            clock: Arc::<SetClock>::clone(&clock),
            ..Environment::system()
        };
        let faults = environment.faults.clone();
        #[cfg(feature = "postgres")]
        let database = matches!(kind, Kind::Postgres).then(|| {
            let database = Database::create();
            database.migrate(&mut config);
            // Requests are committed in the order in which they come.
            config.store_connections = 1;
            database.set_clock(super::fixtures::START_MS);
            database.sql(mistake);
            database
        });
        let store = Store::open(&config, environment).unwrap();
        if matches!(kind, Kind::Sqlite) {
            let database = rusqlite::Connection::open(database_path(&config.data_dir)).unwrap();
            database.execute_batch(mistake).unwrap();
        }
        Self {
            store,
            clock,
            faults,
            #[cfg(feature = "postgres")]
            database,
            _directory: directory,
        }
    }

    pub(super) fn set_clock(&self, unix_ms: u64) {
        self.clock.set(unix_ms);
        #[cfg(feature = "postgres")]
        if let Some(database) = &self.database {
            database.set_clock(unix_ms);
        }
    }

    async fn send(&self, study: &Arc<Study>, reports: Vec<NewReport>) -> Vec<SubmitOutcome> {
        self.store.submit(study, reports).await.unwrap()
    }

    fn counted(&self, study: &Study) -> u64 {
        let moment = self.store.bucket_sums(study, Cancel::NEVER).unwrap();
        let summed: u64 = moment.buckets.iter().map(|(_, sums)| sums.count()).sum();
        assert_eq!(
            moment.n,
            summed + moment.duplicates,
            "a snapshot of two moments"
        );
        moment.n
    }

    fn spent(&self, study: &Study) -> u64 {
        self.store.token_counts(study).unwrap().spent
    }
}

/// Requests of one group get what they would get one after the other.
async fn outcomes_are_in_order_of_arrival(of: &Fixture) {
    use SubmitOutcome::{Accepted, Duplicate, NotAdmitted};
    let study = create(&of.store, &json!({"enrolment": "token"})).await;
    let good = admissions(&of.store, &study, 2).await;
    let unknown = Some(ParticipantToken::from_bytes([9; 32])).into();
    let group = [
        (1, &unknown, NotAdmitted(ErrorCode::ParticipantTokenUnknown)),
        (1, &good[0], Accepted),
        (2, &good[0], NotAdmitted(ErrorCode::TokenSpent)),
        (1, &good[1], Duplicate),
        (2, &Admission::Open, NotAdmitted(ErrorCode::TokenRequired)),
        (2, &good[1], Accepted),
    ];
    of.faults.hold();
    let begun: Vec<_> = group
        .iter()
        .map(|(number, admission, _)| {
            let report = report(&study, *number).admitted_by(admission);
            begin(of.store.submit(&study, vec![report]))
        })
        .collect();
    of.faults.release();
    for (answer, (number, _, wanted)) in begun.into_iter().zip(group) {
        let answer = match answer {
            Ok(answer) => answer,
            Err(pending) => pending.await,
        };
        assert_eq!(answer.unwrap(), [wanted], "report {number}");
    }
    assert_eq!((of.counted(&study), of.spent(&study)), (2, 2));
}

/// Who holds a deleted study never reaches a later one, not even one of the same identifier.
async fn keys_are_never_used_again(of: &Fixture) {
    let first = create(&of.store, &json!({})).await;
    of.send(&first, vec![report(&first, 1)]).await;
    let open = of.store.delete_study(&first).await.unwrap_err();
    assert_eq!(open.code(), ErrorCode::InvalidTransition);
    let export = of.store.export(&first).unwrap();
    of.store
        .set_state(&first, StudyState::Closed)
        .await
        .unwrap();
    of.store.delete_study(&first).await.unwrap();
    block_in_place(|| of.store.sweep(&|| false)).unwrap();
    let export = VerifiedExport::read(export).unwrap();
    let again = of.store.import(export, None).await.unwrap().study;
    assert_eq!(again.id(), first.id());
    // In one group, which affects no other study.
    let (gone, counted) = tokio::join!(
        of.send(&first, vec![report(&first, 2)]),
        of.send(&again, vec![report(&again, 3)])
    );
    assert_eq!(gone, [SubmitOutcome::StudyDeleted]);
    assert_eq!(counted, [SubmitOutcome::Accepted]);
    assert!(of.store.bucket_sums(&first, Cancel::NEVER).is_err());
    assert_eq!(of.counted(&again), 2);
}

/// Nothing tells then which reports were counted.
async fn a_study_without_identifiers_takes_no_import(of: &Fixture) {
    let study = create(&of.store, &json!({})).await;
    of.send(&study, vec![report(&study, 1), report(&study, 2)])
        .await;
    let export = of.store.export(&study).unwrap();
    let verified = || VerifiedExport::read(export.try_clone().unwrap()).unwrap();
    of.store
        .set_state(&study, StudyState::Closed)
        .await
        .unwrap();
    of.set_clock(super::fixtures::START_MS + 31 * 86_400_000);
    block_in_place(|| of.store.sweep(&|| false)).unwrap();
    let error = of.store.import(verified(), None).await.unwrap_err();
    assert_eq!(error.code(), ErrorCode::InvalidTransition);
    assert_eq!((of.counted(&study), study.reports_accepted()), (2, 2));
    let again = of.store.export(&study).unwrap_err();
    assert_eq!(again.code(), ErrorCode::InvalidTransition);
    // The way out.
    let into = create(&of.store, &json!({})).await;
    of.store
        .import(verified(), Some(Arc::clone(&into)))
        .await
        .unwrap();
    assert_eq!(of.counted(&into), 2);
}

async fn the_last_day_ends_to_the_millisecond(of: &Fixture) {
    use SubmitOutcome::{Accepted, Duplicate, Ended};
    let ending = json!({"about": {"last_day": "2023-11-20"}});
    let study = create(&of.store, &ending).await;
    let by_hand = create(&of.store, &ending).await;
    of.store
        .set_state(&by_hand, StudyState::Closed)
        .await
        .unwrap();
    let over = study.about().last_day.unwrap().end_ms();
    of.set_clock(over - 1);
    assert_eq!(of.send(&study, vec![report(&study, 1)]).await, [Accepted]);
    let left = block_in_place(|| of.store.close_ended()).unwrap().unwrap();
    assert_eq!((left.as_millis(), study.state()), (1, StudyState::Open));
    of.set_clock(over);
    let reports = vec![report(&study, 1), report(&study, 2)];
    assert_eq!(of.send(&study, reports).await, [Duplicate, Ended]);
    assert_eq!(block_in_place(|| of.store.close_ended()).unwrap(), None);
    assert_eq!(study.state(), StudyState::Closed);
    // The clock was wrong.
    of.set_clock(over - 5);
    block_in_place(|| of.store.close_ended()).unwrap();
    assert_eq!(study.state(), StudyState::Open);
    assert_eq!(of.send(&study, vec![report(&study, 3)]).await, [Accepted]);
    assert_eq!(by_hand.state(), StudyState::Closed);
}

async fn a_cancelled_job_stays_cancelled(of: &Fixture) {
    let study = create(&of.store, &json!({})).await;
    let add = || of.store.add_job(&study, EstimateRequest::default());
    let state = |number| of.store.estimate(&study, number).unwrap().state;
    let [first, second] = [add().await.unwrap(), add().await.unwrap()];
    assert_eq!([first.number, second.number], [1, 2]);
    let (of_study, job) = block_in_place(|| of.store.claim_job()).unwrap().unwrap();
    assert_eq!((of_study.id(), job.attempts), (study.id(), 0));
    block_in_place(|| of.store.put_back_job(job.id)).unwrap();
    let (_, again) = block_in_place(|| of.store.claim_job()).unwrap().unwrap();
    assert_eq!((again.id, again.attempts), (job.id, 0));
    of.store.cancel_job(&study, 1).await.unwrap();
    let failed = || {
        let error = eigenveil_shared::Error::estimate_failed("for the test");
        eigenveil_shared::api::Problem::new(&error)
    };
    block_in_place(|| of.store.finish_job(job.id, Err(failed()))).unwrap();
    assert_eq!(state(1), EstimateState::Cancelled);
    let (_, job) = block_in_place(|| of.store.claim_job()).unwrap().unwrap();
    block_in_place(|| of.store.finish_job(job.id, Err(failed()))).unwrap();
    assert_eq!(state(2), EstimateState::Failed);
    let late = of.store.cancel_job(&study, 2).await.unwrap_err();
    assert_eq!(late.code(), ErrorCode::InvalidTransition);
    assert!(block_in_place(|| of.store.claim_job()).unwrap().is_none());
}

/// A request is carried out, and told, though nobody waits for its answer.
async fn effects_do_not_depend_on_the_asker(of: &Fixture) {
    let study = create(&of.store, &json!({"about": {"last_day": "2023-11-20"}})).await;
    let export = VerifiedExport::read(of.store.export(&study).unwrap()).unwrap();
    let notices = Arc::new(AtomicU32::new(0));
    let listened = Arc::clone(&notices);
    of.store.listen(move |notice| {
        let heard = match notice {
            Notice::JobAdded => 1,
            Notice::JobCancelled(_) => 2,
            Notice::StudiesChanged => 4,
        };
        listened.fetch_or(heard, Ordering::SeqCst);
    });
    poll_once(of.store.add_job(&study, EstimateRequest::default()));
    while of.store.estimates(&study).unwrap().is_empty() {
        tokio::task::yield_now().await;
    }
    poll_once(of.store.cancel_job(&study, 1));
    poll_once(of.store.submit(&study, vec![report(&study, 1)]));
    while of.counted(&study) == 0 || notices.load(Ordering::SeqCst) != 3 {
        tokio::task::yield_now().await;
    }
    let studies_changed = async || {
        while notices.fetch_and(3, Ordering::SeqCst) & 4 == 0 {
            tokio::task::yield_now().await;
        }
    };
    poll_once(of.store.set_state(&study, StudyState::Closed));
    studies_changed().await;
    poll_once(of.store.delete_study(&study));
    studies_changed().await;
    poll_once(of.store.import(export, None));
    studies_changed().await;
    // Of a closed study more is tidied than of an open one.
    of.set_clock(study.about().last_day.unwrap().end_ms());
    block_in_place(|| of.store.close_ended()).unwrap();
    studies_changed().await;
}

/// Polls a future once and drops it.
fn poll_once(future: impl Future) {
    let _ = begin(future);
}

/// Polls a future once: its request is in the queue. An engine without one has answered.
fn begin<F: Future>(future: F) -> Result<F::Output, Pin<Box<F>>> {
    let mut future = Box::pin(future);
    let mut context = Context::from_waker(Waker::noop());
    match future.as_mut().poll(&mut context) {
        Poll::Ready(output) => Ok(output),
        Poll::Pending => Err(future),
    }
}

/// Reads while others write: each time all of some commits, and never fewer than before.
async fn a_snapshot_is_of_one_moment(of: &Fixture) {
    let study = create(&of.store, &json!({})).await;
    let (store, to) = (of.store.clone(), Arc::clone(&study));
    let writer = tokio::spawn(async move {
        for number in 0..60 {
            let pair = [2 * number, 2 * number + 1].map(|number| report(&to, number));
            store.submit(&to, pair.to_vec()).await.unwrap();
        }
    });
    let mut before = 0;
    while !writer.is_finished() {
        let counted = of.counted(&study);
        assert!(counted >= before && counted.is_multiple_of(2), "{counted}");
        before = counted;
        tokio::task::yield_now().await;
    }
    writer.await.unwrap();
    assert_eq!(of.counted(&study), 120);
}

async fn arrivals_count_what_was_uploaded(of: &Fixture) {
    let study = create(&of.store, &json!({})).await;
    for minute in 0..3 {
        of.set_clock(super::fixtures::START_MS + minute * 60_000);
        of.send(
            &study,
            vec![report(&study, 1), report(&study, 10 + minute as u8)],
        )
        .await;
    }
    let counts = of.store.arrivals(&study).unwrap();
    let counts: Vec<_> = counts
        .iter()
        .map(|count| (count.seconds, count.n))
        .collect();
    assert_eq!(counts, [(60, 2), (60, 1), (60, 1)]);
}

async fn of_several_rotations_one_replaces_the_token(of: &Fixture) {
    let file = || std::fs::read_to_string(of.store.token_path()).unwrap();
    let old = TokenHash::new(file().trim());
    let rotate = || of.store.rotate_operator_token(&old);
    let both = tokio::join!(rotate(), rotate());
    let ((Ok(new), Err(error)) | (Err(error), Ok(new))) = both else {
        panic!("both have succeeded, or none");
    };
    assert_eq!(error.code(), ErrorCode::Forbidden);
    assert_eq!(file().trim(), new.token);
    let new = TokenHash::new(&new.token);
    assert_eq!(of.store.identify_hash(&new), Some(Identity::Operator));
    assert_eq!(of.store.identify_hash(&old), None);
}

/// Names, counts and first entries of the reports of sites.
fn of_sites(of: &Fixture, study: &Study) -> Vec<(String, f64, f64)> {
    let sums = of.store.site_sums(study).unwrap();
    let sums = sums.into_iter();
    sums.map(|sum| (sum.site, sum.rows_noisy, sum.sum.as_slice()[0]))
        .collect()
}

/// Each under the name of its token, once; a site may report again with another token.
async fn a_sites_report_is_kept_apart(of: &Fixture) {
    use SubmitOutcome::{Accepted, Duplicate, NotAdmitted};
    let study = create_of_sites(&of.store, &json!({})).await;
    let sites = [("north", 700), ("south", 20), ("north", 30)];
    let tokens = site_admissions(&of.store, &study, &sites).await;
    let report =
        |number, rows, token: usize| site_report(&of.store, &study, number, rows, &tokens[token]);
    let group = vec![report(1, 650.0, 0), report(1, 650.0, 0), report(2, 20.0, 1)];
    assert_eq!(
        of.send(&study, group).await,
        [Accepted, Duplicate, Accepted]
    );
    let unknown = Some(ParticipantToken::from_bytes([9; 32])).into();
    for (number, token, refused) in [
        (3, &tokens[0], ErrorCode::TokenSpent),
        (3, &unknown, ErrorCode::ParticipantTokenUnknown),
        (3, &Admission::Open, ErrorCode::TokenRequired),
    ] {
        let late = site_report(&of.store, &study, number, 5.0, token);
        assert_eq!(of.send(&study, vec![late]).await, [NotAdmitted(refused)]);
    }
    assert_eq!(of.send(&study, vec![report(3, 5.0, 2)]).await, [Accepted]);
    // Sent again with another token, it spends none.
    assert_eq!(of.send(&study, vec![report(2, 20.0, 2)]).await, [Duplicate]);
    let step = of_sites(of, &study)[0].2;
    assert!(step > 0.0 && step < 0.01, "{step}");
    assert_eq!(
        of_sites(of, &study),
        [
            ("north".to_owned(), 650.0, step),
            ("south".to_owned(), 20.0, 2.0 * step),
            ("north".to_owned(), 5.0, 3.0 * step),
        ]
    );
    let counts = of.store.token_counts(&study).unwrap();
    assert_eq!((counts.issued, counts.spent), (3, 3));
    let sites = counts.sites.iter();
    let sites: Vec<_> = sites
        .map(|token| (token.site.as_str(), token.max_rows, token.spent))
        .collect();
    assert_eq!(
        sites,
        [
            ("north", 30, true),
            ("north", 700, true),
            ("south", 20, true)
        ]
    );
    assert_eq!(study.reports_accepted(), 3);
    assert!(of.store.bucket_sums(&study, Cancel::NEVER).is_err());
    let rows = create(&of.store, &json!({})).await;
    assert!(of.store.site_sums(&rows).is_err());
}

/// Only its holder is told what a token is for; what fails the test may come again.
async fn a_site_has_no_more_rows_than_its_token(of: &Fixture) {
    use SubmitOutcome::{Accepted, Duplicate, NotAdmitted};
    let study = create_of_sites(&of.store, &json!({})).await;
    let sites = [("small", 20), ("large", 900)];
    let tokens = site_admissions(&of.store, &study, &sites).await;
    let token = |number: usize| match &tokens[number] {
        Admission::Token(token) => of.store.look_up_token(&study, token).unwrap(),
        Admission::Open => panic!("no token"),
    };
    assert_eq!((token(0).max_rows, token(0).spent), (20, false));
    let large = site_report(&of.store, &study, 1, 800.0, &tokens[0]);
    let refused = large.refusal().unwrap().detail().to_owned();
    assert!(refused.contains("at most 20 rows"), "{refused}");
    let outcome = of.send(&study, vec![large]).await;
    assert_eq!(outcome, [NotAdmitted(ErrorCode::ImplausibleReport)]);
    assert_eq!((of.spent(&study), study.reports_accepted()), (0, 0));
    let fits = site_report(&of.store, &study, 1, 800.0, &tokens[1]);
    assert_eq!(of.send(&study, vec![fits]).await, [Accepted]);
    assert!(token(1).spent && !token(0).spent);
    // It was counted, whatever its token is for.
    let again = site_report(&of.store, &study, 1, 800.0, &tokens[0]);
    assert_eq!(of.send(&study, vec![again]).await, [Duplicate]);
    let unknown = ParticipantToken::from_bytes([9; 32]);
    let error = of.store.look_up_token(&study, &unknown).unwrap_err();
    assert_eq!(error.code(), ErrorCode::ParticipantTokenUnknown);
}

/// Exported, merged and deleted with their names; and no more of them than there is room for.
async fn the_reports_of_sites_have_a_bound(of: &Fixture) {
    use SubmitOutcome::{Accepted, NoRoom, NotOpen};
    let [from, into] = [
        create_of_sites(&of.store, &json!({})).await,
        create_of_sites(&of.store, &json!({})).await,
    ];
    let sites = [("a", 10), ("b", 10), ("c", 10)];
    let from_tokens = site_admissions(&of.store, &from, &sites).await;
    let into_tokens = site_admissions(&of.store, &into, &sites).await;
    let more = json!({"sites": [{"site": "d"}]});
    let more = of.store.issue(&into, serde_json::from_value(more).unwrap());
    let error = more.await.unwrap_err();
    assert_eq!(error.code(), ErrorCode::InvalidRequest);
    assert!(error.detail().contains("at most 3 reports"), "{error}");
    for (number, token) in (1..).zip(&from_tokens[..2]) {
        let report = site_report(&of.store, &from, number, 4.0, token);
        assert_eq!(of.send(&from, vec![report]).await, [Accepted]);
    }
    let export = of.store.export(&from).unwrap();
    let verified = || VerifiedExport::read(export.try_clone().unwrap()).unwrap();
    let merge = async || of.store.import(verified(), Some(Arc::clone(&into))).await;
    assert_eq!(merge().await.unwrap().reports, 2);
    assert_eq!(merge().await.unwrap().reports, 0);
    assert_eq!(of_sites(of, &into), of_sites(of, &from));
    let last =
        |number, token: usize| site_report(&of.store, &into, number, 7.0, &into_tokens[token]);
    let group = vec![last(3, 0), last(4, 1)];
    assert_eq!(of.send(&into, group).await, [Accepted, NoRoom]);
    assert_eq!((of.spent(&into), into.reports_accepted()), (1, 3));
    assert_eq!(of_sites(of, &into)[2].0, "a");
    // Two more do not fit, either.
    let other = create_of_sites(&of.store, &json!({})).await;
    let others = site_admissions(&of.store, &other, &sites).await;
    let report = site_report(&of.store, &other, 9, 1.0, &others[0]);
    assert_eq!(of.send(&other, vec![report]).await, [Accepted]);
    let export = VerifiedExport::read(of.store.export(&other).unwrap()).unwrap();
    let full = of.store.import(export, Some(Arc::clone(&into))).await;
    assert_eq!(full.unwrap_err().code(), ErrorCode::StoreFull);
    assert_eq!(of_sites(of, &into).len(), 3);
    // Without its identifiers it is still what it was.
    of.store.set_state(&into, StudyState::Closed).await.unwrap();
    of.set_clock(super::fixtures::START_MS + 31 * 86_400_000);
    block_in_place(|| of.store.sweep(&|| false)).unwrap();
    assert_eq!(of.send(&into, vec![last(3, 0)]).await, [NotOpen]);
    assert_eq!(of_sites(of, &into).len(), 3);
    of.store.delete_study(&into).await.unwrap();
    block_in_place(|| of.store.sweep(&|| false)).unwrap();
    assert!(of.store.site_sums(&into).is_err());
    assert_eq!(of_sites(of, &from).len(), 2);
}

/// Each answer is counted once, however it comes; counts move and merge by addition.
async fn answers_are_counted(of: &Fixture) {
    use SubmitOutcome::{Accepted, Duplicate};
    let study = create_preparation(&of.store, &json!({})).await;
    // 12 combs of 4 answers, and 2 answers.
    let counts = |study: &Study| of.store.answer_counts(study).unwrap();
    assert_eq!(counts(&study), vec![0; 50]);
    let group = [[0, 0, 0, 3], [0, 0, 11, 2], [1, 0, 0, 1], [1, 0, 0, 1]];
    let group = (0..)
        .zip(group)
        .map(|(number, bytes)| answer(&study, number, bytes));
    assert_eq!(of.send(&study, group.collect()).await, [Accepted; 4]);
    let again = vec![
        answer(&study, 2, [1, 0, 0, 1]),
        answer(&study, 9, [1, 0, 0, 0]),
    ];
    assert_eq!(of.send(&study, again).await, [Duplicate, Accepted]);
    let mut expected = vec![0; 50];
    for (at, count) in [(3, 1), (46, 1), (48, 1), (49, 2)] {
        expected[at] = count;
    }
    assert_eq!(
        (counts(&study), study.reports_accepted()),
        (expected.clone(), 5)
    );
    assert!(of.store.bucket_sums(&study, Cancel::NEVER).is_err());
    let rows = create(&of.store, &json!({})).await;
    assert!(of.store.answer_counts(&rows).is_err());
    let into = create_preparation(&of.store, &json!({})).await;
    of.send(&into, vec![answer(&into, 20, [0, 0, 0, 3])]).await;
    let export = of.store.export(&study).unwrap();
    let verified = || VerifiedExport::read(export.try_clone().unwrap()).unwrap();
    let merge = async || of.store.import(verified(), Some(Arc::clone(&into))).await;
    assert_eq!(merge().await.unwrap().reports, 5);
    assert_eq!(merge().await.unwrap().reports, 0);
    expected[3] += 1;
    assert_eq!((counts(&into), into.reports_accepted()), (expected, 6));
    // A second round is another study.
    let mut columns = into.params().preparation().unwrap().columns().to_vec();
    columns[1].name = "drinks".to_owned();
    let columns = json!({"columns": columns});
    let other = create_preparation(&of.store, &json!({"preparation": columns})).await;
    let refused = of.store.import(verified(), Some(other)).await;
    assert_eq!(refused.unwrap_err().code(), ErrorCode::WrongFingerprint);
}

/// A second round says nothing without the answers of the first one, of which a copy with as many must stay.
async fn a_first_round_outlives_its_second(of: &Fixture) {
    let first = create_preparation(&of.store, &json!({})).await;
    let one = |study: &Study, number| vec![answer(study, number, [0, 0, 0, 3])];
    for number in [1, 2] {
        of.send(&first, one(&first, number)).await;
    }
    let mut columns = json!(first.params().preparation().unwrap().columns());
    columns[0]["kind"]["number"]["within"] = json!([2.0, 6.0]);
    let after = first.fingerprint().to_string();
    let questions = json!({"preparation": {"after": after, "columns": columns}});
    let second = create_preparation(&of.store, &questions).await;
    let copy = create_preparation(&of.store, &json!({})).await;
    let delete = async |study: &Arc<Study>| {
        let closed = of.store.set_state(study, StudyState::Closed).await;
        closed.unwrap();
        of.store.delete_study(study).await
    };
    // The copy has no answers, then one, a trial perhaps.
    for (number, answers) in [(1, "0 answers"), (2, "1 answer")] {
        let refused = delete(&first).await.unwrap_err();
        assert_eq!(refused.code(), ErrorCode::InvalidTransition);
        for words in [
            format!("study {} with 2 answers", first.id()),
            format!("study {} with {answers}", copy.id()),
            format!("delete study {} first", second.id()),
        ] {
            assert!(refused.detail().contains(&words), "{refused}");
        }
        let sent = of.send(&copy, one(&copy, number)).await;
        assert_eq!(sent, [SubmitOutcome::Accepted]);
    }
    delete(&first).await.unwrap();
    assert!(delete(&copy).await.is_err());
    delete(&second).await.unwrap();
    delete(&copy).await.unwrap();
}

type Check = for<'a> fn(&'a Fixture) -> Pin<Box<dyn Future<Output = ()> + 'a>>;

macro_rules! checks {
    ($($name:ident),* $(,)?) => {
        const CHECKS: &[(&str, Check)] = &[$((stringify!($name), |of| Box::pin($name(of)))),*];
    };
}

checks![
    outcomes_are_in_order_of_arrival,
    keys_are_never_used_again,
    a_study_without_identifiers_takes_no_import,
    the_last_day_ends_to_the_millisecond,
    a_cancelled_job_stays_cancelled,
    effects_do_not_depend_on_the_asker,
    a_snapshot_is_of_one_moment,
    arrivals_count_what_was_uploaded,
    of_several_rotations_one_replaces_the_token,
    a_sites_report_is_kept_apart,
    a_site_has_no_more_rows_than_its_token,
    the_reports_of_sites_have_a_bound,
    a_fold_changes_no_sum,
    copies_are_counted_once_in_folds,
    folds_follow_their_study,
    answers_are_counted,
    a_first_round_outlives_its_second,
];

/// The checks that fail.
pub(crate) fn failing(kind: Kind) -> Vec<&'static str> {
    let names = CHECKS.iter().map(|(name, _)| *name);
    names.filter(|name| fails(kind, "", name)).collect()
}

/// Whether this check fails with this mistake.
fn fails(kind: Kind, mistake: &str, name: &str) -> bool {
    let (_, check) = CHECKS.iter().find(|(other, _)| *other == name).unwrap();
    let fixture = Fixture::new(kind, mistake);
    catch_unwind(AssertUnwindSafe(|| {
        let ended = async { timeout(Duration::from_secs(600), check(&fixture)).await };
        Runtime::new().unwrap().block_on(ended).unwrap();
    }))
    .is_err()
}

#[test]
fn the_embedded_engine_conforms() {
    assert_eq!(failing(Kind::Sqlite), Vec::<&str>::new());
}

/// A database that errs behind the engine's back stands for another engine's mistakes.
#[test]
fn mistakes_of_an_engine_are_noticed() {
    for (by, when, what) in [
        (
            "outcomes_are_in_order_of_arrival",
            "AFTER UPDATE ON participant_tokens",
            "UPDATE participant_tokens SET spent = 0",
        ),
        (
            "keys_are_never_used_again",
            "AFTER DELETE ON studies",
            "DELETE FROM deleted_studies",
        ),
        (
            "a_snapshot_is_of_one_moment",
            "AFTER UPDATE OF reports_accepted ON studies",
            "UPDATE studies SET reports_accepted = old.reports_accepted",
        ),
        (
            "a_cancelled_job_stays_cancelled",
            "AFTER UPDATE ON estimates WHEN new.state = 'cancelled'",
            "UPDATE estimates SET state = 'running'",
        ),
        (
            "arrivals_count_what_was_uploaded",
            "AFTER INSERT ON arrivals",
            "UPDATE arrivals SET n = n + 1",
        ),
        (
            "a_sites_report_is_kept_apart",
            "AFTER INSERT ON site_reports",
            "UPDATE site_reports SET site = new.site",
        ),
        (
            "a_site_has_no_more_rows_than_its_token",
            "AFTER INSERT ON participant_tokens",
            "UPDATE participant_tokens SET max_rows = 900",
        ),
        (
            "the_reports_of_sites_have_a_bound",
            "AFTER UPDATE OF reports_accepted ON studies",
            "UPDATE studies SET reports_accepted = 1 WHERE reports_accepted > 1",
        ),
        (
            "answers_are_counted",
            "AFTER INSERT ON buckets",
            "UPDATE buckets SET n = n + 1",
        ),
    ] {
        let mistake = format!("CREATE TRIGGER mistake {when} BEGIN {what}; END");
        assert!(fails(Kind::Sqlite, &mistake, by), "{by}");
    }
}
