//! How many bytes of bodies, or of answers, may be in memory at once, and how they are counted.

use std::{
    collections::HashMap,
    hash::{BuildHasher as _, RandomState},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
};

use eigenveil_shared::{Error, ErrorCode, Result};

/// What always finds room, and counts for nobody's share: a seed with its token, a form, a short answer.
pub(crate) const SMALL: usize = 4 << 10;
/// What finds room where larger ones do not.
const MEDIUM: usize = 64 << 10;
/// One client may hold this part of what there is.
const CLIENT_FRACTION: usize = 4;

/// A limit on bytes in memory. The last eighth is for those of [`MEDIUM`] size at most, the eighth before it too but for
/// [`SMALL`] ones, so that large ones cannot keep small ones out.
#[derive(Debug)]
pub(crate) struct MemoryBudget {
    /// What it is that has no room, and what to do about it.
    full: &'static str,
    limit: usize,
    used: AtomicUsize,
    /// Somebody found no room, and it has not become half empty since.
    exhausted: AtomicBool,
    /// Bytes of each client, by a salted hash of its address; only of those who hold some now.
    per_client: Mutex<HashMap<u64, usize>>,
    salt: RandomState,
}

impl MemoryBudget {
    pub(crate) fn new(limit: usize, full: &'static str) -> Arc<Self> {
        Arc::new(Self {
            full,
            limit,
            used: AtomicUsize::new(0),
            exhausted: AtomicBool::new(false),
            per_client: Mutex::default(),
            salt: RandomState::new(),
        })
    }

    /// Bytes held now.
    pub(crate) fn used(&self) -> usize {
        self.used.load(Ordering::Relaxed)
    }

    /// Whether somebody found no room, and it is not over: three quarters of it have to be free again. (At half of it
    /// those that hold the rest need not hurry, and the largest report may find no room for ever.)
    pub(crate) fn is_exhausted(&self) -> bool {
        if self.used() <= self.limit / 4 {
            self.exhausted.store(false, Ordering::Relaxed);
        }
        self.exhausted.load(Ordering::Relaxed)
    }

    /// Whether more than half is held, so that whoever holds something has to hurry.
    pub(crate) fn is_under_pressure(&self) -> bool {
        self.used() > self.limit / 2 || self.is_exhausted()
    }

    /// How much may be held by all when one of them holds `own`.
    fn ceiling(&self, own: usize, low_priority: bool) -> usize {
        let eighth = self.limit / 8;
        if low_priority {
            eighth
        } else if own <= SMALL {
            self.limit
        } else if own <= MEDIUM {
            self.limit - eighth
        } else {
            self.limit - 2 * eighth
        }
    }

    fn per_client(&self) -> MutexGuard<'_, HashMap<u64, usize>> {
        self.per_client
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    fn refuse(&self, detail: &str) -> Error {
        let limit = self.limit;
        Error::new(
            ErrorCode::TooManyRequests,
            format!("{detail} and the limit is {limit}; {}", self.full),
        )
    }
}

/// Bytes held of a budget; given back when dropped.
#[derive(Debug)]
pub(crate) struct Reservation {
    budget: Arc<MemoryBudget>,
    /// Who holds them, where that is known.
    client: Option<u64>,
    bytes: usize,
    /// Those of them that count for the client's share.
    counted: usize,
    low_priority: bool,
}

impl Reservation {
    /// Of nobody in particular.
    pub(crate) fn empty(budget: &Arc<MemoryBudget>) -> Self {
        Self::for_client(budget, None)
    }

    /// Of a client, whose address stands behind this key.
    pub(crate) fn for_client(budget: &Arc<MemoryBudget>, client: Option<[u8; 16]>) -> Self {
        Self {
            client: client.map(|key| budget.salt.hash_one(key)),
            budget: Arc::clone(budget),
            bytes: 0,
            counted: 0,
            low_priority: false,
        }
    }

    /// The same for what is unlikely to be of use: it gets room only while nearly all is free.
    pub(crate) fn low_priority(mut self) -> Self {
        self.low_priority = true;
        self
    }

    /// The budget it is of.
    pub(crate) fn budget(&self) -> &MemoryBudget {
        &self.budget
    }

    /// Holds `more` bytes. A reservation that has the memory, or its client's share, to itself may exceed the limit, so
    /// that a report larger than the limit is slow but not impossible.
    pub(crate) fn grow(&mut self, more: usize) -> Result<()> {
        let own = self.bytes;
        let after = own.saturating_add(more);
        if let Some(client) = self.client
            && after > SMALL
        {
            let budget = Arc::clone(&self.budget);
            let mut per_client = budget.per_client();
            let held = per_client.entry(client).or_default();
            let others = *held - self.counted;
            if others > 0 && others.saturating_add(after) > budget.limit / CLIENT_FRACTION {
                return Err(budget.refuse(&format!(
                    "{others} bytes of this address are in memory, of which it may have a quarter,"
                )));
            }
            *held = others.saturating_add(after);
            self.counted = after;
        }
        let ceiling = self.budget.ceiling(after, self.low_priority);
        self.budget
            .used
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, |used| {
                let after = used.saturating_add(more);
                (after <= ceiling || used == own).then_some(after)
            })
            .map_err(|used| {
                if !self.low_priority {
                    self.budget.exhausted.store(true, Ordering::Relaxed);
                }
                self.budget.refuse(&format!("{used} bytes are in memory"))
            })?;
        self.bytes = after;
        Ok(())
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        self.budget.used.fetch_sub(self.bytes, Ordering::AcqRel);
        if let Some(client) = self.client
            && self.counted > 0
        {
            let mut per_client = self.budget.per_client();
            if let Some(held) = per_client.get_mut(&client) {
                *held -= self.counted;
                if *held == 0 {
                    per_client.remove(&client);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KIB: usize = 1 << 10;

    fn budget(limit: usize) -> Arc<MemoryBudget> {
        MemoryBudget::new(limit, "wait")
    }

    fn client(number: u8) -> Option<[u8; 16]> {
        Some([number; 16])
    }

    #[test]
    fn the_limit_holds_and_everything_is_given_back() {
        let memory = budget(100);
        let mut first = Reservation::empty(&memory);
        first.grow(60).unwrap();
        let mut second = Reservation::empty(&memory);
        assert_eq!(
            second.grow(41).unwrap_err().code(),
            ErrorCode::TooManyRequests
        );
        assert!(memory.is_exhausted());
        second.grow(40).unwrap();
        drop(first);
        drop(second);
        assert_eq!(memory.used(), 0);
        assert!(!memory.is_exhausted());
        // Alone, a reservation may be larger than the limit.
        let mut alone = Reservation::empty(&memory);
        alone.grow(90).unwrap();
        alone.grow(90).unwrap();
        assert!(Reservation::empty(&memory).grow(1).is_err());
    }

    #[test]
    fn one_client_holds_no_more_than_its_share() {
        let memory = budget(4_096 * KIB);
        let hold = |number, bytes| {
            let mut held = Reservation::for_client(&memory, client(number));
            held.grow(bytes).map(|()| held)
        };
        let first: Vec<_> = (0..8).map(|_| hold(1, 128 * KIB).unwrap()).collect();
        assert!(hold(1, 128 * KIB).is_err());
        assert!(!memory.is_exhausted());
        // What is small is nobody's share, and others have theirs.
        hold(1, SMALL).unwrap();
        let second = hold(2, 1_024 * KIB).unwrap();
        drop(first);
        hold(1, 128 * KIB).unwrap();
        drop(second);
        assert_eq!((memory.used(), memory.per_client().len()), (0, 0));
        // One report larger than the share is possible, piece by piece, and its failure gives all back.
        let mut large = hold(3, 1_000 * KIB).unwrap();
        large.grow(1_000 * KIB).unwrap();
        assert!(large.grow(4_096 * KIB).is_ok(), "alone");
        drop(large);
        assert_eq!((memory.used(), memory.per_client().len()), (0, 0));
    }

    #[test]
    fn large_ones_do_not_keep_small_ones_out() {
        let memory = budget(1_024 * KIB);
        let fill = |size: usize| -> Vec<Reservation> {
            let next = |_| {
                let mut held = Reservation::empty(&memory);
                held.grow(size).ok().map(|()| held)
            };
            (0..10_000).map_while(next).collect()
        };
        let large = fill(128 * KIB);
        assert_eq!(large.len(), 6);
        assert!(memory.is_exhausted() && memory.is_under_pressure());
        let middling = fill(64 * KIB);
        assert_eq!(middling.len(), 2);
        let small = fill(SMALL);
        assert_eq!(small.len(), 32);
        // What is unlikely to be of use has an eighth.
        drop((large, middling, small));
        let mut low_priority = Reservation::empty(&memory).low_priority();
        let other = fill(128 * KIB).pop();
        assert!(low_priority.grow(64 * KIB).is_err() || other.is_none());
        drop(other);
        low_priority.grow(100 * KIB).unwrap();
    }
}
