//! The adapter: a store of one's own as the engine asks it.

use std::fmt;
use std::future::pending;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::select;
use tokio::time::{sleep_until, timeout};

use crate::protocol::answer::{Answer, Contention, Failed, Queueing, Released, StoreFuture};
use crate::protocol::ask::Ask;
use crate::protocol::request::Request;
use crate::store::backend::{Backend, Facts, RenewKind, ServerHealth, Wait};
use crate::store::lock_store::contract::LockStore;
use crate::store::lock_store::error::{StoreError, StoreErrorKind};
use crate::store::lock_store::limits::StoreLimits;
use crate::store::lock_store::messages::{AcquireRequest, HeldKey, Outcome};
use crate::store::lock_store::rests::Rests;
use crate::store::remote::budget::{Budget, Retry};
use crate::store::remote::error::{RemoteError, Transient};
use crate::store::remote::health::{Health, Monitor};
use crate::store::remote::server::{Asked, RemoteStore, acquire, ask_until};
use crate::store::shutdown::Shutdown;
use crate::sys::backoff::Backoff;
use crate::sys::time::{Instant, Moment};
use crate::value::applied::Applied;
use crate::value::error::{Cause, LockError, UnavailableReason};
use crate::value::fence::{Fence, FenceBlock};
use crate::value::holder::Holder;
use crate::value::key::LockKey;
use crate::value::limits::FOR_EVER;
use crate::value::mode::Mode;

/// The first pause of a waiter: 25 to 42 ms with its jitter.
const FIRST_PAUSE: Duration = Duration::from_millis(33);
/// How long a pause is compared to the one before, in percent.
const GROWTH: u32 = 150;
/// The shortest pause after a hint, so that a store whose hints are always there is not asked
/// without a pause.
const AFTER_HINT: Duration = Duration::from_millis(2);

/// A store of somebody else, behind what all stores on a network need.
pub(crate) struct Adapter<S> {
    store: Arc<S>,
    about: Arc<About>,
    timeout: Duration,
    /// Whether callers without a wait fail at once while the store is down.
    fails_fast: bool,
}

/// What is known of the store, for all handles of a manager.
struct About {
    name: Box<str>,
    limits: StoreLimits,
    monitor: Monitor,
    health: Arc<Health>,
    rests: Rests,
}

impl<S: LockStore> Adapter<S> {
    /// Locks in this store, not asked yet. No answer takes longer than a quarter of `timeout`.
    pub(crate) fn new(store: S, timeout: Duration, fails_fast: bool) -> Self {
        let name = store.name().into_boxed_str();
        let monitor = Monitor::default();
        let health = monitor.health_of(&name);
        let about = Arc::new(About {
            name,
            limits: store.limits(),
            monitor,
            health,
            rests: Rests::default(),
        });
        Self { store: Arc::new(store), about, timeout, fails_fast }
    }

    /// An error for a setting that the store cannot keep.
    pub(crate) fn refusal(&self, setting: &'static str, detail: &str) -> LockError {
        LockError::invalid(setting, format!("{} {detail}", self.about.name))
    }

    /// Checks a ttl against the limits of the store, for the setting of that name.
    pub(crate) fn check_ttl(&self, setting: &'static str, ttl: Duration) -> Result<(), LockError> {
        let StoreLimits { shortest_ttl, .. } = self.about.limits;
        let longest_ttl = self.about.limits.longest_usable();
        if (shortest_ttl..=longest_ttl).contains(&ttl) {
            return Ok(());
        }
        let detail = format!("takes {shortest_ttl:?} to {longest_ttl:?}, and not {ttl:?}");
        Err(self.refusal(setting, &detail))
    }

    /// Checks that the limits of the store leave a ttl.
    pub(crate) fn check_limits(&self) -> Result<(), LockError> {
        let StoreLimits { shortest_ttl, .. } = self.about.limits;
        let longest_ttl = self.about.limits.longest_usable();
        if shortest_ttl <= longest_ttl {
            return Ok(());
        }
        let detail = format!(
            "has a shortest ttl of {shortest_ttl:?}, and a longest one of {longest_ttl:?} in whole \
             units: mend its `limits`"
        );
        Err(self.refusal("store", &detail))
    }

    /// Asks again and again, for at most `wait` and no longer than until the manager shuts down.
    async fn wait(
        &self,
        request: &Request,
        wait: Duration,
        shutdown: &Shutdown,
    ) -> Result<Answer, Failed> {
        let until = Instant::now() + wait.min(FOR_EVER);
        let longest = self.about.limits.longest_pause.max(FIRST_PAUSE);
        let mut pauses = Backoff::growing(FIRST_PAUSE, longest, GROWTH);
        let mut earlier = request.token.applied_before();
        let key = request.ask.key.as_str();
        let mut rest = self.about.rests.rest(key, Instant::now());
        if let Some(rest) = rest {
            let end = until.min(Instant::now() + rest);
            shutdown.unless(Box::pin(paused(pending(), end, end))).await?;
        }
        loop {
            let is_over = until <= Instant::now();
            // In a box, as it is large, and a waiter waits most of the time.
            let asked = Box::pin(async {
                let budget = Budget::until(until, self.timeout);
                let ask = |budget, earlier| self.ask_once(request, budget, earlier);
                let asked = ask_until(self, request, budget, &mut earlier, ask).await;
                asked.map_err(|error| Failed { error, applied: earlier })
            });
            let reply = shutdown.unless(asked).await?;
            let has_others = matches!(reply, Answer::Contended(_));
            if has_others || rest.take().is_some() {
                self.about.rests.found(key, has_others, Instant::now());
            }
            let Answer::Contended(contention) = reply else { return Ok(reply.after(earlier)) };
            // Nothing is in flight now, and another token has the key.
            request.token.set_applied(earlier);
            if is_over {
                let queue = Queueing::Behind(0);
                return Ok(Answer::Contended(Contention { queue, earlier, ..contention }));
            }
            request.ask.events().contended(&contention.holder, 0);
            // A lease that should be over may take the store a while to end.
            let left = contention.holder.free_within.filter(|left| !left.is_zero());
            let end_of_lease = left.map_or(longest, |left| left + AFTER_HINT);
            drop(contention);
            let now = Instant::now();
            let pause = pauses.next_within(longest).min(longest).min(end_of_lease);
            let next = until.min(now + pause.max(AFTER_HINT));
            let freed = self.store.freed(key);
            shutdown.unless(Box::pin(paused(freed, now + AFTER_HINT, next))).await?;
        }
    }

    /// The fence of a grant, of which each serves one holder.
    fn fence(&self, fence: Option<u64>) -> Result<FenceBlock, RemoteError> {
        let Some(number) = fence else {
            return Err(self.unexpected("a grant without a fence, where one was asked".to_owned()));
        };
        let fence = Fence::try_from(number).map_err(|error| self.unexpected(error.to_string()))?;
        Ok(FenceBlock::new(fence, fence))
    }

    /// Waits for an answer of the store, for as long as one may take.
    async fn answered<T>(
        &self,
        asked: impl Future<Output = Result<T, StoreError>>,
        budget: Budget,
    ) -> Result<T, RemoteError> {
        let health = &self.about.health;
        let name = || self.about.name.to_string();
        let began = Instant::now();
        let answer = match timeout(budget.answer, asked).await {
            Ok(Ok(answer)) => Ok(answer),
            Ok(Err(error)) => Err(self.failure(error)),
            Err(_) => Err(RemoteError::unanswered().at(name)),
        };
        match &answer {
            Ok(_) => {
                health.round_trip.note(began);
                health.answered(name);
            }
            Err(RemoteError::Transient(Transient { reason, cause, .. })) => {
                // Only the store knows why it has no answer. To the engine it is down.
                let reason = match reason {
                    UnavailableReason::Other => UnavailableReason::Disconnected,
                    reason => *reason,
                };
                health.failed(reason, cause.as_ref(), self.facts().answer_time(), name);
            }
            Err(_) => health.answered(name),
        }
        answer
    }

    /// What the engine does about an error of the store.
    fn failure(&self, error: StoreError) -> RemoteError {
        let server = Some(self.about.name.clone());
        let detail = error.detail();
        let transient = |applied| self.transient(UnavailableReason::Other, detail.clone(), applied);
        match error.kind {
            StoreErrorKind::Unknown => {
                transient(Applied::Unknown).with_cause(Cause::of(error.into_source()))
            }
            StoreErrorKind::NotApplied => {
                transient(Applied::No).with_cause(Cause::of(error.into_source()))
            }
            StoreErrorKind::Refused => {
                RemoteError::Final(LockError::AccessDenied { detail, server, keys: None })
            }
            StoreErrorKind::Unusable => {
                RemoteError::Final(self.refusal("store", &format!("says: {detail}")))
            }
            StoreErrorKind::NotALock => RemoteError::NotALock,
        }
    }

    /// The error of a grant that breaks what the store has promised. Its token is released.
    fn unexpected(&self, detail: String) -> RemoteError {
        self.transient(UnavailableReason::Protocol, detail, Applied::Unknown)
    }

    fn transient(
        &self,
        reason: UnavailableReason,
        detail: String,
        applied: Applied,
    ) -> RemoteError {
        let transient = Transient::new(reason, detail, applied);
        RemoteError::Transient(transient).at(|| self.about.name.to_string())
    }

    async fn release_one(&self, request: &Request) -> Result<Released, LockError> {
        let mut retry = Retry::new(Budget::brief(self.timeout));
        let release = |budget, _| {
            let held = HeldKey::new(request.ask.key.as_str(), request.token.secret.expose());
            let keep = self.about.limits.rounded(request.token.stays_for(Moment::now()));
            self.answered(self.store.release(held, keep), budget)
        };
        let was_held = retry.repeat(release).await;
        if request.token.was_awaited() {
            self.about.rests.turn_ended(request.ask.key.as_str(), Instant::now());
        }
        let was_held = was_held.map_err(|error| error.into_error(&request.ask.key))?;
        Ok(Released::of(was_held, retry.earlier))
    }

    /// Renews once: the engine knows when to repeat that.
    async fn renew_one(&self, request: &Request, ttl: Duration) -> Result<bool, LockError> {
        if ttl > self.about.limits.longest_usable() {
            self.check_ttl("ttl", ttl)?;
        }
        let held = HeldKey::new(request.ask.key.as_str(), request.token.secret.expose());
        let asked = self.store.renew(held, self.about.limits.usable(ttl));
        let answer = self.answered(asked, Budget::brief(self.timeout)).await;
        answer.map_err(|error| error.into_error(&request.ask.key))
    }
}

/// Waits until the store hints that the key is free, or until `next`; at least until `earliest`.
async fn paused(
    freed: impl Future<Output = ()>,
    earliest: Instant,
    next: Instant,
) -> Result<(), Failed> {
    select(pin!(freed), pin!(sleep_until(next))).await;
    sleep_until(earliest.min(next)).await;
    Ok(())
}

impl<S: LockStore> Backend for Adapter<S> {
    fn facts(&self) -> Facts {
        let Self { timeout, fails_fast, .. } = *self;
        Facts { timeout, fails_fast, polls: true, ..Facts::default() }
    }

    fn health(&self, _: &Request) -> ServerHealth {
        self.about.health.now()
    }

    fn apart(&self) -> Arc<dyn Backend> {
        let store = self.store.apart().map_or_else(|| Arc::clone(&self.store), Arc::new);
        Arc::new(Self { store, about: Arc::clone(&self.about), ..*self })
    }

    fn ready(&self) -> StoreFuture<'_, Result<(), LockError>> {
        Box::pin(async {
            let mut retry = Retry::new(Budget::within(self.timeout));
            let ready = retry.repeat(|budget, _| self.answered(self.store.ready(), budget)).await;
            ready.map_err(|error| error.into_error(&LockKey::from("")))
        })
    }

    fn ask(
        self: Arc<Self>,
        request: Request,
        patience: Wait,
    ) -> StoreFuture<'static, Result<Answer, Failed>> {
        Box::pin(async move {
            match patience {
                Wait::AtOnce(until) => acquire(&*self, &request, until).await,
                Wait::Waits(wait, shutdown) => self.wait(&request, wait, &shutdown).await,
            }
        })
    }

    fn release<'a>(&'a self, request: &'a Request) -> StoreFuture<'a, Result<Released, LockError>> {
        Box::pin(self.release_one(request))
    }

    fn renew<'a>(
        &'a self,
        request: &'a Request,
        ttl: Duration,
        _: RenewKind,
    ) -> StoreFuture<'a, Result<bool, LockError>> {
        Box::pin(self.renew_one(request, ttl))
    }

    fn at_once(&self, _: &[LockKey]) -> usize {
        1
    }

    #[cfg(any(feature = "defer", feature = "inspect", feature = "reuse"))]
    fn refusal(&self, setting: &'static str, detail: &str) -> Option<LockError> {
        Some(Self::refusal(self, setting, detail))
    }

    fn address(&self, _: &Request) -> Option<Box<str>> {
        Some(self.about.name.clone())
    }

    fn is_news(&self) -> bool {
        self.about.monitor.is_news()
    }

    fn check_ask(&self, ask: &Ask) -> Result<(), LockError> {
        let mut modes = ask.keys().iter().map(LockKey::mode);
        if let Some(mode) = modes.find(|mode| !mode.is_exclusive()) {
            let setting = if mode == Mode::Shared { "shared" } else { "permits" };
            let detail = "has exclusive locks only: use Redis or PostgreSQL for it";
            return Err(self.refusal(setting, detail));
        }
        if ask.fenced && !self.about.limits.has_fences {
            return Err(self.refusal("fence", "has no fences: use a store that numbers its grants"));
        }
        self.check_ttl("ttl", ask.ttl)
    }

    fn close(&self) {
        self.store.close();
    }
}

impl<S: LockStore> RemoteStore for Adapter<S> {
    async fn ask_once(&self, request: &Request, budget: Budget, _: Applied) -> Asked {
        // Read once: a waiter that needs a fence may join meanwhile.
        let is_fenced = request.ask.needs_fence_now();
        let ttl = self.about.limits.usable(request.ask.ttl);
        let ask = AcquireRequest::new(request.ask.key.as_str(), request.token.secret.expose(), ttl);
        // Since when the lease counts.
        let sent = Moment::now();
        // From here on a caller that is dropped may leave the token in the store.
        request.token.set_applied(Applied::Unknown);
        let asked = self.store.acquire(ask.with_fence(is_fenced));
        match self.answered(asked, budget).await? {
            Outcome::Granted { fence, ttl: given } => {
                let given = given.unwrap_or(ttl);
                if given < ttl {
                    let detail = format!("a ttl of {given:?}, where {ttl:?} was asked");
                    return Err(self.unexpected(detail));
                }
                if given > request.ask.ttl {
                    request.token.note_kept_until(Moment::now().after(given));
                }
                let fences = is_fenced.then(|| self.fence(fence)).transpose()?;
                Ok(Answer::granted(request, sent, fences.into_iter().collect()))
            }
            Outcome::Held { by, left } => {
                let holder = Box::new(Holder::of(by.unwrap_or_default().as_bytes(), left));
                Ok(Answer::Contended(Contention { holder, ..Contention::default() }))
            }
        }
    }
}

impl<S: fmt::Debug> fmt::Debug for Adapter<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.store.fmt(f)
    }
}
