//! A store in memory behind a network that a test can hold up, and into which it can plant a mistake.

use std::collections::HashMap;
use std::future::pending;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use lockmacro_runtime::store::{
    AcquireRequest, HeldKey, LockStore, Outcome, StoreError, StoreLimits,
};
use tokio::sync::Notify;
use tokio::task::yield_now;
use tokio::time::{Instant, sleep};

use crate::ms;
use crate::planted::Mistake;

/// The table. A clone is another client of it.
#[derive(Debug, Clone, Default)]
pub struct Table {
    shared: Arc<Shared>,
    pub mistake: Option<Mistake>,
    /// By default all that a store may have.
    pub limits: Option<StoreLimits>,
    /// Counts the fences of this client alone.
    own_fences: OwnCounter,
    /// Whether it is the client of a manager's own thread.
    is_apart: bool,
}

#[derive(Debug, Default)]
struct Shared {
    keys: Mutex<HashMap<String, Entry>>,
    fences: Mutex<HashMap<String, u64>>,
    /// A call is under way that must not be cut off.
    is_busy: AtomicBool,
    released: Notify,
    pub network: Network,
}

/// What the test does to the network.
#[derive(Debug, Default)]
pub struct Network {
    /// Calls are not sent, and fail.
    pub is_cut: AtomicBool,
    /// So many answers are lost: their calls never end.
    pub lost_answers: AtomicUsize,
    /// Renewals are not answered.
    pub loses_renewals: AtomicBool,
    pub acquires: AtomicUsize,
    pub renewals: AtomicUsize,
    pub releases: AtomicUsize,
    /// How long an answer takes, in milliseconds.
    pub delay: AtomicU64,
    pub has_hints: AtomicBool,
    /// Whether a client gives another one to the manager's own thread.
    pub has_apart: AtomicBool,
    /// How often the first client of a manager was closed.
    pub closes: AtomicUsize,
    /// How often that of its own thread was.
    pub closes_apart: AtomicUsize,
    /// What the next error of the store is made of.
    pub trouble: AtomicI32,
}

#[derive(Debug, Clone)]
struct Entry {
    token: String,
    end: Instant,
}

/// A counter that a clone does not share.
#[derive(Debug, Default)]
struct OwnCounter(AtomicU64);

impl Clone for OwnCounter {
    fn clone(&self) -> Self {
        Self::default()
    }
}

impl Table {
    pub fn with(mistake: Mistake) -> Self {
        Self { mistake: Some(mistake), ..Self::default() }
    }

    pub fn limited(limits: StoreLimits) -> Self {
        Self { limits: Some(limits), ..Self::default() }
    }

    pub fn network(&self) -> &Network {
        &self.shared.network
    }

    /// Whether nobody holds the key.
    pub fn is_free(&self, key: &str) -> bool {
        self.keys().get(key).is_none_or(|entry| entry.end <= Instant::now())
    }

    /// How long a key is held.
    pub fn left(&self, key: &str) -> Duration {
        let now = Instant::now();
        self.keys().get(key).map_or(Duration::ZERO, |entry| entry.end - now)
    }

    /// Ends all leases, as a store that has lost its data.
    pub fn forget(&self) {
        self.keys().clear();
    }

    /// Lets somebody else hold a key.
    pub fn hold(&self, key: &str, time: Duration) {
        let token = "somebody/0123456789abcdef0123456789abcdef".to_owned();
        self.keys().insert(key.to_owned(), Entry { token, end: Instant::now() + time });
    }

    fn keys(&self) -> MutexGuard<'_, HashMap<String, Entry>> {
        self.shared.keys.lock().expect("no test panics here")
    }

    fn has(&self, mistake: Mistake) -> bool {
        self.mistake == Some(mistake)
    }

    /// The way to the table.
    async fn sent(&self) -> Result<(), StoreError> {
        let network = self.network();
        yield_now().await;
        let trouble = network.trouble.load(SeqCst);
        if trouble != 0 {
            return Err(StoreError::not_applied(io::Error::from_raw_os_error(trouble)));
        }
        if network.is_cut.load(SeqCst) {
            return Err(StoreError::not_applied("the network is cut"));
        }
        if self.has(Mistake::LockedByAnyCall) {
            while self.shared.is_busy.swap(true, SeqCst) {
                sleep(Duration::from_millis(1)).await;
            }
        }
        let delay = Duration::from_millis(network.delay.load(SeqCst));
        if !delay.is_zero() {
            sleep(delay).await;
        }
        Ok(())
    }

    /// The way back.
    async fn answered<T>(&self, answer: T) -> Result<T, StoreError> {
        let lost = &self.network().lost_answers;
        if lost.fetch_update(SeqCst, SeqCst, |left| left.checked_sub(1)).is_ok() {
            pending::<()>().await;
        }
        yield_now().await;
        self.shared.is_busy.store(false, SeqCst);
        Ok(answer)
    }

    /// The name of a key in the table.
    fn stored(&self, key: &str) -> String {
        if self.has(Mistake::KeysWithoutCase) { key.to_lowercase() } else { key.to_owned() }
    }

    fn ttl(&self, ttl: Duration) -> Duration {
        match self.mistake {
            Some(Mistake::WholeSeconds) => Duration::from_secs(ttl.as_secs()),
            Some(Mistake::TwentiethSeconds) => ttl - ms(u64::from(ttl.subsec_millis() % 50)),
            Some(Mistake::HalfOfTheTtl) => ttl / 2,
            Some(Mistake::AnHourAtMost) => ttl.min(Duration::from_secs(3_600)),
            _ => ttl,
        }
    }

    fn is_over(&self, entry: &Entry) -> bool {
        !self.has(Mistake::EndlessLeases) && entry.end <= Instant::now()
    }

    fn next_fence(&self, key: &str, is_again: bool, was_expired: bool) -> Option<u64> {
        if self.has(Mistake::NoFences) {
            return None;
        }
        if self.has(Mistake::FencesOfAClient) {
            return Some(self.own_fences.0.fetch_add(1, SeqCst) + 1);
        }
        let mut fences = self.shared.fences.lock().expect("no test panics here");
        let fence = fences.entry(key.to_owned()).or_default();
        if was_expired && self.has(Mistake::FencesOfALease) {
            *fence = 0;
        }
        *fence += u64::from(!is_again);
        Some(*fence)
    }

    /// The whole decision under one mutex.
    fn decide(&self, key: String, ask: AcquireRequest<'_>) -> Outcome {
        let now = Instant::now();
        let mut end = now + self.ttl(ask.ttl());
        let mut keys = self.keys();
        let before = keys.get(&key);
        let held = before.filter(|entry| !self.is_over(entry));
        let is_again = held.is_some_and(|entry| entry.token == ask.token());
        if let Some(Entry { token, end }) = held
            && (!is_again || self.has(Mistake::RepeatIsRefused))
        {
            let left = Some(end.saturating_duration_since(now));
            return Outcome::Held { by: Some(token.clone()), left };
        }
        if let Some(held) = held
            && !self.has(Mistake::RepeatShortens)
        {
            end = end.max(held.end);
        }
        let was_expired = before.is_some() && held.is_none();
        let fence = self.next_fence(&key, is_again, was_expired);
        keys.insert(key, Entry { token: ask.token().to_owned(), end });
        Outcome::Granted { fence, ttl: None }
    }

    fn is_held_by(&self, key: &str, token: &str) -> bool {
        let keys = self.keys();
        keys.get(key).is_some_and(|entry| entry.token == token && !self.is_over(entry))
    }

    fn is_holder(&self, entry: &Entry, token: &str) -> bool {
        let label = |token: &str| token.split('/').next().map(str::to_owned);
        match self.mistake {
            Some(Mistake::ReleaseByAnybody) => true,
            Some(Mistake::ReleaseByLabel) => label(&entry.token) == label(token),
            _ => entry.token == token,
        }
    }
}

impl LockStore for Table {
    async fn acquire(&self, ask: AcquireRequest<'_>) -> Result<Outcome, StoreError> {
        self.network().acquires.fetch_add(1, SeqCst);
        self.sent().await?;
        let key = self.stored(ask.key());
        if self.has(Mistake::AcquireWaits) {
            while self.keys().get(&key).is_some_and(|entry| !self.is_over(entry)) {
                sleep(Duration::from_millis(10)).await;
            }
        }
        if self.has(Mistake::TwoSteps) {
            let is_free = !self.keys().contains_key(&key);
            yield_now().await;
            if is_free {
                self.keys().remove(&key);
            }
        }
        if self.has(Mistake::TakeoverInTwoSteps) {
            let is_over = self.keys().get(&key).is_some_and(|entry| self.is_over(entry));
            yield_now().await;
            if is_over {
                self.keys().remove(&key);
            }
        }
        if self.has(Mistake::HalfWritten) && !self.keys().contains_key(&key) {
            let end = Instant::now() + ask.ttl();
            self.keys().insert(key.clone(), Entry { token: String::new(), end });
            yield_now().await;
            self.keys().remove(&key);
        }
        let outcome = self.decide(key, ask);
        self.answered(outcome).await
    }

    async fn renew(&self, held: HeldKey<'_>, ttl: Duration) -> Result<bool, StoreError> {
        self.network().renewals.fetch_add(1, SeqCst);
        self.sent().await?;
        if self.network().loses_renewals.load(SeqCst) {
            pending::<()>().await;
        }
        let end = Instant::now() + self.ttl(ttl);
        let key = self.stored(held.key());
        if self.has(Mistake::RenewalInTwoSteps) {
            let is_held = self.is_held_by(&key, held.token());
            yield_now().await;
            if is_held {
                self.keys().insert(key, Entry { token: held.token().to_owned(), end });
            }
            return self.answered(is_held).await;
        }
        let is_held = {
            let mut keys = self.keys();
            if self.has(Mistake::RenewalAcquires) && !keys.contains_key(&key) {
                keys.insert(key.clone(), Entry { token: held.token().to_owned(), end });
            }
            let ours = keys.get_mut(&key).filter(|entry| entry.token == held.token());
            let ours = ours.filter(|entry| !self.is_over(entry));
            let renewed = |now: Instant| match self.mistake {
                Some(Mistake::RenewalDoesNothing) => now,
                Some(Mistake::RenewalShortens) => end,
                _ => now.max(end),
            };
            ours.map(|entry| entry.end = renewed(entry.end)).is_some()
        };
        self.answered(is_held).await
    }

    async fn release(&self, held: HeldKey<'_>, keep: Duration) -> Result<bool, StoreError> {
        self.network().releases.fetch_add(1, SeqCst);
        self.sent().await?;
        let key = self.stored(held.key());
        if self.has(Mistake::ReleaseInTwoSteps) && keep.is_zero() {
            let is_held = self.is_held_by(&key, held.token());
            yield_now().await;
            if is_held {
                self.keys().remove(&key);
            }
            return self.answered(is_held).await;
        }
        let is_held = {
            let mut keys = self.keys();
            let ours = keys.get_mut(&key).filter(|entry| self.is_holder(entry, held.token()));
            let ours = ours.filter(|entry| !self.is_over(entry));
            let is_held = ours.is_some();
            match ours {
                Some(_) if keep.is_zero() || self.has(Mistake::KeepIsIgnored) => {
                    keys.remove(&key);
                }
                Some(_) if self.has(Mistake::KeepForTheLease) => {}
                Some(entry) => {
                    *entry = Entry { token: held.kept(), end: Instant::now() + keep };
                }
                None => {}
            }
            is_held
        };
        self.shared.released.notify_waiters();
        self.answered(is_held).await
    }

    async fn ready(&self) -> Result<(), StoreError> {
        self.sent().await?;
        self.answered(()).await
    }

    async fn freed(&self, _: &str) {
        if self.network().has_hints.load(SeqCst) {
            self.shared.released.notified().await;
        } else {
            pending().await
        }
    }

    fn limits(&self) -> StoreLimits {
        let limits = self.limits.clone().unwrap_or_else(|| StoreLimits::default().fences());
        match self.mistake {
            Some(Mistake::WholeSeconds) => limits.shortest_ttl(Duration::from_secs(1)),
            _ => limits,
        }
    }

    fn apart(&self) -> Option<Self> {
        let has_apart = self.network().has_apart.load(SeqCst);
        has_apart.then(|| Self { is_apart: true, ..self.clone() })
    }

    fn close(&self) {
        let Network { closes, closes_apart, .. } = self.network();
        let closes = if self.is_apart { closes_apart } else { closes };
        closes.fetch_add(1, SeqCst);
    }
}
