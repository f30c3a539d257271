//! Sessions of browsers: in memory, gone after a restart.

use std::{
    collections::HashMap,
    sync::{Mutex, MutexGuard, PoisonError},
};

use eigenveil_shared::study::to_hex;
use sha2::{Digest, Sha256};

use crate::store::TokenHash;

/// Most sessions; the oldest ends when there is one more.
const MOST: usize = 1_000;
/// Milliseconds after which a session ends.
pub(super) const LIFETIME_MS: u64 = 8 * 3_600_000;
/// Milliseconds without a request after which a session ends.
const IDLE_MS: u64 = 3_600_000;

/// Hash of the identifier in a browser's cookie. The identifier itself is kept by the browser alone.
type Key = [u8; 32];

struct Session {
    /// The token it was begun with: a session allows what the token allows now.
    token: TokenHash,
    begun_ms: u64,
    seen_ms: u64,
}

/// All sessions of a server.
#[derive(Default)]
pub(super) struct Sessions {
    held: Mutex<HashMap<Key, Session>>,
}

impl Sessions {
    /// Begins a session under a new identifier.
    pub(super) fn begin(&self, id: &str, token: TokenHash, now_ms: u64) {
        let mut held = self.held();
        held.retain(|_, session| session.lives(now_ms));
        if held.len() >= MOST
            && let Some(oldest) = held
                .iter()
                .min_by_key(|(_, session)| session.begun_ms)
                .map(|(key, _)| *key)
        {
            held.remove(&oldest);
        }
        let session = Session {
            token,
            begun_ms: now_ms,
            seen_ms: now_ms,
        };
        held.insert(key(id), session);
    }

    /// The token of a session that has not ended.
    pub(super) fn token(&self, id: &str, now_ms: u64) -> Option<TokenHash> {
        let mut held = self.held();
        let session = held.get_mut(&key(id))?;
        if !session.lives(now_ms) {
            held.remove(&key(id));
            return None;
        }
        session.seen_ms = now_ms;
        Some(session.token)
    }

    /// Ends a session.
    pub(super) fn end(&self, id: &str) {
        self.held().remove(&key(id));
    }

    fn held(&self) -> MutexGuard<'_, HashMap<Key, Session>> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Session {
    fn lives(&self, now_ms: u64) -> bool {
        now_ms.saturating_sub(self.begun_ms) < LIFETIME_MS
            && now_ms.saturating_sub(self.seen_ms) < IDLE_MS
    }
}

fn key(id: &str) -> Key {
    Sha256::digest(id.as_bytes()).into()
}

/// What a form must carry to be taken from the browser that has this identifier: another site can make the browser send
/// the cookie, but cannot read it.
pub(super) fn form_key(id: &str) -> String {
    let hash = Sha256::new()
        .chain_update(b"eigenveil form key\0")
        .chain_update(id.as_bytes())
        .finalize();
    to_hex(&hash)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sessions_end_by_age_idleness_logout_and_number() {
        let sessions = Sessions::default();
        let token = TokenHash::of("t");
        let lives = |id: &str, now| sessions.token(id, now).is_some();
        sessions.begin("a", token, 0);
        assert!(lives("a", IDLE_MS - 1) && !lives("b", 1));
        assert!(!lives("a", 2 * IDLE_MS - 1));
        // Ended for good.
        assert!(!lives("a", IDLE_MS));
        sessions.begin("b", token, 0);
        for step in 1..16 {
            assert!(lives("b", step * IDLE_MS / 2));
        }
        assert!(!lives("b", LIFETIME_MS));
        sessions.begin("c", token, 0);
        sessions.end("c");
        assert!(!lives("c", 1));
        for i in 0..=MOST as u64 {
            sessions.begin(&format!("n{i}"), token, 10 + i);
        }
        assert!(!lives("n0", 20) && lives("n1", 20) && lives("n1000", 1_020));
    }

    #[test]
    fn form_keys_do_not_tell_the_identifier_and_are_not_the_kept_hash() {
        assert_ne!(form_key("a"), form_key("b"));
        assert_ne!(form_key("a"), to_hex(&key("a")));
    }
}
