//! Waiting for a lock: a place in line, a grant that comes by itself, and a question once in a
//! while in case that something was lost.

use std::pin::Pin;
use std::time::Duration;

use tokio::time::{Instant, timeout};

use super::node::Patience;
use super::tries::Tries;
use super::trouble::{Passing, Trouble};
use super::{CLAIM_MS, Redis, Reply, late};
use crate::backend::{Answer, Claim, Failed, Grant, Line};
use crate::clock::Moment;
use crate::error::Unavailability;
use crate::waiting::{Handover, News, PLACE, PLACES, Waiter, tick};

impl Redis {
    /// Waits in line for at most `wait`.
    ///
    /// Boxed: it is large, and who does not wait must not carry it. Without its type: that would be
    /// too deep for the compiler's default `recursion_limit` in a caller's program.
    pub(super) fn wait<'a>(
        &'a self,
        claim: &'a Claim,
        wait: Duration,
    ) -> Pin<Box<dyn Future<Output = Result<Answer, Failed>> + Send + 'a>> {
        Box::pin(self.stand_in_line(claim, wait))
    }

    async fn stand_in_line(&self, claim: &Claim, wait: Duration) -> Result<Answer, Failed> {
        let until = Instant::now().checked_add(wait);
        let waiter = self.node.waiters().join();
        let mut resent = false;
        loop {
            let mut tries = Tries::new(self.patience_while_waiting(until));
            let (reply, heard) = loop {
                let passing = match self.ask_in_line(claim, &waiter, tries.patience).await {
                    Ok((Reply::Granted { sent, .. }, _)) if late(sent, claim.ttl) => {
                        let detail = format!("the ttl is {:?}", claim.ttl);
                        let reason = Unavailability::TooSlow;
                        Ok(Passing { reason, detail, unknown: true, replace: false })
                    }
                    Ok(answered) => break answered,
                    Err(Trouble::Passing(passing)) => Ok(passing),
                    Err(trouble) => Err(trouble),
                };
                let trouble = match passing {
                    Ok(passing) => tries.after(passing).await.err(),
                    Err(trouble) => Some(trouble),
                };
                if let Some(trouble) = trouble {
                    // It may stand in line since an earlier question.
                    return Err(Failed { error: trouble.into_error(&claim.key), written: true });
                }
            };
            resent |= tries.unknown;
            let (owner, left, place) = match reply {
                Reply::Granted { sent, fences } => {
                    let ttl = claim.ttl;
                    return Ok(Answer::Granted(Grant { sent, at: sent, ttl, resent, fences }));
                }
                Reply::Busy { owner, left, place, .. } => (owner, left, place),
            };
            let Some((Some(rank), sample)) = place else {
                return Ok(Answer::Busy { nth: 0, owner, left, line: Line::Full, resent });
            };
            let pause = tick(rank, left, heard, fastrand::f64());
            let rest = until.map(|until| until.saturating_duration_since(Instant::now()));
            match timeout(rest.map_or(pause, |rest| rest.min(pause)), waiter.news()).await {
                Ok(News::Granted(handover)) => {
                    let sent = handover.counts_from(sample);
                    let used = Moment::now().since(sent);
                    if used < handover.ttl / 2 {
                        let Handover { heard: at, ttl, fence, .. } = handover;
                        let fences = fence.into_iter().collect();
                        return Ok(Answer::Granted(Grant { sent, at, ttl, resent, fences }));
                    }
                    // Too little is left of it: the next question confirms it, or stands in line.
                }
                Ok(News::Unknown) => {}
                Err(_) if rest.is_some_and(|rest| rest <= pause) => {
                    let line = Line::Left(rank);
                    return Ok(Answer::Busy { nth: 0, owner, left, line, resent });
                }
                Err(_) => {}
            }
        }
    }

    async fn ask_in_line(
        &self,
        claim: &Claim,
        waiter: &Waiter,
        patience: Patience,
    ) -> Result<(Reply, bool), Trouble> {
        // Before the question: a grant may be on its way as soon as that is answered.
        let heard = self.node.listen(patience).await?;
        let ttl = claim.ttl.as_millis().to_string();
        let (fenced, probe) = (u8::from(claim.fenced), u8::from(heard));
        let (number, channel) = (waiter.number, self.node.channel());
        let args = [
            claim.token.expose(),
            &ttl,
            &fenced.to_string(),
            CLAIM_MS,
            &PLACES.to_string(),
            &PLACE.as_millis().to_string(),
            &format!("{ttl}|{fenced}|{probe}|{number}|{channel}"),
        ];
        Ok((self.question(claim, &args, patience).await?, heard))
    }

    /// A server in trouble is given as long as the caller waits anyway.
    fn patience_while_waiting(&self, until: Option<Instant>) -> Patience {
        let patience = self.patience();
        Patience {
            until: until
                .map_or(patience.until, |until| until.max(Instant::now() + patience.answer)),
            ..patience
        }
    }
}
