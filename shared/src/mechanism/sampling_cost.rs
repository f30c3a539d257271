//! The cost of a perturbation.

use std::convert::Infallible;

use rand::{Rng, TryRng};

/// The work of one perturbation, as somebody who times a device could see it: **for the audit only**. It must never
/// leave a device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SamplingCost {
    /// Tries until one was accepted; 1 for a mechanism that does not try.
    pub attempts: u64,
    /// 64-bit words asked of the generator, a part of one counted as one.
    pub words: u64,
}

/// Counts the words that a generator hands out.
pub(super) struct CountingRng<'a, R: ?Sized> {
    rng: &'a mut R,
    words: u64,
}

impl<'a, R: Rng + ?Sized> CountingRng<'a, R> {
    pub(super) fn new(rng: &'a mut R) -> Self {
        Self { rng, words: 0 }
    }

    pub(super) fn words(&self) -> u64 {
        self.words
    }
}

impl<R: Rng + ?Sized> TryRng for CountingRng<'_, R> {
    type Error = Infallible;

    fn try_next_u32(&mut self) -> Result<u32, Infallible> {
        self.words += 1;
        Ok(self.rng.next_u32())
    }

    fn try_next_u64(&mut self) -> Result<u64, Infallible> {
        self.words += 1;
        Ok(self.rng.next_u64())
    }

    fn try_fill_bytes(&mut self, bytes: &mut [u8]) -> Result<(), Infallible> {
        self.words += bytes.len().div_ceil(8) as u64;
        self.rng.fill_bytes(bytes);
        Ok(())
    }
}
