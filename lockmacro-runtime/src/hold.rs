//! A token from before its first byte is sent until it is known to be gone. Whatever happens in
//! between, dropping the hold has it released.

use std::sync::Arc;
use std::time::Duration;

use crate::LockManager;
use crate::backend::{Answer, Backend, Claim, Failed};
use crate::census::Member;
use crate::error::LockError;
use crate::key::LockKey;
use crate::lease::Lease;

#[derive(Debug)]
pub(crate) struct Hold {
    manager: LockManager,
    claim: Arc<Claim>,
    /// `None` when nothing is left to release.
    member: Option<Member>,
    /// The fate of every request with this token is known.
    settled: bool,
}

/// Why there is no lock.
#[derive(Debug)]
pub(crate) enum Refusal {
    Busy { owner: Option<String>, left: Option<Duration> },
    Failed(LockError),
}

impl Hold {
    /// Asks for the lock on the caller's runtime.
    pub(crate) async fn acquire(
        manager: LockManager,
        claim: Claim,
    ) -> Result<(Self, Lease), Refusal> {
        let hold = Self::new(manager, claim)?;
        let answer = hold.manager.backend().acquire(&hold.claim).await;
        hold.settle(answer)
    }

    /// Asks for the lock in the background and blocks until the answer is there.
    pub(crate) fn acquire_blocking(
        manager: LockManager,
        claim: Claim,
    ) -> Result<(Self, Lease), Refusal> {
        let hold = Self::new(manager, claim)?;
        let claim = Arc::clone(&hold.claim);
        let ask = move |backend: Arc<Backend>| async move { backend.acquire(&claim).await };
        let answer = hold.manager.janitor().block_on(ask).map_err(Refusal::Failed)?;
        hold.settle(answer)
    }

    pub(crate) fn key(&self) -> &LockKey {
        &self.claim.key
    }

    /// Gives the lock back and tells whether it was still held. When that fails, dropping the hold
    /// tries on in the background.
    pub(crate) async fn release(&mut self) -> Result<bool, LockError> {
        let released = self.manager.backend().release(&self.claim).await;
        self.released(released)
    }

    /// The same for callers that block.
    pub(crate) fn release_blocking(&mut self) -> Result<bool, LockError> {
        let claim = Arc::clone(&self.claim);
        let ask = move |backend: Arc<Backend>| async move { backend.release(&claim).await };
        let released = self.manager.janitor().block_on(ask).and_then(|released| released);
        self.released(released)
    }

    /// The hold is there before anything is sent, and so before anything can be dropped.
    fn new(manager: LockManager, claim: Claim) -> Result<Self, Refusal> {
        let member = manager.enter().map_err(Refusal::Failed)?;
        Ok(Self { manager, claim: Arc::new(claim), member: Some(member), settled: false })
    }

    fn settle(mut self, answer: Result<Answer, Failed>) -> Result<(Self, Lease), Refusal> {
        match answer {
            Ok(Answer::Granted { sent, resent }) => {
                self.settled = !resent;
                let lease = Lease::new(sent, self.claim.ttl);
                Ok((self, lease))
            }
            Ok(Answer::Busy { owner, left, resent }) => {
                self.forget_unless(resent);
                Err(Refusal::Busy { owner, left })
            }
            Err(Failed { error, written }) => {
                self.forget_unless(written);
                Err(Refusal::Failed(error))
            }
        }
    }

    fn released(&mut self, released: Result<bool, LockError>) -> Result<bool, LockError> {
        let held = released?;
        self.forget_unless(!self.settled);
        Ok(held)
    }

    /// Nothing is left to release, unless a request of ours may still arrive at the server.
    fn forget_unless(&mut self, on_its_way: bool) {
        if !on_its_way {
            self.member = None;
        }
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        if let Some(member) = self.member.take() {
            self.manager.janitor().clear_away(Arc::clone(&self.claim), self.settled, member);
        }
    }
}
