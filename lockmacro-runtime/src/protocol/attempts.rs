//! What is known of one acquisition's tokens at the nodes, from the first request on.
//!
//! Each attempt has a token of its own. A withdrawal without an answer may arrive late, and must not
//! take away what a later attempt was granted. So nothing is ever asked for with a token again that
//! was to be withdrawn.
//!
//! Where a token is, or may be, a [`Trace`] of it is kept until the node has answered, however late. A
//! node that has one of an earlier attempt is not asked again before that, so there are few of them.

use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::timeout;

use crate::value::time::Moment;

/// So many requests to one node that were lost are looked for. A node that loses more than that, and
/// answers other ones, is hardly going to receive the first of them.
const LOST: usize = 16;

#[derive(Debug, Default)]
pub(crate) struct Ballot {
    state: Mutex<State>,
    landed: Notify,
}

#[derive(Debug, Default)]
struct State {
    /// The token in use, the first of which is 1.
    token: u64,
    /// Nothing more is asked for with it.
    closed: bool,
    traces: Vec<Trace>,
    /// Nodes whose tokens are being withdrawn.
    withdrawing: Vec<usize>,
}

/// A node has a token, or may have it.
#[derive(Debug)]
struct Trace {
    node: usize,
    token: u64,
    fate: Fate,
}

/// What became of a request.
#[derive(Debug, PartialEq)]
enum Fate {
    /// It waits for its answer.
    OnItsWay,
    Granted,
    /// It never gets its answer, and may arrive at any time, but hardly later than `ends`.
    Lost {
        /// A hash of its token.
        value: u64,
        ends: Moment,
        /// It had not arrived when the token was withdrawn, or is gone.
        withdrawn: bool,
    },
}

/// Why a node is not asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Withheld {
    /// The attempt is over.
    Late,
    /// It has not yet said that an earlier token is gone.
    Doubtful,
}

/// A request that waits for its answer. Dropped without one it is lost.
#[derive(Debug)]
pub(crate) struct OnItsWay {
    ballot: Arc<Ballot>,
    node: usize,
    token: u64,
    /// A hash of the token.
    value: u64,
    ttl: Duration,
}

/// Tokens that are being withdrawn at one node.
#[derive(Debug)]
pub(crate) struct Withdrawal {
    ballot: Arc<Ballot>,
    pub(crate) node: usize,
    /// The last of them. One of a later attempt may be granted meanwhile.
    last: u64,
}

impl Ballot {
    /// Begins an attempt, with a token of its own.
    pub(crate) fn begin(&self) -> u64 {
        let mut state = self.state();
        state.token += 1;
        state.closed = false;
        state.token
    }

    /// Ends the attempt: nothing more is asked for.
    pub(crate) fn close(&self) {
        self.state().closed = true;
    }

    /// Which token is in use; 0 before the first one.
    pub(crate) fn token(&self) -> u64 {
        self.state().token
    }

    /// Takes note that a node is about to be asked with a token, of this hash and ttl.
    pub(crate) fn sends(
        self: &Arc<Self>,
        node: usize,
        token: u64,
        (value, ttl): (u64, Duration),
    ) -> Result<OnItsWay, Withheld> {
        let now = Moment::now();
        let mut state = self.state();
        if state.closed || state.token != token {
            return Err(Withheld::Late);
        }
        state.traces.retain(|trace| !trace.is_over(now));
        let theirs = state.traces.iter().filter(|trace| trace.node == node);
        if theirs.clone().any(Trace::is_doubtful) {
            return Err(Withheld::Doubtful);
        }
        if theirs.count() >= LOST {
            let first = state.traces.iter().filter(|trace| trace.node == node);
            let first = first.map(|trace| trace.token).min();
            state.traces.retain(|trace| trace.node != node || Some(trace.token) != first);
        }
        state.traces.push(Trace { node, token, fate: Fate::OnItsWay });
        Ok(OnItsWay { ballot: Arc::clone(self), node, token, value, ttl })
    }

    /// Nodes that may have the token in use.
    pub(crate) fn holders(&self) -> Vec<usize> {
        let state = self.state();
        let of_it = state.traces.iter().filter(|trace| trace.token == state.token);
        of_it.map(|trace| trace.node).collect()
    }

    /// Nodes that may have any token.
    pub(crate) fn traced(&self) -> Vec<usize> {
        let mut nodes: Vec<_> = self.state().traces.iter().map(|trace| trace.node).collect();
        nodes.sort_unstable();
        nodes.dedup();
        nodes
    }

    /// The tokens that a node may have, and of each whether its request has its answer, or never gets
    /// it: else the request may arrive after whatever is sent now.
    pub(crate) fn tokens_at(&self, node: usize) -> Vec<(u64, bool)> {
        self.tokens_up_to(self.token(), node)
    }

    fn tokens_up_to(&self, last: u64, node: usize) -> Vec<(u64, bool)> {
        let state = self.state();
        let theirs = |trace: &&Trace| trace.node == node && trace.token <= last;
        let theirs = state.traces.iter().filter(theirs);
        theirs.map(|trace| (trace.token, trace.fate != Fate::OnItsWay)).collect()
    }

    /// Waits for the answers of a node to what was asked there. They may not come in time when the node
    /// hangs, or the runtime of who has asked stands still.
    pub(crate) async fn landed(&self, node: usize, within: Duration) {
        self.landed_up_to(self.token(), node, within).await;
    }

    async fn landed_up_to(&self, last: u64, node: usize, within: Duration) {
        let landed = async {
            loop {
                let mut landed = pin!(self.landed.notified());
                landed.as_mut().enable();
                if self.tokens_up_to(last, node).iter().all(|(_, landed)| *landed) {
                    return;
                }
                landed.await;
            }
        };
        // Who waits looks again at what has landed.
        let _ = timeout(within, landed).await;
    }

    /// What is to be withdrawn after an attempt: at each node that may have a token, unless it is being
    /// done there.
    pub(crate) fn withdraws(self: &Arc<Self>) -> Vec<Withdrawal> {
        let state = &mut *self.state();
        let (mut withdrawals, last) = (Vec::new(), state.token);
        for node in state.traces.iter().filter(|trace| trace.is_doubtful()).map(|trace| trace.node)
        {
            if !state.withdrawing.contains(&node) {
                state.withdrawing.push(node);
                withdrawals.push(Withdrawal { ballot: Arc::clone(self), node, last });
            }
        }
        withdrawals
    }

    /// Takes note of a node's answer that it does not have a token. What was on its way when it was
    /// asked may arrive after that.
    pub(crate) fn gone(&self, node: usize, token: u64) {
        self.state().traces.retain_mut(|trace| {
            if (trace.node, trace.token) != (node, token) {
                return true;
            }
            match &mut trace.fate {
                Fate::OnItsWay => true,
                Fate::Granted => false,
                Fate::Lost { withdrawn, .. } => {
                    *withdrawn = true;
                    true
                }
            }
        });
    }

    /// Whether a value that a node holds is a token of ours that has arrived late. It is to be
    /// withdrawn again.
    pub(crate) fn recognises(&self, node: usize, held: u64) -> bool {
        let mut state = self.state();
        let late = state.traces.iter_mut().find_map(|trace| match &mut trace.fate {
            Fate::Lost { value, withdrawn, .. } if trace.node == node && *value == held => {
                Some(withdrawn)
            }
            _ => None,
        });
        late.map(|withdrawn| *withdrawn = false).is_some()
    }

    /// Whether a node may have a token that it has not said to be gone.
    pub(crate) fn is_doubtful(&self) -> bool {
        self.state().traces.iter().any(Trace::is_doubtful)
    }

    /// Whether no node has a token, and none will.
    pub(crate) fn is_clear(&self) -> bool {
        let now = Moment::now();
        self.state().traces.iter().all(|trace| trace.is_over(now))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Nothing that runs under this mutex can panic.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Trace {
    /// Whether it is to be withdrawn, unless it is of the token in use.
    fn is_doubtful(&self) -> bool {
        !matches!(self.fate, Fate::Lost { withdrawn: true, .. })
    }

    /// Whether it was lost so long ago that nobody looks for it any more.
    fn is_over(&self, now: Moment) -> bool {
        matches!(self.fate, Fate::Lost { withdrawn: true, ends, .. } if ends <= now)
    }
}

impl OnItsWay {
    /// The answer has come: whether the node has the token.
    pub(crate) fn landed(self, granted: bool) {
        self.ends(|| granted.then_some(Fate::Granted));
    }

    fn ends(&self, fate: impl FnOnce() -> Option<Fate>) {
        let mut state = self.ballot.state();
        let asked = |trace: &Trace| {
            (trace.node, trace.token, &trace.fate) == (self.node, self.token, &Fate::OnItsWay)
        };
        if let Some(at) = state.traces.iter().position(asked) {
            match fate() {
                Some(fate) => state.traces[at].fate = fate,
                None => drop(state.traces.swap_remove(at)),
            }
        }
        drop(state);
        self.ballot.landed.notify_waiters();
    }
}

impl Drop for OnItsWay {
    fn drop(&mut self) {
        // Nothing, when it has landed.
        self.ends(|| {
            let ends = Moment::now().after(self.ttl);
            Some(Fate::Lost { value: self.value, ends, withdrawn: false })
        });
    }
}

impl Withdrawal {
    /// As [`Ballot::landed`].
    pub(crate) async fn landed(&self, within: Duration) {
        self.ballot.landed_up_to(self.last, self.node, within).await;
    }

    /// What can be withdrawn now: nothing of it arrives any more, or may at any time.
    pub(crate) fn tokens(&self) -> Vec<u64> {
        let tokens = self.ballot.tokens_up_to(self.last, self.node);
        tokens.into_iter().filter(|(_, landed)| *landed).map(|(token, _)| token).collect()
    }

    /// Takes note of the answer that a token is gone.
    pub(crate) fn gone(&self, token: u64) {
        self.ballot.gone(self.node, token);
    }
}

impl Drop for Withdrawal {
    fn drop(&mut self) {
        self.ballot.state().withdrawing.retain(|node| *node != self.node);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOON: Duration = Duration::from_secs(5);

    /// A hash of a token, and its ttl.
    const SENT: (u64, Duration) = (7, SOON);

    /// A ballot, and what is sent in its first attempt.
    fn begun() -> (Arc<Ballot>, (u64, Duration)) {
        let ballot = Arc::new(Ballot::default());
        assert_eq!((ballot.token(), ballot.begin()), (0, 1));
        (ballot, SENT)
    }

    #[tokio::test(start_paused = true)]
    async fn a_release_waits_for_what_was_sent_and_nothing_is_sent_after_it() {
        let (ballot, sent) = begun();
        let request = ballot.sends(2, 1, sent).unwrap();
        ballot.close();
        ballot.landed(1, SOON).await;
        let mut landing = Box::pin(ballot.landed(2, SOON));
        assert!(futures::poll!(&mut landing).is_pending());
        assert_eq!(ballot.sends(0, 1, sent).unwrap_err(), Withheld::Late);
        request.landed(true);
        landing.await;
        assert_eq!((ballot.traced(), ballot.tokens_at(2)), (vec![2], vec![(1, true)]));
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_that_nobody_polls_holds_up_no_release_for_ever() {
        let (ballot, sent) = begun();
        let _request = ballot.sends(0, 1, sent).unwrap();
        ballot.landed(0, SOON).await;
        assert_eq!(ballot.tokens_at(0), [(1, false)]);
    }

    #[test]
    fn a_node_that_has_refused_has_nothing() {
        let (ballot, sent) = begun();
        ballot.sends(0, 1, sent).unwrap().landed(false);
        assert!(ballot.is_clear() && ballot.holders().is_empty());
    }

    #[test]
    fn a_node_is_not_asked_again_before_it_has_answered_that_a_token_is_gone() {
        let (ballot, sent) = begun();
        ballot.sends(0, 1, sent).unwrap().landed(true);
        assert_eq!((ballot.holders(), ballot.begin()), (vec![0], 2));
        assert_eq!((ballot.holders(), ballot.traced()), (vec![], vec![0]));
        assert_eq!(ballot.sends(0, 2, sent).unwrap_err(), Withheld::Doubtful);
        ballot.gone(0, 1);
        assert!(ballot.is_clear() && ballot.sends(0, 2, sent).is_ok());
    }

    #[test]
    fn an_answer_to_a_withdrawal_says_nothing_of_what_is_on_its_way() {
        let (ballot, sent) = begun();
        let request = ballot.sends(0, 1, sent).unwrap();
        ballot.gone(0, 1);
        request.landed(true);
        assert_eq!(ballot.tokens_at(0), [(1, true)]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_withdrawal_leaves_the_token_of_a_later_attempt() {
        let (ballot, sent) = begun();
        let first = ballot.sends(0, 1, sent).unwrap();
        ballot.close();
        let withdrawal = ballot.withdraws().pop().unwrap();
        assert!(ballot.withdraws().is_empty(), "it is being done");
        // The node has refused the first, and grants the second.
        first.landed(false);
        assert_eq!(ballot.begin(), 2);
        let second = ballot.sends(0, 2, sent).unwrap();
        // It does not wait for the second either.
        assert!(futures::poll!(Box::pin(withdrawal.landed(SOON))).is_ready());
        second.landed(true);
        assert_eq!((withdrawal.tokens(), ballot.holders()), (vec![], vec![0]));
        drop(withdrawal);
        assert_eq!(ballot.withdraws().len(), 1);
    }

    #[test]
    fn a_lost_request_is_looked_for_until_its_ttl_is_over() {
        let (ballot, sent) = begun();
        drop(ballot.sends(0, 1, sent));
        assert!(ballot.is_doubtful());
        ballot.gone(0, 1);
        // It may arrive yet, which hinders nobody.
        assert!(!ballot.is_doubtful() && !ballot.is_clear());
        ballot.begin();
        ballot.sends(0, 2, sent).unwrap().landed(false);
        let held = sent.0;
        assert!(!ballot.recognises(1, held) && !ballot.recognises(0, held ^ 1));
        assert!(ballot.recognises(0, held) && ballot.is_doubtful());
        ballot.gone(0, 1);
        let trace = ballot.state().traces.pop().unwrap();
        assert!(!trace.is_over(Moment::now()) && trace.is_over(Moment::now().after(SOON)));
    }

    #[test]
    fn of_too_many_lost_requests_the_first_is_not_looked_for_any_more() {
        let (ballot, sent) = begun();
        drop(ballot.sends(1, 1, sent).unwrap());
        ballot.gone(1, 1);
        for token in 1..=3 * LOST as u64 {
            drop(ballot.sends(0, token, sent).unwrap());
            ballot.gone(0, token);
            ballot.begin();
        }
        let tokens = ballot.tokens_at(0).into_iter().map(|(token, _)| token);
        assert!(tokens.eq(2 * LOST as u64 + 1..=3 * LOST as u64));
        assert_eq!(ballot.tokens_at(1), [(1, true)]);
    }
}
