//! Folds change no estimate, whatever becomes of their seeds: checks of every engine.

use std::{cell::Cell, collections::BTreeSet, ops::Range, sync::Arc};

use eigenveil_estimation::{
    Cancel, accumulate::Accumulator, linalg::Threads, sparse_from_seeds::SeedSource as _,
    sums_of_seeds,
};
use eigenveil_shared::{ErrorCode, api::StudyState};
use tokio::task::block_in_place;

use super::{
    conformance::Fixture,
    fixtures::{START_MS, create, of_seeds, with_payload},
};
use crate::{StoredSeeds, Study, contract::transfer::VerifiedExport};

/// Sends reports in commits of a hundred, with the payloads of others.
async fn send(of: &Fixture, study: &Arc<Study>, numbers: Range<u32>, payload_of: fn(u32) -> u32) {
    let numbers: Vec<u32> = numbers.collect();
    for some in numbers.chunks(100) {
        let reports = some
            .iter()
            .map(|number| with_payload(study, *number, payload_of(*number)));
        of.store.submit(study, reports.collect()).await.unwrap();
    }
}

fn fold(of: &Fixture, study: &Study) {
    block_in_place(|| of.store.fold(study, Cancel::NEVER)).unwrap();
}

fn sweep(of: &Fixture) {
    block_in_place(|| of.store.sweep(&|| false)).unwrap();
}

fn sums(seeds: &StoredSeeds) -> Vec<(u32, Accumulator)> {
    sums_of_seeds(seeds, 3, u64::MAX, Cancel::NEVER).unwrap()
}

/// All sums together.
fn total(sums: &[(u32, Accumulator)]) -> Accumulator {
    let mut total = Accumulator::new(3).unwrap();
    sums.iter().for_each(|(_, sum)| total.merge(sum).unwrap());
    total
}

fn assert_close(found: &Accumulator, wanted: &Accumulator) {
    assert_eq!(found.count(), wanted.count());
    let pairs = found.sum().as_slice().iter().zip(wanted.sum().as_slice());
    // Some thousand seeds were added in single precision, of which few may be left; one too many adds far more.
    let most = 1e-6 * wanted.count().max(1_000) as f64;
    pairs.for_each(|(a, b)| assert!((a - b).abs() <= most, "{a} {b}"));
}

/// Compares what an estimate gets with and without folds, on several threads; returns how many seeds it expands.
fn expanded(of: &Fixture, study: &Study) -> u64 {
    let all = of.store.seeds(study, Cancel::NEVER).unwrap();
    let folded = of.store.folded_seeds(study, Cancel::NEVER).unwrap();
    assert_eq!(folded.count(), all.count());
    assert_eq!(folded.repeated(), all.repeated());
    let (wanted, found) = (sums(&all), Threads::new(3).unwrap().run(|| sums(&folded)));
    match all.repeated() {
        0 => assert_eq!(found, wanted, "folded sums have other bits"),
        // Copies are left out of a range, and taken out of a fold.
        _ => {
            assert_eq!(found.len(), wanted.len());
            for ((bucket, found), (of_bucket, wanted)) in found.iter().zip(&wanted) {
                assert_eq!(bucket, of_bucket);
                assert_close(found, wanted);
            }
        }
    }
    // So few that all of them are in the sample.
    let sample = |seeds: &StoredSeeds| -> BTreeSet<_> {
        let sample = seeds.sample(Cancel::NEVER).unwrap();
        sample.into_iter().collect()
    };
    assert_eq!(sample(&folded), sample(&all));
    let mut expanded = 0;
    let count = &mut |_, seeds: &[[u8; 16]]| {
        expanded += seeds.len() as u64;
        Ok(())
    };
    folded.pass(count).unwrap();
    expanded
}

/// In the same bits, also where folding was cut off.
pub(super) async fn a_fold_changes_no_sum(of: &Fixture) {
    let study = create(&of.store, &of_seeds()).await;
    send(of, &study, 0..3_000, |number| number).await;
    assert_eq!(expanded(of, &study), 3_000);
    fold(of, &study);
    assert_eq!(expanded(of, &study), 0);
    send(of, &study, 3_000..3_030, |number| number).await;
    fold(of, &study);
    assert_eq!(expanded(of, &study), 30);
    let mut next = 3_030;
    for cut_off_at in [1, 2, 3, 5, 8, 13, 30] {
        send(of, &study, next..next + 500, |number| number).await;
        next += 500;
        let asked = Cell::new(0);
        let cancel = || asked.replace(asked.get() + 1) >= cut_off_at;
        let cut_off = block_in_place(|| of.store.fold(&study, Cancel::when(&cancel)));
        assert!(cut_off.is_err_and(|error| error.code() == ErrorCode::EstimateFailed));
        expanded(of, &study);
    }
    block_in_place(|| while of.store.fold_in_background(&|| false).unwrap() {});
    assert!(expanded(of, &study) < 100);
}

/// Within a fold, in folds of several buckets, between folds and what came since, and then in folds again.
pub(super) async fn copies_are_counted_once_in_folds(of: &Fixture) {
    let [study, once] = [
        create(&of.store, &of_seeds()).await,
        create(&of.store, &of_seeds()).await,
    ];
    send(of, &once, 0..1_000, |number| number).await;
    let wanted = total(&sums(&of.store.seeds(&once, Cancel::NEVER).unwrap()));
    let copied = |number: u32| match number {
        0..1_000 => number,
        1_000..1_500 => number - 1_000,
        _ => 7,
    };
    let check = |repeated: u64| {
        let seeds = of.store.folded_seeds(&study, Cancel::NEVER).unwrap();
        assert_eq!((seeds.count(), seeds.repeated()), (1_000, repeated));
        assert_close(&total(&sums(&seeds)), &wanted);
        expanded(of, &study)
    };
    send(of, &study, 0..1_000, copied).await;
    fold(of, &study);
    send(of, &study, 1_000..1_730, copied).await;
    check(730);
    fold(of, &study);
    assert!(check(730) < 100);
    send(of, &study, 1_730..1_760, copied).await;
    check(760);
    sweep(of);
    assert!(check(760) < 100);
}

/// Export, merge, closing, retention and deletion of a study with folds.
pub(super) async fn folds_follow_their_study(of: &Fixture) {
    let [from, into] = [
        create(&of.store, &of_seeds()).await,
        create(&of.store, &of_seeds()).await,
    ];
    send(of, &from, 0..1_000, |number| number).await;
    fold(of, &from);
    send(of, &from, 1_000..1_020, |number| number).await;
    send(of, &into, 5_000..6_000, |number| number - 4_900).await;
    fold(of, &into);
    assert_eq!(expanded(of, &into), 0);
    let export = VerifiedExport::read(of.store.export(&from).unwrap()).unwrap();
    let merged = of.store.import(export, Some(Arc::clone(&into))).await;
    assert_eq!(merged.unwrap().reports, 1_020);
    // The seeds 100 to 1,019 came twice.
    let check = || {
        let expanded = expanded(of, &into);
        let seeds = of.store.folded_seeds(&into, Cancel::NEVER).unwrap();
        assert_eq!((seeds.count(), seeds.repeated()), (1_100, 920));
        expanded
    };
    check();
    fold(of, &into);
    let before = check();
    assert!(before < 500, "{before}");
    let closed = of.store.set_state(&into, StudyState::Closed);
    closed.await.unwrap();
    sweep(of);
    check();
    fold(of, &into);
    check();
    of.set_clock(START_MS + 31 * 86_400_000);
    sweep(of);
    check();
    of.store.delete_study(&into).await.unwrap();
    sweep(of);
    assert!(of.store.folded_seeds(&into, Cancel::NEVER).is_err());
    assert!(block_in_place(|| of.store.fold(&into, Cancel::NEVER)).is_err());
    assert_eq!(expanded(of, &from), 20);
}
