//! Who may hold how many connections, and which of them ends when there are no more.
//!
//! A connection *waits* while no whole request head has arrived since it was opened or since its last response. Where
//! connections are short, one that has waited longest ends, so that half heads and idle connections, however many, keep
//! nobody out. One address (one /64 of IPv6) gets a quarter of all connections; trusted proxies are exempt.

use std::{
    collections::HashMap,
    hash::{BuildHasher as _, RandomState},
    net::IpAddr,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use axum::body::{Body, Bytes, HttpBody};
use http_body_util::BodyExt as _;
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};

use super::{handshake, rate_limiter::address_key};
use crate::{
    config::{Network, ServerConfig},
    metrics::Metrics,
};

/// One address may hold this fraction of all connections by default.
const ADDRESS_FRACTION: usize = 4;
/// If connections are short, this fraction of them ends at once, so that looking for the oldest stays cheap.
const EVICTED_FRACTION: usize = 64;
/// After a response, a connection is not taken to wait before a client at this rate has read it, of as many bytes as may
/// still be on their way.
const READ_BYTES_PER_SECOND: u64 = 8 << 10;
const MAX_BYTES_ON_THEIR_WAY: u64 = 128 << 10;
/// How often a new connection looks for one that may end while all are busy.
const LOOK_AGAIN: Duration = Duration::from_millis(50);
const WARNING_INTERVAL: Duration = Duration::from_secs(60);
/// Value of [`Slot::waiting_since`] while a request is being served.
const BUSY: u64 = u64::MAX;

pub(super) struct Connections {
    capacity: usize,
    per_address: usize,
    exempt: Vec<Network>,
    /// Held until the connection is closed, so that there are never more of them.
    permits: Arc<Semaphore>,
    started: Instant,
    salt: RandomState,
    table: Mutex<Table>,
    metrics: Arc<Metrics>,
}

#[derive(Default)]
struct Table {
    next_number: u64,
    slots: HashMap<u64, (u64, Arc<Slot>)>,
    /// Connections, and places for handshakes, by salted hash of their address.
    held: HashMap<u64, (usize, Arc<Semaphore>)>,
    last_warning: Option<Instant>,
}

struct Slot {
    /// Microseconds since the server started, or [`BUSY`]. After a long response it is in the future.
    waiting_since: AtomicU64,
    is_served: AtomicBool,
    evicted: Notify,
}

/// The address has its share, and all of its connections are busy.
pub(super) struct Refused {
    pub(super) per_address: usize,
}

impl Connections {
    pub(super) fn new(config: &ServerConfig, capacity: usize, metrics: Arc<Metrics>) -> Arc<Self> {
        let share = config.max_connections_per_address;
        Arc::new(Self {
            capacity,
            per_address: share.unwrap_or(capacity.div_ceil(ADDRESS_FRACTION)),
            exempt: config.trusted_proxies.clone(),
            permits: Arc::new(Semaphore::new(capacity)),
            started: Instant::now(),
            salt: RandomState::new(),
            table: Mutex::default(),
            metrics,
        })
    }

    /// A place for an accepted connection, made by ending one that waits if necessary. If all are busy it waits for one to
    /// end.
    pub(super) async fn admit(self: &Arc<Self>, peer: IpAddr) -> Result<Admitted, Refused> {
        let mut admitted = self.register(peer)?;
        loop {
            let permit = Arc::clone(&self.permits).acquire_owned();
            if let Ok(permit) = tokio::time::timeout(LOOK_AGAIN, permit).await {
                // Never closed; if it were, the connection would be served without a permit.
                admitted.permit = permit.ok();
                let now = self.now();
                admitted.slot.waiting_since.store(now, Ordering::Relaxed);
                return Ok(admitted);
            }
            self.evict(&self.lock(), None, 1);
        }
    }

    fn register(self: &Arc<Self>, peer: IpAddr) -> Result<Admitted, Refused> {
        let address = self.salt.hash_one(address_key(peer));
        let mut table = self.lock();
        let held = table.held.get(&address).map_or(0, |(held, _)| *held);
        let is_exempt = || self.exempt.iter().any(|network| network.contains(peer));
        if held >= self.per_address && self.per_address < self.capacity && !is_exempt() {
            self.warn(&mut table, || {
                format!(
                    "one address holds its share of connections ({} of {}), so its oldest waiting ones are closed; if an office, a \
                     carrier or a proxy is behind it, raise max_connections_per_address, or list the proxy in trusted_proxies",
                    self.per_address, self.capacity
                )
            });
            let some = 1 + self.per_address / EVICTED_FRACTION;
            if self.evict(&table, Some(address), some) == 0 {
                self.metrics.connections_refused.inc();
                return Err(Refused {
                    per_address: self.per_address,
                });
            }
        } else if table.slots.len() >= self.capacity {
            self.warn(&mut table, || {
                format!(
                    "all {} connections are in use, so the ones that have waited longest for a request are closed; raise \
                     max_connections if your clients need more",
                    self.capacity
                )
            });
            self.evict(&table, None, 1 + self.capacity / EVICTED_FRACTION);
        }
        let slot = Arc::new(Slot {
            // Until it has a permit, so that it does not end itself.
            waiting_since: AtomicU64::new(BUSY),
            is_served: AtomicBool::new(false),
            evicted: Notify::new(),
        });
        let number = table.next_number;
        table.next_number += 1;
        table.slots.insert(number, (address, Arc::clone(&slot)));
        let places = || (0, Arc::new(Semaphore::new(handshake::MAX_PER_ADDRESS)));
        let (held, places) = table.held.entry(address).or_insert_with(places);
        *held += 1;
        self.metrics.connections.inc();
        Ok(Admitted {
            handshakes: Arc::clone(places),
            connections: Arc::clone(self),
            number,
            address,
            slot,
            permit: None,
        })
    }

    /// Ends up to `count` connections that have waited longest, and returns how many. Of those that have not sent a request
    /// yet, if they are more: of the address whose connections have waited longest in all, up to half of them. Otherwise of
    /// those that have. So an office's kept connections are safe from half heads, and half heads from few addresses leave
    /// a slow client its time.
    fn evict(&self, table: &Table, of: Option<u64>, count: usize) -> usize {
        type Waiting<'a> = Vec<(u64, &'a Slot)>;
        let now = self.now();
        let mut served: Waiting<'_> = Vec::new();
        // With the time that the connections of an address have waited in all.
        let mut unserved: HashMap<u64, (u64, Waiting<'_>)> = HashMap::new();
        let mut unserved_count = 0;
        for (address, slot) in table.slots.values() {
            let since = slot.waiting_since.load(Ordering::Relaxed);
            if since == BUSY || of.is_some_and(|of| of != *address) {
                continue;
            }
            if slot.is_served.load(Ordering::Relaxed) {
                served.push((since, &**slot));
            } else {
                let (waited, slots) = unserved.entry(*address).or_default();
                *waited += now.saturating_sub(since);
                slots.push((since, slot));
                unserved_count += 1;
            }
        }
        let mut waiting = if unserved_count >= served.len() {
            let longest = unserved.into_values().max_by_key(|(waited, _)| *waited);
            longest.unwrap_or_default().1
        } else {
            served
        };
        let count = count.min(waiting.len().div_ceil(2));
        if waiting.len() > count {
            waiting.select_nth_unstable_by_key(count, |(since, _)| *since);
            waiting.truncate(count);
        }
        waiting.retain(|(since, slot)| {
            // Unless its request arrives just now; and once only.
            slot.waiting_since
                .compare_exchange(*since, BUSY, Ordering::Relaxed, Ordering::Relaxed)
                .is_ok()
        });
        for (_, slot) in &waiting {
            slot.evicted.notify_one();
        }
        self.metrics
            .connections_evicted
            .inc_by(waiting.len() as u64);
        waiting.len()
    }

    fn warn(&self, table: &mut Table, message: impl FnOnce() -> String) {
        let now = Instant::now();
        if table
            .last_warning
            .is_none_or(|last| now - last >= WARNING_INTERVAL)
        {
            table.last_warning = Some(now);
            tracing::warn!("{}", message());
        }
    }

    fn now(&self) -> u64 {
        u64::try_from(self.started.elapsed().as_micros()).unwrap_or(BUSY - 1)
    }

    fn lock(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Ends all connections, whatever they are doing, when it is dropped.
pub(super) struct EndAll(pub(super) Arc<Connections>);

impl Drop for EndAll {
    fn drop(&mut self) {
        for (_, slot) in self.0.lock().slots.values() {
            slot.evicted.notify_one();
        }
    }
}

/// A connection in its place, until dropped.
pub(super) struct Admitted {
    connections: Arc<Connections>,
    number: u64,
    address: u64,
    handshakes: Arc<Semaphore>,
    slot: Arc<Slot>,
    permit: Option<OwnedSemaphorePermit>,
}

impl Admitted {
    /// Places for handshakes of its address.
    pub(super) fn handshakes(&self) -> &Semaphore {
        &self.handshakes
    }

    /// Completes when the connection has to end.
    pub(super) async fn evicted(&self) {
        self.slot.evicted.notified().await;
    }

    /// For the handler of requests.
    pub(super) fn requests(&self) -> Requests {
        Requests {
            connections: Arc::clone(&self.connections),
            slot: Arc::clone(&self.slot),
        }
    }
}

impl Drop for Admitted {
    fn drop(&mut self) {
        let mut table = self.connections.lock();
        table.slots.remove(&self.number);
        if let Some((held, _)) = table.held.get_mut(&self.address) {
            *held -= 1;
            if *held == 0 {
                table.held.remove(&self.address);
            }
        }
        self.connections.metrics.connections.dec();
    }
}

/// Tells when a connection waits and when it is busy.
#[derive(Clone)]
pub(super) struct Requests {
    connections: Arc<Connections>,
    slot: Arc<Slot>,
}

impl Requests {
    /// A whole head has arrived: the connection is busy until the response's body is dropped.
    pub(super) fn begin(&self) -> Busy {
        self.slot.is_served.store(true, Ordering::Relaxed);
        self.slot.waiting_since.store(BUSY, Ordering::Relaxed);
        Busy {
            requests: self.clone(),
            sent: 0,
        }
    }
}

pub(super) struct Busy {
    requests: Requests,
    /// Bytes of the response's body so far.
    sent: u64,
}

impl Busy {
    /// The response's body, which keeps the connection busy until its end.
    pub(super) fn until_sent(self, body: Body) -> impl HttpBody<Data = Bytes, Error = axum::Error> {
        let mut busy = self;
        body.inspect_frame(move |frame| {
            // All of it is captured, not only the number.
            let busy = &mut busy;
            busy.sent += frame.data_ref().map_or(0, |data| data.len() as u64);
        })
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        let Requests { connections, slot } = &self.requests;
        let on_their_way = self.sent.min(MAX_BYTES_ON_THEIR_WAY);
        let until_read = 1_000_000 * on_their_way / READ_BYTES_PER_SECOND;
        slot.waiting_since
            .store(connections.now() + until_read, Ordering::Relaxed);
    }
}
