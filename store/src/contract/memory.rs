//! Memory budgets for request bodies and for responses, and how clients share them.

use std::{
    collections::HashMap,
    hash::{BuildHasher as _, RandomState},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
};

use eigenveil_shared::{Error, Result, error};

/// Identifies the client whose share is charged.
pub type ClientKey = [u8; 16];

/// Items up to this size may use the whole budget and do not count towards a client's share: a seed with its token, a
/// form, a short response.
pub const MAX_SMALL_BYTES: usize = 4 << 10;
/// Items up to this size are still admitted when larger ones are not.
const MAX_MEDIUM_BYTES: usize = 64 << 10;
/// One client may use 1/4 of the budget.
const CLIENT_FRACTION: usize = 4;

/// A limit on bytes in memory. Items above 64 KiB may fill six eighths of it, items up to that seven, items up
/// to [`MAX_SMALL_BYTES`] all of it, so that large items cannot keep small ones out.
#[derive(Debug)]
pub struct MemoryBudget {
    /// The end of the error's message: the budget's users, and the way out.
    when_full: &'static str,
    limit: usize,
    used: AtomicUsize,
    /// A request found no room, and three quarters of the budget have not been free at once since.
    exhausted: AtomicBool,
    /// Bytes in use by client, keyed by a salted hash of its address (hashed, because freed memory may keep old
    /// contents); clients without bytes are removed.
    per_client: Mutex<HashMap<u64, usize>>,
    salt: RandomState,
}

impl MemoryBudget {
    /// A budget of this many bytes; `when_full` says what fills it, and what to do about it.
    pub fn new(limit: usize, when_full: &'static str) -> Arc<Self> {
        Arc::new(Self {
            when_full,
            limit,
            used: AtomicUsize::new(0),
            exhausted: AtomicBool::new(false),
            per_client: Mutex::default(),
            salt: RandomState::new(),
        })
    }

    /// Bytes in use.
    pub fn used(&self) -> usize {
        self.used.load(Ordering::Relaxed)
    }

    /// Whether a request found no room and three quarters are not free again yet. (If half sufficed, slow clients could
    /// keep the rest, and a large report might never be admitted.)
    pub fn is_exhausted(&self) -> bool {
        if self.used() <= self.limit / 4 {
            self.exhausted.store(false, Ordering::Relaxed);
        }
        self.exhausted.load(Ordering::Relaxed)
    }

    /// Whether more than half is in use, so that slow clients are cut off.
    pub fn is_under_pressure(&self) -> bool {
        self.used() > self.limit / 2 || self.is_exhausted()
    }

    /// How many bytes may be in use in all for an item of `own` bytes to be admitted.
    fn ceiling(&self, item_bytes: usize, low_priority: bool) -> usize {
        let eighth = self.limit / 8;
        if low_priority {
            eighth
        } else if item_bytes <= MAX_SMALL_BYTES {
            self.limit
        } else if item_bytes <= MAX_MEDIUM_BYTES {
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

    fn full_error(&self, detail: &str) -> Error {
        let limit = self.limit;
        error!(
            TooManyRequests,
            "{detail} and the limit is {limit}; {}", self.when_full
        )
    }
}

/// Bytes reserved from a budget; released when dropped.
#[derive(Debug)]
pub struct Reservation {
    budget: Arc<MemoryBudget>,
    client: Option<u64>,
    bytes: usize,
    /// The bytes that count towards the client's share.
    counted: usize,
    low_priority: bool,
}

impl Reservation {
    /// An empty reservation that counts for no client.
    pub fn empty(budget: &Arc<MemoryBudget>) -> Self {
        Self::for_client(budget, None)
    }

    /// An empty reservation for a client.
    pub fn for_client(budget: &Arc<MemoryBudget>, client: Option<&ClientKey>) -> Self {
        Self {
            client: client.map(|key| budget.salt.hash_one(key)),
            budget: Arc::clone(budget),
            bytes: 0,
            counted: 0,
            low_priority: false,
        }
    }

    /// For a body that will probably be refused: admitted only while 7/8 of the budget is free.
    pub fn low_priority(mut self) -> Self {
        self.low_priority = true;
        self
    }

    /// The budget the bytes are reserved from.
    pub fn budget(&self) -> &MemoryBudget {
        &self.budget
    }

    /// Reserves `more` bytes. A reservation that is alone in the budget, or in its client's share, may exceed the
    /// limit, so that a report larger than the limit is slow but not impossible.
    pub fn grow(&mut self, more: usize) -> Result<()> {
        let own_bytes = self.bytes;
        let after = own_bytes.saturating_add(more);
        if let Some(client) = self.client
            && after > MAX_SMALL_BYTES
        {
            let budget = Arc::clone(&self.budget);
            let mut per_client = budget.per_client();
            let in_use = per_client.entry(client).or_default();
            let others = *in_use - self.counted;
            if others > 0 && others.saturating_add(after) > budget.limit / CLIENT_FRACTION {
                return Err(budget.full_error(&format!(
                    "{others} bytes from this address are in memory; one address may use a quarter,"
                )));
            }
            *in_use = others.saturating_add(after);
            self.counted = after;
        }
        let ceiling = self.budget.ceiling(after, self.low_priority);
        self.budget
            .used
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, |used| {
                let after = used.saturating_add(more);
                (after <= ceiling || used == own_bytes).then_some(after)
            })
            .map_err(|used| {
                if !self.low_priority {
                    self.budget.exhausted.store(true, Ordering::Relaxed);
                }
                self.budget
                    .full_error(&format!("{used} bytes are in memory"))
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
            if let Some(in_use) = per_client.get_mut(&client) {
                *in_use -= self.counted;
                if *in_use == 0 {
                    per_client.remove(&client);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use eigenveil_shared::ErrorCode;

    use super::*;

    const KIB: usize = 1 << 10;

    fn budget(limit: usize) -> Arc<MemoryBudget> {
        MemoryBudget::new(limit, "wait")
    }

    fn client(number: u8) -> Option<ClientKey> {
        Some([number; 16])
    }

    #[test]
    fn the_limit_holds_and_dropped_reservations_are_released() {
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
    fn one_client_gets_no_more_than_its_share() {
        let memory = budget(4_096 * KIB);
        let hold = |number, bytes| {
            let mut reservation = Reservation::for_client(&memory, client(number).as_ref());
            reservation.grow(bytes).map(|()| reservation)
        };
        let first: Vec<_> = (0..8).map(|_| hold(1, 128 * KIB).unwrap()).collect();
        assert!(hold(1, 128 * KIB).is_err());
        assert!(!memory.is_exhausted());
        // Small items do not count, and other clients have their own share.
        hold(1, MAX_SMALL_BYTES).unwrap();
        let second = hold(2, 1_024 * KIB).unwrap();
        drop(first);
        hold(1, 128 * KIB).unwrap();
        drop(second);
        assert_eq!((memory.used(), memory.per_client().len()), (0, 0));
        // One report larger than the share is possible, chunk by chunk, and dropping it releases everything.
        let mut large = hold(3, 1_000 * KIB).unwrap();
        large.grow(1_000 * KIB).unwrap();
        assert!(large.grow(4_096 * KIB).is_ok(), "alone");
        drop(large);
        assert_eq!((memory.used(), memory.per_client().len()), (0, 0));
    }

    #[test]
    fn large_items_do_not_keep_small_ones_out() {
        let memory = budget(1_024 * KIB);
        let fill = |size: usize| -> Vec<Reservation> {
            let next = |_| {
                let mut reservation = Reservation::empty(&memory);
                reservation.grow(size).ok().map(|()| reservation)
            };
            (0..10_000).map_while(next).collect()
        };
        let large = fill(128 * KIB);
        assert_eq!(large.len(), 6);
        assert!(memory.is_exhausted() && memory.is_under_pressure());
        let medium = fill(64 * KIB);
        assert_eq!(medium.len(), 2);
        let small = fill(MAX_SMALL_BYTES);
        assert_eq!(small.len(), 32);
        // Low priority gets one eighth.
        drop((large, medium, small));
        let mut low_priority = Reservation::empty(&memory).low_priority();
        let other = fill(128 * KIB).pop();
        assert!(low_priority.grow(64 * KIB).is_err() || other.is_none());
        drop(other);
        low_priority.grow(100 * KIB).unwrap();
    }
}
