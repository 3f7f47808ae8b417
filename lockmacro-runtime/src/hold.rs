//! A token from before its first byte is sent until it is known to be gone. Whatever happens in
//! between, dropping the hold has it released.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use std::{mem, thread};

use tokio::time::{Instant, sleep};

use crate::LockManager;
use crate::backend::{Answer, Backend, Claim, Failed, Grant, Line, Released};
use crate::blocking::blocked;
use crate::census::Member;
use crate::error::LockError;
use crate::key::LockKey;
use crate::manager::inside_runtime;
use crate::telemetry::Counted;

/// Pause before a lock that was lost at once is asked for anew.
const PAUSE: Duration = Duration::from_millis(20);

#[derive(Debug)]
pub(crate) struct Hold {
    manager: LockManager,
    claim: Arc<Claim>,
    /// `None` when nothing is left to release.
    member: Mutex<Option<Member>>,
}

/// Why there is no lock.
#[derive(Debug)]
pub(crate) enum Refusal {
    Busy { key: LockKey, owner: Option<String>, left: Option<Duration>, line: Line },
    Failed(LockError),
}

impl Hold {
    /// Asks for the lock on the caller's runtime.
    pub(crate) async fn acquire(
        manager: LockManager,
        claim: Arc<Claim>,
    ) -> Result<(Self, Grant), Refusal> {
        let mut hold = Self::new(manager, claim)?;
        let mut rounds = Rounds::of(&hold.claim);
        loop {
            // A block of its own, and boxed: who waits must not carry what is rare.
            let next = {
                let answer = {
                    let _waiting = Counted::waiting(&hold.claim.labels);
                    ask(&hold.manager, hold.manager.backend(), &hold.claim).await
                };
                if !rounds.again(&answer, &hold.claim) {
                    return hold.settle(answer);
                }
                Box::pin(hold.begun_anew(&mut rounds))
            };
            hold = next.await?;
        }
    }

    /// Asks for the lock in the background and blocks until the answer is there.
    pub(crate) fn acquire_blocking(
        manager: LockManager,
        claim: Arc<Claim>,
    ) -> Result<(Self, Grant), Refusal> {
        let mut hold = Self::new(manager, claim)?;
        let mut rounds = Rounds::of(&hold.claim);
        loop {
            let (manager, claim) = (hold.manager.clone(), Arc::clone(&hold.claim));
            let job =
                move |backend: Arc<Backend>| async move { ask(&manager, &backend, &claim).await };
            let answer = {
                let _waiting = Counted::waiting(&hold.claim.labels);
                hold.manager.janitor().block_on(job).map_err(Refusal::Failed)?
            };
            if !rounds.again(&answer, &hold.claim) {
                return hold.settle(answer);
            }
            _ = hold.release_blocking();
            blocked(|| thread::sleep(PAUSE));
            hold = hold.anew(rounds.took())?;
        }
    }

    pub(crate) fn manager(&self) -> &LockManager {
        &self.manager
    }

    pub(crate) fn claim(&self) -> &Arc<Claim> {
        &self.claim
    }

    /// Gives the lock back and tells what was found. When that fails, dropping the hold tries on in
    /// the background.
    pub(crate) async fn release(&self) -> Result<Released, LockError> {
        let released = if inside_runtime().is_ok() {
            self.manager.backend().release(&self.claim).await
        } else {
            // A lock of a plain thread may be given back on an executor of another kind.
            let claim = Arc::clone(&self.claim);
            let ask = move |backend: Arc<Backend>| async move { backend.release(&claim).await };
            self.manager.janitor().call(ask).await.and_then(|released| released)
        };
        self.released(released)
    }

    /// The same for callers that block.
    pub(crate) fn release_blocking(&self) -> Result<Released, LockError> {
        let claim = Arc::clone(&self.claim);
        let ask = move |backend: Arc<Backend>| async move { backend.release(&claim).await };
        let released = self.manager.janitor().block_on(ask).and_then(|released| released);
        self.released(released)
    }

    /// Has the lock given back in the background, unless that was done already.
    pub(crate) fn abandon(&self) {
        let member = self.member().take();
        if let Some(member) = member {
            self.manager.janitor().clear_away(Arc::clone(&self.claim), member);
        }
    }

    /// The hold is there before anything is sent, and so before anything can be dropped.
    fn new(manager: LockManager, claim: Arc<Claim>) -> Result<Self, Refusal> {
        let member = manager.enter().map_err(Refusal::Failed)?;
        Ok(Self { manager, claim, member: Mutex::new(Some(member)) })
    }

    /// Gives back what is left of it, and gives the next one.
    async fn begun_anew(self, rounds: &mut Rounds) -> Result<Self, Refusal> {
        // What cannot be given back now is when the hold is dropped.
        _ = self.release().await;
        sleep(PAUSE).await;
        self.anew(rounds.took())
    }

    /// The same by another token.
    fn anew(self, waited: Duration) -> Result<Self, Refusal> {
        let claim = self.claim.anew(waited).map_err(Refusal::Failed)?;
        Self::new(self.manager.clone(), Arc::new(claim))
    }

    fn settle(self, answer: Result<Answer, Failed>) -> Result<(Self, Grant), Refusal> {
        match answer {
            Ok(Answer::Granted(grant)) => {
                self.claim.granted(grant.at);
                self.claim.settle(!grant.resent);
                Ok((self, grant))
            }
            Ok(Answer::Busy { nth, owner, left, line, resent }) => {
                self.claim.settle(!resent);
                let key = self.claim.keys().get(nth).unwrap_or(&self.claim.key).clone();
                // Who gives up waiting is taken out of the line by dropping the hold.
                // Of a Redlock's several keys a node may have an earlier one, and has not said so.
                self.forget_unless(!self.claim.is_settled() || matches!(line, Line::Left(_)));
                Err(Refusal::Busy { key, owner, left, line })
            }
            Ok(Answer::Lost(told)) => self.settle(*told),
            Err(Failed { error, written }) => {
                self.forget_unless(written);
                Err(Refusal::Failed(error))
            }
        }
    }

    fn released(&self, released: Result<Released, LockError>) -> Result<Released, LockError> {
        let found = released?;
        let on_its_way = !self.claim.is_settled();
        self.forget_unless(on_its_way);
        Ok(found)
    }

    /// Nothing is left to release, unless a request of ours may still arrive at the server.
    fn forget_unless(&self, on_its_way: bool) {
        if !on_its_way {
            *self.member() = None;
        }
    }

    fn member(&self) -> MutexGuard<'_, Option<Member>> {
        // Nothing that runs under this mutex can panic.
        self.member.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Asking for a lock until it is not lost any more before its caller was told.
struct Rounds {
    /// When the last one began, for who waits.
    began: Option<Instant>,
    /// Whether who does not wait may begin anew.
    more: bool,
}

impl Rounds {
    fn of(claim: &Claim) -> Self {
        Self { began: claim.wait.map(|_| Instant::now()), more: true }
    }

    /// Whether to begin anew: who waits does while there is time, and who does not, once.
    fn again(&mut self, answer: &Result<Answer, Failed>, claim: &Claim) -> bool {
        matches!(answer, Ok(Answer::Lost(_)))
            && match self.began.zip(claim.wait) {
                Some((began, wait)) => began.elapsed() < wait,
                None => mem::take(&mut self.more),
            }
    }

    /// How long the last one took.
    fn took(&mut self) -> Duration {
        let began = self.began.as_mut();
        began.map_or(Duration::ZERO, |began| mem::replace(began, Instant::now()).elapsed())
    }
}

async fn ask(manager: &LockManager, backend: &Backend, claim: &Claim) -> Result<Answer, Failed> {
    let answer = match claim.wait {
        None => backend.acquire(claim).await,
        Some(wait) => manager.unless_closed(backend.wait(claim, wait)).await,
    };
    let grant = match answer {
        Ok(Answer::Granted(grant)) if backend.is_replicated() => grant,
        answer => return answer,
    };
    backend.acknowledged(claim, grant).await
}

impl Drop for Hold {
    fn drop(&mut self) {
        self.abandon();
    }
}
