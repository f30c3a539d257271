//! Runs an exhibit on all cores, resuming an interrupted run.

use std::{
    path::PathBuf,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
};

use eigenveil_estimation::linalg::Threads;
use eigenveil_shared::{Error, ErrorCode, Result, error};

use crate::{
    data::Data,
    exhibit::Exhibit,
    journal::{CompletedRuns, Header, Journal},
    plan::{Point, RunPlan, RunSize},
    table::Table,
};

/// How an exhibit is run.
#[derive(Clone, Debug)]
pub struct RunOptions {
    /// Quick or full.
    pub size: RunSize,
    /// The journal, from which a later call resumes.
    pub journal: PathBuf,
    /// Whether to start over instead of resuming.
    pub restart: bool,
}

/// Progress of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// Finished runs, including those of earlier calls.
    pub done: usize,
    /// Runs finished by earlier calls.
    pub resumed: usize,
    /// Number of runs in all.
    pub total: usize,
}

/// Makes the runs that are not in the journal yet, and summarises all runs.
///
/// # Errors
/// Errors of the data and of the algorithms, naming the cell; `internal` if the journal cannot be written.
pub fn run(
    exhibit: &Exhibit,
    data: &Data,
    options: &RunOptions,
    on_progress: &(dyn Fn(Progress) + Sync),
) -> Result<Table> {
    data.require(exhibit.id, exhibit.data)?;
    let plan = (exhibit.plan)(data, options.size)?;
    if options.restart {
        // It may not exist.
        let _ = std::fs::remove_file(&options.journal);
    }
    let header = Header {
        exhibit: exhibit.id.to_owned(),
        size: options.size.to_string(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
    };
    let (journal, done) = Journal::open(&options.journal, &header)?;
    let all = tasks(&plan);
    let is_left = |&(cell, repeat): &(usize, u64)| {
        !done.contains_key(&(plan.cells[cell].key.clone(), repeat))
    };
    let left: Vec<(usize, u64)> = all.iter().copied().filter(is_left).collect();
    let total = all.len();
    let resumed = total - left.len();
    let progress = |done| Progress {
        done,
        resumed,
        total,
    };
    on_progress(progress(resumed));
    let state = Mutex::new((journal, done));
    let (next, finished) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let failed = AtomicBool::new(false);
    let cores = Threads::available();
    let (workers, threads) = match plan.one_run_at_a_time {
        true => (1, cores),
        false => (cores.count(), Threads::current()),
    };
    let work = || -> Result<()> {
        while !failed.load(Ordering::Relaxed) {
            let Some(&(cell, repeat)) = left.get(next.fetch_add(1, Ordering::Relaxed)) else {
                break;
            };
            let cell = &plan.cells[cell];
            let outcome = threads
                .run(|| (cell.work)(repeat))
                .and_then(|points| checked(exhibit, points));
            let points = outcome.map_err(|error| {
                failed.store(true, Ordering::Relaxed);
                let (id, key) = (exhibit.id, cell.key.join(", "));
                let detail = format!("{id}, {key}, repeat {repeat}: {}", error.detail());
                Error::new(error.code(), detail)
            })?;
            let mut state = state.lock().unwrap_or_else(PoisonError::into_inner);
            state.0.add(&cell.key, repeat, &points)?;
            state.1.insert((cell.key.clone(), repeat), points);
            on_progress(progress(
                resumed + finished.fetch_add(1, Ordering::Relaxed) + 1,
            ));
        }
        Ok(())
    };
    std::thread::scope(|scope| {
        let running: Vec<_> = (0..workers).map(|_| scope.spawn(work)).collect();
        running.into_iter().try_for_each(|worker| {
            let panicked = |_| {
                let detail = format!("a run of {} panicked", exhibit.id);
                Err(Error::new(ErrorCode::Internal, detail))
            };
            worker.join().unwrap_or_else(panicked)
        })
    })?;
    let (_, done) = state.into_inner().unwrap_or_else(PoisonError::into_inner);
    Ok(Table::summarize(
        exhibit.header(),
        exhibit.coordinate.is_some(),
        exhibit.counts(),
        options.size,
        &by_cell(&plan, done),
    ))
}

/// All runs, as the index of a cell and a repeat, ordered by repeat, so that slow and failing cells show early.
fn tasks(plan: &RunPlan) -> Vec<(usize, u64)> {
    let most = plan.cells.iter().map(|cell| cell.repeats).max();
    (0..most.unwrap_or(0))
        .flat_map(|repeat| (0..plan.cells.len()).map(move |cell| (cell, repeat)))
        .filter(|&(cell, repeat)| repeat < plan.cells[cell].repeats)
        .collect()
}

/// The points of each repeat of each cell, under its key.
fn by_cell(plan: &RunPlan, mut done: CompletedRuns) -> Vec<(Vec<String>, Vec<Vec<Point>>)> {
    let cells = plan.cells.iter().map(|cell| {
        let repeats = 0..cell.repeats;
        let points = repeats.filter_map(|repeat| done.remove(&(cell.key.clone(), repeat)));
        (cell.key.clone(), points.collect())
    });
    cells.collect()
}

/// Checks that each point has one value for each name of the exhibit.
fn checked(exhibit: &Exhibit, points: Vec<Point>) -> Result<Vec<Point>> {
    let (constants, measures) = exhibit.counts();
    let wanted = constants + measures;
    match points.iter().all(|point| point.values.len() == wanted) {
        true => Ok(points),
        false => Err(error!(
            Internal,
            "a point does not have the {wanted} values that the exhibit names"
        )),
    }
}
