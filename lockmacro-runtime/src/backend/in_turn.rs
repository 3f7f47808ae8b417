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
use std::mem;
use std::pin::pin;
use std::sync::OnceLock;
use std::task::Poll;
use std::time::Duration;

use tokio::time::{Instant, sleep};

use super::{Answer, Asked, Backend, Claim, Failed, Grant, Line, Released};
use crate::clock::Moment;
use crate::error::{LockError, Unavailability};
use crate::fence::Fence;
use crate::key::LockKey;
use crate::lease::{Lease, Renewal};
use crate::loss::{LossCause, Lost};
use crate::waiting::CLAIM;

/// Pause before a renewal that failed is tried again.
const RETRY: Duration = Duration::from_millis(50);

impl Backend {
    /// Asks for several keys, and waits for at most `wait`, if at all.
    pub(super) fn take_in_turn<'a>(
        &'a self,
        claim: &'a Claim,
        wait: Option<Duration>,
    ) -> Asked<'a, Result<Answer, Failed>> {
        Box::pin(async move {
            let mut turn = Turn::new(self, claim, wait);
            loop {
                let last = turn.left().is_some_and(|left| left.is_zero());
                match turn.take().await? {
                    Some(answer) => return Ok(answer),
                    None if last => {
                        let error = Lost::new(claim.listed(), LossCause::Taken).into();
                        return Err(Failed { error, written: true });
                    }
                    None => turn.begin_again().await,
                }
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
            let mut found = Ok(Released::Held);
            for part in self.parts(claim) {
                let released = self.release(&part).await;
                found = found.and_then(|found| released.map(|released| found.max(released)));
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

    fn parts(&self, claim: &Claim) -> Vec<Claim> {
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
    /// There was a request whose fate is unknown.
    resent: bool,
}

impl<'a> Turn<'a> {
    fn new(backend: &'a Backend, claim: &'a Claim, wait: Option<Duration>) -> Self {
        let until = wait.map(|wait| Instant::now().checked_add(wait));
        // Who dies while waiting must not keep what it holds for the whole ttl.
        let ttl = if until.is_some() { claim.ttl.min(CLAIM) } else { claim.ttl };
        let (held, since, fences, resent) = (0, Moment::now(), Vec::new(), false);
        Self { backend, claim, until, ttl, held, since, fences, resent }
    }

    /// What was held is lost: gives back the rest.
    async fn begin_again(&mut self) {
        // What fails here is for a time in which it is held again, or lapses.
        let _ = self.backend.release(self.claim).await;
        self.held = 0;
        self.fences.clear();
    }

    /// Takes all keys, or none; `None` when one was lost again while others were waited for.
    async fn take(&mut self) -> Result<Option<Answer>, Failed> {
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
            let part = self.part(&rest[..count], if whole { self.claim.ttl } else { self.ttl });
            let backend = self.backend;
            let next = match self.left() {
                Some(left) if count == 1 => backend.wait(&part, left),
                _ => backend.ask(&part),
            };
            let Some(answer) = self.while_held(next).await else {
                return Ok(None);
            };
            match answer {
                Ok(Answer::Granted(grant)) if whole => return Ok(Some(Answer::Granted(grant))),
                Ok(Answer::Granted(grant)) => {
                    self.add(count, grant);
                    busy = busy.filter(|busy| *busy >= self.held);
                }
                // Those before it are taken, and then it is waited for.
                Ok(Answer::Busy { nth, line: Line::Outside, .. }) if self.until.is_some() => {
                    busy = Some(self.held + nth);
                }
                Ok(Answer::Busy { nth, owner, left, line, resent }) => {
                    let resent = !self.gives_back().await || self.resent || resent;
                    let nth = self.held + nth;
                    return Ok(Some(Answer::Busy { nth, owner, left, line, resent }));
                }
                // The server has said meanwhile that it wants them apart.
                Err(_) if backend.at_once(rest) < count => {}
                // What it holds only until it has all was over before it knew.
                Err(Failed { error: LockError::Unavailable { reason, .. }, .. })
                    if reason == Unavailability::TooSlow && !whole && self.until.is_some() =>
                {
                    self.resent = true;
                    return Ok(None);
                }
                Err(Failed { error, written }) => {
                    return Err(Failed { error, written: written || self.held > 0 });
                }
            }
        }
    }

    fn part(&self, keys: &[LockKey], ttl: Duration) -> Claim {
        self.claim.settle(false);
        let mut part = Claim { ttl, ..self.claim.part(keys) };
        if self.resent {
            // Nothing that this part is told settles that.
            part.shared = OnceLock::new();
        }
        part
    }

    fn add(&mut self, count: usize, grant: Grant) {
        self.since = if self.held == 0 { grant.sent } else { self.since.min(grant.sent) };
        self.held += count;
        self.fences.extend(grant.fences);
        self.resent |= grant.resent;
    }

    /// The grant of all keys. Who has waited has them confirmed at one moment, and for the whole ttl.
    async fn confirmed(&mut self) -> Result<Option<Answer>, Failed> {
        if self.until.is_some() {
            match self.renewed(self.claim.ttl).await {
                Ok(true) => {}
                Ok(false) => return Ok(None),
                Err(error) => return Err(Failed { error, written: true }),
            }
        }
        let (sent, ttl, resent) = (self.since, self.claim.ttl, self.resent);
        let fences = mem::take(&mut self.fences);
        Ok(Some(Answer::Granted(Grant { sent, at: sent, ttl, resent, fences })))
    }

    /// What comes of `next`, unless what is held is lost before.
    async fn while_held<T>(&mut self, next: impl Future<Output = T>) -> Option<T> {
        let mut next = pin!(next);
        if self.held == 0 || self.until.is_none() {
            return Some(next.await);
        }
        let mut lost = pin!(self.lost());
        poll_fn(|cx| {
            if let Poll::Ready(answer) = next.as_mut().poll(cx) {
                return Poll::Ready(Some(answer));
            }
            lost.as_mut().poll(cx).map(|()| None)
        })
        .await
    }

    /// Renews what is held until it is lost.
    async fn lost(&mut self) {
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
