//! What giving up the reports of a study came to, in words for their owner.

use std::fmt;

use eigenveil_shared::{
    privacy::{Budget, format_delta},
    wording::counted,
};
use serde::Serialize;

/// The reports of one study in a ledger, after those that no server had acknowledged were given up. `Display` says what
/// that means.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct GivenUp {
    /// Identifier of the study.
    pub study: String,
    /// Reports that are given up, now or before: never sent again from here.
    pub given_up: u64,
    /// Reports that the server has: they stay counted.
    pub acknowledged: u64,
    /// The charge of each row, or person, which stays.
    pub charged: Budget,
}

impl fmt::Display for GivenUp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let study = &self.study;
        if self.given_up > 0 {
            write!(
                f,
                "given up for study {study}: {}, never sent from here again, and no other is made of the same data for this study. The charge stays (epsilon {}, delta {} for each): the server may have one already, if only its response was lost",
                counted(self.given_up, "report"),
                self.charged.epsilon(),
                format_delta(self.charged.delta())
            )?;
        } else {
            write!(f, "nothing to give up for study {study}")?;
        }
        match self.acknowledged {
            0 => Ok(()),
            some => write!(
                f,
                "; acknowledged by the server, which takes none out again: {}",
                counted(some, "report")
            ),
        }
    }
}
