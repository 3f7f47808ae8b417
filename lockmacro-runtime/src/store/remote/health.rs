//! What all connections of a manager know of its servers: which of them answer, how fast, and
//! whether another one may have taken over. A server that is down is logged once, and once more
//! when it is back, however many calls fail meanwhile.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use crate::store::backend::ServerHealth;
use crate::sys::metrics::tell;
use crate::sys::sync::Mutex;
use crate::sys::time::Instant;
use crate::value::error::{Cause, UnavailableReason};

/// Longest time between two failures of one outage.
const OUTAGE_GAP: Duration = Duration::from_secs(60);
/// Shortest time between two failures that are logged at WARN outside an outage.
const WARN_EVERY: Duration = Duration::from_secs(5);
/// Length of a window in which the shortest answer is kept; the one before counts, too.
const WINDOW: Duration = Duration::from_secs(10);
/// Fewest answers from which the shortest one is known.
const ANSWERS_MIN: u32 = 4;

/// The servers of a manager.
#[derive(Default)]
pub(crate) struct Monitor {
    /// The health of each, by its name.
    servers: Mutex<BTreeMap<String, Weak<Health>>>,
    warned: Mutex<Option<Instant>>,
    /// A connection was discarded, and none was opened since.
    broken: AtomicBool,
    /// It was logged that grants are not pushed.
    polls: AtomicBool,
    listener: OnceLock<Box<dyn Fn() + Send + Sync>>,
}

/// The health of one server, for as long as it is used: an outage of a node that leaves its cluster
/// ends with its last connection, because no answer would end it.
#[derive(Default)]
pub(crate) struct Health {
    /// The last command has failed. Read for every answer.
    failing: AtomicBool,
    outage: Mutex<Option<Outage>>,
    /// Over all connections to the server.
    pub(crate) round_trip: RoundTrip,
}

/// Failed commands without an answered one in between.
struct Outage {
    since: Instant,
    last: Instant,
    /// Of the last failure.
    reason: UnavailableReason,
    /// The error of the connection, of the last failure.
    cause: Option<Cause>,
    /// Present once the outage was long enough to be logged.
    logged: Option<DownGauge>,
}

/// How a server that is down gives no answer.
pub(crate) struct Silence {
    pub(crate) reason: UnavailableReason,
    pub(crate) lasts: Duration,
    /// The error of the connection.
    pub(crate) cause: Option<Cause>,
}

/// Counts a server that is down in a gauge until it is back, or not used any more: then no answer
/// would end its outage. Who makes it adds the one that its drop takes away. Both call the recorder
/// of the program, which may ask for the health of a server, and so neither is done under a mutex.
struct DownGauge(String);

impl Drop for DownGauge {
    fn drop(&mut self) {
        add(&self.0, -1.0);
    }
}

fn add(server: &str, change: f64) {
    tell!(gauge, "lockmacro_server_down", [("server", server.to_owned())], increment(change));
}

impl Monitor {
    /// Calls `listener` after a connection was replaced, or leads to another server: locks granted
    /// before may be unknown there.
    ///
    /// The listener is called too often rather than too rarely: without further rights a user
    /// cannot recognize a server.
    pub(crate) fn on_change(&self, listener: Box<dyn Fn() + Send + Sync>) {
        let _ = self.listener.set(listener);
    }

    /// Notes that another server may have taken over.
    pub(crate) fn changed(&self) {
        if let Some(listener) = self.listener.get() {
            listener();
        }
    }

    /// Notes that a connection is broken.
    pub(crate) fn broken(&self) {
        self.broken.store(true, Ordering::SeqCst);
    }

    /// Notes a new connection, which is not used yet. `moved` if it leads to another server.
    pub(crate) fn opened(&self, moved: bool) {
        // A connection that replaces none, as the first one, says nothing about the locks before
        // it.
        if self.broken.swap(false, Ordering::SeqCst) || moved {
            self.changed();
        }
    }

    /// Logs once that the server cannot push grants.
    pub(crate) fn note_polling(&self, server: impl FnOnce() -> String) {
        if !self.polls.swap(true, Ordering::Relaxed) {
            tracing::warn!(server = server(), "grants are not pushed: waiters poll");
        }
    }

    /// The health of the server with that name.
    pub(crate) fn health_of(&self, name: &str) -> Arc<Health> {
        let mut servers = self.servers.lock();
        if let Some(known) = servers.get(name).and_then(Weak::upgrade) {
            return known;
        }
        servers.retain(|_, health| health.strong_count() > 0);
        let new = Arc::<Health>::default();
        servers.insert(name.to_owned(), Arc::downgrade(&new));
        new
    }

    /// Whether any server is down, so that a failure need not be logged.
    pub(crate) fn is_any_down(&self) -> bool {
        // Dropped without the mutex: the last one to drop a health that is down tells a recorder.
        let servers: Vec<_> = self.servers.lock().values().filter_map(Weak::upgrade).collect();
        servers.iter().any(|health| health.is_down())
    }

    /// Whether to log a failed call at WARN: not while a server is down, and one in `WARN_EVERY`.
    pub(crate) fn is_news(&self) -> bool {
        let is_down = self.is_any_down();
        let mut warned = self.warned.lock();
        let is = !is_down && warned.is_none_or(|last| last.elapsed() >= WARN_EVERY);
        if is {
            *warned = Some(Instant::now());
        }
        is
    }
}

impl Health {
    /// Notes an answer.
    pub(crate) fn answered(&self, server: impl FnOnce() -> String) {
        // Without the mutex, which every answer of a healthy server would take.
        if !self.failing.load(Ordering::Relaxed) {
            return;
        }
        let mut outage = self.outage.lock();
        self.failing.store(false, Ordering::Relaxed);
        let ended = outage.take();
        drop(outage);
        if let Some(Outage { since, logged: Some(_), .. }) = ended {
            let server = server();
            let after = since.elapsed();
            tracing::info!(%server, ?after, "lock server back");
        }
    }

    /// Notes a command that failed for this reason. The server is down when it has served none for
    /// `least`.
    pub(crate) fn failed(
        &self,
        reason: UnavailableReason,
        cause: Option<&Cause>,
        least: Duration,
        server: impl FnOnce() -> String,
    ) {
        if !serves_none(reason) {
            return self.answered(server);
        }
        let now = Instant::now();
        let mut outage = self.outage.lock();
        self.failing.store(true, Ordering::Relaxed);
        // A failure long after the last one begins another outage: nobody has asked in between.
        let goes_on =
            |last: &Outage| last.logged.is_some() || now.duration_since(last.last) <= OUTAGE_GAP;
        // Its cause may be an error of the program's own store, and is dropped without the mutex.
        let mut earlier = outage.take();
        let (since, logged) = match &mut earlier {
            Some(last) if goes_on(last) => (last.since, last.logged.take()),
            _ => (now, None),
        };
        let lasts = now.duration_since(since);
        let down = (logged.is_none() && lasts >= least).then(server);
        let logged = logged.or_else(|| down.clone().map(DownGauge));
        let cause = cause.cloned();
        *outage = Some(Outage { since, last: now, reason, cause, logged });
        // A tracing subscriber may be slow, and every answer waits for the mutex.
        drop(outage);
        if let Some(server) = down {
            let since = lasts;
            // If the server is back meanwhile, its gauge takes this away before it is added.
            add(&server, 1.0);
            tracing::warn!(%server, ?since, %reason, "lock server down");
        }
    }

    /// Why the server gives no answer and for how long it has not, if it is down. A server that
    /// answers, and refuses, is asked by each caller.
    pub(crate) fn silence(&self) -> Option<Silence> {
        let silence = |outage: &Outage| Silence {
            reason: outage.reason,
            lasts: outage.since.elapsed(),
            cause: outage.cause.clone(),
        };
        self.down(silence).filter(|silence| is_silent(silence.reason))
    }

    /// How the server is now.
    pub(crate) fn now(&self) -> ServerHealth {
        let is_silent = self.is_silent();
        let round_trip = self.round_trip.shortest();
        ServerHealth { is_down: self.is_down(), is_silent, round_trip }
    }

    /// Whether the server is down, and gives no answer.
    pub(crate) fn is_silent(&self) -> bool {
        self.down(|outage| is_silent(outage.reason)).unwrap_or_default()
    }

    /// Whether the server is down.
    pub(crate) fn is_down(&self) -> bool {
        self.down(|_| ()).is_some()
    }

    /// Reads the outage of a server that is down.
    fn down<T>(&self, read: impl FnOnce(&Outage) -> T) -> Option<T> {
        if !self.failing.load(Ordering::Relaxed) {
            return None;
        }
        let outage = self.outage.lock();
        outage.as_ref().filter(|outage| outage.logged.is_some()).map(read)
    }
}

/// Whether a server that fails for this reason gives no answer.
fn is_silent(reason: UnavailableReason) -> bool {
    use UnavailableReason::{BusyScript, Disconnected, Loading, Refused, Timeout};
    matches!(reason, BusyScript | Disconnected | Loading | Refused | Timeout)
}

/// Whether a server that fails for this reason serves no lock at all.
fn serves_none(reason: UnavailableReason) -> bool {
    use UnavailableReason::{ClusterDown, NotEnoughReplicas, NotSaving, PrimaryDown, ReadOnly};
    is_silent(reason)
        || matches!(reason, ClusterDown | NotEnoughReplicas | NotSaving | PrimaryDown | ReadOnly)
}

/// The measured round trip to one server: smoothed, with its deviation, as in TCP (RFC 6298); and
/// the shortest recent one, which neither large replies nor pauses of the server lengthen.
#[derive(Debug)]
pub(crate) struct RoundTrip {
    /// The smoothed round trip and its deviation, in microseconds, 32 bits each.
    measured: AtomicU64,
    /// The time that the windows are counted from.
    began: Instant,
    /// The number of this window and its shortest answer in microseconds, 32 bits each.
    window: AtomicU64,
    /// The same for the last window with answers.
    previous: AtomicU64,
    /// The number of answers, up to [`ANSWERS_MIN`].
    answers: AtomicU32,
    /// Whether a ttl too short for the round trip was logged.
    warned: AtomicBool,
}

impl Default for RoundTrip {
    fn default() -> Self {
        Self {
            measured: Default::default(),
            began: Instant::now(),
            window: Default::default(),
            previous: Default::default(),
            answers: Default::default(),
            warned: Default::default(),
        }
    }
}

impl RoundTrip {
    /// Notes an answer to a command that was sent at `asked`. Of two concurrent answers one may be
    /// ignored.
    pub(crate) fn note(&self, asked: Instant) {
        let now = Instant::now();
        self.noted(now, now.duration_since(asked));
    }

    fn noted(&self, now: Instant, took: Duration) {
        let took = u64::try_from(took.as_micros()).unwrap_or(u64::MAX).clamp(1, 1 << 30);
        let (smoothed, deviation) = self.measured();
        let (smoothed, deviation) = match smoothed {
            0 => (took, took / 2),
            _ => {
                let off = smoothed.abs_diff(took);
                ((7 * smoothed + took) / 8, (3 * deviation + off) / 4)
            }
        };
        self.measured.store(smoothed << 32 | deviation, Ordering::Relaxed);
        let number = now.duration_since(self.began).as_secs() / WINDOW.as_secs() + 1;
        let window = self.window.load(Ordering::Relaxed);
        // Of two answers at once one may be forgotten, which costs the estimate a sample.
        if window >> 32 != number {
            self.previous.store(window, Ordering::Relaxed);
        }
        if window >> 32 != number || took < window & u64::from(u32::MAX) {
            self.window.store(number << 32 | took, Ordering::Relaxed);
        }
        if self.answers.load(Ordering::Relaxed) < ANSWERS_MIN {
            self.answers.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// The shortest recent round trip; zero until there are enough answers.
    pub(crate) fn shortest(&self) -> Duration {
        if self.answers.load(Ordering::Relaxed) < ANSWERS_MIN {
            return Duration::ZERO;
        }
        let windows = [&self.window, &self.previous].map(|window| window.load(Ordering::Relaxed));
        let shortest = windows.into_iter().filter(|window| *window != 0);
        let shortest = shortest.map(|window| window & u64::from(u32::MAX)).min();
        Duration::from_micros(shortest.unwrap_or_default())
    }

    /// The longest time that an answer of a healthy server may take.
    pub(crate) fn longest(&self) -> Duration {
        let (smoothed, deviation) = self.measured();
        Duration::from_micros(2 * smoothed + 4 * deviation)
    }

    /// Whether a ttl too short for the round trip is still to be logged; true once.
    pub(crate) fn should_warn(&self) -> bool {
        !self.warned.swap(true, Ordering::Relaxed)
    }

    fn measured(&self) -> (u64, u64) {
        let measured = self.measured.load(Ordering::Relaxed);
        (measured >> 32, measured & u64::from(u32::MAX))
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::advance;

    use super::*;
    #[cfg(feature = "metrics")]
    use crate::sys::metrics::gauges::Gauges;

    const LEAST: Duration = Duration::from_millis(500);

    fn fail(health: &Health) {
        health.failed(UnavailableReason::Timeout, None, LEAST, || "a:1".to_owned());
    }

    #[tokio::test(start_paused = true)]
    async fn a_server_is_down_when_no_call_has_an_answer_for_long_enough() {
        let monitor = Monitor::default();
        let health = monitor.health_of("a:1");
        fail(&health);
        advance(LEAST / 2).await;
        fail(&health);
        health.answered(|| "a:1".to_owned());
        advance(LEAST).await;
        fail(&health);
        assert!(!health.is_down(), "it has answered in between");
        advance(OUTAGE_GAP * 2).await;
        fail(&health);
        assert!(!health.is_down(), "these are two, and not one");
        advance(LEAST).await;
        fail(&health);
        assert!(health.is_down() && monitor.health_of("a:1").is_down() && monitor.is_any_down());
        assert!(!monitor.health_of("b:1").is_down() && !monitor.is_news());
        health.answered(|| "a:1".to_owned());
        assert!(!health.is_down() && !monitor.is_any_down() && monitor.is_news());
    }

    #[tokio::test(start_paused = true)]
    async fn a_server_that_nothing_uses_any_more_is_no_longer_down() {
        let monitor = Monitor::default();
        let gone = monitor.health_of("a:1");
        let stays = monitor.health_of("b:1");
        for health in [&gone, &stays] {
            fail(health);
        }
        advance(LEAST).await;
        fail(&gone);
        assert!(monitor.is_any_down());
        drop(gone);
        assert!(!monitor.is_any_down() && !monitor.health_of("a:1").is_down());
        fail(&stays);
        assert!(stays.is_down(), "its own outage goes on");
        assert_eq!(monitor.servers.lock().len(), 2);
        drop(monitor.health_of("c:1"));
        drop(monitor.health_of("d:1"));
        assert_eq!(monitor.servers.lock().len(), 2, "names are not kept");
    }

    #[cfg(feature = "metrics")]
    #[test]
    fn a_recorder_of_metrics_may_ask_for_the_health_that_it_is_told_of() {
        let (done, is_done) = std::sync::mpsc::channel();
        // A deadlock is that of another thread.
        std::thread::spawn(move || {
            let health = Arc::<Health>::default();
            let asked = Arc::downgrade(&health);
            let told = Arc::<Mutex<Vec<f64>>>::default();
            let all = Arc::clone(&told);
            let recorder = Gauges::new(move |change| {
                let _ = asked.upgrade().map(|health| health.now());
                all.lock().push(change);
            });
            metrics::with_local_recorder(&recorder, || {
                for _ in 0..2 {
                    let reason = UnavailableReason::Timeout;
                    health.failed(reason, None, Duration::ZERO, || "a:1".to_owned());
                }
                assert!(health.is_down());
                health.answered(|| "a:1".to_owned());
                health.failed(UnavailableReason::Timeout, None, Duration::ZERO, String::new);
                drop(health);
            });
            done.send(told.lock().clone()).expect("it is waited for");
        });
        let told = is_done.recv_timeout(Duration::from_secs(10)).expect("no deadlock");
        assert_eq!(told, [1.0, -1.0, 1.0, -1.0]);
    }

    #[tokio::test(start_paused = true)]
    async fn of_many_failures_few_are_logged_at_warn() {
        let monitor = Monitor::default();
        assert!(monitor.is_news() && !monitor.is_news());
        advance(WARN_EVERY).await;
        assert!(monitor.is_news() && !monitor.is_news());
    }

    const fn ms(milliseconds: u64) -> Duration {
        Duration::from_millis(milliseconds)
    }

    #[test]
    fn a_longer_round_trip_counts_from_its_first_answer() {
        let round_trip = RoundTrip::default();
        assert_eq!(round_trip.longest(), Duration::ZERO);
        let now = Instant::now();
        (0..50).for_each(|_| round_trip.noted(now, ms(1)));
        assert!(round_trip.longest() < ms(3), "{round_trip:?}");
        round_trip.noted(now, ms(60));
        assert!(round_trip.longest() > ms(60), "{round_trip:?}");
        (0..50).for_each(|_| round_trip.noted(now, ms(60)));
        assert!(round_trip.longest() < ms(130), "{round_trip:?}");
        assert_eq!(round_trip.shortest(), ms(1));
        for later in [1, 2] {
            (0..50).for_each(|_| round_trip.noted(now + later * WINDOW, ms(60)));
        }
        assert_eq!(round_trip.shortest(), ms(60), "it has been far away for long");
    }

    #[test]
    fn large_replies_and_pauses_of_the_server_do_not_count_as_its_round_trip() {
        let round_trip = RoundTrip::default();
        let now = Instant::now();
        (0..3).for_each(|_| round_trip.noted(now, ms(900)));
        assert_eq!(round_trip.shortest(), Duration::ZERO, "of so few it is not known");
        round_trip.noted(now, ms(1));
        // Many callers waited for a server that hung.
        (0..5_000).for_each(|_| round_trip.noted(now + WINDOW, ms(900)));
        assert_eq!(round_trip.shortest(), ms(1));
        (0..5_000).for_each(|nth| {
            let took = if nth % 1_000 == 0 { ms(2) } else { ms(900) };
            round_trip.noted(now + 2 * WINDOW, took);
        });
        assert_eq!(round_trip.shortest(), ms(2));
    }

    #[test]
    fn any_duration_can_be_noted() {
        let round_trip = RoundTrip::default();
        let now = Instant::now();
        (0..9).for_each(|_| round_trip.noted(now, Duration::MAX));
        assert!(round_trip.longest() > ms(1_000) && round_trip.longest() < ms(9_000_000));
        round_trip.noted(now, Duration::ZERO);
    }
}
