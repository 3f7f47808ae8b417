//! Several keys, all or nothing.
//!
//! When nothing is in the way they are taken at once, as many as the server looks at in one script.
//! Whoever has to wait takes them in the order of their bytes, and waits for each in its own line
//! while holding those before it. So nobody waits in a circle: of two that want the same keys in
//! opposite orders, one has the first of them and the other waits for it with empty hands. And
//! nobody starves: in every line those who asked first are served first. Who let go of everything
//! and tried again would hold nothing while waiting, and on busy keys would never find all of them
//! free at one moment, as a key that others wait for is handed over and never free.

use std::future::{pending, poll_fn};
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use tokio::time::{Instant, sleep};

use super::{Answer, Asked, Backend, Claim, Failed, Grant, Line, Released};
use crate::clock::Moment;
use crate::error::{LockError, Unavailability};
use crate::fence::Fence;
use crate::lease::{Lease, Renewal};
use crate::loss::{LossCause, Lost};
use crate::waiting::CLAIM;

/// Pause before a renewal that failed is tried again.
const RETRY: Duration = Duration::from_millis(50);

impl Backend {
    /// Asks for several keys, and waits for at most `wait` if at all.
    pub(super) fn take_in_turn<'a>(
        &'a self,
        claim: &'a Claim,
        wait: Option<Duration>,
    ) -> Asked<'a, Result<Answer, Failed>> {
        let until = wait.map(|wait| Instant::now().checked_add(wait));
        if let Backend::Redlock(_) = self {
            // There before its parts, which share them.
            claim.ballots();
        }
        Box::pin(async move {
            let mut resent = false;
            loop {
                let last = until.flatten().is_some_and(|until| until <= Instant::now());
                match Turn::new(self, claim, until, resent).take().await? {
                    Some(answer) => return Ok(answer),
                    None if last => {
                        let error = Lost::new(claim.listed(), LossCause::Taken).into();
                        return Err(Failed { error, written: true });
                    }
                    // What was held is lost: from the beginning.
                    None => _ = self.release(claim).await,
                }
                // What it was asking when that was noticed may still arrive.
                resent |= !claim.is_settled();
            }
        })
    }

    /// Whether a claim is more than can be asked for at once.
    pub(super) fn is_in_parts(&self, claim: &Claim) -> bool {
        !claim.several.is_empty() && self.at_once(&claim.several) < claim.several.len()
    }

    pub(super) fn release_parts<'a>(
        &'a self,
        claim: &'a Claim,
    ) -> Asked<'a, Result<Released, LockError>> {
        Box::pin(async move {
            let (mut found, mut settled) = (Ok(Released::Held), true);
            for part in self.parts(claim) {
                let released = self.release(&part).await;
                found = found.and_then(|found| released.map(|released| found.max(released)));
                settled &= part.is_settled();
            }
            if let Backend::Redlock(_) = self {
                claim.settle(settled);
            }
            found
        })
    }

    pub(super) fn renew_parts<'a>(
        &'a self,
        claim: &'a Claim,
        ttl: Duration,
    ) -> Asked<'a, Result<bool, LockError>> {
        Box::pin(async move {
            let mut held = true;
            for part in self.parts(claim) {
                held &= self.renew(&part, ttl).await?;
            }
            Ok(held)
        })
    }

    pub(super) fn parts(&self, claim: &Claim) -> Vec<Claim> {
        let (mut parts, mut rest) = (Vec::new(), claim.keys());
        while !rest.is_empty() {
            let (part, others) = rest.split_at(self.at_once(rest));
            parts.push(claim.part(part));
            rest = others;
        }
        parts
    }
}

/// Taking one key after the other.
struct Turn<'a> {
    backend: &'a Backend,
    claim: &'a Claim,
    /// Until when to wait, if at all; inside, `None` is for ever.
    until: Option<Option<Instant>>,
    /// For how long at a time a key is held while others are missing.
    ttl: Duration,
    /// So many are held, from the first on,
    held: usize,
    /// and all of them since then.
    since: Moment,
    fences: Vec<Fence>,
    resent: bool,
}

impl<'a> Turn<'a> {
    fn new(
        backend: &'a Backend,
        claim: &'a Claim,
        until: Option<Option<Instant>>,
        resent: bool,
    ) -> Self {
        // Who dies while waiting must not keep what it holds for the whole ttl.
        let ttl = if until.is_some() { claim.ttl.min(CLAIM) } else { claim.ttl };
        let (held, since, fences) = (0, Moment::now(), Vec::new());
        Self { backend, claim, until, ttl, held, since, fences, resent }
    }

    /// Takes all keys, or none; `None` when one was lost again while others were waited for.
    async fn take(mut self) -> Result<Option<Answer>, Failed> {
        // The first that is known to be busy.
        let mut busy = None;
        loop {
            let rest = &self.claim.keys()[self.held..];
            if rest.is_empty() {
                return self.confirmed().await;
            }
            let most = busy.map_or(usize::MAX, |busy: usize| busy - self.held);
            let count = self.backend.at_once(rest).min(most).max(1);
            let whole = count == self.claim.keys().len();
            let mut part = self.claim.part(&rest[..count]);
            if !whole {
                part.ttl = self.ttl;
            }
            let backend = self.backend;
            let asked = match self.left() {
                Some(left) if count == 1 => backend.wait(&part, left),
                _ => backend.ask(&part),
            };
            let Some(answer) = self.while_held(&part, asked).await else {
                return Ok(None);
            };
            match answer {
                Ok(Answer::Granted(grant)) if whole => {
                    let resent = self.resent || grant.resent;
                    return Ok(Some(Answer::Granted(Grant { resent, ..grant })));
                }
                Ok(Answer::Granted(grant)) => {
                    self.add(count, grant);
                    busy = busy.filter(|busy| *busy >= self.held);
                }
                // Those before it are taken, and then it is waited for.
                Ok(Answer::Busy { nth, line: Line::Outside, resent, .. })
                    if self.until.is_some() =>
                {
                    self.resent |= resent;
                    busy = Some(self.held + nth);
                }
                Ok(Answer::Busy { nth, owner, left, line, resent }) => {
                    let resent = !self.gives_back().await || self.resent || resent;
                    let nth = self.held + nth;
                    return Ok(Some(Answer::Busy { nth, owner, left, line, resent }));
                }
                // The server has said meanwhile that it wants them apart.
                Err(Failed { written, .. }) if backend.at_once(rest) < count => {
                    self.resent |= written;
                }
                // What it holds only until it has all was over before it knew.
                Err(Failed { error: LockError::Unavailable { reason, .. }, .. })
                    if reason == Unavailability::TooSlow && !whole && self.until.is_some() =>
                {
                    return Ok(None);
                }
                Err(Failed { error, written }) => {
                    return Err(Failed { error, written: written || self.held > 0 });
                }
            }
        }
    }

    fn add(&mut self, count: usize, grant: Grant) {
        self.since = if self.held == 0 { grant.sent } else { self.since.min(grant.sent) };
        self.held += count;
        self.fences.extend(grant.fences.iter());
        self.resent |= grant.resent;
    }

    /// The grant of all keys. Who has waited has them confirmed at one moment, and for the whole ttl.
    async fn confirmed(mut self) -> Result<Option<Answer>, Failed> {
        if self.until.is_some() {
            match self.renewed(self.claim.ttl).await {
                Ok(true) => {}
                Ok(false) => return Ok(None),
                Err(error) => return Err(Failed { error, written: true }),
            }
        }
        let Self { since: sent, fences, resent, .. } = self;
        let (ttl, fences) = (self.claim.ttl, fences.into_iter().collect());
        Ok(Some(Answer::Granted(Grant { sent, at: sent, ttl, resent, fences })))
    }

    /// What comes of asking for a part, unless what is held is lost before.
    async fn while_held<T>(&mut self, part: &Claim, mut asked: Asked<'_, T>) -> Option<T> {
        let (claim, resent) = (self.claim, self.resent);
        let mut lost = pin!(self.lost());
        poll_fn(|cx| {
            let answer = asked.as_mut().poll(cx);
            // Who is dropped now leaves as much behind as its part.
            claim.settle(part.is_settled() && !resent);
            match answer {
                Poll::Ready(answer) => Poll::Ready(Some(answer)),
                Poll::Pending => lost.as_mut().poll(cx).map(|()| None),
            }
        })
        .await
    }

    /// Renews what is held until it is lost, where others are waited for.
    async fn lost(&mut self) {
        if self.held == 0 || self.until.is_none() {
            return pending().await;
        }
        loop {
            sleep((self.ttl / 3).saturating_sub(Moment::now().since(self.since))).await;
            if !matches!(self.renewed(self.ttl).await, Ok(true)) {
                return;
            }
        }
    }

    /// Has what is held count `ttl` anew; tells whether all of it was still held.
    async fn renewed(&mut self, ttl: Duration) -> Result<bool, LockError> {
        let held = self.claim.part(&self.claim.keys()[..self.held]);
        loop {
            let sent = Moment::now();
            match self.backend.renew(&held, ttl).await {
                Err(_) if self.is_believed() => sleep(RETRY).await,
                answer => {
                    self.since = sent;
                    return answer;
                }
            }
        }
    }

    fn is_believed(&self) -> bool {
        Lease::new(self.since, self.ttl, Renewal::Off).remaining(Moment::now()).is_ok()
    }

    /// Gives back what is held; tells whether nothing is left of it.
    async fn gives_back(&self) -> bool {
        self.held == 0 || self.backend.release(self.claim).await.is_ok()
    }

    /// How long there still is to wait, if at all.
    fn left(&self) -> Option<Duration> {
        let until = self.until?;
        Some(until.map_or(Duration::MAX, |until| until.saturating_duration_since(Instant::now())))
    }
}
