//! Waiting for a lock: a place in line, a grant that comes by itself, and a question once in a
//! while in case that something was lost.

use std::num::NonZeroU64;
use std::ops::Deref;
use std::pin::pin;
use std::time::Duration;

use tokio::time::{Instant, timeout_at};

use crate::protocol::answer::{Answer, Failed, Grant, Line};
use crate::protocol::lease::late;
use crate::protocol::request::Claim;
use crate::protocol::shutdown::Closing;
use crate::store::redis::client::budget::Patience;
use crate::store::redis::client::error::Trouble;
use crate::store::redis::client::node::Node;
use crate::store::redis::client::retry::Tries;
use crate::store::redis::reply::{Reply, answer};
use crate::store::redis::scripts::ACQUIRE;
use crate::store::redis::store::{CLAIM_MS, Redis};
use crate::store::waiters::{Foreign, Handover, News, Sample, Waiter, tick};
use crate::value::companion::slot;
use crate::value::limits::{FOR_EVER, PLACE, PLACES};
use crate::value::time::Moment;
use crate::value::token::hash_of;

impl Redis {
    /// Waits in line for at most `wait`, and no longer than its manager is there. It keeps what it
    /// is given, or borrows it.
    pub(crate) fn wait(
        redis: impl Deref<Target = Self> + Send + Sync,
        claim: impl Deref<Target = Claim> + Send + Sync,
        wait: Duration,
        closing: impl Deref<Target = Closing> + Send + Sync,
    ) -> impl Future<Output = Result<Answer, Failed>> + Send {
        let until = Instant::now() + wait.min(FOR_EVER);
        let (slot, lock) = (slot(claim.key.as_str()), hash_of(claim.key.as_str().as_bytes()));
        let waiter = redis.grants.waiters.join(slot, lock, claim.token.bits());
        let (mut resent, mut foreign) = (false, Foreign::default());
        // No `async fn`, which keeps its arguments twice: everybody who waits carries this.
        async move {
            loop {
                // Boxed: it is large, and most of the time is spent without it.
                let told = Box::pin(async {
                    let (known, place) = ((&mut resent, &mut foreign), (&waiter, until));
                    closing.unless(pin!(redis.ask_until_told(&claim, place, known))).await
                });
                let (sample, pause) = match told.await? {
                    Told::Answer(answer) => return Ok(answer),
                    Told::InLine { sample, pause } => (sample, pause),
                };
                let news = timeout_at(pause, waiter.news()).await;
                // It was alarmed when that changed.
                closing.check()?;
                if let Ok(News::Granted(handover)) = news {
                    let Handover { heard: at, ttl, fence, .. } = *handover;
                    if let Some(sent) = handover.counts_from(sample)
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
        claim: &Claim,
        (waiter, until): (&Waiter, Instant),
        (resent, foreign): (&mut bool, &mut Foreign),
    ) -> Result<Told, Failed> {
        let over = until <= Instant::now();
        let mut tries = Tries::new(self.patience_while_waiting(until));
        claim.settle(false);
        let (reply, question) = match self.ask_until_answered(claim, waiter, &mut tries).await {
            Ok(answered) => answered,
            Err(trouble) => {
                // It may stand in line since an earlier question.
                let error = trouble.into_error(&claim.key);
                return Err(Failed { error, written: true });
            }
        };
        *resent |= tries.unknown;
        let resent = *resent;
        // Who is dropped while nothing is on its way is out with one release.
        claim.settle(!resent);
        let (owner, left, place) = match reply {
            Reply::Granted { sent, fences } => {
                let ttl = claim.ttl;
                let grant = Grant { sent, at: sent, ttl, resent, fences };
                return Ok(Told::Answer(Answer::Granted(grant)));
            }
            Reply::Busy { owner, left, place, .. } => (owner, left, place),
        };
        let line = match place {
            Some((Some(rank), server)) if !over => {
                let Question { sent, connection, heard } = question;
                let sample = Sample { sent, connection, server };
                let soon = foreign.tick(rank, owner.is_none(), Moment::now(), fastrand::f64());
                let tick = tick(rank, left, heard, fastrand::f64());
                let pause = Instant::now() + soon.map_or(tick, |soon| soon.min(tick));
                return Ok(Told::InLine { sample, pause: until.min(pause) });
            }
            Some((Some(rank), _)) => Line::Left(rank),
            _ => Line::Full,
        };
        Ok(Told::Answer(Answer::Busy { nth: 0, owner, left, line, resent }))
    }

    /// Asks, again and again while the server is in trouble and there is time.
    async fn ask_until_answered(
        &self,
        claim: &Claim,
        waiter: &Waiter,
        tries: &mut Tries,
    ) -> Result<(Reply, Question), Trouble> {
        loop {
            let passing = match self.ask_in_line(claim, waiter, tries.patience).await {
                Ok((Reply::Granted { sent, .. }, _)) if late(sent, claim.ttl) => {
                    self.too_slow(claim)
                }
                Err(Trouble::Passing(passing)) => passing,
                answered => return answered,
            };
            tries.after(passing).await?;
        }
    }

    async fn ask_in_line(
        &self,
        claim: &Claim,
        waiter: &Waiter,
        patience: Patience,
    ) -> Result<(Reply, Question), Trouble> {
        if !self.rights.are_known() {
            self.ask_rights_for(claim, patience).await?;
        }
        let ask = |node: Node| async move { self.ask_node(&node, claim, waiter, patience).await };
        self.nodes.route(|| waiter.slot(), patience, ask).await
    }

    async fn ask_node(
        &self,
        node: &Node,
        claim: &Claim,
        waiter: &Waiter,
        patience: Patience,
    ) -> Result<(Reply, Question), Trouble> {
        // Before the question: a grant may be on its way as soon as that is answered.
        let heard = node.listen(waiter.slot(), patience).await?;
        let ttl = claim.ttl.as_millis().to_string();
        let (fenced, probe) = (u8::from(claim.fenced), u8::from(heard));
        let (number, channel) = (waiter.number(), self.grants.channel(waiter.slot()));
        let args = [
            claim.token.expose(),
            &ttl,
            &fenced.to_string(),
            CLAIM_MS,
            &self.fence_retention,
            &PLACES.to_string(),
            &PLACE.as_millis().to_string(),
            &format!("{ttl}|{fenced}|{probe}|{number}|{channel}"),
        ];
        let (sent, before) = (Moment::now(), node.connection());
        let reply = node.eval(&ACQUIRE, claim.keys(), &args, patience).await?;
        // One that is there before and after was the only one: none comes back.
        let connection = before.filter(|before| node.connection() == Some(*before));
        let connection = connection.and_then(NonZeroU64::new);
        Ok((answer(reply, sent)?, Question { sent, connection, heard }))
    }

    /// A server in trouble is given as long as the caller waits anyway.
    pub(crate) fn patience_while_waiting(&self, until: Instant) -> Patience {
        let patience = self.patience();
        Patience { until: until.max(Instant::now() + patience.answer), ..patience }
    }
}

/// How a question in line was asked.
struct Question {
    sent: Moment,
    /// By which connection, if that is known.
    connection: Option<NonZeroU64>,
    /// Whether a grant that follows is heard.
    heard: bool,
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
        let claim = Claim::new("order:42".into(), token, Duration::from_secs(30));
        let closing = Closing::default();
        let waiting = size_of_val(&Redis::wait(&redis, &claim, Duration::MAX, &closing));
        assert!(waiting <= 224, "{waiting}");
    }
}
