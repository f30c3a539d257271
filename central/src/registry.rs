//! Every algorithm by name.

use eigenveil_shared::{Error, ErrorCode, Result};

use crate::baseline::{Baseline, Card};

/// Parameters that algorithms share, each optional; an algorithm refuses those it does not have.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Options {
    /// Iterations, or steps.
    pub iterations: Option<usize>,
    /// Rows in a batch or block.
    pub batch: Option<usize>,
    /// Step size, or the constant of a schedule of step sizes.
    pub step: Option<f64>,
}

impl Options {
    /// Refuses options that are set but not in `taken` (names as of the fields).
    ///
    /// # Errors
    /// `invalid-request` names the option and the algorithm.
    pub fn only(&self, algorithm: &str, taken: &[&str]) -> Result<()> {
        let set = [
            ("iterations", self.iterations.is_some()),
            ("batch", self.batch.is_some()),
            ("step", self.step.is_some()),
        ];
        for (name, _) in set
            .iter()
            .filter(|(name, set)| *set && !taken.contains(name))
        {
            let has = if taken.is_empty() {
                "it has none".to_owned()
            } else {
                format!("it has {}", taken.join(", "))
            };
            return Err(Error::new(
                ErrorCode::InvalidRequest,
                format!("{algorithm} has no parameter {name}; leave it out ({has})"),
            ));
        }
        Ok(())
    }
}

/// An algorithm and how it is made.
pub struct Entry {
    /// What there is to say of it.
    pub card: &'static Card,
    /// The algorithm with these parameters.
    pub build: fn(&Options) -> Result<Box<dyn Baseline>>,
}

/// Every algorithm, in the order of the documentation.
pub const ALGORITHMS: &[Entry] = &[];

/// The algorithm of this name.
///
/// # Errors
/// `invalid-request` lists the names there are.
pub fn find(name: &str) -> Result<&'static Entry> {
    ALGORITHMS
        .iter()
        .find(|entry| entry.card.name == name)
        .ok_or_else(|| {
            let names: Vec<&str> = ALGORITHMS.iter().map(|entry| entry.card.name).collect();
            Error::new(
                ErrorCode::InvalidRequest,
                format!(
                    "there is no algorithm {name:?}; take one of {}",
                    names.join(", ")
                ),
            )
        })
}
