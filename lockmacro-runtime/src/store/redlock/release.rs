//! Releases tokens on every node that may have one, whether the node has answered or not.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;

use super::store::{Redlock, Round};
use crate::protocol::answer::Released;
use crate::protocol::request::Request;
use crate::store::backend::Backend;
use crate::store::redis::release::Sending;
use crate::store::redlock::attempts::{Attempts, Release, Withdrawal};
use crate::store::redlock::node::Nodes;
use crate::store::redlock::quorum::{majority, no_quorum};
use crate::sys::time::Instant;
use crate::value::applied::Applied;
use crate::value::error::LockError;

/// How long a release waits for requests that are in flight, and for nodes without a majority.
const BRIEF: Duration = Duration::from_millis(50);
/// The same once a majority has answered: at least, and in round trips. The background waits for
/// slower nodes.
const MORE: (Duration, u32) = (Duration::from_millis(2), 4);
/// The same where fewer nodes than a majority are left, in timeouts of a node, which may have to
/// connect.
const LAST_NODES: u32 = 5;
/// How long a repeated release waits at least for a node that is not down, however far away it is:
/// it may have to connect.
const REPEATED: Duration = Duration::from_millis(2_500);

impl Redlock {
    /// Releases the token in use on all nodes, and earlier tokens where they may still be. Returns
    /// what a majority found. It is known what became of the request when each of these nodes has
    /// answered, and no request can arrive there any more.
    pub(super) async fn release_all(&self, request: &Request) -> Result<Released, LockError> {
        let attempts = request.attempts::<Attempts>();
        // The attempts know which tokens may be left.
        request.token.set_applied(Applied::No);
        let release = attempts.release();
        let nodes = attempts.nodes();
        let majority = majority(self.count());
        // The other nodes do not have the token.
        let mut found = vec![Released::NotHeld; self.count() - nodes.len()];
        let mut errors = vec![None; self.count()];
        let are_last = found.len() >= majority;
        let last_nodes = self.rules.node.saturating_mul(LAST_NODES);
        // Nobody waits for that long where it would be in vain: other releases wait for their turn.
        let is_there = |nth: &usize| !self.nodes.all[*nth].is_any_down();
        let longest = match release {
            Release::Repeated if nodes.iter().any(is_there) => last_nodes.max(REPEATED),
            _ => last_nodes,
        };
        let mut round = Round::new(nodes.into_iter().map(|nth| {
            let attempts = &attempts;
            (nth, async move {
                // The runtime of the request may be blocked.
                attempts.requests_ended(nth, attempts.token(), BRIEF).await;
                let redis = &self.nodes.all[nth];
                let sending = match release {
                    Release::First => redis.sends_first(),
                    Release::Repeated if is_there(&nth) => redis.sends_again(longest),
                    Release::Repeated => redis.sends_again(last_nodes),
                };
                self.release_at(nth, request, attempts, sending).await
            })
        }));
        let more = if are_last {
            longest
        } else {
            self.usual_round_trip().saturating_mul(MORE.1).clamp(MORE.0, BRIEF)
        };
        let brief = Instant::now() + more;
        loop {
            let next = match verdict(&found, majority) {
                None => round.next().await,
                Some(_) => round.next_until(brief).await,
            };
            match next {
                Some((_, Ok(finding))) => found.push(finding),
                Some((nth, Err(error))) => errors[nth] = Some(error),
                None => break,
            }
        }
        let known = verdict(&found, majority);
        known.ok_or_else(|| no_quorum(&self.nodes.names, errors.into_iter()))
    }

    /// Releases all tokens on a node. Returns what the node found of the one in use; fails when
    /// another one may be left.
    async fn release_at(
        &self,
        nth: usize,
        request: &Request,
        attempts: &Attempts,
        sending: Sending,
    ) -> Result<Released, LockError> {
        let redis = &self.nodes.all[nth];
        let in_use = attempts.token();
        let tokens = attempts.tokens_at(nth, in_use).into_iter().map(|(token, landed)| {
            let attempt = request.attempt(token);
            async move {
                let found = if token == in_use {
                    redis.release_by(&attempt, sending).await.map(Some)
                } else {
                    let withdrawn =
                        redis.withdraw(&attempt.ask.key, &attempt.token.secret, sending).await;
                    withdrawn.map(|()| None)
                };
                if found.is_ok() && landed {
                    attempts.gone(nth, token);
                }
                found
            }
        });
        let of_all = join_all(tokens).await.into_iter().collect::<Result<Vec<_>, _>>()?;
        Ok(of_all.into_iter().flatten().next().unwrap_or(Released::NotHeld))
    }

    /// Withdraws the tokens of a failed attempt, and waits for the nodes that answer quickly. The
    /// other nodes get no further token before they have answered.
    pub(super) async fn withdraw(&self, request: &Request) {
        let attempts = request.attempts::<Attempts>();
        attempts.close();
        let mut round = Round::new(attempts.withdraws().into_iter().map(|withdrawal| {
            (withdrawal.node, Arc::clone(&self.nodes).withdraw(withdrawal, request.clone()))
        }));
        let until = Instant::now() + BRIEF;
        while round.next_until(until).await.is_some() {}
        round.go_on();
    }
}

impl Nodes {
    /// Withdraws the tokens of failed attempts from a node, all at once. No token is used again, so
    /// a late withdrawal does no harm.
    async fn withdraw(self: Arc<Self>, withdrawal: Withdrawal, first: Request) {
        let Withdrawal { ref attempts, node, last } = withdrawal;
        let redis = &self.all[node];
        // The request itself has a timeout, so this wait is bounded.
        attempts.requests_ended(node, last, redis.facts().answer_time() * 2).await;
        let ended = attempts.tokens_at(node, last).into_iter().filter(|(_, ended)| *ended);
        join_all(ended.map(|(token, _)| {
            let key = &first.ask.key;
            let nth_token = first.token.secret.nth(token);
            async move {
                if redis.withdraw(key, &nth_token, redis.sends_first()).await.is_ok() {
                    attempts.gone(node, token);
                }
            }
        }))
        .await;
    }
}

/// The finding of a majority of nodes, if that is known.
fn verdict(found: &[Released], majority: usize) -> Option<Released> {
    let found_by_a_majority = |some: &[Released]| {
        found.iter().filter(|finding| some.contains(finding)).count() >= majority
    };
    if found_by_a_majority(&[Released::Held]) {
        Some(Released::Held)
    } else if found_by_a_majority(&[Released::NotHeld]) {
        Some(Released::NotHeld)
    } else {
        let may_be_held = found_by_a_majority(&[Released::Held, Released::Unconfirmed]);
        may_be_held.then_some(Released::Unconfirmed)
    }
}
