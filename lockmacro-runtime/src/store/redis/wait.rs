//! The requests of waiters, which join the queue.

use std::num::NonZeroU64;

use super::store::{CONFIRM_WINDOW_MS, Redis};
use crate::protocol::answer::{Answer, Queueing};
use crate::protocol::request::Request;
use crate::store::redis::client::node::Node;
use crate::store::redis::reply::answer;
use crate::store::redis::scripts::ACQUIRE;
use crate::store::remote::budget::Budget;
use crate::store::remote::error::RemoteError;
use crate::store::remote::wait::{KeyQueues, SentRequest};
use crate::store::subscriptions::Subscription;
use crate::sys::time::Moment;
use crate::value::applied::Applied;
use crate::value::companion::slot;
use crate::value::limits::{QUEUE_MAX, WAITER_TTL};

impl KeyQueues for Redis {
    fn subscribe(&self, request: &Request) -> Subscription {
        self.grants.subscriptions.join(slot(request.ask.key.as_str()), request.token.secret.bits())
    }

    /// By a script that merges the calls of many.
    async fn ask_first(&self, request: &Request) -> Result<Option<Answer>, RemoteError> {
        let budget = self.brief();
        if !self.may_use_every_key(budget).await? || request.ask.fenced {
            return Ok(None);
        }
        self.share(request, budget).await
    }

    async fn ask_queued(
        &self,
        request: &Request,
        subscription: &Subscription,
        budget: Budget,
    ) -> Result<(Answer, SentRequest), RemoteError> {
        // The first request of a manager checks the rights.
        self.may_use_every_key(budget).await?;
        let ask = |node| self.ask_node(node, request, subscription, budget);
        self.nodes.route(|| subscription.slot(), budget, ask).await
    }
}

impl Redis {
    async fn ask_node(
        &self,
        node: Node,
        request: &Request,
        subscription: &Subscription,
        budget: Budget,
    ) -> Result<(Answer, SentRequest), RemoteError> {
        // Before the request: a grant may be sent as soon as the request is answered.
        let received = node.listen(subscription.slot(), budget).await?;
        let ttl = request.ask.ttl.as_millis().to_string();
        let fenced = u8::from(request.ask.needs_fence_now());
        let probe = u8::from(received);
        let id = subscription.next_id();
        let channel = self.grants.channel(subscription.slot());
        let limit = request.ask.key.mode().limit().to_string();
        let callers = request.ask.events().callers();
        let usual = request.ask.events().usual_hold();
        let usual = usual.map_or_else(String::new, |usual| usual.as_millis().to_string());
        let args = [
            request.token.secret.expose(),
            &ttl,
            &fenced.to_string(),
            &CONFIRM_WINDOW_MS,
            &self.fence_retention,
            &limit,
            "0",
            &QUEUE_MAX.to_string(),
            &WAITER_TTL.as_millis().to_string(),
            &format!("{ttl}|{fenced}|{probe}|{id}|{channel}|{callers}|{limit}|{usual}"),
        ];
        let sent = Moment::now();
        let before = node.connection();
        request.token.set_applied(Applied::Unknown);
        let reply = node.eval(ACQUIRE.with(request.ask.keys(), &args), budget).await?;
        // The same connection before and after means that there was no other in between.
        let connection = before.filter(|before| node.connection() == Some(*before));
        let connection = connection.and_then(NonZeroU64::new);
        let reply = answer(request, sent, reply)?;
        if let Answer::Contended(contention) = &reply
            && contention.queue != Queueing::Outside
        {
            node.connector().clock.note(contention.at);
        }
        Ok((reply, SentRequest { sent, connection, received }))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use super::*;
    use crate::protocol::ask::Ask;
    use crate::store::remote::wait::wait;

    /// Half of the size is tokio's timer.
    #[test]
    fn a_waiting_future_is_small() {
        let redis = Arc::new(Redis::at("redis://127.0.0.1:1", Duration::from_secs(1)));
        let ask = Ask::new("order:42".into(), Duration::from_secs(30), Moment::now());
        let waiting = wait(redis, Request::of(ask), Duration::MAX, Arc::default());
        let waiting = size_of_val(&waiting);
        assert!(waiting <= 232, "{waiting}");
    }
}
