//! What is known of one acquisition's tokens at the nodes, from the first request on.
//!
//! Each attempt has a token of its own. A withdrawal without an answer may arrive late, and must not
//! take away what a later attempt was granted. So nothing is ever asked for with a token again that
//! was to be withdrawn.
//!
//! Where a token is, or may be, a [`Entry`] of it is kept until the node has answered, however late. A
//! node that has one of an earlier attempt is not asked again before that, so there are few of them.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::timeout;

use crate::value::sync::{Mutex, MutexGuard};
use crate::value::time::Moment;

/// So many requests to one node that were lost are looked for. A node that loses more than that, and
/// answers other ones, is hardly going to receive the first of them.
const LOST: usize = 16;

#[derive(Debug, Default)]
pub(crate) struct Attempts {
    state: Mutex<State>,
    landed: Notify,
}

#[derive(Debug, Default)]
struct State {
    /// The token in use, the first of which is 1.
    token: u64,
    /// Nothing more is asked for with it.
    closed: bool,
    entries: Vec<Entry>,
    /// Nodes whose tokens are being withdrawn.
    withdrawing: Vec<usize>,
}

/// A node has a token, or may have it.
#[derive(Debug)]
struct Entry {
    node: usize,
    token: u64,
    status: Status,
}

/// What became of a request.
#[derive(Debug, PartialEq)]
enum Status {
    /// It waits for its answer.
    InFlightRequest,
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
pub(crate) struct InFlightRequest {
    attempts: Arc<Attempts>,
    node: usize,
    token: u64,
    /// A hash of the token.
    value: u64,
    ttl: Duration,
}

/// Tokens that are being withdrawn at one node.
#[derive(Debug)]
pub(crate) struct Withdrawal {
    attempts: Arc<Attempts>,
    pub(crate) node: usize,
    /// The last of them. One of a later attempt may be granted meanwhile.
    last: u64,
}

impl Attempts {
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
    ) -> Result<InFlightRequest, Withheld> {
        let now = Moment::now();
        let mut state = self.state();
        if state.closed || state.token != token {
            return Err(Withheld::Late);
        }
        state.entries.retain(|entry| !entry.is_over(now));
        let theirs = state.entries.iter().filter(|entry| entry.node == node);
        if theirs.clone().any(Entry::is_doubtful) {
            return Err(Withheld::Doubtful);
        }
        if theirs.count() >= LOST {
            let first = state.entries.iter().filter(|entry| entry.node == node);
            let first = first.map(|entry| entry.token).min();
            state.entries.retain(|entry| entry.node != node || Some(entry.token) != first);
        }
        state.entries.push(Entry { node, token, status: Status::InFlightRequest });
        Ok(InFlightRequest { attempts: Arc::clone(self), node, token, value, ttl })
    }

    /// Nodes that may have the token in use.
    pub(crate) fn holders(&self) -> Vec<usize> {
        let state = self.state();
        let of_it = state.entries.iter().filter(|entry| entry.token == state.token);
        of_it.map(|entry| entry.node).collect()
    }

    /// Nodes that may have any token.
    pub(crate) fn traced(&self) -> Vec<usize> {
        let mut nodes: Vec<_> = self.state().entries.iter().map(|entry| entry.node).collect();
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
        let theirs = |entry: &&Entry| entry.node == node && entry.token <= last;
        let theirs = state.entries.iter().filter(theirs);
        theirs.map(|entry| (entry.token, entry.status != Status::InFlightRequest)).collect()
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
        for node in state.entries.iter().filter(|entry| entry.is_doubtful()).map(|entry| entry.node)
        {
            if !state.withdrawing.contains(&node) {
                state.withdrawing.push(node);
                withdrawals.push(Withdrawal { attempts: Arc::clone(self), node, last });
            }
        }
        withdrawals
    }

    /// Takes note of a node's answer that it does not have a token. What was on its way when it was
    /// asked may arrive after that.
    pub(crate) fn gone(&self, node: usize, token: u64) {
        self.state().entries.retain_mut(|entry| {
            if (entry.node, entry.token) != (node, token) {
                return true;
            }
            match &mut entry.status {
                Status::InFlightRequest => true,
                Status::Granted => false,
                Status::Lost { withdrawn, .. } => {
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
        let late = state.entries.iter_mut().find_map(|entry| match &mut entry.status {
            Status::Lost { value, withdrawn, .. } if entry.node == node && *value == held => {
                Some(withdrawn)
            }
            _ => None,
        });
        late.map(|withdrawn| *withdrawn = false).is_some()
    }

    /// Whether a node may have a token that it has not said to be gone.
    pub(crate) fn is_doubtful(&self) -> bool {
        self.state().entries.iter().any(Entry::is_doubtful)
    }

    /// Whether no node has a token, and none will.
    pub(crate) fn is_clear(&self) -> bool {
        let now = Moment::now();
        self.state().entries.iter().all(|entry| entry.is_over(now))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }
}

impl Entry {
    /// Whether it is to be withdrawn, unless it is of the token in use.
    fn is_doubtful(&self) -> bool {
        !matches!(self.status, Status::Lost { withdrawn: true, .. })
    }

    /// Whether it was lost so long ago that nobody looks for it any more.
    fn is_over(&self, now: Moment) -> bool {
        matches!(self.status, Status::Lost { withdrawn: true, ends, .. } if ends <= now)
    }
}

impl InFlightRequest {
    /// The answer has come: whether the node has the token.
    pub(crate) fn landed(self, granted: bool) {
        self.ends(|| granted.then_some(Status::Granted));
    }

    fn ends(&self, status: impl FnOnce() -> Option<Status>) {
        let mut state = self.attempts.state();
        let asked = |entry: &Entry| {
            (entry.node, entry.token, &entry.status)
                == (self.node, self.token, &Status::InFlightRequest)
        };
        if let Some(at) = state.entries.iter().position(asked) {
            match status() {
                Some(status) => state.entries[at].status = status,
                None => drop(state.entries.swap_remove(at)),
            }
        }
        drop(state);
        self.attempts.landed.notify_waiters();
    }
}

impl Drop for InFlightRequest {
    fn drop(&mut self) {
        // Nothing, when it has landed.
        self.ends(|| {
            let ends = Moment::now().after(self.ttl);
            Some(Status::Lost { value: self.value, ends, withdrawn: false })
        });
    }
}

impl Withdrawal {
    /// As [`Attempts::landed`].
    pub(crate) async fn landed(&self, within: Duration) {
        self.attempts.landed_up_to(self.last, self.node, within).await;
    }

    /// What can be withdrawn now: nothing of it arrives any more, or may at any time.
    pub(crate) fn tokens(&self) -> Vec<u64> {
        let tokens = self.attempts.tokens_up_to(self.last, self.node);
        tokens.into_iter().filter(|(_, landed)| *landed).map(|(token, _)| token).collect()
    }

    /// Takes note of the answer that a token is gone.
    pub(crate) fn gone(&self, token: u64) {
        self.attempts.gone(self.node, token);
    }
}

impl Drop for Withdrawal {
    fn drop(&mut self) {
        self.attempts.state().withdrawing.retain(|node| *node != self.node);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOON: Duration = Duration::from_secs(5);

    /// A hash of a token, and its ttl.
    const SENT: (u64, Duration) = (7, SOON);

    /// A ballot, and what is sent in its first attempt.
    fn begun() -> (Arc<Attempts>, (u64, Duration)) {
        let attempts = Arc::new(Attempts::default());
        assert_eq!((attempts.token(), attempts.begin()), (0, 1));
        (attempts, SENT)
    }

    #[tokio::test(start_paused = true)]
    async fn a_release_waits_for_what_was_sent_and_nothing_is_sent_after_it() {
        let (attempts, sent) = begun();
        let request = attempts.sends(2, 1, sent).unwrap();
        attempts.close();
        attempts.landed(1, SOON).await;
        let mut landing = Box::pin(attempts.landed(2, SOON));
        assert!(futures::poll!(&mut landing).is_pending());
        assert_eq!(attempts.sends(0, 1, sent).unwrap_err(), Withheld::Late);
        request.landed(true);
        landing.await;
        assert_eq!((attempts.traced(), attempts.tokens_at(2)), (vec![2], vec![(1, true)]));
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_that_nobody_polls_holds_up_no_release_for_ever() {
        let (attempts, sent) = begun();
        let _request = attempts.sends(0, 1, sent).unwrap();
        attempts.landed(0, SOON).await;
        assert_eq!(attempts.tokens_at(0), [(1, false)]);
    }

    #[test]
    fn a_node_that_has_refused_has_nothing() {
        let (attempts, sent) = begun();
        attempts.sends(0, 1, sent).unwrap().landed(false);
        assert!(attempts.is_clear() && attempts.holders().is_empty());
    }

    #[test]
    fn a_node_is_not_asked_again_before_it_has_answered_that_a_token_is_gone() {
        let (attempts, sent) = begun();
        attempts.sends(0, 1, sent).unwrap().landed(true);
        assert_eq!((attempts.holders(), attempts.begin()), (vec![0], 2));
        assert_eq!((attempts.holders(), attempts.traced()), (vec![], vec![0]));
        assert_eq!(attempts.sends(0, 2, sent).unwrap_err(), Withheld::Doubtful);
        attempts.gone(0, 1);
        assert!(attempts.is_clear() && attempts.sends(0, 2, sent).is_ok());
    }

    #[test]
    fn an_answer_to_a_withdrawal_says_nothing_of_what_is_on_its_way() {
        let (attempts, sent) = begun();
        let request = attempts.sends(0, 1, sent).unwrap();
        attempts.gone(0, 1);
        request.landed(true);
        assert_eq!(attempts.tokens_at(0), [(1, true)]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_withdrawal_leaves_the_token_of_a_later_attempt() {
        let (attempts, sent) = begun();
        let first = attempts.sends(0, 1, sent).unwrap();
        attempts.close();
        let withdrawal = attempts.withdraws().pop().unwrap();
        assert!(attempts.withdraws().is_empty(), "it is being done");
        // The node has refused the first, and grants the second.
        first.landed(false);
        assert_eq!(attempts.begin(), 2);
        let second = attempts.sends(0, 2, sent).unwrap();
        // It does not wait for the second either.
        assert!(futures::poll!(Box::pin(withdrawal.landed(SOON))).is_ready());
        second.landed(true);
        assert_eq!((withdrawal.tokens(), attempts.holders()), (vec![], vec![0]));
        drop(withdrawal);
        assert_eq!(attempts.withdraws().len(), 1);
    }

    #[test]
    fn a_lost_request_is_looked_for_until_its_ttl_is_over() {
        let (attempts, sent) = begun();
        drop(attempts.sends(0, 1, sent));
        assert!(attempts.is_doubtful());
        attempts.gone(0, 1);
        // It may arrive yet, which hinders nobody.
        assert!(!attempts.is_doubtful() && !attempts.is_clear());
        attempts.begin();
        attempts.sends(0, 2, sent).unwrap().landed(false);
        let held = sent.0;
        assert!(!attempts.recognises(1, held) && !attempts.recognises(0, held ^ 1));
        assert!(attempts.recognises(0, held) && attempts.is_doubtful());
        attempts.gone(0, 1);
        let entry = attempts.state().entries.pop().unwrap();
        assert!(!entry.is_over(Moment::now()) && entry.is_over(Moment::now().after(SOON)));
    }

    #[test]
    fn of_too_many_lost_requests_the_first_is_not_looked_for_any_more() {
        let (attempts, sent) = begun();
        drop(attempts.sends(1, 1, sent).unwrap());
        attempts.gone(1, 1);
        for token in 1..=3 * LOST as u64 {
            drop(attempts.sends(0, token, sent).unwrap());
            attempts.gone(0, token);
            attempts.begin();
        }
        let tokens = attempts.tokens_at(0).into_iter().map(|(token, _)| token);
        assert!(tokens.eq(2 * LOST as u64 + 1..=3 * LOST as u64));
        assert_eq!(attempts.tokens_at(1), [(1, true)]);
    }
}
