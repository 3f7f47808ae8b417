//! The store on a majority of independent servers: the Redlock algorithm of the Redis
//! documentation, with all nodes asked at once.
//!
//! As every lease, the lease of a lock counts from before the first request was sent until its ttl
//! less the drift. A lock that no majority grants is released on every node that the request may
//! have reached.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use tokio::time::sleep;

use crate::protocol::attempts::Attempts;
use crate::protocol::quorum::{NodeError, majority, may_be_had, no_quorum};
use crate::protocol::request::Request;
use crate::store::redis::client::url::Deployment;
use crate::store::redis::store::Redis;
use crate::store::redlock::node::Nodes;
use crate::store::redlock::node_names;
use crate::store::redlock::retry_delay::RetryDelay;
use crate::store::redlock::round::Round;
use crate::store::redlock::rules::{Rules, no_replicas};
use crate::store::servers::Servers;
use crate::value::error::{LockError, Unavailability};
use crate::value::key::LockKey;
use crate::value::limits::TTL_MAX;
use crate::value::mode::Mode;
use crate::value::time::Instant;

/// How long connecting waits for the other nodes once a majority is connected.
const GRACE: Duration = Duration::from_millis(200);

#[derive(Debug)]
pub(crate) struct Redlock {
    pub(crate) nodes: Arc<Nodes>,
    pub(crate) timeout: Duration,
    pub(crate) rules: Rules,
    /// The recent mean of the time in which a majority answers, in microseconds.
    pub(crate) round_trip: Arc<AtomicU64>,
}

impl Redlock {
    /// A store on these nodes, not connected yet.
    pub(crate) fn new(
        nodes: &[Deployment],
        timeout: Duration,
        rules: Rules,
    ) -> Result<Self, LockError> {
        let names = node_names::names(nodes)?.into();
        if nodes.iter().any(|node| node.replicated.is_some()) {
            return Err(no_replicas());
        }
        let redis = nodes.iter().map(|node| Redis::new(node, timeout, "")).collect();
        let nodes = Arc::new(Nodes::new(redis, names, rules));
        Ok(Self { nodes, timeout, rules, round_trip: Arc::default() })
    }

    pub(crate) fn apart(&self) -> Self {
        let (nodes, round_trip) = (Arc::new(self.nodes.apart()), Arc::clone(&self.round_trip));
        Self { nodes, round_trip, ..*self }
    }

    /// The addresses of the nodes.
    pub(crate) fn servers(&self) -> Box<str> {
        self.nodes.names.join(", ").into()
    }

    /// Connects to at least a majority that can vote.
    pub(crate) async fn ready(&self) -> Result<(), LockError> {
        let mut until = Instant::now() + self.timeout;
        let mut pause = RetryDelay::new(self.usual_round_trip());
        let mut errors: Vec<Option<NodeError>> = vec![None; self.count()];
        let mut open: Vec<usize> = (0..self.count()).collect();
        while !open.is_empty() {
            let nodes = &self.nodes;
            let admit = |nth: usize| async move {
                nodes.admit(nth).await.map_err(|node_error| (node_error, false))?;
                nodes.all[nth].ready_to_vote().await.map_err(|node_error| (node_error, true))
            };
            let mut round = Round::new(open.iter().map(|nth| (*nth, admit(*nth))));
            let mut last = false;
            while let Some((nth, admitted)) = round.next_until(until).await {
                if let Err((NodeError { error, .. }, true)) = &admitted
                    && matches!(**error, LockError::AccessDenied { .. })
                {
                    // Locks that cannot be released there would stay for their ttl.
                    return Err((**error).clone());
                }
                errors[nth] = admitted.err().map(|(node_error, _)| node_error);
                match errors[nth].as_ref().map(|node_error| &*node_error.error) {
                    Some(error @ LockError::InvalidUrl { .. }) => return Err(error.clone()),
                    // The node is up, and votes later.
                    None
                    | Some(LockError::Unavailable { reason: Unavailability::Restarted, .. }) => {
                        open.retain(|other| *other != nth);
                    }
                    Some(_) => {}
                }
                if self.count() - open.len() >= majority(self.count()) && !last {
                    last = true;
                    until = until.min(Instant::now() + GRACE);
                }
            }
            let lasting =
                errors.iter().flatten().filter(|node_error| !node_error.transient).count();
            let pause = pause.next(None);
            if last || !may_be_had(lasting, self.count()) || Instant::now() + pause >= until {
                break;
            }
            sleep(pause).await;
        }
        if self.count() - open.len() >= majority(self.count()) {
            return Ok(());
        }
        let error = |(nth, node_error): (_, Option<NodeError>)| match node_error {
            Some(node_error) => Some(*node_error.error),
            None => open
                .contains(&nth)
                .then(|| LockError::unavailable(Unavailability::Timeout, "connecting")),
        };
        Err(no_quorum(&self.nodes.names, errors.into_iter().enumerate().map(error)))
    }

    /// Restarts the ttl on a majority. Returns whether a majority may still hold the lock.
    pub(crate) async fn renew(&self, request: &Request, ttl: Duration) -> Result<bool, LockError> {
        self.check(ttl)?;
        let attempts = request.attempts();
        let attempt = Arc::new(request.attempt(attempts.token()));
        let mut round = Round::new(attempts.holders().into_iter().map(|nth| {
            let (nodes, attempt) = (Arc::clone(&self.nodes), Arc::clone(&attempt));
            (nth, nodes.renew(nth, attempt, ttl))
        }));
        // A node that is not among the holders, or has refused, does not hold the lock.
        let (mut held, mut failed) = (0, 0);
        let mut errors: Vec<Option<LockError>> = vec![None; self.count()];
        while let Some((nth, answer)) = round.next().await {
            match answer {
                Ok(true) => held += 1,
                Ok(false) => {}
                Err(error) => {
                    failed += 1;
                    errors[nth] = Some(error);
                }
            }
            if held >= majority(self.count()) {
                round.go_on();
                return Ok(true);
            }
        }
        if held + failed < majority(self.count()) {
            return Ok(false);
        }
        Err(no_quorum(&self.nodes.names, errors.into_iter()))
    }

    /// Checks that a ttl is not longer than a restarted node is kept from voting.
    pub(crate) fn check(&self, ttl: Duration) -> Result<(), LockError> {
        let longest = if self.rules.durable { TTL_MAX } else { self.rules.longest_ttl };
        if ttl <= longest { Ok(()) } else { Err(LockError::InvalidTtl { ttl, longest }) }
    }

    pub(crate) fn count(&self) -> usize {
        self.nodes.all.len()
    }
}

impl Servers for Redlock {
    fn address(&self, _: &Request) -> Option<Box<str>> {
        Some(self.servers())
    }

    fn answer_time(&self) -> Duration {
        self.nodes.all.first().map_or(self.timeout, |node| node.answer_time())
    }

    fn round_trip(&self, _: &LockKey) -> Duration {
        self.usual_round_trip()
    }

    fn are_several(&self) -> bool {
        true
    }

    /// Not while a majority is lost. One node that is there decides how often.
    fn is_news(&self) -> bool {
        let nodes = &self.nodes.all;
        let (lost, there): (Vec<_>, Vec<_>) = nodes.iter().partition(|node| node.is_any_lost());
        lost.len() < majority(nodes.len()) && there.first().is_some_and(|node| node.is_news())
    }

    fn check_request(&self, request: &Request) -> Result<(), LockError> {
        let mut modes = request.keys().iter().map(|key| key.mode());
        if let Some(mode) = modes.find(|mode| !mode.is_exclusive()) {
            // With permits, the holders of several majorities could be more than the limit.
            let detail = "a Redlock has exclusive locks only: use one server or cluster for it";
            let setting = if mode == Mode::Shared { "shared" } else { "permits" };
            return Err(LockError::InvalidSetting { setting, detail: detail.to_owned() });
        }
        self.check(request.ttl)
    }

    fn close(&self) {
        self.nodes.all.iter().for_each(|node| node.close());
    }
}

impl Request {
    /// The attempts for its only key.
    pub(crate) fn attempts(&self) -> Arc<Attempts> {
        self.all_attempts().first().map(Arc::clone).unwrap_or_default()
    }

    /// The request to send with the `nth` token.
    pub(crate) fn attempt(&self, nth: u64) -> Request {
        let mut attempt = self.part(self.keys());
        attempt.token = self.token.nth(nth);
        attempt
    }
}
