//! An interrupted run resumes without repeating runs and gives the same results as an uninterrupted one.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

use std::{
    path::Path,
    sync::{
        Mutex,
        atomic::{AtomicU64, Ordering},
    },
};

use eigenveil_papers::{
    Cell, Data, Exhibit, Paper, Point, Progress, RunOptions, RunPlan, RunSize, run,
};
use eigenveil_shared::Error;

/// One test at a time, because the exhibit counts in statics.
static SERIAL: Mutex<()> = Mutex::new(());
static RUNS: AtomicU64 = AtomicU64::new(0);
/// Number of runs after which the exhibit fails.
static FAILS_AFTER: AtomicU64 = AtomicU64::new(u64::MAX);

const SQUARES: Exhibit = Exhibit {
    id: "squares",
    item: "squares (a test)",
    caption: "squares",
    key_columns: "x",
    coordinate: Some("power"),
    per_cell: "double",
    measures: "value",
    plan: |_, size| {
        let mut plan = RunPlan::default();
        for x in 0..size.choose(4_u32, 6) {
            plan.cells.push(Cell::new([&x], 5, move |repeat| {
                if RUNS.fetch_add(1, Ordering::SeqCst) >= FAILS_AFTER.load(Ordering::SeqCst) {
                    return Err(Error::invalid_request("on purpose"));
                }
                let x = f64::from(x);
                let point = |power: i32| Point {
                    at: Some(f64::from(power)),
                    values: vec![2.0 * x, x.powi(power) + repeat as f64],
                };
                Ok(vec![point(1), point(2)])
            }));
        }
        Ok(plan)
    },
    ..Exhibit::of_paper(Paper::Liu)
};

fn options(directory: &Path) -> RunOptions {
    RunOptions {
        size: RunSize::Quick,
        journal: directory.join("journal"),
        restart: false,
    }
}

#[test]
fn an_interrupted_run_resumes_and_gives_the_same() {
    let _serial = SERIAL
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner);
    let data = Data::new(None);
    let whole = tempfile::tempdir().unwrap();
    FAILS_AFTER.store(u64::MAX, Ordering::SeqCst);
    RUNS.store(0, Ordering::SeqCst);
    let expected = run(&SQUARES, &data, &options(whole.path()), &|_| ()).unwrap();
    assert_eq!(RUNS.load(Ordering::SeqCst), 20);

    let broken = tempfile::tempdir().unwrap();
    RUNS.store(0, Ordering::SeqCst);
    FAILS_AFTER.store(7, Ordering::SeqCst);
    let error = run(&SQUARES, &data, &options(broken.path()), &|_| ()).unwrap_err();
    // Which run is the eighth depends on the threads.
    let mut runs = (0..4).flat_map(|x| (0..5).map(move |repeat| (x, repeat)));
    let names =
        |(x, repeat)| error.detail() == format!("squares, {x}, repeat {repeat}: on purpose");
    assert!(runs.any(names), "{error}");
    FAILS_AFTER.store(u64::MAX, Ordering::SeqCst);
    RUNS.store(0, Ordering::SeqCst);
    let seen = Mutex::new(Vec::new());
    let on_progress = |progress: Progress| seen.lock().unwrap().push(progress);
    let table = run(&SQUARES, &data, &options(broken.path()), &on_progress).unwrap();
    assert_eq!(RUNS.load(Ordering::SeqCst), 13, "seven were finished");
    let seen = seen.into_inner().unwrap();
    assert_eq!((seen[0].done, seen[0].resumed, seen[0].total), (7, 7, 20));
    assert!(seen.iter().any(|progress| progress.done == 20));
    assert_eq!(table, expected);

    // Nothing is left to run, and the results are the same; with `restart` everything runs again.
    RUNS.store(0, Ordering::SeqCst);
    let again = run(&SQUARES, &data, &options(broken.path()), &|_| ()).unwrap();
    assert_eq!((RUNS.load(Ordering::SeqCst), again), (0, table));
    let restarted = RunOptions {
        restart: true,
        ..options(broken.path())
    };
    run(&SQUARES, &data, &restarted, &|_| ()).unwrap();
    assert_eq!(RUNS.load(Ordering::SeqCst), 20);
    // A full run does not resume from a quick one.
    RUNS.store(0, Ordering::SeqCst);
    let full = RunOptions {
        size: RunSize::Full,
        ..options(broken.path())
    };
    run(&SQUARES, &data, &full, &|_| ()).unwrap();
    assert_eq!(RUNS.load(Ordering::SeqCst), 30);
}

#[test]
fn the_csv_has_mean_and_spread_and_round_trips() {
    let _serial = SERIAL
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner);
    FAILS_AFTER.store(u64::MAX, Ordering::SeqCst);
    let directory = tempfile::tempdir().unwrap();
    let table = run(
        &SQUARES,
        &Data::new(None),
        &options(directory.path()),
        &|_| (),
    )
    .unwrap();
    let csv = table.to_csv();
    let mut lines = csv.lines();
    assert_eq!(
        lines.next().unwrap(),
        "x,power,double,value_mean,value_sd,value_q1,value_median,value_q3,repeats,run_size"
    );
    // 3² + 0, 1, 2, 3, 4.
    let line = lines.find(|line| line.starts_with("3,2,")).unwrap();
    assert_eq!(line, "3,2,6,11,1.5811,10,11,12,5,quick");
    let read = SQUARES.parse(&csv).unwrap();
    assert_eq!(read, table);
    assert_eq!(
        read.number(&[("x", "3"), ("power", "2")], "value_median"),
        11.0
    );
    assert_eq!(read.values("x"), ["0", "1", "2", "3"]);
    let error = SQUARES.parse("x,y\n1,2\n").unwrap_err();
    assert!(error.detail().contains("reproduce squares"), "{error}");
}

#[test]
fn missing_data_is_named_with_its_source() {
    let directory = tempfile::tempdir().unwrap();
    let table_1 = eigenveil_papers::find("wang-xu-table-1").unwrap();
    let error = Data::new(Some(directory.path()))
        .require(table_1.id, table_1.data)
        .unwrap_err();
    for part in [
        "wang-xu-table-1 needs",
        "isolet.npy",
        "scikit-feature",
        "not in",
    ] {
        assert!(error.detail().contains(part), "{part}: {error}");
    }
    let error = Data::new(None)
        .require(table_1.id, table_1.data)
        .unwrap_err();
    assert!(error.detail().contains("--data"), "{error}");
    let mut all = eigenveil_papers::ALL.iter();
    assert!(all.any(|exhibit| exhibit.data.is_empty()));
}
