//! Giving back: at every node that may have a token, whether it has answered or not.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, timeout_at};

use crate::protocol::answer::Released;
use crate::protocol::attempts::{Attempts, Withdrawal};
use crate::protocol::quorum::{majority, no_quorum};
use crate::protocol::request::Request;
use crate::store::redlock::node::Nodes;
use crate::store::redlock::round::Round;
use crate::store::redlock::store::Redlock;
use crate::value::error::LockError;

/// Who is slower than that to answer that a token is gone is left to the background.
const BRIEF: Duration = Duration::from_millis(50);
/// The same when a majority has answered, at least; and in round trips.
const MORE: (Duration, u32) = (Duration::from_millis(2), 4);

impl Redlock {
    /// Takes the token in use away from all nodes, and earlier ones where they may still be; tells what
    /// a majority found. The claim is settled when each of these nodes has answered, and nothing can
    /// arrive there any more.
    pub(crate) async fn release(&self, request: &Request) -> Result<Released, LockError> {
        let attempts = request.attempts();
        request.settle(true);
        attempts.close();
        let mut count = Found::new(self.count(), &attempts.nodes());
        let mut round = Round::new(attempts.nodes().into_iter().map(|nth| {
            let attempts = &attempts;
            (nth, async move {
                // It may be a runtime that stands still which has asked.
                attempts.requests_ended(nth, BRIEF).await;
                self.release_at(nth, request, attempts).await
            })
        }));
        let more = self.usual_round_trip().saturating_mul(MORE.1).clamp(MORE.0, BRIEF);
        let brief = Instant::now() + more;
        loop {
            let next = match count.told() {
                None => Ok(round.next().await),
                Some(_) => timeout_at(brief, round.next()).await,
            };
            let Ok(Some((nth, found))) = next else { break };
            count.add(nth, found);
        }
        let told = count.told();
        told.ok_or_else(|| no_quorum(&self.nodes.names, count.errors.into_iter()))
    }

    /// Takes all tokens away from a node; tells what was found of the one in use, unless another one
    /// may be left.
    async fn release_at(
        &self,
        nth: usize,
        request: &Request,
        attempts: &Attempts,
    ) -> Result<Released, LockError> {
        let (redis, in_use) = (&self.nodes.all[nth].redis, attempts.token());
        let mut round = Round::new(attempts.tokens_at(nth).into_iter().map(|(token, landed)| {
            let attempt = request.attempt(token);
            (nth, async move {
                let found = if token == in_use {
                    redis.release(&attempt).await
                } else {
                    let withdrawn = redis.withdraw(&attempt.key, &attempt.token).await;
                    withdrawn.map(|()| Released::NotHeld).map_err(|node_error| *node_error.error)
                };
                if found.is_ok() && landed {
                    attempts.gone(nth, token);
                }
                (token, found)
            })
        }));
        let mut of_all = Ok(Released::NotHeld);
        while let Some((_, (token, found))) = round.next().await {
            match (found, &of_all) {
                (Err(error), _) => of_all = Err(error),
                (Ok(found), Ok(_)) if token == in_use => of_all = Ok(found),
                _ => {}
            }
        }
        of_all
    }

    /// Has what an attempt in vain has written withdrawn, and waits for the nodes that are quick about
    /// it. The others are not asked with another token before they have answered.
    pub(crate) async fn give_back(&self, request: &Request) {
        let attempts = request.attempts();
        attempts.close();
        let mut round = Round::new(attempts.withdraws().into_iter().map(|withdrawal| {
            // Each token of the acquisition is derived from the same one.
            let whose = request.attempt(0);
            (withdrawal.node, Arc::clone(&self.nodes).withdraw(withdrawal, whose))
        }));
        let until = Instant::now() + BRIEF;
        while let Ok(Some(_)) = timeout_at(until, round.next()).await {}
        round.go_on();
    }
}

impl Nodes {
    /// Takes the tokens of attempts in vain away from a node, all at once. Each of them is sent once: it
    /// is not asked with again, so nobody minds when one arrives late.
    async fn withdraw(self: Arc<Self>, withdrawal: Withdrawal, whose: Request) {
        let redis = &self.all[withdrawal.node].redis;
        // What was asked has an end of its own.
        withdrawal.requests_ended(redis.answer() * 2).await;
        let mut round = Round::new(withdrawal.tokens().into_iter().map(|token| {
            let (key, of_it) = (&whose.key, whose.token.nth(token));
            (withdrawal.node, async move { (token, redis.withdraw(key, &of_it).await) })
        }));
        while let Some((_, (token, answer))) = round.next().await {
            if answer.is_ok() {
                withdrawal.gone(token);
            }
        }
    }
}

/// What a release found so far.
struct Found {
    held: usize,
    unconfirmed: usize,
    not_held: usize,
    errors: Vec<Option<LockError>>,
}

impl Found {
    fn new(nodes: usize, asked: &[usize]) -> Self {
        // Where the token never was it is not.
        let not_held = nodes - asked.len();
        Self { held: 0, unconfirmed: 0, not_held, errors: vec![None; nodes] }
    }

    fn add(&mut self, nth: usize, found: Result<Released, LockError>) {
        match found {
            Ok(Released::Held) => self.held += 1,
            Ok(Released::Unconfirmed) => self.unconfirmed += 1,
            Ok(Released::NotHeld) => self.not_held += 1,
            Err(error) => self.errors[nth] = Some(error),
        }
    }

    /// What a majority found, if that is known.
    fn told(&self) -> Option<Released> {
        let majority = majority(self.errors.len());
        if self.held >= majority {
            Some(Released::Held)
        } else if self.not_held >= majority {
            Some(Released::NotHeld)
        } else if self.held + self.unconfirmed >= majority {
            Some(Released::Unconfirmed)
        } else {
            None
        }
    }
}
