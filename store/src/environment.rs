//! Clock and randomness, injected so that tests control them.

use std::sync::Arc;

pub use eigenveil_shared::clock::{Clock, SystemClock};
use eigenveil_shared::{Result, error};
use rand::{TryRng, rngs::SysRng};

/// Source of identifiers and tokens.
pub trait Entropy: Send + Sync {
    /// Fills the buffer with unpredictable bytes.
    fn fill(&self, buffer: &mut [u8]) -> Result<()>;
}

/// The operating system's random generator.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemEntropy;

impl Entropy for SystemEntropy {
    fn fill(&self, buffer: &mut [u8]) -> Result<()> {
        SysRng.try_fill_bytes(buffer).map_err(|error| {
            error!(
                RandomnessUnavailable,
                "the operating system's random generator failed ({error}); try again"
            )
        })
    }
}

/// Clock and randomness of one server.
#[derive(Clone)]
pub struct Environment {
    /// The current time.
    pub clock: Arc<dyn Clock>,
    /// Source of identifiers and tokens.
    pub entropy: Arc<dyn Entropy>,
    /// Faults of the store's writer.
    #[cfg(any(test, feature = "testing"))]
    pub faults: crate::faults::Faults,
}

impl Environment {
    #[cfg(any(test, feature = "testing"))]
    pub(crate) fn faults(&self) -> crate::faults::Faults {
        self.faults.clone()
    }

    #[cfg(not(any(test, feature = "testing")))]
    #[expect(clippy::unused_self, reason = "same signature as in tests")]
    pub(crate) fn faults(&self) -> crate::faults::Faults {
        crate::faults::Faults
    }

    /// The operating system's clock and random generator.
    pub fn system() -> Self {
        Self {
            clock: Arc::new(SystemClock),
            entropy: Arc::new(SystemEntropy),
            #[cfg(any(test, feature = "testing"))]
            faults: crate::faults::Faults::default(),
        }
    }
}

impl std::fmt::Debug for Environment {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Environment")
    }
}
