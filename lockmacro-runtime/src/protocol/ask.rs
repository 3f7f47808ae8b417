//! What a caller asks for, and how. It never changes while it is asked, and says nothing of what
//! has become of it.

use std::borrow::Cow;
use std::fmt;
use std::slice;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use crate::sys::time::Moment;
use crate::value::error::LockError;
use crate::value::holder::Holder;
use crate::value::key::{Listed, LockKey};
use crate::value::limits::FOR_EVER;
use crate::value::token::{About, Token};

/// What a caller wants, or the queue of a key for all that wait. Small, as every waiter has one.
#[derive(Debug, Clone)]
pub(crate) struct Ask {
    /// The key, or the first of several.
    pub(crate) key: LockKey,
    /// All keys when there are several, sorted and distinct; else empty.
    pub(crate) several: Box<[LockKey]>,
    /// Index of the first key in the caller's order.
    pub(crate) first_given: u8,
    /// The grant has to come with a fence.
    pub(crate) fenced: bool,
    /// A waiter like this asks from the queue if the lock is not free.
    pub(crate) only_if_free: bool,
    pub(crate) ttl: Duration,
    /// How long the key stays at least, from the grant on.
    pub(crate) min_hold: Duration,
    /// When the caller asked for the lock.
    pub(crate) asked: Moment,
    /// When to stop waiting. `None` does not wait; `forever` is centuries away.
    pub(crate) until: Option<Moment>,
    /// The function's name, in labels of metrics.
    pub(crate) name: Cow<'static, str>,
    /// What its tokens say of the holder: the label of the manager, `asked` by the wall clock, and
    /// a note.
    pub(crate) label: Arc<str>,
    pub(crate) asked_wall: Option<SystemTime>,
    pub(crate) note: Option<Box<str>>,
    /// Receives the answers of the store while the request waits.
    pub(crate) events: Option<Arc<dyn RequestEvents>>,
}

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

impl Ask {
    /// `asked`: when its caller asked for the lock.
    pub(crate) fn new(key: LockKey, ttl: Duration, asked: Moment) -> Self {
        Self {
            key,
            several: Box::default(),
            first_given: 0,
            fenced: false,
            only_if_free: false,
            ttl,
            min_hold: Duration::ZERO,
            asked,
            until: None,
            name: Cow::Borrowed(""),
            label: Arc::default(),
            asked_wall: None,
            note: None,
            events: None,
        }
    }

    /// What the queue of this caller asks for, from `now` on and for all that wait: the lock for
    /// `longest`. It is nobody's who is shown, so it says nothing of a holder.
    pub(crate) fn for_the_queue(
        &self,
        longest: Duration,
        events: Arc<dyn RequestEvents>,
        now: Moment,
    ) -> Self {
        Self {
            name: self.name.clone(),
            until: Some(now.after(FOR_EVER)),
            events: Some(events),
            ..Self::new(self.key.clone(), self.ttl.min(longest), now)
        }
    }

    /// The same for some of its keys, for `ttl`.
    pub(crate) fn part(&self, keys: &[LockKey], ttl: Duration) -> Self {
        let key = keys.first().unwrap_or(&self.key).clone();
        let several = if keys.len() > 1 { keys.into() } else { Box::default() };
        Self { key, several, first_given: 0, ttl, ..self.clone() }
    }

    /// The same for one node of a Redlock, which tells nobody of its answers. All nodes are asked
    /// alike: with a fence, or without.
    pub(crate) fn for_a_node(&self) -> Self {
        Self { fenced: self.needs_fence_now(), events: None, ..self.clone() }
    }

    /// Whether its process has one queue for its lock. Those who share a key, or want several, have
    /// a token of their own at the store.
    pub(crate) fn has_queue(&self) -> bool {
        self.several.is_empty() && self.key.mode().is_exclusive()
    }

    /// All keys, sorted.
    pub(crate) fn keys(&self) -> &[LockKey] {
        match &*self.several {
            [] => slice::from_ref(&self.key),
            several => several,
        }
    }

    /// The keys for logs and errors.
    pub(crate) fn listed(&self) -> Listed<'_> {
        Listed(self.keys())
    }

    /// The first key in the caller's order.
    pub(crate) fn first_given(&self) -> &LockKey {
        self.several.get(usize::from(self.first_given)).unwrap_or(&self.key)
    }

    /// Whether the grant has to come with a fence, for the caller or for one that waits by now.
    pub(crate) fn needs_fence_now(&self) -> bool {
        self.fenced || self.events().is_fenced()
    }

    /// The receiver of the answers while it waits.
    pub(crate) fn events(&self) -> &dyn RequestEvents {
        self.events.as_deref().unwrap_or(&())
    }

    /// A token by which the store knows its holder, of these random bits. Without any the token has
    /// no secret.
    pub(crate) fn token(&self, random: u128) -> Token {
        let mut permits = self.keys().iter().map(|key| key.mode().permits());
        // Keys with different numbers have none in common.
        let first = permits.next().flatten();
        let permits = first.filter(|_| permits.all(|other| other == first));
        let about = About {
            asked: self.asked_wall,
            could_wait: self.until.is_some(),
            permits,
            note: self.note.as_deref(),
        };
        Token::of(&self.label, &self.name, about, random)
    }

    /// What callers of this process see of it once it holds the lock, whoever had its token before.
    pub(crate) fn holder(&self) -> Holder {
        // A token without random bits is that of a key which is kept after its holder.
        Holder { is_kept: false, ..self.token(0).holder() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every waiter has one.
    #[test]
    fn an_ask_is_small() {
        assert!(size_of::<Ask>() <= 216, "{}", size_of::<Ask>());
    }
}
