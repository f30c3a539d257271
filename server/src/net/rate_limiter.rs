//! Rate limits by address and by bearer token.
//!
//! Neither is stored: the tables hold salted hashes, and the random salt is thrown away together with its table after
//! [`FORGET_AFTER`].

use std::{
    collections::HashMap,
    net::{IpAddr, Ipv6Addr},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use eigenveil_shared::Result;
use eigenveil_store::{ClientKey, Entropy};
use sha2::{Digest, Sha256};

use crate::config::ServerConfig;

/// Time after which the tables are cleared and a new salt is drawn.
pub(crate) const FORGET_AFTER: Duration = Duration::from_secs(300);

/// Entries of one table; beyond it the clients with the fewest requests are forgotten, so that memory is bounded (about
/// 2 MiB).
const MAX_CLIENTS: usize = 65_536;

const MINUTE: Duration = Duration::from_secs(60);

pub(crate) struct RateLimits {
    pub(crate) address: Option<RateLimiter>,
    /// Requests with one bearer token.
    pub(crate) token: Option<RateLimiter>,
    pub(crate) failed_auth: RateLimiter,
}

impl RateLimits {
    pub(crate) fn new(config: &ServerConfig, entropy: &Arc<dyn Entropy>) -> Result<Self> {
        let limit = |per_minute: u32| RateLimiter::new(per_minute, Arc::clone(entropy));
        Ok(Self {
            address: config.address_requests_per_minute.map(limit).transpose()?,
            token: config.token_requests_per_minute.map(limit).transpose()?,
            failed_auth: limit(config.failed_auth_per_minute)?,
        })
    }

    /// Clears expired tables, so that nothing is left of clients after the last request.
    pub(crate) fn forget_old(&self) {
        let now = Instant::now();
        for limit in self
            .address
            .iter()
            .chain(&self.token)
            .chain([&self.failed_auth])
        {
            drop(limit.table(now));
        }
    }
}

/// A rate limit: so many events a minute for each key, which may come in one burst. A token bucket, stored as the time
/// when it will be full again (GCRA).
pub(crate) struct RateLimiter {
    /// Time between two events at the steady rate.
    interval: Duration,
    entropy: Arc<dyn Entropy>,
    table: Mutex<Table>,
}

struct Table {
    salt: [u8; 32],
    since: Instant,
    /// When the bucket of each key will be full again.
    full_at: HashMap<u64, Instant>,
}

impl RateLimiter {
    fn new(per_minute: u32, entropy: Arc<dyn Entropy>) -> Result<Self> {
        let mut salt = [0; 32];
        entropy.fill(&mut salt)?;
        Ok(Self {
            interval: MINUTE / per_minute.max(1),
            entropy,
            table: Mutex::new(Table {
                salt,
                since: Instant::now(),
                full_at: HashMap::new(),
            }),
        })
    }

    /// Counts an event, or returns how long to wait before the next one is allowed.
    pub(crate) fn check(&self, key: &[u8], now: Instant) -> Result<(), Duration> {
        let mut table = self.table(now);
        let key = table.hash(key);
        // When the bucket will be full again if this event is allowed.
        let full_at = table.full_at.get(&key).map_or(now, |&at| at.max(now));
        let after = full_at + self.interval - now;
        if let Some(wait) = after.checked_sub(MINUTE.max(self.interval))
            && wait > Duration::ZERO
        {
            return Err(wait);
        }
        if table.full_at.len() >= MAX_CLIENTS && !table.full_at.contains_key(&key) {
            table.full_at.retain(|_, full_at| *full_at > now);
            if table.full_at.len() >= MAX_CLIENTS {
                table.forget_half();
            }
        }
        table.full_at.insert(key, full_at + self.interval);
        Ok(())
    }

    /// The table, cleared first if it has expired.
    fn table(&self, now: Instant) -> MutexGuard<'_, Table> {
        let mut table = self.table.lock().unwrap_or_else(PoisonError::into_inner);
        if now.saturating_duration_since(table.since) >= FORGET_AFTER {
            table.full_at = HashMap::new();
            table.since = now;
            let mut salt = [0; 32];
            // Without randomness the salt stays; what it protected is gone anyway.
            if self.entropy.fill(&mut salt).is_ok() {
                table.salt = salt;
            }
        }
        table
    }
}

impl Table {
    /// Forgets at least half of the keys: the ones with the fewest events. A client at its limit is not forgotten because
    /// many others made one request.
    fn forget_half(&mut self) {
        let mut times: Vec<Instant> = self.full_at.values().copied().collect();
        let middle = times.len() / 2;
        let (_, &mut median, _) = times.select_nth_unstable(middle);
        self.full_at.retain(|_, full_at| *full_at > median);
    }

    fn hash(&self, key: &[u8]) -> u64 {
        let digest = Sha256::new_with_prefix(self.salt)
            .chain_update(key)
            .finalize();
        digest
            .iter()
            .take(8)
            .fold(0, |hash, byte| hash << 8 | u64::from(*byte))
    }
}

/// The key of an address: the IPv4 address itself, or the /64 of an IPv6 address, since one subscriber has a whole /64.
pub(crate) fn address_key(address: IpAddr) -> ClientKey {
    let address = match address.to_canonical() {
        IpAddr::V4(address) => address.to_ipv6_mapped(),
        IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() & !u128::from(u64::MAX)),
    };
    address.octets()
}

#[cfg(test)]
mod tests {
    use super::*;
    use eigenveil_store::SystemEntropy;

    fn limit(per_minute: u32) -> RateLimiter {
        RateLimiter::new(per_minute, Arc::new(SystemEntropy)).unwrap()
    }

    #[test]
    fn a_burst_is_followed_by_the_steady_rate() {
        let (limit, start) = (limit(6), Instant::now());
        for _ in 0..6 {
            limit.check(b"a", start).unwrap();
        }
        assert_eq!(limit.check(b"a", start), Err(Duration::from_secs(10)));
        // Other clients are not affected.
        limit.check(b"b", start).unwrap();
        let later = start + Duration::from_secs(10);
        limit.check(b"a", later).unwrap();
        assert_eq!(limit.check(b"a", later), Err(Duration::from_secs(10)));
        let mut allowed = 0;
        for second in 11..=190 {
            let now = start + Duration::from_secs(second);
            allowed += u32::from(limit.check(b"a", now).is_ok());
        }
        assert_eq!(allowed, 18);
    }

    #[test]
    fn a_table_expires() {
        let (limit, start) = (limit(1), Instant::now());
        limit.check(b"a", start).unwrap();
        let salt = limit.table(start).salt;
        let later = start + FORGET_AFTER;
        let table = limit.table(later);
        assert!(table.full_at.is_empty() && table.salt != salt);
    }

    /// Addresses are cheap: requests from very many of them must not reset the limit of one that guesses tokens.
    #[test]
    fn a_table_is_bounded_and_many_new_clients_do_not_reset_one_at_its_limit() {
        let (limit, start) = (limit(6), Instant::now());
        for _ in 0..6 {
            limit.check(b"guesser", start).unwrap();
        }
        for client in 0..(2 * MAX_CLIENTS as u32) {
            limit.check(&client.to_le_bytes(), start).unwrap();
        }
        assert!(limit.table(start).full_at.len() <= MAX_CLIENTS);
        assert!(limit.check(b"guesser", start).is_err());
    }

    #[test]
    fn addresses_are_stored_as_salted_hashes() {
        let (one, other, now) = (limit(9), limit(9), Instant::now());
        let key = address_key("192.0.2.7".parse().unwrap());
        for limit in [&one, &other] {
            limit.check(&key, now).unwrap();
        }
        let stored = |limit: &RateLimiter| limit.table(now).full_at.keys().copied().next();
        assert_ne!(stored(&one), stored(&other));
    }

    #[test]
    fn an_ipv6_subscriber_is_one_key_and_mapped_addresses_are_ipv4() {
        let key = |text: &str| address_key(text.parse().unwrap());
        assert_eq!(key("2001:db8::1"), key("2001:db8::ffff:1"));
        assert_ne!(key("2001:db8::1"), key("2001:db8:0:1::1"));
        assert_eq!(key("::ffff:192.0.2.7"), key("192.0.2.7"));
        assert_ne!(key("192.0.2.7"), key("192.0.2.8"));
    }
}
