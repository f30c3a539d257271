//! How many bytes of report bodies may be in memory at once.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use eigenveil_shared::{Error, ErrorCode, Result};

/// A limit on the bytes of bodies being read or waiting for a commit.
#[derive(Debug)]
pub(crate) struct IngestMemory {
    limit: usize,
    used: AtomicUsize,
}

impl IngestMemory {
    pub(crate) fn new(limit: usize) -> Arc<Self> {
        Arc::new(Self {
            limit,
            used: AtomicUsize::new(0),
        })
    }

    /// Bytes held now.
    pub(crate) fn used(&self) -> usize {
        self.used.load(Ordering::Relaxed)
    }
}

/// Bytes held of the limit; given back when dropped.
#[derive(Debug)]
pub(crate) struct Reservation {
    memory: Arc<IngestMemory>,
    bytes: usize,
}

impl Reservation {
    pub(crate) fn empty(memory: &Arc<IngestMemory>) -> Self {
        Self {
            memory: Arc::clone(memory),
            bytes: 0,
        }
    }

    /// Holds `more` bytes. A reservation that has the memory to itself may exceed the limit, so that
    /// a report larger than the limit is slow but not impossible.
    ///
    /// # Errors
    /// `too-many-requests`.
    pub(crate) fn grow(&mut self, more: usize) -> Result<()> {
        let (limit, own) = (self.memory.limit, self.bytes);
        self.memory
            .used
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, |used| {
                let after = used.saturating_add(more);
                (after <= limit || used == own).then_some(after)
            })
            .map_err(|used| {
                Error::new(
                    ErrorCode::TooManyRequests,
                    format!(
                        "{used} bytes of reports are waiting to be written and the limit is {limit}; send this again after a second"
                    ),
                )
            })?;
        self.bytes += more;
        Ok(())
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        self.memory.used.fetch_sub(self.bytes, Ordering::AcqRel);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limit_holds_and_everything_is_given_back() {
        let memory = IngestMemory::new(100);
        let mut first = Reservation::empty(&memory);
        first.grow(60).unwrap();
        let mut second = Reservation::empty(&memory);
        assert_eq!(
            second.grow(41).unwrap_err().code(),
            ErrorCode::TooManyRequests
        );
        second.grow(40).unwrap();
        drop(first);
        drop(second);
        assert_eq!(memory.used.load(Ordering::Acquire), 0);
        // Alone, a reservation may be larger than the limit.
        let mut alone = Reservation::empty(&memory);
        alone.grow(90).unwrap();
        alone.grow(90).unwrap();
        assert!(Reservation::empty(&memory).grow(1).is_err());
    }
}
