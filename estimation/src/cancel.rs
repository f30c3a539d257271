//! Cancellation of a computation whose result is no longer needed.

use std::fmt;

use eigenveil_shared::{Error, Result};

/// A cancellation token, checked between the steps of a long computation.
#[derive(Clone, Copy)]
pub struct Cancel<'a>(&'a dyn Fn() -> bool);

impl<'a> Cancel<'a> {
    /// Never cancelled.
    pub const NEVER: Self = Self(&|| false);

    /// Cancelled once this returns true.
    pub fn when(is_cancelled: &'a dyn Fn() -> bool) -> Self {
        Self(is_cancelled)
    }

    /// # Errors
    /// `estimate-failed` when it was cancelled.
    pub fn check(self) -> Result<()> {
        match (self.0)() {
            false => Ok(()),
            true => Err(Error::estimate_failed("the estimate was cancelled")),
        }
    }
}

impl fmt::Debug for Cancel<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Cancel")
    }
}
