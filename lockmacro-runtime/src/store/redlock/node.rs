//! One node, and whether it may vote.

use std::fmt;
use std::mem;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::time::timeout;

use crate::protocol::attempts::{Attempts, Withheld};
use crate::protocol::request::Request;
use crate::protocol::vote::{NodeError, Vote};
use crate::store::redis::store::Redis;
use crate::store::redlock::node_names::same;
use crate::store::redlock::rules::{Rules, replaced};
use crate::value::error::LockError;
use crate::value::sync::{Mutex, MutexGuard};
use crate::value::time::{LastMoment, Moment};
use crate::value::token::hash_of;
use crate::value::unavailability::Unavailability;

/// How long a node that could not be reached, or was slow, is left in peace: at first, and at most.
const PAUSES: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(1));
/// A server tells its age in whole seconds.
const AGE_STEP: Duration = Duration::from_secs(1);

/// All nodes, as seen from one thread's connections.
pub(crate) struct Nodes {
    pub(crate) all: Box<[Node]>,
    pub(crate) names: Arc<[String]>,
    /// How long a node that was started again does not vote.
    restart: Duration,
    /// After how long a node that has not answered is slow.
    slow: Duration,
    eligibilities: Mutex<Box<[Eligibility]>>,
    /// The same for the connections of all threads.
    known: Arc<Shared>,
}

/// What is known of the nodes, whichever connection has told it.
struct Shared {
    servers: Mutex<Box<[Known]>>,
    /// When the server that is known answered last: not before that moment, at least.
    received: Box<[LastMoment]>,
}

/// The server that was seen last under a node's name.
#[derive(Debug, Clone, Default)]
struct Known {
    run_id: String,
    /// From when on it may vote, if it has to wait for that.
    votes_from: Option<Moment>,
}

#[derive(Debug)]
pub(crate) struct Node {
    pub(crate) redis: Redis,
    /// The connection by which it may vote; 0 for none.
    fit: AtomicU64,
}

/// How one thread's connection to a node does.
#[derive(Clone, Default)]
struct Eligibility {
    /// The connection by which it was asked who it is, and who it is.
    connection: u64,
    who: Known,
    /// It could not be reached, or was slow: until when it is not tried again, and why.
    quiet: Option<(Moment, NodeError)>,
    pause: Duration,
    /// Whether that was logged, which it is when the pauses are at their longest.
    told: bool,
}

impl Nodes {
    pub(crate) fn new(redis: Vec<Redis>, names: Arc<[String]>, rules: Rules) -> Self {
        let restart = if rules.durable { Duration::ZERO } else { rules.longest_ttl };
        let times = (restart, rules.node);
        let servers = Mutex::new(vec![Known::default(); redis.len()].into());
        let received = redis.iter().map(|_| LastMoment::default()).collect();
        Self::with(redis, names, times, Arc::new(Shared { servers, received }))
    }

    fn with(
        redis: Vec<Redis>,
        names: Arc<[String]>,
        (restart, slow): (Duration, Duration),
        known: Arc<Shared>,
    ) -> Self {
        let eligibilities = Mutex::new(vec![Eligibility::default(); redis.len()].into());
        let node = |redis| Node { redis, fit: AtomicU64::new(0) };
        Self {
            all: redis.into_iter().map(node).collect(),
            names,
            restart,
            slow,
            eligibilities,
            known,
        }
    }

    /// The same nodes through connections of their own.
    pub(crate) fn apart(&self) -> Self {
        let redis = self.all.iter().map(|node| node.redis.apart()).collect();
        let times = (self.restart, self.slow);
        Self::with(redis, Arc::clone(&self.names), times, Arc::clone(&self.known))
    }

    /// Asks one node for a lock, if it may vote.
    pub(crate) async fn vote(
        self: Arc<Self>,
        nth: usize,
        (attempts, token): (Arc<Attempts>, u64),
        attempt: Arc<Request>,
    ) -> Result<Vote, NodeError> {
        let connection = self.admit(nth).await?;
        let request = attempts
            .sends(nth, token, (hash_of(attempt.token.expose().as_bytes()), attempt.ttl))
            .map_err(|withheld| match withheld {
                Withheld::Late => silent(Unavailability::TooSlow, "not asked any more".to_owned()),
                Withheld::Doubtful => silent(Unavailability::Timeout, "giving back".to_owned()),
            })?;
        let (node, asked) = (&self.all[nth], Moment::now());
        let mut voting = pin!(node.redis.vote(&attempt));
        // Not as slow as for a caller whose ttl is short.
        let voted = match timeout(self.slow, &mut voting).await {
            Ok(voted) => voted,
            Err(_) => {
                self.is_slow(nth);
                voting.await
            }
        };
        match &voted {
            Err(NodeError { unknown: true, .. }) => drop(request),
            voted => request.answered(matches!(voted, Ok(Vote::Granted(_)))),
        }
        match &voted {
            // It may have come from a server that was started meanwhile, so it does not count.
            Ok(_) if node.redis.connection() != Some(connection) => {
                return Err(NodeError {
                    error: Box::new(replaced()),
                    unknown: true,
                    transient: true,
                });
            }
            Ok(Vote::Busy { held, .. }) if attempts.recognises(nth, *held) => {
                return Err(silent(Unavailability::Timeout, "giving back".to_owned()));
            }
            _ => {}
        }
        if voted.is_ok() {
            self.known.received[nth].note(asked);
        }
        if voted.is_ok() && node.fit.load(Ordering::Acquire) != connection {
            self.is_well(nth);
            node.fit.store(connection, Ordering::Release);
        }
        voted
    }

    /// Has one node count `ttl` anew; tells whether it still holds the lock. Its yes counts only by a
    /// connection by which it has said who it is: a name may lead to another node by now.
    pub(crate) async fn renew(
        self: Arc<Self>,
        nth: usize,
        attempt: Arc<Request>,
        ttl: Duration,
    ) -> Result<bool, LockError> {
        let node = &self.all[nth];
        let is_known = |connection: u64| self.standing_of(nth, connection).is_some();
        if !node.redis.connection().is_some_and(is_known)
            && let Err(node_error) = self.admit(nth).await
            // One that may not vote yet may keep what it has.
            && !node.redis.connection().is_some_and(is_known)
        {
            return Err(*node_error.error);
        }
        let (connection, asked) = (node.redis.connection(), Moment::now());
        let held = node.redis.renew(&attempt, ttl).await?;
        if held && (connection.is_none() || node.redis.connection() != connection) {
            return Err(replaced());
        }
        if held {
            self.known.received[nth].note(asked);
        }
        Ok(held)
    }

    /// Whether an answer that has just come is of the server that was asked for its vote.
    pub(crate) fn is_as_it_was(&self, nth: usize) -> bool {
        let node = &self.all[nth];
        node.redis.connection().is_some_and(|now| self.standing_of(nth, now).is_some())
    }

    /// Takes note of a node that has not answered in time: it is left in peace for a while, or until it
    /// does answer.
    fn is_slow(&self, nth: usize) {
        self.all[nth].fit.store(0, Ordering::Release);
        self.rests(nth, silent(Unavailability::Timeout, "asked".to_owned()));
    }

    /// The connection by which a node may vote; or why it may not.
    pub(crate) async fn admit(&self, nth: usize) -> Result<u64, NodeError> {
        let node = &self.all[nth];
        let connection = node.redis.connection();
        if let Some(connection) = connection
            && node.fit.load(Ordering::Acquire) == connection
        {
            return Ok(connection);
        }
        self.may_try(nth)?;
        if let Some(known) = connection.and_then(|connection| self.standing_of(nth, connection)) {
            return known;
        }
        let asked = Moment::now();
        let introduced = node.redis.node_info().await;
        let who = introduced.inspect_err(|node_error| self.rests(nth, node_error.clone()))?;
        let mut eligibilities = self.eligibilities();
        let twin = |(other, known): (usize, &Eligibility)| {
            // It may have been there before it moved here.
            let is_live = self.all[other].redis.connection() == Some(known.connection);
            (other != nth && known.who.run_id == who.run_id && is_live).then_some(other)
        };
        if let Some(twin) = eligibilities.iter().enumerate().find_map(twin) {
            drop(eligibilities);
            let error = Box::new(same(&self.names[nth], &self.names[twin]));
            let node_error = NodeError { error, unknown: false, transient: false };
            self.rests(nth, node_error.clone());
            return Err(node_error);
        }
        let eligibility = &mut eligibilities[nth];
        eligibility.connection = who.connection;
        eligibility.who = self.recognise(nth, who.run_id, who.uptime);
        self.known.received[nth].note(asked);
        drop(eligibilities);
        self.is_well(nth);
        self.standing_of(nth, who.connection).unwrap_or(Ok(who.connection))
    }

    /// Asks one node what the user may do there.
    pub(crate) async fn rights(&self, nth: usize) -> Result<(), NodeError> {
        self.all[nth].redis.rights_of_a_node().await
    }

    /// What is known of the server under a node's name, which has said who and how old it is.
    fn recognise(&self, nth: usize, run_id: String, uptime: Duration) -> Known {
        // Nothing that runs under this mutex can panic: every node has its place.
        let known = &mut self.known.servers.lock()[nth];
        if known.run_id != run_id {
            // Up to a second younger than it says, or older. The age of one that was there while another
            // one was does not tell what it has missed: it may be a replica in its place.
            let unheard = Moment::now().since(self.known.received[nth].get());
            let is_later = uptime + AGE_STEP <= unheard;
            let age = if known.run_id.is_empty() || is_later { uptime } else { Duration::ZERO };
            let left = (self.restart + AGE_STEP).saturating_sub(age);
            let votes_from = Moment::now().after(left);
            *known = Known { run_id, votes_from: (!self.restart.is_zero()).then_some(votes_from) };
        }
        known.clone()
    }

    /// In how long so many nodes may vote, as far as they have said.
    pub(crate) fn vote_in(&self, majority: usize) -> Duration {
        let now = Moment::now();
        let left = |known: &Eligibility| known.who.votes_from.map(|from| from.since(now));
        let mut left: Vec<_> =
            self.eligibilities().iter().map(|known| left(known).unwrap_or_default()).collect();
        left.sort_unstable();
        left.get(majority - 1).copied().unwrap_or_default()
    }

    /// Whether a node may vote by a connection, if it has said by it who it is.
    fn standing_of(&self, nth: usize, connection: u64) -> Option<Result<u64, NodeError>> {
        let known = &self.eligibilities()[nth];
        if known.connection != connection {
            return None;
        }
        let left = known.who.votes_from.map_or(Duration::ZERO, |from| from.since(Moment::now()));
        if left.is_zero() {
            return Some(Ok(connection));
        }
        let detail = format!("it votes again in {left:.0?}");
        Some(Err(silent(Unavailability::Restarted, detail)))
    }

    /// Of many callers one tries a node that could not be reached, or was slow.
    fn may_try(&self, nth: usize) -> Result<(), NodeError> {
        let known = &mut self.eligibilities()[nth];
        let now = Moment::now();
        match &mut known.quiet {
            Some((until, node_error)) if now < *until => Err(node_error.clone()),
            Some((until, _)) => {
                known.pause = (known.pause * 2).min(PAUSES.1);
                *until = now.after(known.pause);
                Ok(())
            }
            None => Ok(()),
        }
    }

    /// Takes note that a node could not be reached, or was slow.
    fn rests(&self, nth: usize, node_error: NodeError) {
        let error = node_error.error.clone();
        // One that is lost was logged.
        let is_lost = self.all[nth].redis.is_any_lost();
        let is_to_be_told = self.eligibilities()[nth].rest(node_error, is_lost);
        if is_to_be_told {
            tracing::warn!(node = self.names[nth], %error, "a node of a Redlock does not vote");
        }
    }

    fn is_well(&self, nth: usize) {
        let was_told = self.eligibilities()[nth].is_well();
        if was_told {
            tracing::info!(node = self.names[nth], "a node of a Redlock votes again");
        }
    }

    fn eligibilities(&self) -> MutexGuard<'_, Box<[Eligibility]>> {
        // Nothing that runs under this mutex can panic: every node has its place.
        self.eligibilities.lock()
    }
}

impl Eligibility {
    /// Takes note that it could not be reached, or was slow; tells whether that is to be told.
    fn rest(&mut self, node_error: NodeError, is_lost: bool) -> bool {
        self.pause = self.pause.max(PAUSES.0);
        self.quiet = Some((Moment::now().after(self.pause), node_error));
        self.pause == PAUSES.1 && !is_lost && !mem::replace(&mut self.told, true)
    }

    /// Tells whether it was told that it was not.
    fn is_well(&mut self) -> bool {
        (self.quiet, self.pause) = (None, Duration::ZERO);
        mem::take(&mut self.told)
    }
}

impl fmt::Debug for Nodes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.names.iter().zip(&self.all)).finish()
    }
}

fn silent(reason: Unavailability, detail: String) -> NodeError {
    let error = Box::new(LockError::Unavailable { reason, detail });
    NodeError { error, unknown: true, transient: true }
}
