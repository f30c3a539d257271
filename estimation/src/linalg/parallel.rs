//! Independent work items on as many threads as the caller may use.

use std::{
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    thread::ScopedJoinHandle,
    time::Duration,
};

use eigenveil_shared::Result;
use faer::MatMut;

use super::Threads;
use crate::cancel::Cancel;

/// How often cancellation is asked for while other threads work.
const POLL: Duration = Duration::from_millis(5);

/// Calls `work` once for every item, on [`Threads::current`] threads; the next item goes to the next free thread.
pub(crate) fn parallel_for_each<T: Send>(
    items: impl Iterator<Item = T> + Send,
    work: impl Fn(T) + Sync,
) {
    let threads = Threads::current().count();
    if threads == 1 {
        items.for_each(work);
        return;
    }
    let queue = Mutex::new(items);
    let next = || queue.lock().unwrap_or_else(PoisonError::into_inner).next();
    let run = || {
        while let Some(item) = next() {
            work(item);
        }
    };
    std::thread::scope(|scope| {
        for _ in 1..threads {
            scope.spawn(run);
        }
        run();
    });
}

/// The results of `work` for every item, in their order, like [`parallel_for_each`], for work that takes long: each
/// thread has a token to check, and this one asks `cancel` for all of them.
///
/// # Errors
/// The first one, in the order of the items; one thread stops there.
pub(crate) fn cancellable_map<T: Send, R: Send>(
    items: impl Iterator<Item = T> + Send,
    cancel: Cancel<'_>,
    work: impl Fn(T, Cancel<'_>) -> Result<R> + Sync,
) -> Result<Vec<R>> {
    let threads = Threads::current().count();
    if threads == 1 {
        return items.map(|item| work(item, cancel)).collect();
    }
    let queue = Mutex::new(items.enumerate());
    let results = Mutex::new(Vec::new());
    let next = || queue.lock().unwrap_or_else(PoisonError::into_inner).next();
    let run = |cancel: Cancel<'_>| {
        while let Some((at, item)) = next() {
            let result = work(item, cancel);
            let mut results = results.lock().unwrap_or_else(PoisonError::into_inner);
            results.push((at, result));
        }
    };
    let stop = AtomicBool::new(false);
    let ask = || {
        stop.fetch_or(cancel.check().is_err(), Ordering::Relaxed);
        stop.load(Ordering::Relaxed)
    };
    std::thread::scope(|scope| {
        let (run, stop) = (&run, &stop);
        let others: Vec<ScopedJoinHandle<'_, ()>> = (1..threads)
            .map(|_| scope.spawn(move || run(Cancel::when(&|| stop.load(Ordering::Relaxed)))))
            .collect();
        run(Cancel::when(&ask));
        while !others.iter().all(ScopedJoinHandle::is_finished) {
            ask();
            std::thread::sleep(POLL);
        }
    });
    let mut results = results.into_inner().unwrap_or_else(PoisonError::into_inner);
    results.sort_by_key(|(at, _)| *at);
    results.into_iter().map(|(_, result)| result).collect()
}

/// The matrix in pieces of `height` rows (the last may have fewer), each with the place of its first row.
pub(super) fn chunks_of_rows(
    matrix: MatMut<'_, f64>,
    height: usize,
) -> impl Iterator<Item = (usize, MatMut<'_, f64>)> + Send {
    let mut pieces = Vec::new();
    let (mut rest, mut from) = (matrix, 0);
    while rest.nrows() > 0 {
        let here = height.min(rest.nrows());
        let (piece, after) = rest.split_at_row_mut(here);
        let next = from + piece.nrows();
        pieces.push((from, piece));
        (rest, from) = (after, next);
    }
    pieces.into_iter()
}

#[cfg(test)]
mod tests {
    use eigenveil_shared::Error;

    use super::*;

    #[test]
    fn every_item_is_processed_once_on_any_number_of_threads() {
        for threads in [1, 2, 5] {
            let mut numbers = vec![0_u32; 100];
            Threads::new(threads).unwrap().run(|| {
                parallel_for_each(numbers.iter_mut().enumerate(), |(i, number)| {
                    *number += i as u32;
                });
            });
            assert!((0..).zip(&numbers).all(|(i, &number)| number == i));
        }
    }

    #[test]
    fn results_are_in_order_until_one_is_an_error_or_it_is_cancelled() {
        for threads in [1, 2, 5] {
            let threads = Threads::new(threads).unwrap();
            let doubled_below = |last: usize| {
                let work = |i: usize, _: Cancel<'_>| match i < last {
                    true => Ok(2 * i),
                    false => Err(Error::estimate_failed(format!("item {i}"))),
                };
                threads.run(|| cancellable_map(0..40, Cancel::NEVER, work))
            };
            let doubled: Vec<usize> = (0..40).map(|i| 2 * i).collect();
            assert_eq!(doubled_below(40).unwrap(), doubled);
            assert_eq!(doubled_below(17).unwrap_err().detail(), "item 17");
            let endless = |_: usize, cancel: Cancel<'_>| -> Result<()> {
                loop {
                    cancel.check()?;
                }
            };
            let cancel = Cancel::when(&|| true);
            let stopped = threads.run(|| cancellable_map(0..40, cancel, endless));
            assert!(stopped.unwrap_err().detail().contains("cancelled"));
        }
    }
}
