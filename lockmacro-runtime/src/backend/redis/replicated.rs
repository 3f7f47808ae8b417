//! Locks that count only when replicas have acknowledged them.

use std::time::Duration;

use redis::Value;
use tokio::time::Instant;

use super::node::Patience;
use super::script::{RENEW, RENEW_EACH};
use super::tries::Tries;
use super::trouble::Trouble;
use super::url::{duration, invalid};
use super::{Nodes, Redis, unexpected};
use crate::backend::parts::held_all;
use crate::backend::{Asked, Claim};
use crate::error::LockError;
use crate::side::slot;

/// How long replicas are waited for when nothing is said about it.
const TIMEOUT: Duration = Duration::from_millis(500);
/// Nobody waits longer for a replica.
const TIMEOUT_MAX: Duration = Duration::from_secs(60 * 60);

/// So many replicas have to acknowledge a lock, and are waited for that long.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Replicated {
    pub(super) acks: u32,
    timeout: Duration,
}

impl Replicated {
    pub(crate) fn new(acks: u32, timeout: Duration) -> Result<Self, LockError> {
        if acks == 0 {
            return Err(invalid(
                "`replicated` asks for no replica: leave it out, or name a number",
            ));
        }
        Ok(Self { acks, timeout: timeout.min(TIMEOUT_MAX) })
    }

    /// Reads the settings of a URL.
    pub(super) fn read(
        acks: Option<&str>,
        within: Option<&str>,
    ) -> Result<Option<Self>, LockError> {
        let timeout = match within {
            Some(within) => duration(within).ok_or_else(|| {
                invalid("`replicated_timeout` is no time such as `100ms` or `2s`")
            })?,
            None => TIMEOUT,
        };
        let Some(acks) = acks else {
            return match within {
                Some(_) => Err(invalid("`replicated_timeout` is for `replicated`")),
                None => Ok(None),
            };
        };
        let acks = acks.parse().map_err(|_| invalid("`replicated` is no number of replicas"))?;
        Self::new(acks, timeout).map(Some)
    }

    /// The same, but a lease must not be used up by waiting.
    fn within(self, ttl: Duration) -> Self {
        Self { timeout: self.timeout.min(ttl / 4), ..self }
    }

    /// As WAIT takes it, for which 0 is for ever.
    pub(super) fn milliseconds(self) -> u64 {
        u64::try_from(self.timeout.as_millis()).unwrap_or(u64::MAX).max(1)
    }
}

/// Why locks that are kept there cannot be replicated.
pub(crate) fn not_replicated(why: &str) -> LockError {
    invalid(format!("`replicated` is for a server with replicas, and {why}"))
}

impl Redis {
    pub(crate) fn is_replicated(&self) -> bool {
        self.replicated.is_some()
    }

    /// Has replicas acknowledge the locks, unless the URL has its own word on that.
    pub(crate) fn replicate(&mut self, replicated: Replicated) {
        self.replicated.get_or_insert(replicated);
    }

    /// Lets the ttl run anew, and waits for replicas to acknowledge that. Trouble is given no longer
    /// than `within`, but what was sent by then has its time.
    pub(crate) fn renew_acknowledged<'a>(
        &'a self,
        claim: &'a Claim,
        ttl: Duration,
        within: Duration,
    ) -> Asked<'a, Result<bool, LockError>> {
        Box::pin(async move {
            let Some(replicated) = self.replicated else { return self.renew(claim, ttl).await };
            let replicated = replicated.within(ttl.max(claim.ttl));
            let answer = self.renewal_answer(claim, ttl).min(self.brief().answer);
            let answer = answer + replicated.timeout;
            let until = Instant::now() + self.timeout.min(within);
            let mut tries = Tries::new(Patience { answer, until, strict: true });
            let milliseconds = ttl.as_millis().to_string();
            let args = [claim.token.expose(), &milliseconds];
            loop {
                let answer = self.ask_replicas(claim, &args, replicated, tries.patience).await;
                let trouble = match answer {
                    Ok((Value::Int(1), acked)) if acked >= replicated.acks => return Ok(true),
                    Ok((Value::Int(1), acked)) => {
                        let (key, wanted) = (claim.key.clone(), replicated.acks);
                        let server = self.server_of(&key).into();
                        return Err(LockError::InsufficientReplicas { key, acked, wanted, server });
                    }
                    // Whatever is there now, it is not ours.
                    Ok((Value::Int(0), _)) | Err(Trouble::NotALock) => return Ok(false),
                    Ok((other, _)) => Some(unexpected(&other)),
                    Err(Trouble::Passing(passing))
                        if passing.is_split() && !claim.several().is_empty() =>
                    {
                        let parts = claim.each();
                        return held_all(parts.iter().map(|part| -> Asked<'_, _> {
                            Box::pin(self.renew_acknowledged(part, ttl, within))
                        }))
                        .await;
                    }
                    Err(Trouble::Passing(passing)) => tries.after(passing).await.err(),
                    Err(trouble) => Some(trouble),
                };
                if let Some(trouble) = trouble {
                    return Err(trouble.into_error(&claim.key));
                }
            }
        })
    }

    async fn ask_replicas(
        &self,
        claim: &Claim,
        args: &[&str],
        replicated: Replicated,
        patience: Patience,
    ) -> Result<(Value, u32), Trouble> {
        let script = if claim.several().is_empty() { &RENEW } else { &RENEW_EACH };
        let keys = claim.keys();
        let cluster = match &self.nodes {
            Nodes::One(node) => {
                return node.eval_acknowledged(script, keys, args, replicated, patience).await;
            }
            Nodes::Cluster(cluster) => cluster,
        };
        let mut way = cluster.way(slot(claim.key.as_str()), patience).await?;
        loop {
            let node = way.node.clone();
            let reply = node.eval_acknowledged(script, keys, args, replicated, patience).await;
            if let Some(reply) = way.follow(reply).await {
                return reply;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_says_how_many_and_for_how_long() {
        let read = |acks, within| Replicated::read(acks, within).map_err(|error| error.to_string());
        let is = |acks, ms| Ok(Some(Replicated { acks, timeout: Duration::from_millis(ms) }));
        assert_eq!(read(None, None), Ok(None));
        assert_eq!(read(Some("2"), None), is(2, 500));
        assert_eq!(read(Some("1"), Some("100ms")), is(1, 100));
        assert_eq!(read(Some("1"), Some("2s")), is(1, 2_000));
        assert_eq!(read(Some("1"), Some("2m")), is(1, 120_000));
        for (acks, within) in [
            (Some("0"), None),
            (Some("-1"), None),
            (Some(""), None),
            (Some("1"), Some("100")),
            (Some("1"), Some("1w")),
            (Some("1"), Some("")),
            (None, Some("100ms")),
        ] {
            assert!(read(acks, within).is_err(), "{acks:?} {within:?}");
        }
    }

    #[test]
    fn a_lease_is_not_used_up_by_waiting_and_nobody_waits_for_ever() {
        let replicated = Replicated { acks: 1, timeout: TIMEOUT };
        assert_eq!(replicated.within(Duration::from_secs(30)).milliseconds(), 500);
        assert_eq!(replicated.within(Duration::from_millis(400)).milliseconds(), 100);
        assert_eq!(Replicated { acks: 1, timeout: Duration::ZERO }.milliseconds(), 1);
    }
}
