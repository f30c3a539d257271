//! A source of randomness that gives the words it is told to, for tests.

use std::convert::Infallible;

use rand::TryRng;

pub(super) struct Script<F>(pub(super) F);

impl<F: FnMut() -> u64> TryRng for Script<F> {
    type Error = Infallible;

    fn try_next_u32(&mut self) -> Result<u32, Infallible> {
        Ok(u32::try_from((self.0)()).unwrap())
    }

    fn try_next_u64(&mut self) -> Result<u64, Infallible> {
        Ok((self.0)())
    }

    fn try_fill_bytes(&mut self, _: &mut [u8]) -> Result<(), Infallible> {
        panic!("words only")
    }
}
