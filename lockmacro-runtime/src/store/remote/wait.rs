//! Waiting for a lock: the waiter joins the queue of its server and receives its grant as a push.
//! It also asks from time to time, in case a push did not arrive.

use std::future::ready;
use std::num::NonZeroU64;
use std::ops::ControlFlow;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::timeout_at;

use crate::protocol::answer::{Answer, Contention, Failed, Grant, Queueing, StoreFuture};
use crate::protocol::request::Request;
use crate::store::backend::Wait;
use crate::store::remote::budget::Budget;
use crate::store::remote::error::RemoteError;
use crate::store::remote::server::{RemoteStore, acquire, ask_until, in_time};
use crate::store::shutdown::Shutdown;
use crate::store::subscriptions::{HandOff, Signal, Subscription};
use crate::store::tick::{Foreign, tick};
use crate::sys::random;
use crate::sys::time::{Instant, Moment};
use crate::value::applied::Applied;
use crate::value::limits::FOR_EVER;

/// Waiters from this rank on are far back. Those before it ask: one of them notices when a holder
/// has died, and hands the lock on.
pub(crate) const FAR_BACK: u32 = 16;

/// Servers with a queue for each key.
pub(crate) trait KeyQueues: RemoteStore + 'static {
    /// The subscription of a waiter to its grant.
    fn subscribe(&self, request: &Request) -> Subscription;

    /// Keeps the place of a waiter far back in the queue, without a request of its own. Returns
    /// whether that is enough: otherwise the waiter has to ask.
    fn keep_place(&self, _: &Request) -> impl Future<Output = bool> + Send {
        ready(false)
    }

    /// The first request of a waiter that shares its lock, where it is another one than from the
    /// queue. `None` when the waiter has to join the queue.
    fn ask_first(
        &self,
        _: &Request,
    ) -> impl Future<Output = Result<Option<Answer>, RemoteError>> + Send {
        ready(Ok(None))
    }

    /// Asks once: for a lock, or for a place in its queue.
    fn ask_queued(
        &self,
        request: &Request,
        subscription: &Subscription,
        budget: Budget,
    ) -> impl Future<Output = Result<(Answer, SentRequest), RemoteError>> + Send;
}

/// Asks for a lock, and waits for it if the caller waits.
pub(crate) fn ask<Q: KeyQueues>(
    queue: Arc<Q>,
    request: Request,
    how_long: Wait,
) -> StoreFuture<'static, Result<Answer, Failed>> {
    match how_long {
        Wait::AtOnce(until) => Box::pin(async move { acquire(&*queue, &request, until).await }),
        Wait::Waits(time, shutdown) => Box::pin(wait(queue, request, time, shutdown)),
    }
}

/// Waits for at most `wait`, and no longer than until the manager shuts down.
pub(crate) fn wait<Q: KeyQueues>(
    queue: Arc<Q>,
    request: Request,
    wait: Duration,
    shutdown: Arc<Shutdown>,
) -> impl Future<Output = Result<Answer, Failed>> + Send {
    let until = Instant::now() + wait.min(FOR_EVER);
    let subscription = queue.subscribe(&request);
    let mut earlier = request.token.applied_before();
    let mut foreign = Foreign::default();
    // No `async fn`, which stores its arguments twice: each waiter holds this future.
    async move {
        if !request.ask.key.mode().is_exclusive() {
            let first = Box::pin(async { Ok(queue.ask_first(&request).await) });
            let first = shutdown.unless(first).await?;
            match first.and_then(|first| first.map(|it| in_time(&*queue, &request, it)).transpose())
            {
                Ok(Some(answer @ Answer::Granted(_))) => return Ok(answer),
                Ok(_) => {}
                // The next request has the same fault, or finds what became of this one.
                Err(_) => earlier = Applied::Unknown,
            }
            request.token.note_awaited();
        }
        loop {
            // Boxed: it is large, and most of the wait needs only the signal.
            let progress = Box::pin(async {
                let known = (&mut earlier, &mut foreign);
                let waiting = (&subscription, until);
                shutdown.unless(pin!(ask_once(&*queue, &request, waiting, known))).await
            });
            let mut queued = match progress.await? {
                ControlFlow::Break(answer) => return Ok(answer),
                ControlFlow::Continue(queued) => queued,
            };
            loop {
                let is_quiet = {
                    let signal = timeout_at(queued.pause, subscription.signal()).await;
                    // A shutdown wakes the waiter.
                    shutdown.check()?;
                    let is_quiet = signal.is_err() && Instant::now() < until;
                    if let Ok(Signal::Granted(hand_off)) = signal
                        && let Some(sent) = queued.sample.start_of(&hand_off, Moment::now())
                    {
                        let HandOff { received: at, ttl, fences, .. } = *hand_off;
                        let fences = fences.into_iter().collect();
                        return Ok(Answer::Granted(Grant { sent, at, ttl, earlier, fences }));
                    }
                    is_quiet
                };
                // Otherwise the next request confirms the lock, or joins the queue.
                if !is_quiet
                    || queued.rank < FAR_BACK
                    || !Box::pin(queue.keep_place(&request)).await
                {
                    break;
                }
                let pause = tick(queued.rank, None, true, random::fraction());
                queued.pause = until.min(Instant::now() + pause);
            }
        }
    }
}

/// The place of a waiter. In a box, as each waiter holds it while it waits.
struct QueuePlace {
    rank: u32,
    /// When it was read.
    sample: Sample,
    /// Until when the waiter waits for a push.
    pause: Instant,
}

/// Asks once more. Returns the answer; or, for a waiter in the queue, its place. `earlier` keeps
/// whether the requests before were applied, and `foreign` since when other programs hold the lock.
async fn ask_once<Q: KeyQueues>(
    server: &Q,
    request: &Request,
    (subscription, until): (&Subscription, Instant),
    (earlier, foreign): (&mut Applied, &mut Foreign),
) -> Result<ControlFlow<Answer, Box<QueuePlace>>, Failed> {
    let over = until <= Instant::now();
    let ask = |budget, _| server.ask_queued(request, subscription, budget);
    let budget = Budget::until(until, server.facts().timeout);
    let asked = ask_until(server, request, budget, earlier, ask).await;
    // An earlier request may have joined the queue.
    let failed = |error| Failed { error, applied: Applied::Unknown };
    let (reply, sent_request) = asked.map_err(failed)?;
    let earlier = *earlier;
    // A waiter that is dropped with nothing in flight leaves the queue by one release.
    request.token.set_applied(earlier.and(Applied::Yes));
    let (holder, rank, server) = match &reply {
        Answer::Contended(Contention { holder, queue: Queueing::Behind(rank), at, .. })
            if !over =>
        {
            (holder, *rank, *at)
        }
        _ => return Ok(ControlFlow::Break(reply.after(earlier))),
    };
    request.ask.events().contended(holder, rank);
    let SentRequest { sent, connection, received } = sent_request;
    let sample = Sample { sent, connection, server };
    let soon = foreign.tick(rank, holder.owner.is_none(), Moment::now(), random::fraction());
    let tick = tick(rank, holder.free_within, received, random::fraction());
    let pause = Instant::now() + soon.map_or(tick, |soon| soon.min(tick));
    let queued = QueuePlace { rank, sample, pause: until.min(pause) };
    Ok(ControlFlow::Continue(Box::new(queued)))
}

/// How a request of a waiter was sent.
pub(crate) struct SentRequest {
    pub(crate) sent: Moment,
    /// The number of its connection, if that is known.
    pub(crate) connection: Option<NonZeroU64>,
    /// Whether the grant that follows can be received.
    pub(crate) received: bool,
}

impl AsRef<Answer> for (Answer, SentRequest) {
    fn as_ref(&self) -> &Answer {
        &self.0
    }
}

/// A reading of the server's clock.
#[derive(Debug, Clone, Copy)]
struct Sample {
    /// When the request was sent.
    sent: Moment,
    /// The connection that sent it, if that is known.
    connection: Option<NonZeroU64>,
    /// The server's clock when it answered, in microseconds.
    server: u64,
}

impl Sample {
    /// When the lease of a hand-off starts; `None` when the hand-off is older than the sample,
    /// whose answer is newer then, or came from another server, which has another clock. Also when
    /// half of the lease has passed by `now`: too little of it may be left.
    ///
    /// The server's clock shows how long after the sample the lock was handed off. The drift is
    /// subtracted, and the lease never starts after the push was received. A late push leaves less
    /// of the lease; counting from its receipt would count on an expired lock.
    fn start_of(&self, hand_off: &HandOff, now: Moment) -> Option<Moment> {
        if self.connection.is_none_or(|known| known.get() != hand_off.connection) {
            return None;
        }
        let later = Duration::from_micros(hand_off.at.checked_sub(self.server)?);
        let sent = self.sent.after(later - later / 100).min(hand_off.received);
        (now.since(sent) < hand_off.ttl / 2).then_some(sent)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    fn at(time: u64) -> Moment {
        Moment::at(ms(time))
    }

    fn hand_off(received_ms: u64, at_ms: u64) -> HandOff {
        let received = Moment::at(ms(received_ms));
        HandOff { received, connection: 1, at: at_ms * 1_000, ttl: ms(5_000), fences: None }
    }

    #[test]
    fn a_hand_off_counts_by_the_servers_clock_and_never_from_after_its_receipt() {
        let sent = Moment::at(ms(1_000));
        let connection = NonZeroU64::new(1);
        let sample = Sample { sent, connection, server: 70_000_000 };
        // A second after the sample on the server's clock; the message took four.
        let late = hand_off(6_000, 71_000);
        assert_eq!(sample.start_of(&late, at(2_000)), Some(Moment::at(ms(1_990))));
        // The server's clock has jumped ahead.
        let ahead = hand_off(1_500, 99_000);
        assert_eq!(sample.start_of(&ahead, at(2_000)), Some(Moment::at(ms(1_500))));
        // The push was in flight while the request was answered.
        let stale = hand_off(1_500, 69_999);
        assert_eq!(sample.start_of(&stale, at(2_000)), None);
    }

    #[test]
    fn a_hand_off_does_not_count_by_the_clock_of_another_server() {
        let sample =
            |connection| Sample { sent: Moment::at(ms(0)), connection, server: 70_000_000 };
        let known = NonZeroU64::new;
        let received = hand_off(1_000, 70_900);
        assert_eq!(sample(known(1)).start_of(&received, at(1_000)), Some(Moment::at(ms(891))));
        for other in [known(2), None] {
            assert_eq!(sample(other).start_of(&received, at(1_000)), None, "{other:?}");
        }
    }

    /// As in a process that was stopped. Its body would begin with less than half of the lease.
    #[test]
    fn a_hand_off_does_not_count_after_half_of_its_lease() {
        let sample = Sample { sent: at(0), connection: NonZeroU64::new(1), server: 70_000_000 };
        let received = hand_off(9_000, 71_000);
        assert_eq!(sample.start_of(&received, at(990 + 2_499)), Some(at(990)));
        assert_eq!(sample.start_of(&received, at(990 + 2_500)), None);
    }
}
