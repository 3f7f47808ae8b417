//! Renewals that replicas have to acknowledge.

use std::time::Duration;

use redis::Value;

use crate::protocol::answer::Asked;
use crate::protocol::request::Request;
use crate::store::join::held_all;
use crate::store::redis::client::budget::{Budget, Retry};
use crate::store::redis::client::error::{CallError, unexpected};
use crate::store::redis::client::node::Node;
use crate::store::redis::client::url::ReplicaAcks;
use crate::store::redis::scripts::renew_script;
use crate::store::redis::store::Redis;
use crate::value::companion::slot;
use crate::value::error::LockError;
use crate::value::time::Instant;

impl Redis {
    pub(crate) fn is_replicated(&self) -> bool {
        self.replicated.is_some()
    }

    /// Renews a lock and waits for replicas to acknowledge that. Transient errors are retried for
    /// at most `within`; a call that was sent by then still has its full time.
    pub(crate) fn renew_acknowledged<'a>(
        &'a self,
        request: &'a Request,
        ttl: Duration,
        within: Duration,
    ) -> Asked<'a, Result<bool, LockError>> {
        Box::pin(async move {
            let Some(replicated) = self.replicated else {
                return self.renew(request, ttl, true).await;
            };
            let replicated = replicated.within(ttl.max(request.ttl));
            let answer = self.renewal_answer(request, ttl).min(self.brief().answer);
            let answer = answer + replicated.timeout;
            let until = Instant::now() + self.timeout.min(within);
            let mut retry = Retry::new(Budget { answer, until, strict: true });
            let milliseconds = ttl.as_millis().to_string();
            let args = [request.token.expose(), &milliseconds];
            let ask = |budget, _| async move {
                match self.ask_replicas(request, &args, replicated, budget).await {
                    // The keys are renewed one by one then, so a retry is of no use.
                    Err(CallError::Split(_)) if !request.several().is_empty() => Ok(None),
                    answer => answer.map(Some),
                }
            };
            match retry.repeat(ask).await {
                Ok(Some((Value::Int(1), acked))) if acked >= replicated.acks => Ok(true),
                Ok(Some((Value::Int(1), acked))) => {
                    let (key, wanted) = (request.key.clone(), replicated.acks);
                    let server = self.server_of(&key).unwrap_or_default();
                    Err(LockError::InsufficientReplicas { key, acked, wanted, server })
                }
                // The key holds something else now, and not the token.
                Ok(Some((Value::Int(0), _))) | Err(CallError::NotALock) => Ok(false),
                Ok(Some((other, _))) => Err(unexpected(&other).into_error(&request.key)),
                Ok(None) => {
                    let parts = request.each();
                    held_all(parts.iter().map(|part| self.renew_acknowledged(part, ttl, within)))
                        .await
                }
                Err(error) => Err(error.into_error(&request.key)),
            }
        })
    }

    async fn ask_replicas(
        &self,
        request: &Request,
        args: &[&str],
        replicated: ReplicaAcks,
        budget: Budget,
    ) -> Result<(Value, u32), CallError> {
        let call = renew_script(request).with(request.keys(), args);
        let eval =
            |node: Node| async move { node.eval_acknowledged(call, replicated, budget).await };
        self.nodes.route(|| slot(request.key.as_str()), budget, eval).await
    }
}
