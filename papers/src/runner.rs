//! Runs an exhibit on all cores, resuming an interrupted run.

use std::{
    path::PathBuf,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
};

use eigenveil_estimation::linalg::Threads;
use eigenveil_shared::{Error, ErrorCode, Result};

use crate::{
    data::Data,
    exhibit::Exhibit,
    journal::{CompletedRuns, Header, Journal},
    plan::{Point, RunSize},
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
    /// Of these, finished by earlier calls.
    pub resumed: usize,
    /// Number of runs in all.
    pub total: usize,
}

/// Runs what is not in the journal yet and summarises all runs.
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
    // First repeats first, so that slow and failing cells show early.
    let most = plan.cells.iter().map(|cell| cell.repeats).max();
    let all: Vec<(usize, u64)> = (0..most.unwrap_or(0))
        .flat_map(|repeat| (0..plan.cells.len()).map(move |cell| (cell, repeat)))
        .filter(|&(cell, repeat)| repeat < plan.cells[cell].repeats)
        .collect();
    let is_done = |done: &CompletedRuns, &(cell, repeat): &(usize, u64)| {
        done.contains_key(&(plan.cells[cell].key.clone(), repeat))
    };
    let left: Vec<(usize, u64)> = all
        .iter()
        .copied()
        .filter(|task| !is_done(&done, task))
        .collect();
    let total = all.len();
    let resumed = total - left.len();
    on_progress(Progress {
        done: resumed,
        resumed,
        total,
    });
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
                Error::new(
                    error.code(),
                    format!(
                        "{}, {}, repeat {repeat}: {}",
                        exhibit.id,
                        cell.key.join(", "),
                        error.detail()
                    ),
                )
            })?;
            let mut state = state.lock().unwrap_or_else(PoisonError::into_inner);
            state.0.add(&cell.key, repeat, &points)?;
            state.1.insert((cell.key.clone(), repeat), points);
            on_progress(Progress {
                done: total - left.len() + finished.fetch_add(1, Ordering::Relaxed) + 1,
                resumed,
                total,
            });
        }
        Ok(())
    };
    std::thread::scope(|scope| {
        let running: Vec<_> = (0..workers).map(|_| scope.spawn(work)).collect();
        running
            .into_iter()
            .map(|worker| {
                worker.join().unwrap_or_else(|_| {
                    Err(Error::new(
                        ErrorCode::Internal,
                        format!("a run of {} panicked", exhibit.id),
                    ))
                })
            })
            .collect::<Result<Vec<()>>>()
    })?;
    let (_, mut done) = state.into_inner().unwrap_or_else(PoisonError::into_inner);
    let cells: Vec<(Vec<String>, Vec<Vec<Point>>)> = plan
        .cells
        .iter()
        .map(|cell| {
            let repeats = 0..cell.repeats;
            let points = repeats.filter_map(|repeat| done.remove(&(cell.key.clone(), repeat)));
            (cell.key.clone(), points.collect())
        })
        .collect();
    Ok(Table::summarize(exhibit, options.size, &cells))
}

/// Checks that each point has one value for each name of the exhibit.
fn checked(exhibit: &Exhibit, points: Vec<Point>) -> Result<Vec<Point>> {
    let (constants, measures) = exhibit.counts();
    let wanted = constants + measures;
    match points.iter().all(|point| point.values.len() == wanted) {
        true => Ok(points),
        false => Err(Error::new(
            ErrorCode::Internal,
            format!("a point does not have the {wanted} values that the exhibit names"),
        )),
    }
}
