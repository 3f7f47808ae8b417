//! The store on a majority of independent servers: the Redlock algorithm of the Redis
//! documentation, with all nodes asked at once.
//!
//! As every lease, the lease of a lock counts from before the first request was sent until its ttl
//! less the drift. A lock that no majority grants is released on every node that the request may
//! have reached.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use tokio::time::{sleep, timeout_at};

use crate::protocol::answer::{Answer, Failed, Released, StoreFuture};
use crate::protocol::ask::Ask;
use crate::protocol::request::Request;
use crate::store::backend::{Backend, Facts, RenewKind, ServerHealth, Wait};
use crate::store::redis::client::url::Deployment;
use crate::store::redis::store::Redis;
use crate::store::redlock::attempts::Attempts;
use crate::store::redlock::node::Nodes;
use crate::store::redlock::node_names;
use crate::store::redlock::quorum::{NodeError, majority, may_be_had, no_quorum};
use crate::store::redlock::rules::{Rules, no_replicas};
use crate::sys::backoff::Backoff;
use crate::sys::random;
use crate::sys::task::spawn;
use crate::sys::time::{Instant, Moment};
use crate::value::defaults::unusable_ttl;
use crate::value::error::{LockError, UnavailableReason, setting_name};
use crate::value::key::LockKey;
use crate::value::limits::TTL_MAX;
use crate::value::mode::Mode;

/// Shortest and longest delay before another attempt.
const SHORTEST: Duration = Duration::from_millis(1);
const LONGEST: Duration = Duration::from_millis(100);
/// The first pause, in round trips.
const ROUND_TRIPS: u32 = 4;
/// How long a pause is compared to the one before, in percent.
const GROWTH: u32 = 150;
/// How long connecting waits for the other nodes once a majority is connected.
const GRACE: Duration = Duration::from_millis(200);

#[derive(Debug)]
pub(crate) struct Redlock {
    pub(crate) nodes: Arc<Nodes>,
    pub(super) timeout: Duration,
    pub(super) rules: Rules,
    /// The recent mean of the time in which a majority answers, in microseconds.
    round_trip: Arc<AtomicU64>,
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

    /// The addresses of the nodes.
    pub(super) fn servers(&self) -> Box<str> {
        self.nodes.names.join(", ").into()
    }

    /// Connects to at least a majority that can vote.
    async fn connected(&self) -> Result<(), LockError> {
        let mut until = Instant::now() + self.timeout;
        let mut pause = RetryDelay::new(self.usual_round_trip());
        let mut errors: Vec<Option<NodeError>> = vec![None; self.count()];
        let mut open: Vec<usize> = (0..self.count()).collect();
        while !open.is_empty() {
            let nodes = &self.nodes;
            let admit = |nth: usize| async move {
                match nodes.admit(nth).await {
                    // It votes later. What it is by then shows now.
                    Err(node_error) if !node_error.is_young() => return Err((node_error, false)),
                    _ => {}
                }
                let ready = nodes.all[nth].ready_to_vote().await;
                ready.map_err(|error| (NodeError::of(error, &LockKey::from("")), true))
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
                    Some(error @ LockError::InvalidSetting { setting: setting_name::URL, .. }) => {
                        return Err(error.clone());
                    }
                    None => open.retain(|other| *other != nth),
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
                .then(|| LockError::because(UnavailableReason::Timeout, "connecting")),
        };
        Err(no_quorum(&self.nodes.names, errors.into_iter().enumerate().map(error)))
    }

    /// Restarts the ttl on a majority, which is then restored on the nodes that have forgotten the
    /// lock. Returns whether a majority may still hold the lock.
    async fn renew_all(&self, request: &Request, ttl: Duration) -> Result<bool, LockError> {
        self.check(ttl)?;
        let attempts = request.attempts::<Attempts>();
        let attempt = request.attempt(attempts.token());
        let sent = Moment::now();
        let mut round = Round::new(attempts.holders().into_iter().map(|nth| {
            let nodes = Arc::clone(&self.nodes);
            let attempt = attempt.clone();
            (nth, nodes.renew(nth, attempt, ttl))
        }));
        // A node that is not among the holders, or has refused, does not hold the lock.
        let mut held = 0;
        let mut failed = 0;
        let mut forgetful = Vec::new();
        let mut errors: Vec<Option<LockError>> = vec![None; self.count()];
        while let Some((nth, answer)) = round.next().await {
            match answer {
                Ok(true) => held += 1,
                Ok(false) => forgetful.push(nth),
                Err(error) => {
                    failed += 1;
                    errors[nth] = Some(error);
                }
            }
            if held >= majority(self.count()) {
                let nodes = Arc::clone(&self.nodes);
                let repair = move |nth| {
                    let attempts = Arc::clone(&attempts);
                    let attempt = attempt.clone();
                    drop(spawn(Arc::clone(&nodes).repair(nth, attempts, attempt, (sent, ttl))));
                };
                // The renewal does not wait for repairs.
                forgetful.into_iter().for_each(&repair);
                round.go_on_with(move |nth, answer| {
                    if let Ok(false) = answer {
                        repair(nth);
                    }
                });
                return Ok(true);
            }
        }
        if held + failed < majority(self.count()) {
            return Ok(false);
        }
        Err(no_quorum(&self.nodes.names, errors.into_iter()))
    }

    /// Checks that a ttl is not longer than a restarted node is kept from voting.
    pub(super) fn check(&self, ttl: Duration) -> Result<(), LockError> {
        let longest = if self.rules.durable { TTL_MAX } else { self.rules.longest_ttl };
        if ttl <= longest { Ok(()) } else { Err(unusable_ttl(ttl, longest)) }
    }

    pub(super) fn count(&self) -> usize {
        self.nodes.all.len()
    }

    /// The recent mean of the time in which a majority answers.
    pub(super) fn usual_round_trip(&self) -> Duration {
        Duration::from_micros(self.round_trip.load(Ordering::Relaxed))
    }

    /// Records how long a majority took to answer.
    pub(super) fn note_round_trip(&self, time: Duration) {
        let now = u64::try_from(time.as_micros()).unwrap_or(u64::MAX / 8);
        let before = self.round_trip.load(Ordering::Relaxed);
        let mean = if before == 0 { now } else { (before * 7 + now) / 8 };
        self.round_trip.store(mean, Ordering::Relaxed);
    }
}

impl Backend for Redlock {
    fn facts(&self) -> Facts {
        Facts { timeout: self.timeout, polls: true, are_several: true, ..Facts::default() }
    }

    fn health(&self, _: &Request) -> ServerHealth {
        ServerHealth { round_trip: self.usual_round_trip(), ..ServerHealth::default() }
    }

    fn apart(&self) -> Arc<dyn Backend> {
        let nodes = Arc::new(self.nodes.apart());
        let round_trip = Arc::clone(&self.round_trip);
        Arc::new(Self { nodes, round_trip, ..*self })
    }

    fn ready(&self) -> StoreFuture<'_, Result<(), LockError>> {
        Box::pin(self.connected())
    }

    fn ask(
        self: Arc<Self>,
        request: Request,
        wait: Wait,
    ) -> StoreFuture<'static, Result<Answer, Failed>> {
        Box::pin(async move {
            match wait {
                Wait::AtOnce(until) => self.acquire(&request, until).await,
                Wait::Waits(wait, shutdown) => {
                    shutdown.unless(Box::pin(self.wait(&request, wait))).await
                }
            }
        })
    }

    fn release<'a>(&'a self, request: &'a Request) -> StoreFuture<'a, Result<Released, LockError>> {
        Box::pin(self.release_all(request))
    }

    fn renew<'a>(
        &'a self,
        request: &'a Request,
        ttl: Duration,
        _: RenewKind,
    ) -> StoreFuture<'a, Result<bool, LockError>> {
        Box::pin(self.renew_all(request, ttl))
    }

    /// There is no script over several nodes.
    fn at_once(&self, _: &[LockKey]) -> usize {
        1
    }

    fn address(&self, _: &Request) -> Option<Box<str>> {
        Some(self.servers())
    }

    /// Not while a majority is down. One node that is there decides how often.
    fn is_news(&self) -> bool {
        let nodes = &self.nodes.all;
        let (down, there): (Vec<_>, Vec<_>) = nodes.iter().partition(|node| node.is_any_down());
        down.len() < majority(nodes.len()) && there.first().is_some_and(|node| node.is_news())
    }

    fn check_ask(&self, ask: &Ask) -> Result<(), LockError> {
        let mut modes = ask.keys().iter().map(|key| key.mode());
        if let Some(mode) = modes.find(|mode| !mode.is_exclusive()) {
            // With permits, the holders of several majorities could be more than the limit.
            let detail = "a Redlock has exclusive locks only: use one server or cluster for it";
            let setting = if mode == Mode::Shared { "shared" } else { "permits" };
            return Err(LockError::invalid(setting, detail));
        }
        self.check(ask.ttl)
    }

    fn close(&self) {
        self.nodes.all.iter().for_each(|node| node.close());
    }
}

/// The delay before another attempt. There is no queue over several nodes. Callers that repeat at
/// the same moment would split the votes again, so the delays are random.
pub(super) struct RetryDelay(Backoff);

impl RetryDelay {
    /// Starts with a small multiple of a round trip.
    pub(super) fn new(round_trip: Duration) -> Self {
        let first = round_trip.saturating_mul(ROUND_TRIPS).clamp(SHORTEST, LONGEST);
        Self(Backoff::growing(first, LONGEST, GROWTH))
    }

    /// The next delay: 50 % to 150 % of a time that grows, and no later than the end of the
    /// holder's lease.
    pub(super) fn next(&mut self, left: Option<Duration>) -> Duration {
        let pause = self.0.step().mul_f64(0.5 + random::fraction());
        let end = left.map_or(pause, |left| left + SHORTEST.mul_f64(1.0 + random::fraction()));
        pause.min(end)
    }
}

/// Requests that are in flight at the same time, each to one node.
pub(super) struct Round<'a, T> {
    in_flight: FuturesUnordered<StoreFuture<'a, (usize, T)>>,
}

impl<'a, T> Round<'a, T> {
    pub(super) fn new<F>(questions: impl Iterator<Item = (usize, F)>) -> Self
    where
        F: Future<Output = T> + Send + 'a,
    {
        let boxed = |(nth, question): (usize, F)| -> StoreFuture<'a, (usize, T)> {
            Box::pin(async move { (nth, question.await) })
        };
        Self { in_flight: questions.map(boxed).collect() }
    }

    /// The next answer and the number of its node; `None` when all nodes have answered.
    pub(super) async fn next(&mut self) -> Option<(usize, T)> {
        self.in_flight.next().await
    }

    /// The same, until a deadline; `None` after it, too. A process that was frozen finds late
    /// answers in its buffers, and they count no more.
    pub(super) async fn next_until(&mut self, until: Instant) -> Option<(usize, T)> {
        let answer = timeout_at(until, self.next()).await.ok().flatten();
        answer.filter(|_| Instant::now() <= until)
    }
}

impl<T: 'static> Round<'static, T> {
    /// Lets the rest go on in a task of its own. Each request has a timeout.
    pub(super) fn go_on(self)
    where
        T: Send,
    {
        self.go_on_with(|_, _| ());
    }

    /// The same, with each answer.
    fn go_on_with(mut self, each: impl Fn(usize, T) + Send + 'static)
    where
        T: Send,
    {
        if !self.in_flight.is_empty() {
            spawn(async move {
                while let Some((nth, answer)) = self.next().await {
                    each(nth, answer);
                }
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays_differ_grow_and_have_a_bound() {
        let mut pause = RetryDelay::new(Duration::from_micros(500));
        let first = pause.next(None);
        assert!(
            (Duration::from_millis(1)..=Duration::from_millis(3)).contains(&first),
            "{first:?}"
        );
        let pauses: Vec<_> = (0..50).map(|_| pause.next(None)).collect();
        assert!(pauses.windows(2).any(|pair| pair[0] != pair[1]));
        assert!(pauses.iter().all(|pause| *pause <= LONGEST.mul_f64(1.5)));
        assert!(pauses[40..].iter().all(|pause| *pause >= LONGEST.mul_f64(0.5)));
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_that_is_found_after_the_deadline_does_not_count() {
        let answers = || Round::new([(0, std::future::ready(7))].into_iter());
        let until = Instant::now();
        assert_eq!(answers().next_until(until).await, Some((0, 7)));
        tokio::time::advance(Duration::from_millis(1)).await;
        assert_eq!(answers().next_until(until).await, None);
    }

    /// Many waiters ask all nodes for as long as the lock is held.
    #[test]
    fn a_waiter_asks_ten_times_a_second_in_the_end() {
        let mut pause = RetryDelay::new(Duration::from_micros(500));
        let pauses: Vec<_> = (0..200).map(|_| pause.next(None)).collect();
        let sum: Duration = pauses[100..].iter().sum();
        assert!(sum > Duration::from_secs(8) && sum < Duration::from_secs(12), "{sum:?}");
    }

    #[test]
    fn a_delay_ends_with_the_holders_lease() {
        let mut pause = RetryDelay::new(Duration::from_micros(u64::MAX / 1_000_000));
        assert!(pause.next(Some(Duration::ZERO)) <= SHORTEST * 2);
    }
}
