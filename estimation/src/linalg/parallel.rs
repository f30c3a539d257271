//! Independent work items on as many threads as the caller may use.

use std::sync::{Mutex, PoisonError};

use faer::MatMut;

use super::Threads;

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
}
