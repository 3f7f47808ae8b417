//! What each claim has: a key of its own, clients of the store, and the words for its verdict.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::time::{sleep, timeout};

use crate::store::{AcquireRequest, HeldKey, LockStore, Outcome, StoreError, StoreLimits};
use crate::sys::random::secret;
use crate::sys::sync::Mutex;
use crate::sys::time::Instant;

/// Number of clients, as of as many processes.
const CLIENTS: usize = 3;
/// Number of further ones, each for one claim.
const SPARES: usize = 12;
/// The shortest ttl that is asked, as a machine may be busy.
const TTL: Duration = Duration::from_millis(500);
/// A ttl that no claim waits for.
const LONG: Duration = Duration::from_secs(60);
/// How much later than its end a key may become free.
const LATE: Duration = Duration::from_secs(5);
/// Longest time for one call, and for its retries.
const CALL: Duration = Duration::from_secs(5);
/// Pauses between two questions.
const PAUSE_MIN: Duration = Duration::from_millis(20);
const PAUSE_MAX: Duration = Duration::from_millis(100);
/// The same just before the end of a lease.
const PAUSE_AT_END: Duration = Duration::from_millis(2);

/// The outcome of a claim.
pub(super) type CaseResult = Result<(), Fault>;

/// How a store has failed a claim.
#[derive(Debug)]
pub(super) struct Fault {
    pub(super) expected: String,
    pub(super) came: String,
}

impl Fault {
    pub(super) fn new(expected: impl Into<String>, came: impl Into<String>) -> Self {
        Self { expected: expected.into(), came: came.into() }
    }
}

/// A fault, unless the answer is the one that was expected.
pub(super) fn expect<T: fmt::Debug + PartialEq>(came: T, expected: T, of: &str) -> CaseResult {
    if came == expected {
        return Ok(());
    }
    Err(Fault::new(format!("{expected:?} from {of}"), format!("{came:?}")))
}

/// What all cases share: the clients of the store, and its limits.
pub(super) struct Suite<S> {
    clients: Vec<Arc<S>>,
    /// For the claims that need one of their own.
    spares: Mutex<Vec<S>>,
    limits: StoreLimits,
    /// In the keys, as the store may have those of an earlier run.
    run: u64,
    calls: AtomicUsize,
}

impl<S: LockStore> Suite<S> {
    pub(super) async fn new<F: Future<Output = S>>(connect: impl Fn() -> F) -> Self {
        let mut clients = Vec::new();
        for _ in 0..CLIENTS {
            clients.push(Arc::new(connect().await));
        }
        let mut spares = Vec::new();
        for _ in 0..SPARES {
            spares.push(connect().await);
        }
        let limits = clients[0].limits();
        let run = random() as u64;
        Self { clients, spares: Mutex::new(spares), limits, run, calls: AtomicUsize::new(0) }
    }

    pub(super) fn has_fences(&self) -> bool {
        self.limits.has_fences
    }

    /// The shortest ttl that is tried, of which others are multiples.
    pub(super) fn shortest_ttl(&self) -> Duration {
        self.limits.usable(TTL)
    }
}

/// Random bits, for keys and tokens.
fn random() -> u128 {
    secret().expect("the system has random numbers")
}

/// One claim.
pub(super) struct Case<'a, S> {
    suite: &'a Suite<S>,
    pub(super) key: String,
}

/// A grant to a token.
#[derive(Debug, Clone, Copy)]
pub(super) struct TakenGrant {
    pub(super) fence: Option<u64>,
    /// When it was asked for.
    pub(super) sent: Instant,
    /// How long the store keeps the key, as it says.
    pub(super) given: Duration,
}

impl TakenGrant {
    /// The latest end of its lease.
    pub(super) fn latest_end(self) -> Instant {
        self.sent + CALL + self.given + LATE
    }
}

impl<'a, S: LockStore> Case<'a, S> {
    pub(super) fn new(suite: &'a Suite<S>, claim: &str) -> Self {
        Self { suite, key: format!("conformance:{:x}:{claim}", suite.run) }
    }

    /// A token of its own, in the form of the engine's.
    pub(super) fn token(&self) -> String {
        format!("conformance/{:032x}", random())
    }

    /// A ttl of `halves` halves of the shortest one that is tried.
    pub(super) fn halves(&self, halves: u32) -> Duration {
        self.usable(self.suite.shortest_ttl() * halves / 2)
    }

    pub(super) fn usable(&self, ttl: Duration) -> Duration {
        self.suite.limits.usable(ttl)
    }

    /// The shortest ttl that is tried.
    pub(super) fn short(&self) -> Duration {
        self.halves(2)
    }

    /// A ttl that outlasts the claim.
    pub(super) fn long(&self) -> Duration {
        self.usable(LONG.max(8 * self.suite.shortest_ttl()))
    }

    /// The longest ttl that the store permits.
    pub(super) fn longest(&self) -> Duration {
        self.suite.limits.longest_usable()
    }

    /// A unit of the store's ttl.
    pub(super) fn granularity(&self) -> Duration {
        self.suite.limits.granularity
    }

    /// A client, another one with each call.
    pub(super) fn client(&self) -> Arc<S> {
        let nth = self.suite.calls.fetch_add(1, Ordering::Relaxed);
        Arc::clone(&self.suite.clients[nth % CLIENTS])
    }

    /// A client of its own.
    pub(super) fn new_client(&self) -> S {
        self.suite.spares.lock().pop().expect("there are as many as the claims need")
    }

    /// Asks for a key, and again after an error that may pass: that has to be possible.
    pub(super) async fn acquire(
        &self,
        key: &str,
        token: &str,
        ttl: Duration,
    ) -> Result<Outcome, Fault> {
        let client = self.client();
        let ask = self.ask(key, token, ttl);
        answer("acquire", || client.acquire(ask)).await
    }

    /// A request with a fence, if the store has fences.
    pub(super) fn ask<'b>(
        &self,
        key: &'b str,
        token: &'b str,
        ttl: Duration,
    ) -> AcquireRequest<'b> {
        AcquireRequest::new(key, token, ttl).with_fence(self.suite.limits.has_fences)
    }

    pub(super) async fn renew(&self, key: &str, token: &str, ttl: Duration) -> Result<bool, Fault> {
        let client = self.client();
        answer("renew", || client.renew(HeldKey::new(key, token), ttl)).await
    }

    pub(super) async fn release(
        &self,
        key: &str,
        token: &str,
        keep: Duration,
    ) -> Result<bool, Fault> {
        let client = self.client();
        answer("release", || client.release(HeldKey::new(key, token), keep)).await
    }

    /// Asks for a key that has to be granted.
    pub(super) async fn granted(
        &self,
        key: &str,
        token: &str,
        ttl: Duration,
    ) -> Result<TakenGrant, Fault> {
        let sent = Instant::now();
        grant(key, self.acquire(key, token, ttl).await?, sent, ttl)
    }

    /// The same by this client, for a long ttl.
    pub(super) async fn granted_by(&self, client: &S, token: &str) -> Result<TakenGrant, Fault> {
        let sent = Instant::now();
        let ask = self.ask(&self.key, token, self.long());
        let outcome = answer("acquire", || client.acquire(ask)).await?;
        grant(&self.key, outcome, sent, self.long())
    }

    /// Asks for a key by another token, which has to be refused until `end`.
    pub(super) async fn refused(&self, key: &str, end: Instant) -> CaseResult {
        let token = self.token();
        let outcome = self.acquire(key, &token, self.short()).await?;
        let now = Instant::now();
        // The client's clock may be faster than the store's.
        let certain = Duration::from_millis(2) + end.saturating_duration_since(now) / 100;
        if matches!(outcome, Outcome::Granted { .. }) && now + certain < end {
            let early = end - now;
            let came = format!("it was granted {early:.1?} before the end of the lease");
            return Err(Fault::new(format!("another token is refused {key:?}"), came));
        }
        Ok(())
    }

    /// The same again and again until then.
    pub(super) async fn refused_until(&self, key: &str, end: Instant) -> CaseResult {
        while Instant::now() < end {
            self.refused(key, end).await?;
            // Often at the end, where a ttl that is a little too short shows.
            let left = end.saturating_duration_since(Instant::now());
            sleep(self.pause().min(left / 2).max(PAUSE_AT_END)).await;
        }
        Ok(())
    }

    /// Asks for a key by another token again and again, until it is granted.
    pub(super) async fn becomes_free(
        &self,
        key: &str,
        latest: Instant,
    ) -> Result<TakenGrant, Fault> {
        let token = self.token();
        loop {
            let sent = Instant::now();
            match self.acquire(key, &token, self.short()).await? {
                Outcome::Granted { fence, ttl } => {
                    return Ok(TakenGrant { fence, sent, given: ttl.unwrap_or(self.short()) });
                }
                Outcome::Held { left, .. } if sent > latest => {
                    let expected = format!("{key:?} is free by now");
                    return Err(Fault::new(expected, format!("it is held, with {left:?} left")));
                }
                Outcome::Held { .. } => sleep(self.pause()).await,
            }
        }
    }

    /// The key has to be free soon.
    pub(super) async fn is_free_soon(&self, key: &str) -> Result<TakenGrant, Fault> {
        self.becomes_free(key, Instant::now() + LATE).await
    }

    fn pause(&self) -> Duration {
        (self.short() / 20).clamp(PAUSE_MIN, PAUSE_MAX)
    }
}

/// The outcome of a request that was sent at `sent`, if it is a grant for so long or longer.
fn grant(key: &str, outcome: Outcome, sent: Instant, ttl: Duration) -> Result<TakenGrant, Fault> {
    match outcome {
        Outcome::Granted { ttl: Some(given), .. } if given < ttl => {
            Err(Fault::new(format!("a ttl of at least {ttl:?}"), format!("{given:?}")))
        }
        Outcome::Granted { fence, ttl: given } => {
            Ok(TakenGrant { fence, sent, given: given.unwrap_or(ttl) })
        }
        held @ Outcome::Held { .. } => {
            Err(Fault::new(format!("{key:?} is granted"), format!("{held:?}")))
        }
    }
}

/// The answer of a store, which may fail for a while.
async fn answer<T, F>(method: &str, call: impl Fn() -> F) -> Result<T, Fault>
where
    F: Future<Output = Result<T, StoreError>>,
{
    let until = Instant::now() + CALL;
    loop {
        let answer = timeout(CALL, call()).await;
        let came = match answer {
            Ok(Ok(answer)) => return Ok(answer),
            Ok(Err(error)) => format!("the error: {}", error.detail()),
            Err(_) => format!("none within {CALL:?}"),
        };
        if Instant::now() >= until {
            return Err(Fault::new(format!("an answer from `{method}`"), came));
        }
        sleep(PAUSE_MIN).await;
    }
}
