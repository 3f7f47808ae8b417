//! One acquisition as a backend sees it.

use crate::value::labels::Labelled;
use std::borrow::Cow;
use std::slice;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use crate::protocol::attempts::Attempts;
use crate::value::error::LockError;
use crate::value::key::{Listed, LockKey};
use crate::value::labels::Labels;
use crate::value::limits::{CONFIRM_WINDOW, WAITER_TTL};
use crate::value::time::{LastMoment, Moment};
use crate::value::token::Token;

/// What is asked for, and what became of it. Everybody who waits has one, so it is small.
#[derive(Debug)]
pub(crate) struct Request {
    /// The key, or the first of several.
    pub(crate) key: LockKey,
    pub(crate) token: Token,
    pub(crate) ttl: Duration,
    /// Under which it is counted.
    pub(crate) name: Cow<'static, str>,
    /// Whether the grant is to come with a fence.
    pub(crate) fenced: bool,
    /// Since when its caller wants it.
    pub(crate) asked: Moment,
    /// Until when to wait in line; `None` for not at all, and centuries for ever.
    pub(crate) until: Option<Moment>,
    /// The fate of every request with this token is known.
    settled: AtomicBool,
    rare: OnceLock<Box<Rare>>,
}

/// What most claims do not need.
#[derive(Debug, Default)]
struct Rare {
    /// All keys when there are several, in order and all different; else none.
    several: Box<[LockKey]>,
    /// The first of several as they were given.
    given: Option<LockKey>,
    /// How long the key stays at least, from the grant on.
    min_hold: Duration,
    /// Until when that is, once it is granted.
    stays: LastMoment,
    /// Until when the server may count at most, if it was asked for more than the ttl.
    longest: LastMoment,
    /// What is known of it at the nodes of a Redlock, key by key.
    all_attempts: OnceLock<Box<[Arc<Attempts>]>>,
}

impl Request {
    pub(crate) fn new(key: LockKey, token: Token, ttl: Duration) -> Self {
        let (name, fenced, until, asked) = ("".into(), false, None, Moment::now());
        let (settled, rare) = Default::default();
        Self { key, token, ttl, name, fenced, asked, until, settled, rare }
    }

    /// The same for several keys, unless these are none, of which `given` was given first, and that
    /// stay for `min_hold` at least.
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

    /// All keys when there are several, in order and all different; else none.
    pub(crate) fn several(&self) -> &[LockKey] {
        self.rare.get().map_or(&[], |rare| &rare.several)
    }

    /// The keys, in the order in which they are taken.
    pub(crate) fn keys(&self) -> &[LockKey] {
        match self.several() {
            [] => slice::from_ref(&self.key),
            several => several,
        }
    }

    /// The keys as they are told.
    pub(crate) fn listed(&self) -> Listed<'_> {
        Listed { first: &self.key, more: self.several().get(1..).unwrap_or_default() }
    }

    /// The same for some of its keys.
    pub(crate) fn part(&self, keys: &[LockKey]) -> Self {
        let all = self.rare();
        let rare = Rare {
            several: if keys.len() > 1 { keys.into() } else { Box::default() },
            given: all.given.clone(),
            min_hold: all.min_hold,
            stays: all.stays.clone(),
            longest: LastMoment::default(),
            all_attempts: self.ballots_of(keys),
        };
        Self {
            key: keys.first().unwrap_or(&self.key).clone(),
            token: self.token.clone(),
            name: self.name.clone(),
            settled: AtomicBool::new(false),
            rare: OnceLock::from(Box::new(rare)),
            ..*self
        }
    }

    /// Each of its keys by itself.
    pub(crate) fn each(&self) -> Vec<Self> {
        self.keys().iter().map(|key| self.part(slice::from_ref(key))).collect()
    }

    /// The same by another token: for who begins anew.
    pub(crate) fn anew(&self) -> Result<Self, LockError> {
        let request = Self::new(self.key.clone(), self.token.another()?, self.ttl);
        let min_hold = self.rare.get().map_or(Duration::ZERO, |rare| rare.min_hold);
        let given = self.rare.get().and_then(|rare| rare.given.clone());
        let mut request = request.with(self.several().to_vec(), given, min_hold);
        request.name.clone_from(&self.name);
        (request.fenced, request.until, request.asked) = (self.fenced, self.until, self.asked);
        Ok(request)
    }

    /// What is known of it at the nodes of a Redlock, key by key.
    pub(crate) fn all_attempts(&self) -> &[Arc<Attempts>] {
        let none = || self.keys().iter().map(|_| Arc::default()).collect();
        self.rare().all_attempts.get_or_init(none)
    }

    fn ballots_of(&self, keys: &[LockKey]) -> OnceLock<Box<[Arc<Attempts>]>> {
        let theirs =
            |(key, attempts): (_, &Arc<Attempts>)| keys.contains(key).then(|| attempts.clone());
        OnceLock::from(
            self.keys().iter().zip(self.all_attempts()).filter_map(theirs).collect::<Box<[_]>>(),
        )
    }

    /// Takes note of the grant that a request sent at `sent` brought, if that matters later.
    pub(crate) fn granted(&self, sent: Moment) {
        if let Some(rare) = self.rare.get()
            && !rare.min_hold.is_zero()
        {
            rare.stays.note(sent.after(rare.min_hold));
        }
    }

    /// Takes note of whether a request with this token may still arrive at the server; for a Redlock
    /// the ballots tell more.
    pub(crate) fn settle(&self, settled: bool) {
        self.settled.store(settled, Ordering::Release);
    }

    pub(crate) fn is_settled(&self) -> bool {
        self.settled.load(Ordering::Acquire) && self.known().all(|attempts| attempts.is_clear())
    }

    /// Takes note that the server is asked to count until `end`.
    pub(crate) fn lengthened(&self, end: Moment) {
        self.rare().longest.note(end);
    }

    /// Whether a node of a Redlock may have a token that it has not said to be gone.
    pub(crate) fn is_doubtful(&self) -> bool {
        self.known().any(|attempts| attempts.is_doubtful())
    }

    /// How many bytes it takes, about.
    pub(crate) fn bytes(&self) -> usize {
        const BALLOT: usize = 512;
        let key = |key: &LockKey| size_of::<LockKey>() + key.as_str().len();
        let counts = 2 * size_of::<usize>();
        let rare = self.rare.get().map_or(0, |_| size_of::<Rare>());
        let several: usize = self.several().iter().map(key).sum();
        let (own, all_attempts) =
            (key(&self.key) + self.token.expose().len(), self.known().count());
        counts + size_of::<Self>() + own + rare + several + all_attempts * BALLOT
    }

    /// For how long the key, or a place in its line, may be there without a release.
    pub(crate) fn lasts(&self) -> Duration {
        let place = self.until.map_or(Duration::ZERO, |_| WAITER_TTL + CONFIRM_WINDOW);
        self.ttl.max(self.left(|rare| &rare.longest)).max(place)
    }

    /// How long the key has to stay when it is released now; zero without a grant.
    pub(crate) fn keep(&self) -> Duration {
        self.left(|rare| &rare.stays)
    }

    fn left(&self, until: impl Fn(&Rare) -> &LastMoment) -> Duration {
        self.rare.get().map_or(Duration::ZERO, |rare| until(rare).get().since(Moment::now()))
    }

    /// The ballots, if there are any yet.
    fn known(&self) -> impl Iterator<Item = &Arc<Attempts>> {
        self.rare.get().and_then(|rare| rare.all_attempts.get()).into_iter().flatten()
    }

    fn rare(&self) -> &Rare {
        self.rare.get_or_init(Box::default)
    }
}

impl Labelled for Request {
    fn labels(&self) -> Labels<'_> {
        let given = self.rare.get().and_then(|rare| rare.given.as_ref());
        Labels { name: &self.name, key: given.unwrap_or(&self.key) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Everybody who waits has one.
    #[test]
    fn a_claim_is_small() {
        assert!(size_of::<Request>() <= 136, "{}", size_of::<Request>());
    }
}
