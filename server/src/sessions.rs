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
const MOST_OF_A_TOKEN: usize = 32;
/// Time after which a session ends, by the clock that nobody sets.
pub(crate) const LIFETIME: Duration = Duration::from_secs(8 * 3_600);
/// Time without a request after which a session ends.
const IDLE: Duration = Duration::from_secs(3_600);

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
    held: Mutex<HashMap<Key, Session>>,
}

impl Sessions {
    /// Begins a session under a new identifier.
    pub(crate) fn begin(&self, id: &str, token: TokenHash, now: Instant) {
        let mut held = self.held();
        held.retain(|_, session| session.lives(now));
        let own = || held.iter().filter(|(_, session)| session.token.is(&token));
        if own().count() >= MOST_OF_A_TOKEN
            && let Some((&oldest, _)) = own().min_by_key(|(_, session)| session.begun)
        {
            held.remove(&oldest);
        }
        let session = Session {
            token,
            begun: now,
            seen: now,
        };
        held.insert(key(id), session);
    }

    /// The token of a session that has not ended.
    pub(crate) fn token(&self, id: &str, now: Instant) -> Option<TokenHash> {
        let mut held = self.held();
        let session = held.get_mut(&key(id))?;
        if !session.lives(now) {
            held.remove(&key(id));
            return None;
        }
        session.seen = now;
        Some(session.token)
    }

    /// The token that the session of a request was begun with.
    pub(crate) fn token_of(&self, headers: &HeaderMap) -> Option<TokenHash> {
        self.token(&cookie(headers)?, Instant::now())
    }

    /// Ends a session.
    pub(crate) fn end(&self, id: &str) {
        self.held().remove(&key(id));
    }

    fn held(&self) -> MutexGuard<'_, HashMap<Key, Session>> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Session {
    fn lives(&self, now: Instant) -> bool {
        now.saturating_duration_since(self.begun) < LIFETIME
            && now.saturating_duration_since(self.seen) < IDLE
    }
}

/// The identifier in the cookie of a request, if it has the form of one.
pub(crate) fn cookie(headers: &HeaderMap) -> Option<String> {
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
pub(crate) fn form_key(id: &str) -> String {
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
        let moment = Duration::from_millis(1);
        let lives = |id: &str, after| sessions.token(id, start + after).is_some();
        sessions.begin("a", token, start);
        assert!(lives("a", IDLE - moment) && !lives("b", moment));
        assert!(!lives("a", 2 * IDLE - moment));
        // Ended for good.
        assert!(!lives("a", IDLE));
        sessions.begin("b", token, start);
        for step in 1..16 {
            assert!(lives("b", step * IDLE / 2));
        }
        assert!(!lives("b", LIFETIME));
        sessions.begin("c", token, start);
        sessions.end("c");
        assert!(!lives("c", moment));
        let other = TokenHash::new("another's");
        sessions.begin("another's", other, start);
        for i in 0..=MOST_OF_A_TOKEN as u32 {
            sessions.begin(&format!("n{i}"), token, start + i * moment);
        }
        let last = format!("n{MOST_OF_A_TOKEN}");
        let later = Duration::from_secs(1);
        assert!(!lives("n0", later) && lives("n1", later) && lives(&last, later));
        // However many there are of one token: the others stay.
        assert!(lives("another's", later));
    }

    #[test]
    fn form_keys_do_not_tell_the_identifier_and_are_not_the_kept_hash() {
        assert_ne!(form_key("a"), form_key("b"));
        assert_ne!(form_key("a"), to_hex(&key("a")));
    }
}
