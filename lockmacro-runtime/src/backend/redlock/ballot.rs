//! What is known of one acquisition's token at the nodes, from the first request on.

use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::timeout;

/// Nodes as bits.
pub(super) type Nodes = u64;

/// So many tokens an acquisition may use up. See [`Ballot::use_another_token`].
const TOKENS: u32 = 64;

#[derive(Debug, Default)]
pub(crate) struct Ballot {
    /// Nodes that any of its tokens may have reached,
    asked: AtomicU64,
    /// and those that the last one may have reached since it was last given back.
    fresh: AtomicU64,
    /// Nodes that may still have an earlier token.
    doubtful: AtomicU64,
    /// Counts releases: a request of an earlier round must not be sent any more.
    round: AtomicU32,
    /// Which of the acquisition's tokens is in use.
    token: AtomicU32,
    /// The token in use was released, and must not be asked with again.
    retired: AtomicBool,
    /// A request has no answer and never will, so that it may arrive at any time.
    unknown: AtomicBool,
    /// The nodes of requests that wait for their answers.
    on_their_way: Mutex<Vec<usize>>,
    landed: Notify,
}

/// A request that waits for its answer. Dropped without one its fate is unknown.
#[derive(Debug)]
pub(super) struct OnItsWay {
    ballot: Arc<Ballot>,
    nth: usize,
    known: bool,
}

impl Ballot {
    pub(super) fn round(&self) -> u32 {
        self.round.load(SeqCst)
    }

    /// Which token is in use, counted from 0.
    pub(super) fn token(&self) -> u32 {
        self.token.load(SeqCst)
    }

    pub(super) fn asked(&self) -> Nodes {
        self.asked.load(SeqCst)
    }

    /// Nodes that the token in use may have reached since this was asked last; for a round that is
    /// over.
    pub(super) fn take_fresh(&self) -> Nodes {
        self.fresh.swap(0, SeqCst)
    }

    /// Takes note of nodes that may still have the token in use, or an earlier one.
    pub(super) fn doubt(&self, nodes: Nodes) {
        self.doubtful.fetch_or(nodes, SeqCst);
    }

    /// Takes note that the token in use is being released at `nodes`.
    pub(super) fn retire(&self, nodes: Nodes) {
        self.doubt(nodes);
        self.fresh.store(0, SeqCst);
        self.retired.store(true, SeqCst);
    }

    /// Has a token in use that was not released; `false` when there are no more.
    pub(super) fn renew_token(&self) -> bool {
        !self.retired.swap(false, SeqCst) || self.use_another_token()
    }

    /// Whether a node may still have a token that it was told to forget.
    pub(crate) fn is_doubtful(&self) -> bool {
        self.doubtful.load(SeqCst) != 0
    }

    pub(super) fn take_doubtful(&self) -> Nodes {
        self.doubtful.swap(0, SeqCst)
    }

    /// Takes note that a request of `round` is about to leave; `None` when that round is over.
    pub(super) fn sends(self: &Arc<Self>, nth: usize, round: u32) -> Option<OnItsWay> {
        // Noted before the look, so that a release either waits for it or is seen by it.
        self.asked.fetch_or(1 << nth, SeqCst);
        self.fresh.fetch_or(1 << nth, SeqCst);
        self.on_their_way().push(nth);
        let mut request = OnItsWay { ballot: Arc::clone(self), nth, known: true };
        if self.round() != round {
            return None;
        }
        request.known = false;
        Some(request)
    }

    /// Ends the round: nothing more is sent.
    pub(super) fn close(&self) {
        self.round.fetch_add(1, SeqCst);
    }

    /// Waits for the answers of a node to what was sent there. Tells whether all have come; they may
    /// not when the node hangs, or the runtime of who has asked stands still.
    pub(super) async fn landed(&self, nth: usize, within: Duration) -> bool {
        let landed = async {
            loop {
                let mut landed = pin!(self.landed.notified());
                landed.as_mut().enable();
                if !self.on_their_way().contains(&nth) {
                    return;
                }
                landed.await;
            }
        };
        timeout(within, landed).await.is_ok()
    }

    /// Whether a request may arrive at any time.
    pub(super) fn is_unknown(&self) -> bool {
        self.unknown.load(SeqCst)
    }

    /// A release of the token that is in use has no answer. It may arrive late, and must not take
    /// away what is granted after it: from now on another token is used. `false` when there are no
    /// more.
    pub(super) fn use_another_token(&self) -> bool {
        self.token.fetch_add(1, SeqCst) + 1 < TOKENS
    }

    fn on_their_way(&self) -> MutexGuard<'_, Vec<usize>> {
        // Nothing that runs under this mutex can panic.
        self.on_their_way.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl OnItsWay {
    /// Its fate is known.
    pub(super) fn landed(mut self) {
        self.known = true;
    }
}

impl Drop for OnItsWay {
    fn drop(&mut self) {
        if !self.known {
            self.ballot.unknown.store(true, SeqCst);
        }
        let mut on_their_way = self.ballot.on_their_way();
        if let Some(at) = on_their_way.iter().position(|nth| *nth == self.nth) {
            on_their_way.swap_remove(at);
        }
        drop(on_their_way);
        self.ballot.landed.notify_waiters();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOON: Duration = Duration::from_secs(5);

    #[tokio::test(start_paused = true)]
    async fn a_release_waits_for_what_was_sent_and_nothing_is_sent_after_it() {
        let ballot = Arc::new(Ballot::default());
        let round = ballot.round();
        let request = ballot.sends(2, round).unwrap();
        ballot.close();
        assert!(ballot.landed(1, SOON).await);
        let mut landing = Box::pin(ballot.landed(2, SOON));
        assert!(futures::poll!(&mut landing).is_pending());
        assert!(ballot.sends(0, round).is_none());
        request.landed();
        assert!(landing.await);
        // The one that came too late is noted as well: it looks after that.
        assert_eq!((ballot.asked(), ballot.is_unknown()), (0b101, false));
        assert_eq!((ballot.take_fresh(), ballot.take_fresh()), (0b101, 0));
    }

    #[test]
    fn a_token_that_was_released_is_not_asked_with_again() {
        let ballot = Ballot::default();
        assert!(ballot.renew_token());
        assert_eq!(ballot.token(), 0);
        ballot.retire(0b11);
        assert!(ballot.is_doubtful());
        // Released again, it is still the one that may hold the lock.
        ballot.retire(0b11);
        assert_eq!(ballot.token(), 0);
        assert!(ballot.renew_token() && ballot.renew_token());
        assert_eq!((ballot.token(), ballot.take_doubtful()), (1, 0b11));
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_without_an_answer_is_unknown_for_ever() {
        let ballot = Arc::new(Ballot::default());
        drop(ballot.sends(0, ballot.round()));
        assert!(ballot.landed(0, SOON).await && ballot.is_unknown());
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_that_nobody_polls_holds_up_no_release_for_ever() {
        let ballot = Arc::new(Ballot::default());
        let _request = ballot.sends(0, ballot.round()).unwrap();
        assert!(!ballot.landed(0, SOON).await);
    }
}
