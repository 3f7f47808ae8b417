//! A request for a lock, as a store sees it.

use std::any::Any;
use std::borrow::Cow;
use std::fmt;
use std::slice;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use crate::sys::sync::Mutex;
use crate::sys::time::{LastMoment, Moment};
use crate::value::applied::Applied;
use crate::value::error::LockError;
use crate::value::holder::Holder;
use crate::value::key::{Listed, LockKey};
use crate::value::limits::{CONFIRM_WINDOW, FOR_EVER, WAITER_TTL};
use crate::value::token::Token;

/// The token may be sent.
const ASKS: u8 = 0;
/// A release of the token was sent.
const RELEASED: u8 = 1;
/// Another request has the token.
const TAKEN_OVER: u8 = 2;

/// A request for a lock, and its known effect. Small, as every waiter has one.
#[derive(Debug)]
pub(crate) struct Request {
    /// The key, or the first of several.
    pub(crate) key: LockKey,
    pub(crate) token: Token,
    pub(crate) ttl: Duration,
    /// The function's name, in labels of metrics.
    pub(crate) name: Cow<'static, str>,
    /// The grant has to come with a fence.
    pub(crate) fenced: bool,
    /// When the caller asked for the lock.
    pub(crate) asked: Moment,
    /// When to stop waiting. `None` does not wait; `forever` is centuries away.
    pub(crate) until: Option<Moment>,
    /// Whether the requests with this token were applied: an [`Applied`]. The attempts know more.
    applied: AtomicU8,
    /// A waiter waits for the release.
    awaited: AtomicBool,
    /// What this request may still do with its token: [`ASKS`], [`RELEASED`] or [`TAKEN_OVER`].
    token_use: AtomicU8,
    /// A waiter like this asks from the queue if the lock is not free.
    pub(crate) only_if_free: bool,
    /// No caller has asked with this token: it is for the waiters of a queue.
    pub(crate) is_of_queue: bool,
    rare: OnceLock<Box<Rare>>,
}

/// The fields that most requests do not need.
#[derive(Debug, Default)]
struct Rare {
    /// All keys when there are several, sorted and distinct; else empty.
    several: Box<[LockKey]>,
    /// The first of several keys in the caller's order.
    given: Option<LockKey>,
    /// How long the key stays at least, from the grant on.
    min_hold: Duration,
    /// End of `min_hold`, once the lock is granted.
    stays: LastMoment,
    /// Latest end of a renewal for more than the ttl.
    longest: LastMoment,
    /// The attempts at the nodes of a Redlock, one for each key.
    attempts: OnceLock<Box<[AttemptsOfKey]>>,
    /// Receives the answers of the store while the request waits.
    events: Option<Arc<dyn RequestEvents>>,
    /// The name of the last holder that a request outside of a queue waited for, with the feature
    /// `metrics`.
    behind: Mutex<Option<Cow<'static, str>>>,
}

/// The attempts of a request for one of its keys, where the locks are on several servers: each of
/// them may have a token that it has not answered for.
pub(crate) trait ServerAttempts: Any + fmt::Debug + Send + Sync {
    /// Whether no server has a token, and no request can bring one any more.
    fn is_clear(&self) -> bool;

    /// Whether a server may have a token, as far as it has answered.
    fn is_doubtful(&self) -> bool;

    /// When the current attempt began.
    fn began(&self) -> Option<Moment>;
}

/// Those of one key, which a request shares with its parts; empty until the store has made them.
type AttemptsOfKey = Arc<OnceLock<Arc<dyn ServerAttempts>>>;

/// Receives the answers to a request that waits, before its last one.
pub(crate) trait RequestEvents: fmt::Debug + Send + Sync {
    /// Another holder has the lock, and this number of waiters is before the caller.
    fn contended(&self, _: &Holder, _rank: u32) {}

    /// The request is repeated: there was no answer, or the holder is not known to have the lock.
    fn undecided(&self, _: Result<&Holder, LockError>) {}

    /// Number of callers that the request is for.
    fn callers(&self) -> usize {
        1
    }

    /// Whether one of them needs a fence.
    fn is_fenced(&self) -> bool {
        false
    }

    /// How long the key is usually held, as this process has seen it.
    fn usual_hold(&self) -> Option<Duration> {
        None
    }
}

/// For a request that nobody watches.
impl RequestEvents for () {}

impl Request {
    /// `asked`: when its caller asked for the lock.
    pub(crate) fn new(key: LockKey, token: Token, ttl: Duration, asked: Moment) -> Self {
        Self {
            key,
            token,
            ttl,
            name: Cow::Borrowed(""),
            fenced: false,
            asked,
            until: None,
            applied: AtomicU8::new(Applied::Unknown as u8),
            awaited: AtomicBool::new(false),
            token_use: AtomicU8::new(ASKS),
            only_if_free: false,
            is_of_queue: false,
            rare: OnceLock::new(),
        }
    }

    /// A request for the same key and of the same function.
    fn like(&self, token: Token, fenced: bool, asked: Moment) -> Self {
        let request = Self::new(self.key.clone(), token, self.ttl, asked);
        Self { name: self.name.clone(), fenced, ..request }
    }

    /// The same request for `several` keys, unless that is empty. `given` is the first one in the
    /// caller's order. The keys stay for `min_hold` at least.
    pub(crate) fn with(
        mut self,
        several: Vec<LockKey>,
        given: Option<LockKey>,
        min_hold: Duration,
    ) -> Self {
        if !several.is_empty() || !min_hold.is_zero() {
            let rare = Rare { several: several.into(), given, min_hold, ..Rare::default() };
            self.rare = OnceLock::from(Box::new(rare));
        }
        self
    }

    /// Whether its process has one queue for its lock. Those who share a key, or want several, have
    /// a token of their own at the store.
    pub(crate) fn has_queue(&self) -> bool {
        self.several().is_empty() && self.key.mode().is_exclusive()
    }

    /// All keys when there are several, sorted and distinct; else empty.
    pub(crate) fn several(&self) -> &[LockKey] {
        self.rare.get().map_or(&[], |rare| &rare.several)
    }

    /// All keys, sorted.
    pub(crate) fn keys(&self) -> &[LockKey] {
        match self.several() {
            [] => slice::from_ref(&self.key),
            several => several,
        }
    }

    /// The keys for logs and errors.
    pub(crate) fn listed(&self) -> Listed<'_> {
        Listed(self.keys())
    }

    /// The same request for some of its keys.
    pub(crate) fn part(&self, keys: &[LockKey]) -> Self {
        let all = self.rare();
        let attempts = self.keys().iter().zip(self.attempts_of_keys());
        let theirs = attempts.filter(|(key, _)| keys.contains(key));
        let theirs: Box<_> = theirs.map(|(_, attempts)| Arc::clone(attempts)).collect();
        let rare = Rare {
            several: if keys.len() > 1 { keys.into() } else { Box::default() },
            min_hold: all.min_hold,
            stays: all.stays.clone(),
            attempts: OnceLock::from(theirs),
            ..Rare::default()
        };
        Self {
            key: keys.first().unwrap_or(&self.key).clone(),
            token: self.token.clone(),
            name: self.name.clone(),
            fenced: self.is_fenced(),
            applied: AtomicU8::new(Applied::Unknown as u8),
            awaited: AtomicBool::new(false),
            token_use: self.same_use(),
            rare: OnceLock::from(Box::new(rare)),
            ..*self
        }
    }

    /// A request for each of its keys.
    pub(crate) fn each(&self) -> Vec<Self> {
        self.keys().iter().map(|key| self.part(slice::from_ref(key))).collect()
    }

    /// The same request with another token, of these random bits.
    pub(crate) fn with_new_token(&self, random: u128) -> Self {
        let given = self.rare.get().and_then(|rare| rare.given.clone());
        let request = self.like(self.token.another(random), self.fenced, self.asked);
        let mut request = request.with(self.several().to_vec(), given, self.min_hold());
        request.until = self.until;
        request.only_if_free = self.only_if_free;
        request
    }

    /// A request with a token of its own, of these random bits, which the queue of this caller asks
    /// with from now on. Without random bits the token has no secret, and is not sent.
    pub(crate) fn for_the_queue(&self, random: Option<u128>, now: Moment) -> Self {
        let token = random.map_or_else(|| self.token.spent(), |random| self.token.another(random));
        Self { is_of_queue: true, ..self.like(token, false, now) }
    }

    /// A request for a token of the queue, by which all of its waiters wait together, for a lock of
    /// `longest`. `None` if the token is one by which a caller has asked, and was released
    /// meanwhile.
    pub(crate) fn of_waiters(
        &self,
        longest: Duration,
        events: Arc<dyn RequestEvents>,
        now: Moment,
    ) -> Option<Self> {
        let mut request = if self.is_of_queue { self.copy(now) } else { self.take_over(now)? };
        request.ttl = request.ttl.min(longest);
        let mut rare = request.rare.take().unwrap_or_default();
        rare.events = Some(events);
        request.rare = OnceLock::from(rare);
        Some(request)
    }

    /// This request for another owner of its token; `None` if the token was released. This one
    /// neither asks any more, nor releases.
    pub(crate) fn take_over(&self, now: Moment) -> Option<Self> {
        if self.ends_use(TAKEN_OVER) != ASKS {
            return None;
        }
        let mut request = self.copy(now);
        request.shares_token_of(self);
        request.token_use = AtomicU8::new(ASKS);
        if self.applied().may_be() {
            // The server may have granted the lock for the caller's ttl.
            request.renewed_until(now.after(self.ttl));
        }
        Some(request)
    }

    /// Whether another request has its token.
    pub(crate) fn is_taken_over(&self) -> bool {
        self.token_use.load(Ordering::Acquire) == TAKEN_OVER
    }

    /// A request with its token that waits.
    fn copy(&self, now: Moment) -> Self {
        let request = self.like(self.token.clone(), false, now);
        // Until it is sent, which may take a subscription first.
        request.set_applied(Applied::No);
        let until = Some(request.asked.after(FOR_EVER));
        Self { until, ..request }
    }

    /// This request as that of the next holder of the lock that `held` was granted, with the token
    /// of `held`. Until `kept_until` the store may keep the lock without another command, if that
    /// is longer than for this request's own ttl.
    pub(crate) fn with_token_of(&self, held: &Self, kept_until: Option<Moment>) -> Self {
        let request = self.like(self.token.clone(), self.fenced, self.asked);
        let mut request = request.with(Vec::new(), None, self.min_hold());
        request.until = held.until;
        request.shares_token_of(held);
        kept_until.into_iter().for_each(|end| request.renewed_until(end));
        request
    }

    /// Whether it waits at the store if the lock is contended.
    pub(crate) fn waits(&self) -> bool {
        self.until.is_some() && !self.only_if_free
    }

    /// Whether the grant has to come with a fence, as is known now.
    pub(crate) fn is_fenced(&self) -> bool {
        self.fenced || self.events().is_fenced()
    }

    /// How long the server keeps the lock that was just granted for `ttl`, without another command.
    pub(crate) fn keeps(&self, ttl: Duration, now: Moment) -> Duration {
        ttl.max(self.left(|rare| &rare.longest, now))
    }

    /// Records that a waiter waits for the release.
    pub(crate) fn note_awaited(&self) {
        self.awaited.store(true, Ordering::Release);
    }

    /// Whether it is known that a waiter waits for the release, or that the token was in a queue.
    pub(crate) fn was_awaited(&self) -> bool {
        self.awaited.load(Ordering::Acquire)
    }

    /// Records that a release of the token is sent. A late copy of it would delete a lock that the
    /// token is granted afterwards. Returns false if the token is another request's, and must not
    /// be released for this one.
    pub(crate) fn note_released(&self) -> bool {
        self.ends_use(RELEASED) != TAKEN_OVER
    }

    /// Ends the use of the token, unless that was done. Returns its use before.
    fn ends_use(&self, end: u8) -> u8 {
        let before =
            self.token_use.compare_exchange(ASKS, end, Ordering::AcqRel, Ordering::Acquire);
        before.unwrap_or_else(|ended| ended)
    }

    /// Whether a release of the token was sent. Then only another token may ask for the lock.
    pub(crate) fn was_released(&self) -> bool {
        self.token_use.load(Ordering::Acquire) == RELEASED
    }

    fn same_use(&self) -> AtomicU8 {
        AtomicU8::new(self.token_use.load(Ordering::Acquire))
    }

    fn shares_token_of(&mut self, other: &Self) {
        self.token = other.token.clone();
        self.set_applied(other.own_applied());
        self.token_use = other.same_use();
        if other.known().next().is_some() {
            let _ = self.rare().attempts.set(other.attempts_of_keys().into());
        }
    }

    /// What became of earlier requests with this token, when this one begins to wait.
    pub(crate) fn applied_before(&self) -> Applied {
        let is_taken_up = self.rare.get().is_some_and(|rare| rare.events.is_some());
        if is_taken_up { self.applied() } else { Applied::No }
    }

    /// The receiver of the answers while it waits.
    pub(crate) fn events(&self) -> &dyn RequestEvents {
        self.rare.get().and_then(|rare| rare.events.as_deref()).unwrap_or(&())
    }

    /// It waits: another holder has the lock, and this number of waiters is before it.
    pub(crate) fn contended(&self, holder: &Holder, rank: u32) {
        match self.rare.get().and_then(|rare| rare.events.as_deref()) {
            Some(events) => events.contended(holder, rank),
            None => self.note_holder(holder),
        }
    }

    /// Notes the holder of a lock that it waits for outside of a queue.
    pub(crate) fn note_holder(&self, holder: &Holder) {
        if cfg!(feature = "metrics") {
            *self.rare().behind.lock() = Some(holder.function());
        }
    }

    /// Notes the holder that a part of this request has waited for.
    pub(crate) fn note_holder_of(&self, part: &Self) {
        if let Some(behind) = part.behind() {
            *self.rare().behind.lock() = Some(behind);
        }
    }

    /// The name of the last holder that it waited for outside of a queue.
    pub(crate) fn behind(&self) -> Option<Cow<'static, str>> {
        self.rare.get()?.behind.lock().clone()
    }

    /// The attempts for its first key, which the store makes once.
    pub(crate) fn attempts<A: ServerAttempts + Default>(&self) -> Arc<A> {
        let none = AttemptsOfKey::default();
        let of_key = self.attempts_of_keys().first().unwrap_or(&none);
        let attempts: Arc<dyn Any + Send + Sync> =
            Arc::clone(of_key.get_or_init(|| Arc::new(A::default()))) as _;
        attempts.downcast().expect("a request is sent by stores of one kind only")
    }

    fn attempts_of_keys(&self) -> &[AttemptsOfKey] {
        let none = || self.keys().iter().map(|_| Arc::default()).collect();
        self.rare().attempts.get_or_init(none)
    }

    /// Records that the key stays until then at least.
    #[cfg(feature = "reuse")]
    pub(crate) fn stays_until(&self, moment: Moment) {
        self.rare().stays.note(moment);
    }

    /// Records a grant that a request sent at `sent` has brought, for `min_hold`.
    pub(crate) fn granted(&self, sent: Moment) {
        if let Some(rare) = self.rare.get()
            && !rare.min_hold.is_zero()
        {
            rare.stays.note(sent.after(rare.min_hold));
        }
    }

    /// Records whether the requests with this token were applied.
    pub(crate) fn set_applied(&self, applied: Applied) {
        self.applied.store(applied as u8, Ordering::Release);
    }

    /// Whether the requests with this token were applied. While that is unknown, a request may
    /// still arrive at a server, or a node of a Redlock may have a token.
    pub(crate) fn applied(&self) -> Applied {
        if self.known().all(|attempts| attempts.is_clear()) {
            self.own_applied()
        } else {
            Applied::Unknown
        }
    }

    fn own_applied(&self) -> Applied {
        match self.applied.load(Ordering::Acquire) {
            0 => Applied::No,
            1 => Applied::Yes,
            _ => Applied::Unknown,
        }
    }

    /// Records that the server is asked to keep the lock until `end`.
    pub(crate) fn renewed_until(&self, end: Moment) {
        self.rare().longest.note(end);
    }

    /// Whether a node of a Redlock may have a token, because it has not answered that the token is
    /// gone.
    pub(crate) fn is_doubtful(&self) -> bool {
        self.known().any(|attempts| attempts.is_doubtful())
    }

    /// How long the key, or the token in its queue, may last without a release.
    pub(crate) fn lasts(&self, now: Moment) -> Duration {
        let queued = if self.waits() { WAITER_TTL + CONFIRM_WINDOW } else { Duration::ZERO };
        self.keeps(self.ttl, now).max(queued)
    }

    /// How long the key stays at least, from the grant on.
    fn min_hold(&self) -> Duration {
        self.rare.get().map_or(Duration::ZERO, |rare| rare.min_hold)
    }

    /// How long the key has to stay when it is released now, because of `min_hold`; zero without a
    /// grant.
    pub(crate) fn keep(&self, now: Moment) -> Duration {
        self.left(|rare| &rare.stays, now)
    }

    fn left(&self, until: impl Fn(&Rare) -> &LastMoment, now: Moment) -> Duration {
        self.rare.get().map_or(Duration::ZERO, |rare| until(rare).get().since(now))
    }

    /// When the last of several attempts began.
    pub(crate) fn last_attempt(&self) -> Option<Moment> {
        self.known().filter_map(|attempts| attempts.began()).max()
    }

    /// The attempts so far.
    fn known(&self) -> impl Iterator<Item = &Arc<dyn ServerAttempts>> {
        let of_keys = self.rare.get().and_then(|rare| rare.attempts.get());
        of_keys.into_iter().flatten().filter_map(|of_key| of_key.get())
    }

    fn rare(&self) -> &Rare {
        self.rare.get_or_init(Box::default)
    }

    /// The first key in the caller's order.
    pub(crate) fn first_given(&self) -> &LockKey {
        let given = self.rare.get().and_then(|rare| rare.given.as_ref());
        given.unwrap_or(&self.key)
    }
}

/// Requests are equal that are for the same token.
impl PartialEq for Request {
    fn eq(&self, other: &Self) -> bool {
        self.token == other.token
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every waiter has one.
    #[test]
    fn a_request_is_small() {
        assert!(size_of::<Request>() <= 136, "{}", size_of::<Request>());
    }

    #[cfg(feature = "metrics")]
    #[test]
    fn outside_of_a_queue_the_last_holder_is_the_one_that_was_waited_for() {
        use crate::value::holder::note_name;

        for name in ["first", "second"] {
            note_name(name, "");
        }
        let new = || {
            Request::new(
                "k".into(),
                Token::new("", "", "").unwrap(),
                WAITER_TTL,
                Moment::at(Duration::ZERO),
            )
        };
        let request = new();
        let part = new();
        part.contended(&Holder::new("web-3:4711:first"), 1);
        part.contended(&Holder::new("web-3:4712:second"), 0);
        request.note_holder_of(&part);
        assert_eq!(request.behind().as_deref(), Some("second"));
        request.note_holder_of(&new());
        assert_eq!(request.behind().as_deref(), Some("second"), "another part was free");
    }
}
