//! Browser sessions: in memory only, gone after a restart.

use std::{
    collections::HashMap,
    sync::{Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use axum::http::{HeaderMap, header};
use eigenveil_shared::study::to_hex;
use eigenveil_store::TokenHash;
use sha2::{Digest, Sha256};

/// Maximum number of sessions per bearer token; a further login ends that token's oldest session.
const MAX_SESSIONS_PER_TOKEN: usize = 32;
/// Maximum age of a session, by the monotonic clock.
const LIFETIME: Duration = Duration::from_secs(8 * 3_600);
/// Maximum time between two requests of a session.
const MAX_IDLE: Duration = Duration::from_secs(3_600);

/// Hash of the session identifier. Only the browser's cookie has the identifier itself.
type Key = [u8; 32];

struct Session {
    /// The bearer token it was begun with: a session allows what the token allows now.
    token: TokenHash,
    begun: Instant,
    last_used: Instant,
}

#[derive(Default)]
pub(crate) struct Sessions {
    by_key: Mutex<HashMap<Key, Session>>,
}

impl Sessions {
    pub(crate) fn begin(&self, id: &str, token: TokenHash, now: Instant) {
        let mut by_key = self.by_key();
        by_key.retain(|_, session| session.is_valid(now));
        let token_sessions = || {
            by_key
                .iter()
                .filter(|(_, session)| session.token.matches(&token))
        };
        if token_sessions().count() >= MAX_SESSIONS_PER_TOKEN
            && let Some((&oldest, _)) = token_sessions().min_by_key(|(_, session)| session.begun)
        {
            by_key.remove(&oldest);
        }
        let session = Session {
            token,
            begun: now,
            last_used: now,
        };
        by_key.insert(key(id), session);
    }

    /// The bearer token of a valid session.
    pub(crate) fn token(&self, id: &str, now: Instant) -> Option<TokenHash> {
        let mut by_key = self.by_key();
        let session = by_key.get_mut(&key(id))?;
        if !session.is_valid(now) {
            by_key.remove(&key(id));
            return None;
        }
        session.last_used = now;
        Some(session.token)
    }

    /// Looks up the token like [`token`](Self::token), without counting as a use of the session.
    pub(crate) fn peek(&self, id: &str, now: Instant) -> Option<TokenHash> {
        let by_key = self.by_key();
        let session = by_key.get(&key(id))?;
        session.is_valid(now).then_some(session.token)
    }

    /// The bearer token of the session of a request, for its rate limit.
    pub(crate) fn token_of(&self, headers: &HeaderMap) -> Option<TokenHash> {
        let cookies = SessionCookie::ALL.iter();
        let mut ids = cookies.filter_map(|cookie| cookie.id(headers));
        ids.find_map(|id| self.token(&id, Instant::now()))
    }

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
            && now.saturating_duration_since(self.last_used) < MAX_IDLE
    }
}

/// The cookie with the session identifier: name and attributes, by how the browser reaches the server.
///
/// Browsers accept prefixed names only over HTTPS, and `__Host-` only from the same host: neither a page over plain
/// HTTP nor a neighbouring host can plant it. `__Host-` is for all paths of a host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SessionCookie {
    Plain,
    /// Over HTTPS, below a path.
    Secure,
    /// Over HTTPS, at the root.
    Host,
}

impl SessionCookie {
    const ALL: [Self; 3] = [Self::Host, Self::Secure, Self::Plain];

    /// The cookie of a server mounted at `base` (empty at the root).
    pub(crate) fn at(base: &str, https: bool) -> Self {
        match (https, base) {
            (false, _) => Self::Plain,
            (true, "") => Self::Host,
            (true, _) => Self::Secure,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Plain => "eigenveil-session",
            Self::Secure => "__Secure-eigenveil-session",
            Self::Host => "__Host-eigenveil-session",
        }
    }

    /// The `Set-Cookie` value that stores a session identifier or deletes the cookie.
    pub(crate) fn set(self, base: &str, id: Option<&str>) -> String {
        let secure = if self == Self::Plain { "" } else { "; Secure" };
        let seconds = id.map_or(0, |_| LIFETIME.as_secs());
        format!(
            "{}={}; Path={base}/; Max-Age={seconds}; HttpOnly; SameSite=Strict{secure}",
            self.name(),
            id.unwrap_or_default()
        )
    }

    /// The session identifier in this cookie of a request, if it is well-formed.
    pub(crate) fn id(self, headers: &HeaderMap) -> Option<String> {
        headers
            .get_all(header::COOKIE)
            .iter()
            .filter_map(|value| value.to_str().ok())
            .flat_map(|line| line.split(';'))
            .filter_map(|pair| pair.trim().split_once('='))
            .find(|(name, value)| {
                *name == self.name()
                    && value.len() == 64
                    && value.bytes().all(|b| b.is_ascii_hexdigit())
            })
            .map(|(_, value)| value.to_owned())
    }
}

fn key(id: &str) -> Key {
    Sha256::digest(id.as_bytes()).into()
}

/// The CSRF token that forms of the browser with this session identifier must carry: another site can make the browser
/// send the cookie, but cannot read it.
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
    fn sessions_end_by_age_idle_time_logout_and_number() {
        let sessions = Sessions::default();
        let token = TokenHash::new("t");
        let start = Instant::now();
        let instant = Duration::from_millis(1);
        let is_valid = |id: &str, after| sessions.token(id, start + after).is_some();
        sessions.begin("a", token, start);
        assert!(is_valid("a", MAX_IDLE - instant) && !is_valid("b", instant));
        assert!(!is_valid("a", 2 * MAX_IDLE - instant));
        // Ended for good.
        assert!(!is_valid("a", MAX_IDLE));
        sessions.begin("b", token, start);
        for step in 1..16 {
            assert!(is_valid("b", step * MAX_IDLE / 2));
        }
        assert!(!is_valid("b", LIFETIME));
        sessions.begin("c", token, start);
        sessions.end("c");
        assert!(!is_valid("c", instant));
        let other = TokenHash::new("another's");
        sessions.begin("another's", other, start);
        for i in 0..=MAX_SESSIONS_PER_TOKEN as u32 {
            sessions.begin(&format!("n{i}"), token, start + i * instant);
        }
        let last = format!("n{MAX_SESSIONS_PER_TOKEN}");
        let later = Duration::from_secs(1);
        assert!(!is_valid("n0", later) && is_valid("n1", later) && is_valid(&last, later));
        // Sessions of other tokens stay.
        assert!(is_valid("another's", later));
    }

    #[test]
    fn csrf_tokens_reveal_neither_the_identifier_nor_the_stored_hash() {
        assert_ne!(csrf_token("a"), csrf_token("b"));
        assert_ne!(csrf_token("a"), to_hex(&key("a")));
    }
}
