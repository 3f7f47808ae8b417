//! Several keys, all or nothing.
//!
//! When nothing is in the way they are taken at once, as many as the server looks at in one script.
//! Whoever has to wait takes them in the order of their bytes, and waits for each in its own line
//! while holding those before it. So nobody waits in a circle: of two that want the same keys in
//! opposite orders, one has the first of them and the other waits for it with empty hands. And
//! nobody starves: in every line those who asked first are served first. Who let go of everything
//! and tried again would hold nothing while waiting, and on busy keys would never find all of them
//! free at one moment, as a key that others wait for is handed over and never free.

use std::future::poll_fn;
use std::task::{Poll, ready};
use std::time::Duration;

use tokio::time::{Instant, sleep};

use crate::protocol::answer::{Answer, Asked, Failed, Grant, Queueing};
use crate::protocol::lease::late;
use crate::protocol::request::Request;
use crate::protocol::shutdown::Shutdown;
use crate::store::dispatch::Store;
use crate::value::error::LockError;
use crate::value::fence::Fence;
use crate::value::limits::{CONFIRM_WINDOW, FOR_EVER};
use crate::value::time::Moment;
use crate::value::unavailability::Unavailability;

/// Pause before a renewal that failed is tried again.
const RETRY: Duration = Duration::from_millis(50);

impl Store {
    /// Asks for several keys, and waits for at most so long if at all, which its manager may end.
    pub(crate) fn take_one_by_one<'a>(
        &'a self,
        request: &'a Request,
        wait: Option<(Duration, &'a Shutdown)>,
    ) -> Asked<'a, Result<Answer, Failed>> {
        // The parts are asked for with less, and the whole only when all are there.
        if let Store::Redlock(redlock) = self
            && let Err(error) = redlock.check(request.ttl)
        {
            return Box::pin(std::future::ready(Err(Failed { error, written: false })));
        }
        let until = wait.map(|(wait, shutdown)| (Instant::now() + wait.min(FOR_EVER), shutdown));
        let end = until.map(|(until, _)| until.max(Instant::now() + self.answer()));
        Box::pin(OneByOne::new(self, request, until, end).take())
    }
}

type Told = Box<Result<Answer, Failed>>;

/// Why what was held is lost: an error when the server could not be asked in time, nothing when it
/// says so.
type Loss = Option<LockError>;

/// Taking one key after the other.
struct OneByOne<'a> {
    store: &'a Store,
    request: &'a Request,
    /// Until when to wait, if at all, and who may end that.
    until: Option<(Instant, &'a Shutdown)>,
    /// When who waits begins with nothing more: who came with little time gets one answer all the
    /// same.
    end: Option<Instant>,
    /// For how long at a time a key is held while others are missing.
    ttl: Duration,
    /// So many are held, from the first on,
    held: usize,
    /// and all of them since then.
    since: Moment,
    /// The next renewal of what is held, from which moment on it counts; where others are waited
    /// for. It goes on from part to part: parts may follow each other faster than it is done.
    renewing: Option<Asked<'a, Result<Moment, Loss>>>,
    /// Since when those are held that it does not renew yet.
    added: Option<Moment>,
    fences: Vec<Fence>,
    resent: bool,
}

impl<'a> OneByOne<'a> {
    fn new(
        store: &'a Store,
        request: &'a Request,
        until: Option<(Instant, &'a Shutdown)>,
        end: Option<Instant>,
    ) -> Self {
        // Who dies while waiting must not keep what it holds for the whole ttl.
        let ttl = if until.is_some() { request.ttl.min(CONFIRM_WINDOW) } else { request.ttl };
        let (held, since, fences, resent) = (0, Moment::now(), Vec::new(), false);
        let (renewing, added) = (None, None);
        Self { store, request, until, end, ttl, held, since, renewing, added, fences, resent }
    }

    /// Takes all keys, or none.
    async fn take(mut self) -> Result<Answer, Failed> {
        let (store, request) = (self.store, self.request);
        // The first that is known to be busy.
        let mut busy = None;
        loop {
            let rest = &request.keys()[self.held..];
            if rest.is_empty() {
                return self.confirmed().await;
            }
            // With what is held the rest is asked for once more, for no longer than an answer takes.
            let last = self.held > 0 && is_over(self.end);
            if last && is_over(self.end.map(|end| end + store.answer())) {
                let resent = !self.release_held().await || self.resent;
                let (nth, owner, left, queue) = (self.held, None, None, Queueing::Left(0));
                return Ok(Answer::Busy { nth, owner, left, queue, resent });
            }
            let most = busy.map_or(usize::MAX, |busy: usize| busy - self.held);
            let count = store.at_once(rest).min(most).max(1);
            let whole = count == request.keys().len();
            let mut part = request.part(&rest[..count]);
            if !whole {
                part.ttl = self.ttl;
            }
            let asked = match self.until {
                Some((until, shutdown)) if count == 1 && !last => {
                    store.wait(&part, until.saturating_duration_since(Instant::now()), shutdown)
                }
                until => store.ask(&part, until.map(|(until, _)| until)),
            };
            let answer = match self.while_held(&part, asked).await {
                Ok(answer) => answer,
                Err(loss) => return *self.lost(loss),
            };
            match answer {
                Ok(Answer::Granted(grant)) if whole => {
                    let resent = self.resent || grant.resent;
                    return Ok(Answer::Granted(Grant { resent, ..grant }));
                }
                Ok(Answer::Granted(grant)) => {
                    self.add(count, grant);
                    busy = busy.filter(|busy| *busy >= self.held);
                }
                // Those before it are taken, and then it is waited for.
                Ok(Answer::Busy { nth, queue: Queueing::Outside, resent, .. })
                    if self.until.is_some() && !last =>
                {
                    self.resent |= resent;
                    busy = Some(self.held + nth);
                }
                Ok(Answer::Busy { nth, owner, left, queue, resent }) => {
                    let resent = !self.release_held().await || self.resent || resent;
                    let nth = self.held + nth;
                    // Asked for the last time it was not to stand in line.
                    let queue = if last { Queueing::Left(0) } else { queue };
                    return Ok(Answer::Busy { nth, owner, left, queue, resent });
                }
                Ok(lost @ Answer::Lost(_)) => return Ok(lost),
                // The server has said meanwhile that it wants them apart, and so wrote nothing.
                Err(_) if store.at_once(rest) < count => {}
                Err(Failed { error, written }) => {
                    let written = written || self.resent || self.held > 0;
                    return Err(Failed { error, written });
                }
            }
        }
    }

    fn add(&mut self, count: usize, grant: Grant) {
        let first = self.held == 0;
        self.since = if first { grant.sent } else { self.since.min(grant.sent) };
        self.held += count;
        self.fences.extend(grant.fences.iter());
        self.resent |= grant.resent;
        if !first {
            self.added = Some(self.added.map_or(grant.sent, |added| added.min(grant.sent)));
        } else if self.until.is_some() {
            self.renewing = Some(self.renewal());
        }
    }

    /// The grant of all keys. Who has waited has them confirmed at one moment, and for the whole ttl.
    async fn confirmed(mut self) -> Result<Answer, Failed> {
        let (request, ttl) = (self.request, self.request.ttl);
        if self.until.is_some() {
            match renewed(self.store, request, ttl, (self.since, self.ttl), self.end).await {
                Ok(sent) => self.since = sent,
                Err(loss) => return *self.lost(loss),
            }
        }
        if late(self.since, ttl) {
            let detail = format!("the ttl is {ttl:?}{}", self.store.at(request));
            return *self.starts_over(Err(too_slow(detail)));
        }
        let Self { since: sent, fences, resent, .. } = self;
        let fences = fences.into_iter().collect();
        Ok(Answer::Granted(Grant { sent, at: sent, ttl, resent, fences }))
    }

    /// What comes of asking for a part, unless what is held is lost before.
    async fn while_held<T>(&mut self, part: &Request, mut asked: Asked<'_, T>) -> Result<T, Loss> {
        poll_fn(|cx| {
            let answer = asked.as_mut().poll(cx);
            // Who is dropped now leaves as much behind as its part.
            self.request.settle(part.is_settled() && !self.resent);
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

    /// The next renewal of what is held now.
    fn renewal(&self) -> Asked<'a, Result<Moment, Loss>> {
        let (store, since, ttl, end) = (self.store, self.since, self.ttl, self.end);
        let held = self.request.part(&self.request.keys()[..self.held]);
        Box::pin(async move {
            sleep((ttl / 3).saturating_sub(Moment::now().since(since))).await;
            renewed(store, &held, ttl, (since, ttl), end).await
        })
    }

    fn lost(&self, loss: Loss) -> Told {
        self.starts_over(match loss {
            Some(error) => {
                let transient = error.is_transient();
                let told = Err(Failed { error, written: true });
                if !transient {
                    // It would be the same again.
                    return Box::new(told);
                }
                told
            }
            // Nothing is known of who has it now.
            None => {
                let nth = self.held.min(self.request.keys().len() - 1);
                let (owner, left, queue) = (None, None, Queueing::Left(0));
                Ok(Answer::Busy { nth, owner, left, queue, resent: true })
            }
        })
    }

    /// The answer to who waits when what was held is lost; who does not is told.
    fn starts_over(&self, told: Result<Answer, Failed>) -> Told {
        let told = Box::new(told);
        if self.until.is_some() { Box::new(Ok(Answer::Lost(told))) } else { told }
    }

    /// Gives back what is held; tells whether nothing is left of it.
    async fn release_held(&mut self) -> bool {
        self.held == 0 || self.store.release(self.request).await.is_ok()
    }
}

/// Has what is held, since when and for how long, count `ttl` anew: from which moment on it does.
/// While it is held and there is time, what fails is tried again.
async fn renewed(
    store: &Store,
    held: &Request,
    ttl: Duration,
    (since, lasts): (Moment, Duration),
    end: Option<Instant>,
) -> Result<Moment, Loss> {
    loop {
        let sent = Moment::now();
        match store.renew(held, ttl).await {
            Ok(true) => return Ok(sent),
            Ok(false) => return Err(None),
            Err(error) if error.is_transient() && !late(since, lasts) && !is_over(end) => {
                sleep(RETRY).await;
            }
            Err(error) => return Err(Some(error)),
        }
    }
}

fn is_over(end: Option<Instant>) -> bool {
    end.is_some_and(|end| end <= Instant::now())
}

fn too_slow(detail: String) -> Failed {
    let error = LockError::Unavailable { reason: Unavailability::TooSlow, detail };
    Failed { error, written: true }
}
