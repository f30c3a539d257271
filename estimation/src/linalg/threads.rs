//! How many threads the linear algebra may use: one unless the caller chooses more.

use std::{cell::Cell, num::NonZeroUsize};

thread_local! {
    static CURRENT: Cell<usize> = const { Cell::new(1) };
}

/// A number of threads for the work done inside [`Threads::run`].
///
/// One is the default everywhere: on a busy machine two threads of linear algebra wait for each other
/// (p = 2,000 went from 1.2 s to 11 s). What is computed never depends on the number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Threads(NonZeroUsize);

impl Threads {
    /// `count` threads; `None` if 0.
    pub fn new(count: usize) -> Option<Self> {
        NonZeroUsize::new(count).map(Self)
    }

    /// The threads available to this process, 1 if unknown.
    pub fn available() -> Self {
        Self(std::thread::available_parallelism().unwrap_or(NonZeroUsize::MIN))
    }

    /// Number of threads the calling thread may use: 1 outside of [`Threads::run`].
    pub fn current() -> Self {
        Self::new(CURRENT.get()).unwrap_or(Self(NonZeroUsize::MIN))
    }

    /// The number of threads.
    pub fn count(self) -> usize {
        self.0.get()
    }

    /// Runs `work`, allowing linear algebra called from this thread to use this many threads.
    pub fn run<T>(self, work: impl FnOnce() -> T) -> T {
        /// Puts the old number back, after a panic too.
        struct Restore(usize);
        impl Drop for Restore {
            fn drop(&mut self) {
                CURRENT.set(self.0);
            }
        }
        let _restore = Restore(CURRENT.replace(self.count()));
        work()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_number_is_set_inside_and_restored() {
        assert!(Threads::new(0).is_none() && Threads::available().count() >= 1);
        let broken =
            std::panic::catch_unwind(|| Threads::new(3).unwrap().run(|| panic!("on purpose")));
        assert!(broken.is_err());
        assert_eq!(Threads::current().count(), 1);
        let nested = Threads::new(4).unwrap().run(|| {
            let inner = Threads::new(2).unwrap().run(|| Threads::current().count());
            (inner, Threads::current().count())
        });
        assert_eq!(nested, (2, 4));
        // A thread of its own starts with one.
        let other = Threads::new(4).unwrap().run(|| {
            std::thread::spawn(|| Threads::current().count())
                .join()
                .unwrap()
        });
        assert_eq!(other, 1);
    }
}
