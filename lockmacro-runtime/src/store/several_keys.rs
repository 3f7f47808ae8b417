//! Acquires several keys, all or none.
//!
//! Free keys are acquired at once, as many as one script can take. A caller that has to wait
//! acquires the keys in the order of their bytes. It waits for each key in that key's queue, and
//! holds the keys before it meanwhile.
//!
//! - No deadlock: of two callers that want the same keys in opposite orders, one has the first key,
//!   and the other waits for that key without holding any.
//! - No starvation: every queue is served in the order of arrival. A caller that released all keys
//!   and started over would hold nothing while it waits. On busy keys it might never find all of
//!   them free at one moment, because a key with waiters is handed off and never free.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Poll, ready};
use std::time::Duration;

use tokio::time::sleep;

use crate::protocol::answer::{Answer, Contention, Failed, Grant, Queueing, StoreFuture};
use crate::protocol::lease::late;
use crate::protocol::request::Request;
use crate::store::backend::{RenewKind, Wait};
use crate::store::handle::Store;
use crate::store::shutdown::Shutdown;
use crate::sys::time::{Instant, Moment};
use crate::value::applied::Applied;
use crate::value::error::LockError;
use crate::value::fence::FenceBlock;
use crate::value::limits::{CONFIRM_WINDOW, FOR_EVER};

/// Pause before a failed renewal is repeated.
const RETRY: Duration = Duration::from_millis(50);

impl Store {
    /// Requests several keys, and waits for them if the caller waits.
    pub(super) fn take_one_by_one<'a>(
        &'a self,
        request: &'a Request,
        wait: Wait,
    ) -> StoreFuture<'a, Result<Answer, Failed>> {
        let until = match wait {
            Wait::AtOnce(_) => None,
            Wait::Waits(wait, shutdown) => Some((Instant::now() + wait.min(FOR_EVER), shutdown)),
        };
        let shutdown = until.as_ref().map(|(_, shutdown)| Arc::clone(shutdown));
        let end = until
            .as_ref()
            .map(|(until, _)| *until.max(&(Instant::now() + self.facts.answer_time())));
        // A waiter that dies must not keep its keys for the whole ttl.
        let ttl =
            if until.is_some() { request.ask.ttl.min(CONFIRM_WINDOW) } else { request.ask.ttl };
        let one_by_one = OneByOne {
            store: self,
            request,
            until,
            end,
            ttl,
            held: 0,
            since: Moment::now(),
            renewing: None,
            added: None,
            fences: Vec::new(),
            earlier: Applied::No,
        };
        let taken = Box::pin(one_by_one.take());
        match shutdown {
            None => taken,
            Some(shutdown) => Box::pin(async move { shutdown.unless(taken).await }),
        }
    }
}

/// Why the held keys are lost: an error when the server did not answer in time, `None` when the
/// server says that they are lost.
type Loss = Option<LockError>;

/// An acquisition of one key after the other.
struct OneByOne<'a> {
    store: &'a Store,
    request: &'a Request,
    /// Until when to wait, if at all, and the shutdown that may end the wait.
    until: Option<(Instant, Arc<Shutdown>)>,
    /// When a waiter starts no more requests. Even a waiter with little time gets one answer.
    end: Option<Instant>,
    /// The ttl of the held keys while others are missing.
    ttl: Duration,
    /// The number of held keys, from the first one on.
    held: usize,
    /// Since when the leases of all held keys count.
    since: Moment,
    /// For a waiter: the next renewal of the held keys, which returns since when they count. It
    /// goes on from part to part, because parts may follow each other faster than a renewal is
    /// answered.
    renewing: Option<StoreFuture<'a, Result<Moment, Loss>>>,
    /// Since when the keys count that the next renewal does not cover.
    added: Option<Moment>,
    fences: Vec<FenceBlock>,
    /// Whether the earlier requests for parts were applied.
    earlier: Applied,
}

impl<'a> OneByOne<'a> {
    /// Acquires all keys, or none.
    async fn take(mut self) -> Result<Answer, Failed> {
        let store = self.store;
        let request = self.request;
        // The first key that is known to be contended.
        let mut contended = None;
        loop {
            let rest = &request.ask.keys()[self.held..];
            if rest.is_empty() {
                return self.confirmed().await;
            }
            // A waiter that holds some keys requests the rest once more at the end of its wait, and
            // waits no longer than an answer takes.
            let last = self.held > 0 && is_over(self.end);
            if last && is_over(self.end.map(|end| end + store.facts.answer_time())) {
                let earlier = self.release_held().await.and(self.earlier);
                let nth = self.held;
                let queue = Queueing::Behind(0);
                let contention = Contention { nth, queue, earlier, ..Contention::default() };
                return Ok(Answer::Contended(contention));
            }
            let most = contended.map_or(usize::MAX, |contended: usize| contended - self.held);
            let count = store.backend.at_once(rest).min(most).max(1);
            let whole = count == request.ask.keys().len();
            let ttl = if whole { request.ask.ttl } else { self.ttl };
            let part = request.part(&rest[..count], ttl);
            let wait = match &self.until {
                Some((until, shutdown)) if count == 1 && !last => {
                    let wait = until.saturating_duration_since(Instant::now());
                    Wait::Waits(wait, Arc::clone(shutdown))
                }
                Some((until, _)) => Wait::AtOnce(Some(*until)),
                None => Wait::AtOnce(self.half_of_lease()),
            };
            let asked = store.ask(part.clone(), wait);
            let answer = match self.while_held(&part, asked).await {
                Ok(answer) => answer,
                Err(loss) => return self.lost(loss),
            };
            match answer {
                Ok(Answer::Granted(grant)) if whole => {
                    let earlier = self.earlier.and(grant.earlier);
                    return Ok(Answer::Granted(Grant { earlier, ..grant }));
                }
                Ok(Answer::Granted(grant)) => {
                    self.add(count, grant);
                    contended = contended.filter(|contended| *contended >= self.held);
                }
                // The keys before the contended one are acquired first, then it is waited for.
                Ok(Answer::Contended(found))
                    if found.queue == Queueing::Outside && self.until.is_some() && !last =>
                {
                    request.ask.events().contended(&found.holder, 0);
                    self.earlier = self.earlier.and(found.earlier);
                    contended = Some(self.held + found.nth);
                }
                Ok(Answer::Contended(found)) => {
                    let earlier = self.release_held().await.and(self.earlier).and(found.earlier);
                    let nth = self.held + found.nth;
                    // The last request did not wait in a queue.
                    let queue = if last { Queueing::Behind(0) } else { found.queue };
                    return Ok(Answer::Contended(Contention { nth, queue, earlier, ..found }));
                }
                Ok(stale @ Answer::Stale(_)) => return Ok(stale),
                // The server does not take these keys together, and so wrote nothing. The next
                // call takes fewer.
                Err(_) if store.backend.at_once(rest) < count => {}
                Err(Failed { error, applied }) => {
                    let held = if self.held > 0 { Applied::Yes } else { Applied::No };
                    let applied = applied.and(self.earlier).and(held);
                    return Err(Failed { error, applied });
                }
            }
        }
    }

    /// When half of the lease of the held keys is over, for a caller that does not wait and does
    /// not renew them. Only a Redlock may take that long for a part: its votes may be split.
    fn half_of_lease(&self) -> Option<Instant> {
        let is_slow = self.held > 0 && self.store.facts.are_several;
        let half = self.since.after(self.ttl / 2);
        is_slow.then(|| Instant::now() + half.since(Moment::now()))
    }

    fn add(&mut self, count: usize, grant: Grant) {
        let first = self.held == 0;
        self.since = if first { grant.sent } else { self.since.min(grant.sent) };
        self.held += count;
        self.fences.extend(grant.fences.iter());
        self.earlier = self.earlier.and(grant.earlier);
        if !first {
            self.added = Some(self.added.map_or(grant.sent, |added| added.min(grant.sent)));
        } else if self.until.is_some() {
            self.renewing = Some(self.renewal());
        }
    }

    /// The grant of all keys. A waiter confirms all of them in one renewal, for the whole ttl.
    async fn confirmed(mut self) -> Result<Answer, Failed> {
        let request = self.request;
        let ttl = self.request.ask.ttl;
        if self.until.is_some() {
            match renewed(self.store, request, ttl, (self.since, self.ttl), self.end).await {
                Ok(sent) => self.since = sent,
                Err(loss) => return self.lost(loss),
            }
        }
        if late(self.since, ttl, Moment::now()) {
            let error = self.store.too_slow(request);
            return self.start_over(Err(Failed { error, applied: Applied::Unknown }));
        }
        let Self { since: sent, fences, earlier, .. } = self;
        let fences = fences.into_iter().collect();
        Ok(Answer::Granted(Grant { sent, at: sent, ttl, earlier, fences }))
    }

    /// Waits for the answer to a part's request, while it renews the held keys. Fails when these
    /// are lost before.
    async fn while_held<T>(
        &mut self,
        part: &Request,
        mut asked: StoreFuture<'_, T>,
    ) -> Result<T, Loss> {
        poll_fn(|cx| {
            let answer = asked.as_mut().poll(cx);
            // If the caller drops the future now, only the part's request may still arrive.
            self.request.token.set_applied(part.token.applied().and(self.earlier));
            if let Poll::Ready(answer) = answer {
                return Poll::Ready(Ok(answer));
            }
            while let Some(renewing) = &mut self.renewing {
                match ready!(renewing.as_mut().poll(cx)) {
                    Ok(sent) => {
                        self.since = self.added.take().map_or(sent, |added| added.min(sent));
                        self.renewing = Some(self.renewal());
                    }
                    Err(loss) => return Poll::Ready(Err(loss)),
                }
            }
            Poll::Pending
        })
        .await
    }

    /// The next renewal of the keys that are held now.
    fn renewal(&self) -> StoreFuture<'a, Result<Moment, Loss>> {
        let store = self.store;
        let since = self.since;
        let ttl = self.ttl;
        let end = self.end;
        let held = self.request.part(&self.request.ask.keys()[..self.held], ttl);
        Box::pin(async move {
            sleep((ttl / 3).saturating_sub(Moment::now().since(since))).await;
            renewed(store, &held, ttl, (since, ttl), end).await
        })
    }

    fn lost(&self, loss: Loss) -> Result<Answer, Failed> {
        let Some(error) = loss else {
            // The present holder is not known.
            let nth = self.held.min(self.request.ask.keys().len() - 1);
            let queue = Queueing::Behind(0);
            let earlier = Applied::Unknown;
            let contention = Contention { nth, queue, earlier, ..Contention::default() };
            return self.start_over(Ok(Answer::Contended(contention)));
        };
        let transient = error.is_transient();
        let failed = Err(Failed { error, applied: Applied::Unknown });
        // A new attempt would get the same error if that is not transient.
        if transient { self.start_over(failed) } else { failed }
    }

    /// The answer when the held keys are lost: a waiter starts over, any other caller gets
    /// `answer`.
    fn start_over(&self, answer: Result<Answer, Failed>) -> Result<Answer, Failed> {
        if self.until.is_some() { Ok(Answer::Stale(Box::new(answer))) } else { answer }
    }

    /// Releases the held keys. Returns what is left of their requests.
    async fn release_held(&mut self) -> Applied {
        if self.held == 0 || self.store.release(self.request).await.is_ok() {
            Applied::No
        } else {
            Applied::Unknown
        }
    }
}

/// Renews the held keys for `ttl`. Returns since when the new ttl counts. A failure is repeated
/// until the present lease (`since`, `lasts`) or the time is over.
async fn renewed(
    store: &Store,
    held: &Request,
    ttl: Duration,
    (since, lasts): (Moment, Duration),
    end: Option<Instant>,
) -> Result<Moment, Loss> {
    loop {
        let sent = Moment::now();
        match store.renew(held, ttl, RenewKind::Alone).await {
            Ok(true) => return Ok(sent),
            Ok(false) => return Err(None),
            Err(error)
                if error.is_transient() && !late(since, lasts, Moment::now()) && !is_over(end) =>
            {
                sleep(RETRY).await;
            }
            Err(error) => return Err(Some(error)),
        }
    }
}

fn is_over(end: Option<Instant>) -> bool {
    end.is_some_and(|end| end <= Instant::now())
}
