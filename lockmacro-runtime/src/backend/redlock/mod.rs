//! Locks on a majority of independent servers: the Redlock algorithm of the Redis documentation,
//! with all nodes asked at once.
//!
//! A lock counts from before the first request left until its ttl less the drift, as every lease
//! does. What is not granted by a majority is given back at every node that it may have reached.

mod ballot;
mod names;
mod node;
mod pause;
mod release;
mod round;
mod tally;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::time::{Instant, sleep, sleep_until, timeout_at};

use self::node::Nodes;
use self::pause::Pause;
use self::round::Round;
use self::tally::{Holder, Tally, Verdict, majority, no_quorum};
use super::{Answer, Claim, Failed, Grant, Line, Redis, not_replicated};
use crate::clock::Moment;
use crate::error::{LockError, Unavailability};
use crate::fence::Fence;
use crate::lease::{Lease, Renewal, TTL_MAX};

pub(crate) use ballot::Ballot;
pub(crate) use names::{OneUrl, listed};

/// How long a node is waited for at most; a tenth of the ttl when that is less.
const NODE: Duration = Duration::from_millis(50);
/// When a majority is connected, the others are waited for so long.
const GRACE: Duration = Duration::from_millis(200);

/// What a manager is told about its nodes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Rules {
    /// No lock of any process has a longer ttl.
    pub(crate) longest_ttl: Duration,
    /// A restart makes no node forget a lock.
    pub(crate) durable: bool,
}

#[derive(Debug)]
pub(crate) struct Redlock {
    nodes: Arc<Nodes>,
    timeout: Duration,
    longest_ttl: Duration,
    /// How long a majority took to answer of late, in microseconds.
    round_trip: Arc<AtomicU64>,
}

/// Why an attempt brought no lock. What it wrote is given back.
enum Failure {
    Busy(Holder),
    /// `passing` when it may be better soon.
    Fault {
        error: LockError,
        passing: bool,
    },
}

impl Redlock {
    /// Locks on the servers at `urls`, not connected yet.
    pub(crate) fn new(urls: &[String], timeout: Duration, rules: Rules) -> Result<Self, LockError> {
        let names = names::names(urls)?.into();
        let redis: Vec<_> =
            urls.iter().map(|url| Redis::new(url, timeout)).collect::<Result<_, _>>()?;
        if redis.iter().any(Redis::is_replicated) {
            return Err(not_replicated("the nodes of a Redlock stand for each other"));
        }
        let (restart, longest_ttl) = match rules.durable {
            true => (Duration::ZERO, TTL_MAX),
            false => (rules.longest_ttl, rules.longest_ttl),
        };
        let nodes = Arc::new(Nodes::new(redis, names, restart));
        Ok(Self { nodes, timeout, longest_ttl, round_trip: Arc::default() })
    }

    pub(crate) fn apart(&self) -> Self {
        let (nodes, round_trip) = (Arc::new(self.nodes.apart()), Arc::clone(&self.round_trip));
        Self { nodes, round_trip, ..*self }
    }

    pub(crate) fn disconnect(&self) {
        self.nodes.all.iter().for_each(|node| node.redis.disconnect());
    }

    /// Connects to a majority at least, or says why not.
    pub(crate) async fn ready(&self) -> Result<(), LockError> {
        let mut until = Instant::now() + self.timeout;
        let mut pause = Pause::new(&self.round_trip);
        let mut errors: Vec<Option<LockError>> = vec![None; self.count()];
        let mut open: Vec<usize> = (0..self.count()).collect();
        while !open.is_empty() {
            let nodes = &self.nodes;
            let mut round = Round::new(open.iter().map(|nth| (*nth, nodes.admit(*nth))));
            let mut last = false;
            while let Ok(Some((nth, admitted))) = timeout_at(until, round.next()).await {
                errors[nth] = admitted.err().map(|silence| *silence.error);
                match &errors[nth] {
                    Some(error @ LockError::InvalidUrl { .. }) => return Err(error.clone()),
                    // It is there, and votes later.
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
            let pause = pause.next(None);
            if last || Instant::now() + pause >= until {
                break;
            }
            sleep(pause).await;
        }
        if self.count() - open.len() >= majority(self.count()) {
            return Ok(());
        }
        for nth in open {
            errors[nth].get_or_insert_with(|| late("connecting"));
        }
        Err(no_quorum(&self.nodes.names, errors.into_iter()))
    }

    /// Asks for a lock on one key, again while too few nodes answer or nobody
    /// has most of them, and the manager's timeout allows.
    pub(crate) async fn acquire(&self, claim: &Claim) -> Result<Answer, Failed> {
        let until = Instant::now() + self.timeout;
        self.ask(claim, Some(until), false).await
    }

    /// Asks again and again for at most `wait`, at random intervals: there is no line over several
    /// nodes, and who asks at the same moment again would split them again.
    pub(crate) async fn wait(&self, claim: &Claim, wait: Duration) -> Result<Answer, Failed> {
        self.ask(claim, Instant::now().checked_add(wait), true).await
    }

    async fn ask(
        &self,
        claim: &Claim,
        until: Option<Instant>,
        waits: bool,
    ) -> Result<Answer, Failed> {
        self.check(claim.ttl).map_err(|error| Failed { error, written: false })?;
        let mut pause = Pause::new(&self.round_trip);
        loop {
            let over = until.is_some_and(|until| until <= Instant::now());
            let failure = match self.attempt(claim).await {
                Ok(grant) => return Ok(Answer::Granted(grant)),
                Err(failure) => failure,
            };
            let (again, left) = match &failure {
                // Nobody has it while several split the nodes between them.
                Failure::Busy(Holder { split, left, .. }) => (waits || *split, *left),
                Failure::Fault { passing, .. } => (*passing, None),
            };
            if over || !again {
                let resent = !claim.is_settled();
                return match failure {
                    Failure::Busy(Holder { owner, left, split }) => {
                        let left = left.filter(|_| !split);
                        // There is no line, so nobody was before it.
                        let line = if waits { Line::Left(0) } else { Line::Outside };
                        Ok(Answer::Busy { nth: 0, owner, left, line, resent })
                    }
                    Failure::Fault { error, .. } => Err(Failed { error, written: resent }),
                };
            }
            let pause = Instant::now() + pause.next(left);
            sleep_until(until.map_or(pause, |until| until.min(pause))).await;
        }
    }

    /// Asks all nodes once. What is not won is given back.
    async fn attempt(&self, claim: &Claim) -> Result<Grant, Failure> {
        let (ballot, within) = (claim.ballot(), NODE.min(claim.ttl / 10));
        if !ballot.renew_token() {
            let error = no_quorum(
                &self.nodes.names,
                vec![Some(late("giving back")); self.count()].into_iter(),
            );
            return Err(Failure::Fault { error, passing: false });
        }
        let (paper, turn) = (Arc::new(claim.paper(ballot.token())), ballot.round());
        let (sent, until) = (Moment::now(), Instant::now() + within);
        let mut round = Round::new((0..self.count()).map(|nth| {
            let (nodes, paper) = (Arc::clone(&self.nodes), Arc::clone(&paper));
            (nth, nodes.vote(nth, (Arc::clone(&ballot), turn), paper, within))
        }));
        let mut tally = Tally::of(self.count());
        let verdict = loop {
            if let Some(verdict) = tally.verdict() {
                break verdict;
            }
            match timeout_at(until, round.next()).await {
                Ok(Some((nth, said))) => tally.add(nth, said),
                Ok(None) | Err(_) => tally.end(),
            }
        };
        self.took(sent.elapsed());
        let failure = match verdict {
            Verdict::Granted => {
                // Who answers later adds to the margin.
                round.go_on();
                match self.confirmed(claim, &paper, sent, &tally, within).await {
                    Ok(grant) => return Ok(grant),
                    Err(failure) => failure,
                }
            }
            Verdict::Busy => {
                round.go_on();
                Failure::Busy(tally.holder())
            }
            Verdict::NoQuorum => {
                // What the others say changes nothing but the words.
                while let Ok(Some((nth, said))) = timeout_at(until, round.next()).await {
                    tally.add(nth, said);
                }
                tally.end();
                round.go_on();
                let (error, passing) = (tally.error(&self.nodes.names), tally.is_passing());
                Failure::Fault { error, passing }
            }
        };
        match self.give_back(claim, within.max(NODE)).await {
            Ok(()) => Err(failure),
            Err(error) => Err(Failure::Fault { error, passing: false }),
        }
    }

    /// The grant of a majority, if there is time left of it.
    async fn confirmed(
        &self,
        claim: &Claim,
        paper: &Arc<Claim>,
        sent: Moment,
        tally: &Tally,
        within: Duration,
    ) -> Result<Grant, Failure> {
        let (won, fence) = tally.won();
        if let Some(fence) = fence {
            self.raise(paper, won, fence, within).await?;
        }
        let ttl = claim.ttl;
        if Lease::new(sent, ttl, Renewal::Off).remaining(Moment::now()).is_err() {
            let (reason, detail) = (Unavailability::TooSlow, format!("the ttl is {ttl:?}"));
            let error = LockError::Unavailable { reason, detail };
            return Err(Failure::Fault { error, passing: true });
        }
        let fences = fence.into_iter().collect();
        Ok(Grant { sent, at: sent, ttl, resent: false, fences })
    }

    /// The second round of a fence: every node that counts is to give only larger ones from now on.
    ///
    /// The largest of a majority's fences by itself may be given twice: another majority shares a node
    /// with this one, and may not have heard of the largest. Two grants share a node in their second
    /// rounds, and there the later one has read its fence after the earlier one wrote it.
    async fn raise(
        &self,
        paper: &Arc<Claim>,
        won: ballot::Nodes,
        fence: Fence,
        within: Duration,
    ) -> Result<(), Failure> {
        let mut errors: Vec<Option<LockError>> = vec![None; self.count()];
        let mut round =
            Round::new(bits(won).map(|nth| (nth, self.nodes.all[nth].redis.raise(paper, fence))));
        let until = Instant::now() + within;
        let mut raised = 0;
        while let Ok(Some((nth, answer))) = timeout_at(until, round.next()).await {
            match answer {
                Ok(true) => raised += 1,
                Ok(false) => {
                    let detail = "it did not hold the lock any more".to_owned();
                    let reason = Unavailability::TooSlow;
                    errors[nth] = Some(LockError::Unavailable { reason, detail });
                }
                Err(silence) => errors[nth] = Some(*silence.error),
            }
            if raised >= majority(self.count()) {
                return Ok(());
            }
        }
        bits(won).for_each(|nth| _ = errors[nth].get_or_insert_with(|| late("raising the fence")));
        let error = no_quorum(&self.nodes.names, errors.into_iter());
        Err(Failure::Fault { error, passing: true })
    }

    /// Has a majority count `ttl` anew; tells whether a majority may still hold the lock.
    pub(crate) async fn renew(&self, claim: &Claim, ttl: Duration) -> Result<bool, LockError> {
        self.check(ttl)?;
        let ballot = claim.ballot();
        let paper = Arc::new(claim.paper(ballot.token()));
        let mut round = Round::new(bits(ballot.asked()).map(|nth| {
            let (nodes, paper) = (Arc::clone(&self.nodes), Arc::clone(&paper));
            (nth, async move { nodes.all[nth].redis.renew(&paper, ttl).await })
        }));
        // Who was never asked holds nothing.
        let (mut held, mut silent) = (0, 0);
        let mut errors: Vec<Option<LockError>> = vec![None; self.count()];
        while let Some((nth, answer)) = round.next().await {
            match answer {
                Ok(true) => held += 1,
                Ok(false) => {}
                Err(error) => {
                    silent += 1;
                    errors[nth] = Some(error);
                }
            }
            if held >= majority(self.count()) {
                round.go_on();
                return Ok(true);
            }
        }
        if held + silent < majority(self.count()) {
            return Ok(false);
        }
        Err(no_quorum(&self.nodes.names, errors.into_iter()))
    }

    /// No lock may be longer than a node that was started again is kept from voting.
    fn check(&self, ttl: Duration) -> Result<(), LockError> {
        let longest = self.longest_ttl;
        if ttl <= longest { Ok(()) } else { Err(LockError::InvalidTtl { ttl, longest }) }
    }

    /// How long an answer may take.
    pub(crate) fn answer(&self) -> Duration {
        self.nodes.all.first().map_or(NODE, |node| node.redis.answer())
    }

    fn count(&self) -> usize {
        self.nodes.all.len()
    }

    /// Takes note of how long a majority took to answer.
    fn took(&self, time: Duration) {
        let now = u64::try_from(time.as_micros()).unwrap_or(u64::MAX / 8);
        let before = self.round_trip.load(Ordering::Relaxed);
        let mean = if before == 0 { now } else { (before * 7 + now) / 8 };
        self.round_trip.store(mean, Ordering::Relaxed);
    }
}

impl Claim {
    /// What is known of its only key.
    fn ballot(&self) -> Arc<Ballot> {
        self.ballots().first().map(Arc::clone).unwrap_or_default()
    }

    /// The same with its `nth` token, to be sent.
    fn paper(&self, nth: u32) -> Claim {
        let mut paper = self.part(self.keys());
        paper.token = self.token.nth(nth);
        paper
    }
}

/// What is told of a node that did not answer in time.
fn late(what: &str) -> LockError {
    LockError::Unavailable { reason: Unavailability::Timeout, detail: what.to_owned() }
}

fn bits(nodes: ballot::Nodes) -> impl Iterator<Item = usize> {
    (0..ballot::Nodes::BITS as usize).filter(move |nth| nodes & 1 << nth != 0)
}
