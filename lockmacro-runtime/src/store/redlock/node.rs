//! The nodes of a Redlock, and which of them may vote.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;
use std::{fmt, mem};

use tokio::time::timeout;

use crate::protocol::answer::Answer;
use crate::protocol::request::Request;
use crate::store::redis::store::Redis;
use crate::store::redlock::attempts::{Attempts, Withheld};
use crate::store::redlock::node_names::same;
use crate::store::redlock::quorum::NodeError;
use crate::store::redlock::rules::Rules;
use crate::sys::backoff::Backoff;
use crate::sys::sync::Mutex;
use crate::sys::time::{LastMoment, Moment};
use crate::value::applied::Applied;
use crate::value::error::{LockError, UnavailableReason};
use crate::value::key::LockKey;
use crate::value::token::hash_of;

/// How long a node that could not be reached, or was slow, is not asked: at first, and at most.
const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);
/// Resolution of a server's uptime.
const AGE_STEP: Duration = Duration::from_secs(1);
/// Detail of the error of a node that may still have a token of an earlier attempt.
const UNRELEASED: &str = "releasing an earlier token";

/// All nodes, through the connections of one thread.
pub(crate) struct Nodes {
    pub(crate) all: Box<[Redis]>,
    pub(crate) names: Arc<[String]>,
    /// How long a node does not vote after a restart.
    restart: Duration,
    /// The time without an answer after which a node counts as slow.
    slow: Duration,
    /// No code under this mutex can panic: every node has an entry.
    eligibilities: Mutex<Box<[Eligibility]>>,
    /// The state that the connections of all threads share.
    known: Arc<KnownServers>,
}

/// The servers behind the nodes, as any connection saw them last.
struct KnownServers {
    servers: Mutex<Box<[Known]>>,
    /// A moment before the last answer of the known server.
    received: Box<[LastMoment]>,
}

/// The server that was seen last under a node's name.
#[derive(Debug, Clone, Default)]
struct Known {
    run_id: String,
    /// When it may vote, if it has to wait for that.
    votes_from: Option<Moment>,
}

/// The state of one thread's connection to a node.
#[derive(Clone)]
struct Eligibility {
    /// The connection on which the server was identified.
    connection: u64,
    server: Known,
    /// Until when a node that could not be reached, or was slow, is not asked, and why.
    backoff: Option<(Moment, NodeError)>,
    pause: Backoff,
    /// Whether the backoff was logged, which happens at the longest pause.
    logged: bool,
}

impl Nodes {
    pub(crate) fn new(redis: Vec<Redis>, names: Arc<[String]>, rules: Rules) -> Self {
        let restart = if rules.durable { Duration::ZERO } else { rules.longest_ttl };
        let servers = Mutex::new(vec![Known::default(); redis.len()].into());
        let received = redis.iter().map(|_| LastMoment::default()).collect();
        let known = Arc::new(KnownServers { servers, received });
        let eligibilities = Mutex::new(vec![Eligibility::default(); redis.len()].into());
        Self { all: redis.into(), names, restart, slow: rules.node, eligibilities, known }
    }

    /// The same nodes with connections of their own.
    pub(crate) fn apart(&self) -> Self {
        let all = self.all.iter().map(Redis::apart).collect();
        let eligibilities = Mutex::new(vec![Eligibility::default(); self.all.len()].into());
        let names = Arc::clone(&self.names);
        let known = Arc::clone(&self.known);
        Self { all, names, eligibilities, known, ..*self }
    }

    /// Asks one node for a lock, if it may vote.
    pub(crate) async fn vote(
        self: Arc<Self>,
        nth: usize,
        (attempts, token): (Arc<Attempts>, u64),
        attempt: Request,
    ) -> Result<Answer, NodeError> {
        let connection = self.admit(nth).await?;
        let request = attempts
            .note_sent(
                nth,
                token,
                (hash_of(attempt.token.secret.expose().as_bytes()), attempt.ask.ttl),
            )
            .map_err(|withheld| match withheld {
                Withheld::Late => unanswered(UnavailableReason::TooSlow, "not asked in time"),
                Withheld::Doubtful => unanswered(UnavailableReason::Timeout, UNRELEASED),
            })?;
        let node = &self.all[nth];
        // Before the request: its answer proves that the server was there at this moment, and not
        // later.
        let asked = Moment::now();
        let mut voting = pin!(async {
            let reply = node.vote(&attempt).await;
            reply.map_err(|error| NodeError::of(error, &attempt.ask.key))
        });
        // The caller's own timeout may be shorter, and does not count here.
        let voted = match timeout(self.slow, &mut voting).await {
            Ok(voted) => voted,
            Err(_) => {
                // Other callers do not wait for a node that is slow. This vote still counts if it
                // comes.
                self.back_off(nth, unanswered(UnavailableReason::Timeout, "asked"));
                voting.await
            }
        };
        request.answered(match &voted {
            Ok(Answer::Granted(_)) => Applied::Yes,
            Ok(_) => Applied::No,
            Err(node_error) => node_error.applied,
        });
        match &voted {
            // The answer may be of a server that was started meanwhile, so it does not count.
            Ok(_) if node.connection() != Some(connection) => {
                return Err(NodeError {
                    error: Box::new(replaced()),
                    applied: Applied::Unknown,
                    transient: true,
                });
            }
            Ok(Answer::Contended(found)) if attempts.recognises(nth, found.value) => {
                return Err(unanswered(UnavailableReason::Timeout, UNRELEASED));
            }
            _ => {}
        }
        if voted.is_ok() {
            self.known.received[nth].note(asked);
            self.note_answer(nth);
        }
        voted
    }

    /// Restarts the ttl on one node. Returns whether it still holds the lock. A yes counts only on
    /// a connection on which the server was identified: the name may lead to another server by now.
    pub(crate) async fn renew(
        self: Arc<Self>,
        nth: usize,
        attempt: Request,
        ttl: Duration,
    ) -> Result<bool, LockError> {
        let node = &self.all[nth];
        if !self.is_as_it_was(nth)
            && let Err(node_error) = self.admit(nth).await
            // A node that may not vote yet may keep the locks that it has.
            && !self.is_as_it_was(nth)
        {
            return Err(*node_error.error);
        }
        let connection = node.connection();
        let asked = Moment::now();
        let held = node.renew(&attempt, ttl, true).await?;
        if held && (connection.is_none() || node.connection() != connection) {
            return Err(replaced());
        }
        if held {
            self.known.received[nth].note(asked);
        }
        Ok(held)
    }

    /// Gives the lock of a holder back to a node that has forgotten it. At this moment a majority
    /// of other nodes has it, by a round of renewals for `ttl` that began at `sent`. So it may be a
    /// node that does not vote yet.
    ///
    /// A rival may have the node's vote from before it was restarted. If it began before the
    /// repair, its attempt is over before one of the other nodes votes again: that takes half of
    /// the ttl at least, and twice the time of an attempt.
    pub(crate) async fn repair(
        self: Arc<Self>,
        nth: usize,
        attempts: Arc<Attempts>,
        attempt: Request,
        (sent, ttl): (Moment, Duration),
    ) {
        let node = &self.all[nth];
        let rest = ttl.saturating_sub(sent.elapsed());
        let Some(connection) = node.connection().filter(|_| self.is_as_it_was(nth)) else { return };
        if rest < (ttl / 2).max(self.slow * 2) {
            return;
        }
        let sent = (hash_of(attempt.token.secret.expose().as_bytes()), rest);
        let Some(request) = attempts.repairs(nth, sent) else { return };
        // After an error the next round tries again.
        if node.repair(&attempt, rest, attempts.fence(), connection).await.is_ok() {
            request.answered(Applied::Yes);
        }
    }

    /// Whether the node's present connection leads to the server that voted.
    pub(crate) fn is_as_it_was(&self, nth: usize) -> bool {
        let node = &self.all[nth];
        node.connection().is_some_and(|now| self.standing_of(nth, now).is_some())
    }

    /// The connection on which a node may vote, or why it may not.
    pub(crate) async fn admit(&self, nth: usize) -> Result<u64, NodeError> {
        let node = &self.all[nth];
        let connection = node.connection();
        self.may_try(nth)?;
        if let Some(known) = connection.and_then(|connection| self.standing_of(nth, connection)) {
            return known;
        }
        let asked = Moment::now();
        let info = node.node_info().await;
        let info = info.map_err(|error| NodeError::of(error, &LockKey::from("")));
        let server = info.inspect_err(|node_error| self.back_off(nth, node_error.clone()))?;
        let mut eligibilities = self.eligibilities.lock();
        let twin = |(other, known): (usize, &Eligibility)| {
            // Without a live connection there, the server may have moved to this name.
            let is_live = self.all[other].connection() == Some(known.connection);
            (other != nth && known.server.run_id == server.run_id && is_live).then_some(other)
        };
        if let Some(twin) = eligibilities.iter().enumerate().find_map(twin) {
            drop(eligibilities);
            let error = Box::new(same(&self.names[nth], &self.names[twin]));
            let node_error = NodeError { error, applied: Applied::No, transient: false };
            self.back_off(nth, node_error.clone());
            return Err(node_error);
        }
        let eligibility = &mut eligibilities[nth];
        eligibility.connection = server.connection;
        eligibility.server = self.recognise(nth, server.run_id, server.uptime);
        self.known.received[nth].note(asked);
        drop(eligibilities);
        self.note_answer(nth);
        self.standing_of(nth, server.connection).unwrap_or(Ok(server.connection))
    }

    /// Compares a server with the one that was seen last under the node's name.
    fn recognise(&self, nth: usize, run_id: String, uptime: Duration) -> Known {
        // No code under this mutex can panic: every node has an entry.
        let known = &mut self.known.servers.lock()[nth];
        if known.run_id != run_id {
            // The uptime is off by up to a second. It counts only if the server was started after
            // the last answer of the one before: an older server may be a replica that was promoted
            // and has missed locks.
            let unanswered = Moment::now().since(self.known.received[nth].get());
            let is_later = uptime + AGE_STEP <= unanswered;
            let age = if known.run_id.is_empty() || is_later { uptime } else { Duration::ZERO };
            let left = (self.restart + AGE_STEP).saturating_sub(age);
            let votes_from = Moment::now().after(left);
            *known = Known { run_id, votes_from: (!self.restart.is_zero()).then_some(votes_from) };
        }
        known.clone()
    }

    /// The time until a majority of nodes may vote, as far as that is known.
    pub(crate) fn vote_in(&self, majority: usize) -> Duration {
        let now = Moment::now();
        let left = |known: &Eligibility| known.server.votes_from.map(|from| from.since(now));
        let mut left: Vec<_> =
            self.eligibilities.lock().iter().map(|known| left(known).unwrap_or_default()).collect();
        left.sort_unstable();
        left.get(majority - 1).copied().unwrap_or_default()
    }

    /// Whether a node may vote on a connection, if its server was identified on it.
    fn standing_of(&self, nth: usize, connection: u64) -> Option<Result<u64, NodeError>> {
        let known = &self.eligibilities.lock()[nth];
        if known.connection != connection {
            return None;
        }
        let left = known.server.votes_from.map_or(Duration::ZERO, |from| from.since(Moment::now()));
        if left.is_zero() {
            return Some(Ok(connection));
        }
        let detail = format!("it votes again in {left:.0?}");
        Some(Err(unanswered(UnavailableReason::Restarted, &detail)))
    }

    /// Lets one of many callers ask a node that could not be reached, or was slow.
    fn may_try(&self, nth: usize) -> Result<(), NodeError> {
        let known = &mut self.eligibilities.lock()[nth];
        let now = Moment::now();
        match &mut known.backoff {
            Some((until, node_error)) if now < *until => Err(node_error.clone()),
            Some((until, _)) => {
                known.pause.grow();
                *until = now.after(known.pause.delay());
                Ok(())
            }
            None => Ok(()),
        }
    }

    /// Records that a node could not be reached, or was slow. It is not asked for a while, or until
    /// it does answer.
    fn back_off(&self, nth: usize, node_error: NodeError) {
        let error = node_error.error.clone();
        // The loss of a server was logged already.
        let is_down = self.all[nth].is_any_down();
        let is_to_be_logged = {
            let known = &mut self.eligibilities.lock()[nth];
            let pause = known.pause.delay();
            known.backoff = Some((Moment::now().after(pause), node_error));
            pause == LONGEST_PAUSE && !is_down && !mem::replace(&mut known.logged, true)
        };
        if is_to_be_logged {
            tracing::warn!(node = self.names[nth], %error, "a node of a Redlock does not vote");
        }
    }

    fn note_answer(&self, nth: usize) {
        let was_logged = {
            let known = &mut self.eligibilities.lock()[nth];
            known.backoff = None;
            known.pause.reset();
            mem::take(&mut known.logged)
        };
        if was_logged {
            tracing::info!(node = self.names[nth], "a node of a Redlock votes again");
        }
    }
}

impl Default for Eligibility {
    fn default() -> Self {
        let pause = Backoff::new(FIRST_PAUSE, LONGEST_PAUSE);
        Self {
            connection: Default::default(),
            server: Default::default(),
            backoff: Default::default(),
            pause,
            logged: Default::default(),
        }
    }
}

impl fmt::Debug for Nodes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.names.iter().zip(&self.all)).finish()
    }
}

/// The error of an answer that may be of another server.
pub(crate) fn replaced() -> LockError {
    let detail = "the connection was replaced";
    LockError::because(UnavailableReason::Disconnected, detail)
}

fn unanswered(reason: UnavailableReason, detail: &str) -> NodeError {
    let error = Box::new(LockError::because(reason, detail));
    NodeError { error, applied: Applied::Unknown, transient: true }
}
