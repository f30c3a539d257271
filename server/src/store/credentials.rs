//! Whose bearer token it is, and the analyst tokens in the store.

use std::sync::{PoisonError, RwLock};

use eigenveil_shared::{api::AnalystTokenInfo, study::to_hex};

use super::{study::StudyId, token::TokenHash};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Identity {
    Operator,
    /// To read estimates, of one study or of all.
    Analyst(Option<StudyId>),
}

#[derive(Clone)]
pub(super) struct Analyst {
    pub(super) id: [u8; 8],
    pub(super) name: String,
    pub(super) study: Option<StudyId>,
    pub(super) created_at_ms: u64,
    pub(super) hash: TokenHash,
}

impl Analyst {
    pub(super) fn document(&self) -> AnalystTokenInfo {
        AnalystTokenInfo {
            id: to_hex(&self.id),
            name: self.name.clone(),
            study: self.study.map(|study| study.to_string()),
            created_at_ms: self.created_at_ms,
        }
    }
}

/// The hashes of the valid tokens. Only the engine changes them, after a commit.
pub(super) struct Credentials {
    table: RwLock<TokenTable>,
}

pub(super) struct TokenTable {
    /// `None` where the database of a fleet has none, or one that cannot be read.
    pub(super) operator: Option<TokenHash>,
    /// Oldest first.
    pub(super) analysts: Vec<Analyst>,
}

impl Credentials {
    pub(super) fn new(operator: Option<TokenHash>, analysts: Vec<Analyst>) -> Self {
        Self {
            table: RwLock::new(TokenTable { operator, analysts }),
        }
    }

    /// Whose token this is, in time that does not depend on how much of it is right.
    pub(super) fn identify(&self, hash: &TokenHash) -> Option<Identity> {
        let table = self.table.read().unwrap_or_else(PoisonError::into_inner);
        // Always compare all of them.
        let analyst = table.analysts.iter().fold(None, |found, analyst| {
            if analyst.hash.is(hash) {
                Some(Identity::Analyst(analyst.study))
            } else {
                found
            }
        });
        if table.operator.is_some_and(|operator| operator.is(hash)) {
            Some(Identity::Operator)
        } else {
            analyst
        }
    }

    /// Removes the tokens for this study only.
    pub(super) fn forget_study(&self, study: StudyId) {
        self.change(|table| {
            table
                .analysts
                .retain(|analyst| analyst.study != Some(study));
        });
    }

    /// All analyst tokens, oldest first, without their text.
    pub(super) fn documents(&self) -> Vec<AnalystTokenInfo> {
        let table = self.table.read().unwrap_or_else(PoisonError::into_inner);
        table.analysts.iter().map(Analyst::document).collect()
    }

    pub(super) fn change(&self, change: impl FnOnce(&mut TokenTable)) {
        change(&mut self.table.write().unwrap_or_else(PoisonError::into_inner));
    }
}
