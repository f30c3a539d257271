//! Sessions of browsers: in memory, gone after a restart.

use std::{
    collections::HashMap,
    sync::{Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use axum::http::{HeaderMap, header};
use eigenveil_shared::study::to_hex;
use sha2::{Digest, Sha256};

use crate::store::TokenHash;

/// Name of the cookie.
pub(crate) const COOKIE: &str = "eigenveil-session";
/// Most sessions of one token; the oldest of them ends when there is one more. However often somebody logs in, he ends
/// no session but those of his own token.
const MAX_SESSIONS_PER_TOKEN: usize = 32;
/// Time after which a session ends, by the clock that nobody sets.
pub(crate) const LIFETIME: Duration = Duration::from_secs(8 * 3_600);
/// Time without a request after which a session ends.
const MAX_IDLE: Duration = Duration::from_secs(3_600);

/// Hash of the identifier in a browser's cookie. The identifier itself is kept by the browser alone.
type Key = [u8; 32];

struct Session {
    /// The token it was begun with: a session allows what the token allows now.
    token: TokenHash,
    begun: Instant,
    seen: Instant,
}

/// All sessions of a server.
#[derive(Default)]
pub(crate) struct Sessions {
    by_key: Mutex<HashMap<Key, Session>>,
}

impl Sessions {
    /// Begins a session under a new identifier.
    pub(crate) fn begin(&self, id: &str, token: TokenHash, now: Instant) {
        let mut by_key = self.by_key();
        by_key.retain(|_, session| session.is_valid(now));
        let own = || {
            by_key
                .iter()
                .filter(|(_, session)| session.token.is(&token))
        };
        if own().count() >= MAX_SESSIONS_PER_TOKEN
            && let Some((&oldest, _)) = own().min_by_key(|(_, session)| session.begun)
        {
            by_key.remove(&oldest);
        }
        let session = Session {
            token,
            begun: now,
            seen: now,
        };
        by_key.insert(key(id), session);
    }

    /// The token of a session that has not ended.
    pub(crate) fn token(&self, id: &str, now: Instant) -> Option<TokenHash> {
        let mut by_key = self.by_key();
        let session = by_key.get_mut(&key(id))?;
        if !session.is_valid(now) {
            by_key.remove(&key(id));
            return None;
        }
        session.seen = now;
        Some(session.token)
    }

    /// The token that the session of a request was begun with.
    pub(crate) fn token_of(&self, headers: &HeaderMap) -> Option<TokenHash> {
        self.token(&session_id(headers)?, Instant::now())
    }

    /// Ends a session.
    pub(crate) fn end(&self, id: &str) {
        self.by_key().remove(&key(id));
    }

    fn by_key(&self) -> MutexGuard<'_, HashMap<Key, Session>> {
        self.by_key.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Session {
    fn is_valid(&self, now: Instant) -> bool {
        now.saturating_duration_since(self.begun) < LIFETIME
            && now.saturating_duration_since(self.seen) < MAX_IDLE
    }
}

/// The identifier in the cookie of a request, if it has the form of one.
pub(crate) fn session_id(headers: &HeaderMap) -> Option<String> {
    headers
        .get_all(header::COOKIE)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|line| line.split(';'))
        .filter_map(|pair| pair.trim().split_once('='))
        .find(|(name, value)| {
            *name == COOKIE && value.len() == 64 && value.bytes().all(|b| b.is_ascii_hexdigit())
        })
        .map(|(_, value)| value.to_owned())
}

fn key(id: &str) -> Key {
    Sha256::digest(id.as_bytes()).into()
}

/// What a form must carry to be taken from the browser that has this identifier: another site can make the browser send
/// the cookie, but cannot read it.
pub(crate) fn csrf_token(id: &str) -> String {
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
        let token = TokenHash::new("t");
        let start = Instant::now();
        let instant = Duration::from_millis(1);
        let lives = |id: &str, after| sessions.token(id, start + after).is_some();
        sessions.begin("a", token, start);
        assert!(lives("a", MAX_IDLE - instant) && !lives("b", instant));
        assert!(!lives("a", 2 * MAX_IDLE - instant));
        // Ended for good.
        assert!(!lives("a", MAX_IDLE));
        sessions.begin("b", token, start);
        for step in 1..16 {
            assert!(lives("b", step * MAX_IDLE / 2));
        }
        assert!(!lives("b", LIFETIME));
        sessions.begin("c", token, start);
        sessions.end("c");
        assert!(!lives("c", instant));
        let other = TokenHash::new("another's");
        sessions.begin("another's", other, start);
        for i in 0..=MAX_SESSIONS_PER_TOKEN as u32 {
            sessions.begin(&format!("n{i}"), token, start + i * instant);
        }
        let last = format!("n{MAX_SESSIONS_PER_TOKEN}");
        let later = Duration::from_secs(1);
        assert!(!lives("n0", later) && lives("n1", later) && lives(&last, later));
        // However many there are of one token: the others stay.
        assert!(lives("another's", later));
    }

    #[test]
    fn csrf_tokens_do_not_tell_the_identifier_and_are_not_the_kept_hash() {
        assert_ne!(csrf_token("a"), csrf_token("b"));
        assert_ne!(csrf_token("a"), to_hex(&key("a")));
    }
}
