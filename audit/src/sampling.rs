//! Many independent trials, reproducible with any number of threads.

use std::sync::{Mutex, MutexGuard, PoisonError};

use eigenveil_shared::Result;
use rand::{SeedableRng, rngs::ChaCha20Rng};

/// Which row of a pair is the input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// The first row.
    A,
    /// The second row.
    B,
}

impl Side {
    /// The one of two that is on this side.
    pub(crate) fn of<T>(self, a: T, b: T) -> T {
        match self {
            Self::A => a,
            Self::B => b,
        }
    }
}

/// Number of trials, seed and threads.
#[derive(Clone, Copy)]
pub struct Sampling<'a> {
    /// Trials under each row.
    pub trials: usize,
    /// Seed; the same seed gives the same numbers.
    pub seed: u64,
    /// Number of threads, which only affects the time.
    pub threads: usize,
    /// Called with the number of trials done since the last call; its error ends the audit.
    pub progress: &'a (dyn Fn(u64) -> Result<()> + Sync),
}

impl Sampling<'_> {
    /// At most two threads, without progress.
    pub fn quiet(trials: usize, seed: u64) -> Self {
        Self {
            trials,
            seed,
            threads: 2,
            progress: &|_| Ok(()),
        }
    }

    /// `count` draws of test number `test`, each chunk from its own ChaCha20 stream.
    pub(crate) fn draw<T: Send + Default + Clone>(
        &self,
        test: u64,
        count: usize,
        draw: &(dyn Fn(&mut ChaCha20Rng) -> Result<T> + Sync),
    ) -> Result<Vec<T>> {
        const CHUNK: usize = 1024;
        let mut drawn = vec![T::default(); count];
        let chunks = Mutex::new(drawn.chunks_mut(CHUNK).enumerate());
        let failure = Mutex::new(None);
        let work = || {
            loop {
                // Taken before the draws, so that the other thread does not wait for them.
                let next = locked(&chunks).next();
                let Some((index, chunk)) = next else { return };
                let mut rng = ChaCha20Rng::seed_from_u64(self.seed);
                rng.set_stream(test << 40 | index as u64);
                let done = chunk.iter_mut().try_for_each(|slot| {
                    *slot = draw(&mut rng)?;
                    Ok(())
                });
                if let Err(error) = done.and_then(|()| (self.progress)(chunk.len() as u64)) {
                    locked(&failure).get_or_insert(error);
                    return;
                }
            }
        };
        std::thread::scope(|scope| {
            for _ in 1..self.threads {
                scope.spawn(work);
            }
            work();
        });
        let failure = failure.into_inner().unwrap_or_else(PoisonError::into_inner);
        failure.map_or(Ok(drawn), Err)
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The observations under both rows of a pair.
#[derive(Clone, Debug, Default)]
pub struct Samples {
    /// Under row A.
    pub a: Vec<f64>,
    /// Under row B.
    pub b: Vec<f64>,
}

/// Runs the trials of one pair. Every pair of an audit needs its own `number` (below 2²²).
///
/// `trial` is a randomizer under test, correct or not, with this side's row, observed through one number: any function
/// of what an observer sees, the report, the time, several of them. It should be large if row A is likelier than row B;
/// a poor choice weakens the bound but never invalidates it.
///
/// # Errors
/// Any error of a trial stops the audit.
pub fn observe(
    trial: &(dyn Fn(Side, &mut ChaCha20Rng) -> Result<f64> + Sync),
    number: u64,
    sampling: &Sampling<'_>,
) -> Result<Samples> {
    let side = |side, offset| {
        let stream = 2 * number + offset;
        sampling.draw(stream, sampling.trials, &|rng| trial(side, rng))
    };
    Ok(Samples {
        a: side(Side::A, 0)?,
        b: side(Side::B, 1)?,
    })
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use eigenveil_shared::Error;
    use rand::Rng;

    use super::*;

    #[test]
    fn threads_change_nothing_and_streams_differ() {
        let done = AtomicU64::new(0);
        let progress = |n| {
            done.fetch_add(n, Ordering::Relaxed);
            Ok(())
        };
        let subject = |_: Side, rng: &mut ChaCha20Rng| Ok(rng.next_u64() as f64);
        let with = |threads| {
            let sampling = Sampling {
                trials: 5000,
                seed: 3,
                threads,
                progress: &progress,
            };
            observe(&subject, 7, &sampling).unwrap()
        };
        let (one, two) = (with(1), with(2));
        assert_eq!((&one.a, &one.b), (&two.a, &two.b));
        assert_eq!(done.into_inner(), 2 * 10_000);
        let mut all: Vec<u64> = one.a.iter().chain(&one.b).map(|v| v.to_bits()).collect();
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), 10_000);
    }

    #[test]
    fn a_trial_that_fails_stops_the_audit() {
        let subject = |side: Side, _: &mut ChaCha20Rng| match side {
            Side::A => Ok(0.0),
            Side::B => Err(Error::invalid_request("no")),
        };
        assert!(observe(&subject, 0, &Sampling::quiet(10, 1)).is_err());
    }
}
