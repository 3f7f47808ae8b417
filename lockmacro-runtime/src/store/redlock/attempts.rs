//! The attempts of one Redlock acquisition: which of its tokens each node has, or may have.
//!
//! - Every attempt has a token of its own. A withdrawal without an answer may arrive late, and must
//!   not release what a later attempt was granted. So a token that was withdrawn is never sent
//!   again.
//! - For every token that a node has, or may have, a [`Status`] is kept until the node has
//!   answered, however late.
//! - A node with a token of an earlier attempt gets no new request before that answer, so the
//!   number of entries is small.
//!
//! One file, as every rule is about the same table of entries.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::mem;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::timeout;

use crate::protocol::token::ServerAttempts;
use crate::sys::sync::{Mutex, until};
use crate::sys::time::Moment;
use crate::value::applied::Applied;
use crate::value::fence::Fence;

/// Most unanswered requests to one node that are remembered. When there are more, and later ones
/// were answered, the first of them will hardly arrive any more.
const MAX_UNANSWERED: usize = 16;

/// The attempts of one acquisition at all nodes.
#[derive(Debug, Default)]
pub(crate) struct Attempts {
    state: Mutex<AttemptsState>,
    /// A request has its answer, or is given up.
    ended: Notify,
}

#[derive(Debug, Default)]
struct AttemptsState {
    /// Number of the current token. The first one is 1.
    token: u64,
    /// When the current attempt began.
    began: Option<Moment>,
    /// No request is sent with the current token any more.
    closed: bool,
    /// The next release of the token.
    next: Release,
    /// The last fence of the grant.
    fence: Option<Fence>,
    /// The tokens that nodes have, or may have, by node and number.
    tokens: BTreeMap<(usize, u64), Status>,
    /// Nodes at which tokens are being withdrawn.
    withdrawing: Vec<usize>,
}

/// A release of the token, which is repeated while a node may have it.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Release {
    #[default]
    First,
    Repeated,
}

/// The state of a request with a token that a node has, or may have.
#[derive(Debug, PartialEq)]
enum Status {
    /// It has no answer yet.
    InFlight,
    Granted,
    /// It will get no answer, and may arrive at any time, but hardly later than `ends`.
    Unanswered {
        /// Hash of its token.
        value: u64,
        ends: Moment,
        /// The node has answered that it does not have the token.
        withdrawn: bool,
    },
}

/// Why a node gets no request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Withheld {
    /// The attempt is over.
    Late,
    /// The node has not yet answered that an earlier token is gone.
    Doubtful,
}

/// A request in flight. Dropped without an answer, it is unanswered.
#[derive(Debug)]
pub(crate) struct InFlightRequest {
    attempts: Arc<Attempts>,
    node: usize,
    token: u64,
    /// Hash of the token.
    value: u64,
    ttl: Duration,
    /// An earlier request with the token may still arrive, whatever the answer to this one.
    after_unanswered: bool,
}

/// The withdrawal of tokens at one node.
#[derive(Debug)]
pub(crate) struct Withdrawal {
    pub(crate) attempts: Arc<Attempts>,
    pub(crate) node: usize,
    /// The last token to withdraw. A later attempt may be granted meanwhile.
    pub(crate) last: u64,
}

impl Attempts {
    /// Begins an attempt with a new token, and returns its number.
    pub(crate) fn begin(&self) -> u64 {
        let mut state = self.state.lock();
        state.token += 1;
        state.began = Some(Moment::now());
        state.closed = false;
        state.next = Release::First;
        state.token
    }

    /// Ends the attempt: no further request is sent.
    pub(crate) fn close(&self) {
        self.state.lock().closed = true;
    }

    /// Ends the attempt, as its token is about to be released. Returns whether it was before.
    pub(crate) fn release(&self) -> Release {
        let mut state = self.state.lock();
        state.closed = true;
        mem::replace(&mut state.next, Release::Repeated)
    }

    /// Number of the current token; 0 before the first attempt.
    pub(crate) fn token(&self) -> u64 {
        self.state.lock().token
    }

    /// Records that a request with a token of this hash and ttl is about to be sent to a node.
    pub(crate) fn note_sent(
        self: &Arc<Self>,
        node: usize,
        token: u64,
        (value, ttl): (u64, Duration),
    ) -> Result<InFlightRequest, Withheld> {
        let now = Moment::now();
        let mut state = self.state.lock();
        if state.closed || state.token != token {
            return Err(Withheld::Late);
        }
        state.tokens.retain(|_, status| !status.is_over(now));
        let theirs = state.tokens.range((node, 0)..=(node, token));
        if theirs.clone().any(|(_, status)| status.is_doubtful()) {
            return Err(Withheld::Doubtful);
        }
        let unanswered: Vec<_> = theirs.map(|(at, _)| *at).collect();
        if unanswered.len() >= MAX_UNANSWERED {
            state.tokens.remove(&unanswered[0]);
        }
        state.tokens.insert((node, token), Status::InFlight);
        let attempts = Arc::clone(self);
        Ok(InFlightRequest { attempts, node, token, value, ttl, after_unanswered: false })
    }

    /// Records that a node which has forgotten the current token is about to get it again. Returns
    /// `None` once the token is being released, or while a request to the node is in flight.
    pub(crate) fn repairs(
        self: &Arc<Self>,
        node: usize,
        (value, ttl): (u64, Duration),
    ) -> Option<InFlightRequest> {
        let state = &mut *self.state.lock();
        let token = state.token;
        let closed = state.closed;
        let status = state.tokens.get_mut(&(node, token));
        let status = status.filter(|status| !closed && **status != Status::InFlight)?;
        let after_unanswered = mem::replace(status, Status::InFlight) != Status::Granted;
        Some(InFlightRequest {
            attempts: Arc::clone(self),
            node,
            token,
            value,
            ttl,
            after_unanswered,
        })
    }

    /// Records the last fence of the grant, which a node that is repaired has to know.
    pub(crate) fn note_fence(&self, fence: Fence) {
        self.state.lock().fence = Some(fence);
    }

    /// The last fence of the grant, if it has one.
    pub(crate) fn fence(&self) -> Option<Fence> {
        self.state.lock().fence
    }

    /// Nodes that may have the current token.
    pub(crate) fn holders(&self) -> Vec<usize> {
        let state = self.state.lock();
        let current = state.tokens.keys().filter(|(_, token)| *token == state.token);
        current.map(|(node, _)| *node).collect()
    }

    /// Nodes that may have any token.
    pub(crate) fn nodes(&self) -> Vec<usize> {
        let mut nodes: Vec<_> = self.state.lock().tokens.keys().map(|(node, _)| *node).collect();
        nodes.dedup();
        nodes
    }

    /// The tokens up to `last` that a node may have, each with whether its request was answered or
    /// given up. Any other request may arrive after a release that is sent now.
    pub(crate) fn tokens_at(&self, node: usize, last: u64) -> Vec<(u64, bool)> {
        let state = self.state.lock();
        let theirs = state.tokens.range((node, 0)..=(node, last));
        theirs.map(|((_, token), status)| (*token, *status != Status::InFlight)).collect()
    }

    /// Waits until every request to a node with a token up to `last` has its answer or was given
    /// up, for `within` at most: the node may hang, or the runtime of the caller may not poll the
    /// request.
    pub(crate) async fn requests_ended(&self, node: usize, last: u64, within: Duration) {
        let all_ended = || self.tokens_at(node, last).iter().all(|(_, ended)| *ended).then_some(());
        // The caller checks afterwards which requests have ended.
        let _ = timeout(within, until(&self.ended, all_ended)).await;
    }

    /// Starts a withdrawal at every node that may have a token, unless one is in progress there.
    pub(crate) fn withdraws(self: &Arc<Self>) -> Vec<Withdrawal> {
        let state = &mut *self.state.lock();
        let mut withdrawals = Vec::new();
        let last = state.token;
        for (&(node, _), status) in &state.tokens {
            if status.is_doubtful() && !state.withdrawing.contains(&node) {
                state.withdrawing.push(node);
                withdrawals.push(Withdrawal { attempts: Arc::clone(self), node, last });
            }
        }
        withdrawals
    }

    /// Records a node's answer that it does not have a token. A request that was in flight may
    /// still arrive after that.
    pub(crate) fn gone(&self, node: usize, token: u64) {
        let tokens = &mut self.state.lock().tokens;
        match tokens.get_mut(&(node, token)) {
            Some(Status::Granted) => drop(tokens.remove(&(node, token))),
            Some(Status::Unanswered { withdrawn, .. }) => *withdrawn = true,
            Some(Status::InFlight) | None => {}
        }
    }

    /// Whether the value of a key at a node is a token of ours that has arrived late. If so, it is
    /// marked to be withdrawn again.
    pub(crate) fn recognises(&self, node: usize, held: u64) -> bool {
        for (at, status) in &mut self.state.lock().tokens {
            if let Status::Unanswered { value, withdrawn, .. } = status
                && (at.0, *value) == (node, held)
            {
                *withdrawn = false;
                return true;
            }
        }
        false
    }
}

impl ServerAttempts for Attempts {
    fn is_clear(&self) -> bool {
        let now = Moment::now();
        self.state.lock().tokens.values().all(|status| status.is_over(now))
    }

    fn is_doubtful(&self) -> bool {
        self.state.lock().tokens.values().any(Status::is_doubtful)
    }

    fn began(&self) -> Option<Moment> {
        self.state.lock().began
    }
}

impl Status {
    /// Whether the node may have the token, as far as it has answered.
    fn is_doubtful(&self) -> bool {
        !matches!(self, Self::Unanswered { withdrawn: true, .. })
    }

    /// Whether the request was given up so long ago that it is forgotten.
    fn is_over(&self, now: Moment) -> bool {
        matches!(self, Self::Unanswered { withdrawn: true, ends, .. } if *ends <= now)
    }
}

impl InFlightRequest {
    /// Records whether the node has the token. Without that knowledge the request is unanswered.
    pub(crate) fn answered(self, applied: Applied) {
        match applied {
            _ if self.after_unanswered => drop(self),
            Applied::No => self.end(|| None),
            Applied::Yes => self.end(|| Some(Status::Granted)),
            Applied::Unknown => drop(self),
        }
    }

    fn end(&self, status: impl FnOnce() -> Option<Status>) {
        let mut state = self.attempts.state.lock();
        if let Entry::Occupied(mut asked) = state.tokens.entry((self.node, self.token))
            && *asked.get() == Status::InFlight
        {
            match status() {
                Some(status) => drop(asked.insert(status)),
                None => drop(asked.remove()),
            }
        }
        drop(state);
        self.attempts.ended.notify_waiters();
    }
}

impl Drop for InFlightRequest {
    fn drop(&mut self) {
        // Without effect once the request was answered.
        self.end(|| {
            let ends = Moment::now().after(self.ttl);
            Some(Status::Unanswered { value: self.value, ends, withdrawn: false })
        });
    }
}

impl Drop for Withdrawal {
    fn drop(&mut self) {
        self.attempts.state.lock().withdrawing.retain(|node| *node != self.node);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOON: Duration = Duration::from_secs(5);

    /// Hash of a token, and its ttl.
    const SENT: (u64, Duration) = (7, SOON);

    /// A first attempt, and the token that it sends.
    fn begun() -> (Arc<Attempts>, (u64, Duration)) {
        let attempts = Arc::new(Attempts::default());
        assert_eq!((attempts.token(), attempts.begin()), (0, 1));
        (attempts, SENT)
    }

    #[tokio::test(start_paused = true)]
    async fn a_release_waits_for_requests_in_flight_and_none_is_sent_after_it() {
        let (attempts, sent) = begun();
        let request = attempts.note_sent(2, 1, sent).unwrap();
        attempts.close();
        attempts.requests_ended(1, 1, SOON).await;
        let mut ended = Box::pin(attempts.requests_ended(2, 1, SOON));
        assert!(futures::poll!(&mut ended).is_pending());
        assert_eq!(attempts.note_sent(0, 1, sent).unwrap_err(), Withheld::Late);
        request.answered(Applied::Yes);
        ended.await;
        assert_eq!(
            (attempts.nodes(), attempts.tokens_at(2, attempts.token())),
            (vec![2], vec![(1, true)])
        );
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_that_is_not_polled_delays_a_release_only_for_a_while() {
        let (attempts, sent) = begun();
        let _request = attempts.note_sent(0, 1, sent).unwrap();
        attempts.requests_ended(0, 1, SOON).await;
        assert_eq!(attempts.tokens_at(0, attempts.token()), [(1, false)]);
    }

    #[test]
    fn a_node_that_has_refused_has_no_token() {
        let (attempts, sent) = begun();
        attempts.note_sent(0, 1, sent).unwrap().answered(Applied::No);
        assert!(attempts.is_clear() && attempts.holders().is_empty());
    }

    #[test]
    fn a_node_gets_no_request_before_it_has_answered_that_the_last_token_is_gone() {
        let (attempts, sent) = begun();
        attempts.note_sent(0, 1, sent).unwrap().answered(Applied::Yes);
        assert_eq!((attempts.holders(), attempts.begin()), (vec![0], 2));
        assert_eq!((attempts.holders(), attempts.nodes()), (vec![], vec![0]));
        assert_eq!(attempts.note_sent(0, 2, sent).unwrap_err(), Withheld::Doubtful);
        attempts.gone(0, 1);
        assert!(attempts.is_clear() && attempts.note_sent(0, 2, sent).is_ok());
    }

    #[test]
    fn a_withdrawal_does_not_end_a_request_in_flight() {
        let (attempts, sent) = begun();
        let request = attempts.note_sent(0, 1, sent).unwrap();
        attempts.gone(0, 1);
        request.answered(Applied::Yes);
        assert_eq!(attempts.tokens_at(0, attempts.token()), [(1, true)]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_withdrawal_leaves_the_token_of_a_later_attempt() {
        let (attempts, sent) = begun();
        let first = attempts.note_sent(0, 1, sent).unwrap();
        attempts.close();
        let withdrawal = attempts.withdraws().pop().unwrap();
        assert!(attempts.withdraws().is_empty(), "it is in progress");
        // The node has refused the first token, and grants the second.
        first.answered(Applied::No);
        assert_eq!(attempts.begin(), 2);
        let second = attempts.note_sent(0, 2, sent).unwrap();
        // The withdrawal does not wait for the second token.
        assert!(
            futures::poll!(Box::pin(attempts.requests_ended(0, withdrawal.last, SOON))).is_ready()
        );
        second.answered(Applied::Yes);
        let left = attempts.tokens_at(0, withdrawal.last);
        assert_eq!((left, attempts.holders()), (vec![], vec![0]));
        drop(withdrawal);
        assert_eq!(attempts.withdraws().len(), 1);
    }

    #[test]
    fn an_unanswered_request_is_remembered_until_its_ttl_is_over() {
        let (attempts, sent) = begun();
        drop(attempts.note_sent(0, 1, sent));
        assert!(attempts.is_doubtful());
        attempts.gone(0, 1);
        // The request may still arrive. A new attempt does not wait for that.
        assert!(!attempts.is_doubtful() && !attempts.is_clear());
        attempts.begin();
        attempts.note_sent(0, 2, sent).unwrap().answered(Applied::No);
        let held = sent.0;
        assert!(!attempts.recognises(1, held) && !attempts.recognises(0, held ^ 1));
        assert!(attempts.recognises(0, held) && attempts.is_doubtful());
        attempts.gone(0, 1);
        let (_, unanswered) = attempts.state.lock().tokens.pop_last().unwrap();
        assert!(
            !unanswered.is_over(Moment::now()) && unanswered.is_over(Moment::now().after(SOON))
        );
    }

    #[tokio::test(start_paused = true)]
    async fn a_release_waits_for_a_repair_and_none_is_sent_after_it() {
        let (attempts, sent) = begun();
        assert!(attempts.repairs(0, sent).is_none(), "it was never asked");
        attempts.note_sent(0, 1, sent).unwrap().answered(Applied::Yes);
        let repair = attempts.repairs(0, sent).unwrap();
        assert!(attempts.repairs(0, sent).is_none(), "one is in flight");
        attempts.close();
        let mut ended = Box::pin(attempts.requests_ended(0, 1, SOON));
        assert!(futures::poll!(&mut ended).is_pending());
        repair.answered(Applied::Yes);
        ended.await;
        assert!(attempts.repairs(0, sent).is_none(), "it is being released");
        attempts.gone(0, 1);
        assert!(attempts.is_clear());
    }

    #[test]
    fn an_unanswered_request_may_still_arrive_after_a_repair_was_answered() {
        let (attempts, sent) = begun();
        drop(attempts.note_sent(0, 1, sent));
        attempts.repairs(0, sent).unwrap().answered(Applied::Yes);
        attempts.gone(0, 1);
        assert!(!attempts.is_doubtful() && !attempts.is_clear());
    }

    #[test]
    fn of_too_many_unanswered_requests_the_first_is_forgotten() {
        let (attempts, sent) = begun();
        drop(attempts.note_sent(1, 1, sent).unwrap());
        attempts.gone(1, 1);
        for token in 1..=3 * MAX_UNANSWERED as u64 {
            drop(attempts.note_sent(0, token, sent).unwrap());
            attempts.gone(0, token);
            attempts.begin();
        }
        let tokens = attempts.tokens_at(0, attempts.token()).into_iter().map(|(token, _)| token);
        assert!(tokens.eq(2 * MAX_UNANSWERED as u64 + 1..=3 * MAX_UNANSWERED as u64));
        assert_eq!(attempts.tokens_at(1, attempts.token()), [(1, true)]);
    }
}
