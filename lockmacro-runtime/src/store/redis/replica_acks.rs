//! Renewals that replicas have to acknowledge.

use std::time::Duration;

use redis::Value;
use tokio::time::Instant;

use crate::protocol::answer::Asked;
use crate::protocol::request::Claim;
use crate::store::join::held_all;
use crate::store::redis::client::budget::Patience;
use crate::store::redis::client::error::{Trouble, unexpected};
use crate::store::redis::client::node::Node;
use crate::store::redis::client::replicas::Replicated;
use crate::store::redis::client::retry::Tries;
use crate::store::redis::scripts::{RENEW, RENEW_ALL};
use crate::store::redis::store::Redis;
use crate::value::companion::slot;
use crate::value::error::LockError;

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
        let script = if claim.several().is_empty() { &RENEW } else { &RENEW_ALL };
        let keys = claim.keys();
        let eval = |node: Node| async move {
            node.eval_acknowledged(script, keys, args, replicated, patience).await
        };
        self.nodes.route(|| slot(claim.key.as_str()), patience, eval).await
    }
}
