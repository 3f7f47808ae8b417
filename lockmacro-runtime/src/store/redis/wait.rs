//! Waiting for a lock: a place in line, a grant that comes by itself, and a question once in a
//! while in case that something was lost.

use std::num::NonZeroU64;
use std::ops::Deref;
use std::pin::pin;
use std::time::Duration;

use tokio::time::{Instant, timeout_at};

use crate::protocol::answer::{Answer, Failed, Grant, Queueing};
use crate::protocol::lease::late;
use crate::protocol::request::Request;
use crate::protocol::shutdown::Shutdown;
use crate::store::hand_off::{HandOff, Sample};
use crate::store::redis::client::budget::Budget;
use crate::store::redis::client::error::CallError;
use crate::store::redis::client::node::Node;
use crate::store::redis::client::retry::Retry;
use crate::store::redis::reply::{Reply, answer};
use crate::store::redis::scripts::ACQUIRE;
use crate::store::redis::store::{CONFIRM_WINDOW_MS, Redis};
use crate::store::tick::{Foreign, tick};
use crate::store::waiters::{Signal, Waiter};
use crate::value::companion::slot;
use crate::value::limits::{FOR_EVER, QUEUE_MAX, WAITER_TTL};
use crate::value::time::Moment;
use crate::value::token::hash_of;

impl Redis {
    /// Waits in line for at most `wait`, and no longer than its manager is there. It keeps what it
    /// is given, or borrows it.
    pub(crate) fn wait(
        redis: impl Deref<Target = Self> + Send + Sync,
        request: impl Deref<Target = Request> + Send + Sync,
        wait: Duration,
        shutdown: impl Deref<Target = Shutdown> + Send + Sync,
    ) -> impl Future<Output = Result<Answer, Failed>> + Send {
        let until = Instant::now() + wait.min(FOR_EVER);
        let (slot, lock) = (slot(request.key.as_str()), hash_of(request.key.as_str().as_bytes()));
        let waiter = redis.grants.waiters.join(slot, lock, request.token.bits());
        let (mut resent, mut foreign) = (false, Foreign::default());
        // No `async fn`, which keeps its arguments twice: everybody who waits carries this.
        async move {
            loop {
                // Boxed: it is large, and most of the time is spent without it.
                let told = Box::pin(async {
                    let (known, place) = ((&mut resent, &mut foreign), (&waiter, until));
                    shutdown.unless(pin!(redis.ask_until_told(&request, place, known))).await
                });
                let (sample, pause) = match told.await? {
                    Told::Answer(answer) => return Ok(answer),
                    Told::InLine { sample, pause } => (sample, pause),
                };
                let signal = timeout_at(pause, waiter.signal()).await;
                // It was alarmed when that changed.
                shutdown.check()?;
                if let Ok(Signal::Granted(hand_off)) = signal {
                    let HandOff { received: at, ttl, fence, .. } = *hand_off;
                    if let Some(sent) = hand_off.counts_from(sample)
                        && sent.elapsed() < ttl / 2
                    {
                        let fences = fence.into_iter().collect();
                        return Ok(Answer::Granted(Grant { sent, at, ttl, resent, fences }));
                    }
                    // Too little may be left: the next question confirms it, or stands in line.
                }
            }
        }
    }

    /// Asks once more. `resent` tells whether there was a question whose fate is unknown, `foreign`
    /// since when foreign clients hold the lock.
    async fn ask_until_told(
        &self,
        request: &Request,
        (waiter, until): (&Waiter, Instant),
        (resent, foreign): (&mut bool, &mut Foreign),
    ) -> Result<Told, Failed> {
        let over = until <= Instant::now();
        let mut retry = Retry::new(self.budget_while_waiting(until));
        request.settle(false);
        let (reply, question) = match self.ask_until_answered(request, waiter, &mut retry).await {
            Ok(answered) => answered,
            Err(error) => {
                // It may stand in line since an earlier question.
                let error = error.into_error(&request.key);
                return Err(Failed { error, written: true });
            }
        };
        *resent |= retry.unknown;
        let resent = *resent;
        // Who is dropped while nothing is on its way is out with one release.
        request.settle(!resent);
        let (owner, left, place) = match reply {
            Reply::Granted { sent, fences } => {
                let ttl = request.ttl;
                let grant = Grant { sent, at: sent, ttl, resent, fences };
                return Ok(Told::Answer(Answer::Granted(grant)));
            }
            Reply::Busy { owner, left, place, .. } => (owner, left, place),
        };
        let queue = match place {
            Some((Some(rank), server)) if !over => {
                let Question { sent, connection, received } = question;
                let sample = Sample { sent, connection, server };
                let soon = foreign.tick(rank, owner.is_none(), Moment::now(), fastrand::f64());
                let tick = tick(rank, left, received, fastrand::f64());
                let pause = Instant::now() + soon.map_or(tick, |soon| soon.min(tick));
                return Ok(Told::InLine { sample, pause: until.min(pause) });
            }
            Some((Some(rank), _)) => Queueing::Left(rank),
            _ => Queueing::Full,
        };
        Ok(Told::Answer(Answer::Busy { nth: 0, owner, left, queue, resent }))
    }

    /// Asks, again and again while the server is in trouble and there is time.
    async fn ask_until_answered(
        &self,
        request: &Request,
        waiter: &Waiter,
        retry: &mut Retry,
    ) -> Result<(Reply, Question), CallError> {
        loop {
            let transient = match self.ask_in_line(request, waiter, retry.budget).await {
                Ok((Reply::Granted { sent, .. }, _)) if late(sent, request.ttl) => {
                    self.too_slow(request)
                }
                Err(CallError::Transient(transient)) => transient,
                answered => return answered,
            };
            retry.after(transient).await?;
        }
    }

    async fn ask_in_line(
        &self,
        request: &Request,
        waiter: &Waiter,
        budget: Budget,
    ) -> Result<(Reply, Question), CallError> {
        if !self.rights.are_known() {
            self.ask_rights_for(request, budget).await?;
        }
        let ask = |node: Node| async move { self.ask_node(&node, request, waiter, budget).await };
        self.nodes.route(|| waiter.slot(), budget, ask).await
    }

    async fn ask_node(
        &self,
        node: &Node,
        request: &Request,
        waiter: &Waiter,
        budget: Budget,
    ) -> Result<(Reply, Question), CallError> {
        // Before the question: a grant may be on its way as soon as that is answered.
        let received = node.listen(waiter.slot(), budget).await?;
        let ttl = request.ttl.as_millis().to_string();
        let (fenced, probe) = (u8::from(request.fenced), u8::from(received));
        let (number, channel) = (waiter.number(), self.grants.channel(waiter.slot()));
        let args = [
            request.token.expose(),
            &ttl,
            &fenced.to_string(),
            CONFIRM_WINDOW_MS,
            &self.fence_retention,
            &QUEUE_MAX.to_string(),
            &WAITER_TTL.as_millis().to_string(),
            &format!("{ttl}|{fenced}|{probe}|{number}|{channel}"),
        ];
        let (sent, before) = (Moment::now(), node.connection());
        let reply = node.eval(&ACQUIRE, request.keys(), &args, budget).await?;
        // One that is there before and after was the only one: none comes back.
        let connection = before.filter(|before| node.connection() == Some(*before));
        let connection = connection.and_then(NonZeroU64::new);
        Ok((answer(reply, sent)?, Question { sent, connection, received }))
    }

    /// A server in trouble is given as long as the caller waits anyway.
    pub(crate) fn budget_while_waiting(&self, until: Instant) -> Budget {
        let budget = self.budget();
        Budget { until: until.max(Instant::now() + budget.answer), ..budget }
    }
}

/// How a question in line was asked.
struct Question {
    sent: Moment,
    /// By which connection, if that is known.
    connection: Option<NonZeroU64>,
    /// Whether a grant that follows is heard.
    received: bool,
}

/// What came of a question in line.
enum Told {
    Answer(Answer),
    /// There is a place, and the next question is due at `pause`.
    InLine {
        sample: Sample,
        pause: Instant,
    },
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::value::token::Token;

    /// Half of it is tokio's timer.
    #[test]
    fn who_stands_in_line_is_small() {
        let redis = Redis::new("redis://127.0.0.1:1", Duration::from_secs(1)).unwrap();
        let token = Token::new("test", "", "", Moment::now()).unwrap();
        let request = Request::new("order:42".into(), token, Duration::from_secs(30));
        let shutdown = Shutdown::default();
        let waiting = size_of_val(&Redis::wait(&redis, &request, Duration::MAX, &shutdown));
        assert!(waiting <= 224, "{waiting}");
    }
}
