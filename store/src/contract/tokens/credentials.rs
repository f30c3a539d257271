//! The owners of bearer tokens, and the analyst tokens in the store.

use std::sync::{PoisonError, RwLock};

use eigenveil_shared::{api::AnalystTokenInfo, study::to_hex};

use super::token::TokenHash;
use crate::contract::study::StudyId;

/// The owner of a bearer token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Identity {
    /// The operator, who may do everything.
    Operator,
    /// An analyst, who may read the estimates of one study or of all.
    Analyst(Option<StudyId>),
}

#[derive(Clone)]
pub(crate) struct Analyst {
    pub(crate) id: [u8; 8],
    pub(crate) name: String,
    pub(crate) study: Option<StudyId>,
    pub(crate) created_at_ms: u64,
    pub(crate) hash: TokenHash,
}

impl Analyst {
    pub(crate) fn document(&self) -> AnalystTokenInfo {
        AnalystTokenInfo {
            id: to_hex(&self.id),
            name: self.name.clone(),
            study: self.study.map(|study| study.to_string()),
            created_at_ms: self.created_at_ms,
        }
    }
}

/// The hashes of the valid tokens. Only the engine changes them, after a commit.
pub(crate) struct Credentials {
    table: RwLock<TokenTable>,
}

pub(crate) struct TokenTable {
    /// `None` if the database of a fleet has no operator token, or none that can be read.
    pub(crate) operator: Option<TokenHash>,
    /// Oldest first.
    pub(crate) analysts: Vec<Analyst>,
}

impl Credentials {
    pub(crate) fn new(operator: Option<TokenHash>, analysts: Vec<Analyst>) -> Self {
        Self {
            table: RwLock::new(TokenTable { operator, analysts }),
        }
    }

    /// The owner of this token, in time that does not depend on how much of the token is correct.
    pub(crate) fn identify(&self, hash: &TokenHash) -> Option<Identity> {
        let table = self.table.read().unwrap_or_else(PoisonError::into_inner);
        // Always compare all of them.
        let analyst = table.analysts.iter().fold(None, |found, analyst| {
            if analyst.hash.matches(hash) {
                Some(Identity::Analyst(analyst.study))
            } else {
                found
            }
        });
        if table
            .operator
            .is_some_and(|operator| operator.matches(hash))
        {
            Some(Identity::Operator)
        } else {
            analyst
        }
    }

    /// Removes the tokens for this study only.
    pub(crate) fn forget_study(&self, study: StudyId) {
        self.change(|table| {
            table
                .analysts
                .retain(|analyst| analyst.study != Some(study));
        });
    }

    /// All analyst tokens, oldest first, without their text.
    pub(crate) fn documents(&self) -> Vec<AnalystTokenInfo> {
        let table = self.table.read().unwrap_or_else(PoisonError::into_inner);
        table.analysts.iter().map(Analyst::document).collect()
    }

    pub(crate) fn change(&self, change: impl FnOnce(&mut TokenTable)) {
        change(&mut self.table.write().unwrap_or_else(PoisonError::into_inner));
    }
}
