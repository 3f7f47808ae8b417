//! Locks on one Redis server or cluster: acquiring by `SET NX PX` or a script, and retries.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, LazyLock, OnceLock};
use std::time::Duration;

use redis::{Cmd, Value};

use crate::protocol::answer::{Answer, Asked, Failed, Grant, Queueing};
use crate::protocol::lease::{late, too_slow};
use crate::protocol::request::Request;
use crate::store::redis::client::budget::{Budget, CALLS_PER_TIMEOUT, Retry};
use crate::store::redis::client::error::{CallError, Transient, unexpected};
use crate::store::redis::client::failover::Failover;
use crate::store::redis::client::script::ScriptCall;
use crate::store::redis::client::subscriptions::Grants;
use crate::store::redis::client::url::{Addresses, Deployment, ReplicaAcks};
use crate::store::redis::reply::{Reply, answer, parsed};
use crate::store::redis::scripts::{ACQUIRE, ACQUIRE_ALL, ACQUIRE_SHARED};
use crate::store::redis::topology::route::Topology;
use crate::store::servers::Servers;
use crate::store::waiters::AbandonedTokens;
use crate::value::applied::Applied;
use crate::value::companion::slot;
use crate::value::error::{LockError, Unavailability};
use crate::value::fence::RETENTION;
use crate::value::holder::Holder;
use crate::value::key::LockKey;
use crate::value::limits::CONFIRM_WINDOW;
use crate::value::time::{Instant, Moment};
#[cfg(test)]
use crate::value::url::Url;

/// [`CONFIRM_WINDOW`](crate::value::limits::CONFIRM_WINDOW) in milliseconds, as the scripts take
/// it.
pub(crate) static CONFIRM_WINDOW_MS: LazyLock<String> =
    LazyLock::new(|| CONFIRM_WINDOW.as_millis().to_string());

/// Most requests that pass dead waiters. It is enough for a full queue: each request passes 128
/// of them, see `queue.lua`.
const PASSES_MAX: usize = 128;

#[derive(Debug)]
pub(crate) struct Redis {
    pub(crate) nodes: Topology,
    /// The state that all connections of the manager share.
    changes: Arc<Failover>,
    /// Whether another server may take over at any time.
    fails_over: bool,
    /// Delivers grants to the waiters.
    pub(crate) grants: Arc<Grants>,
    pub(crate) timeout: Duration,
    /// Whether the server wants the keys of a script in one slot, as a CROSSSLOT error has shown.
    slots: Arc<AtomicBool>,
    /// The replicas that have to acknowledge a lock, if any.
    pub(crate) replicated: Option<ReplicaAcks>,
    /// The retention of a key's last fence in milliseconds, as the scripts take it.
    pub(crate) fence_retention: Arc<str>,
    /// Whether the user may use every key, as the last check of the rights found. Otherwise a lock
    /// that a plain SET is granted may not be releasable, because its companion keys are denied.
    pub(crate) every_key: Arc<OnceLock<bool>>,
    /// Whether callers without a wait fail at once while their server is lost.
    pub(crate) fails_fast: bool,
}

impl Redis {
    /// Locks on these servers, not connected yet. No call takes longer than `timeout`. The keys
    /// have the prefix already; the names of channels get it here.
    pub(crate) fn new(servers: &Deployment, timeout: Duration, key_prefix: &str) -> Self {
        let is_cluster = matches!(servers.at, Addresses::Cluster(_));
        let fails_over = !matches!(servers.at, Addresses::One(_));
        let (grants, changes) = (Grants::new(is_cluster, key_prefix), Arc::default());
        let nodes = Topology::new(servers, timeout, &changes, &grants);
        let slots = Arc::new(AtomicBool::new(is_cluster));
        let fence_retention = servers.fence_retention.unwrap_or(RETENTION).as_millis();
        Self {
            nodes,
            changes,
            fails_over,
            grants,
            timeout,
            slots,
            replicated: servers.replicated,
            fence_retention: fence_retention.to_string().into(),
            every_key: Arc::default(),
            fails_fast: false,
        }
    }

    /// The same locks, through connections of their own.
    pub(crate) fn apart(&self) -> Self {
        let (slots, every_key) = (Arc::clone(&self.slots), Arc::clone(&self.every_key));
        let fence_retention = Arc::clone(&self.fence_retention);
        let (grants, changes) = (self.grants.apart(), Arc::clone(&self.changes));
        let nodes = self.nodes.apart(&grants);
        Self { nodes, changes, grants, slots, fence_retention, every_key, ..*self }
    }

    /// Connects, checks the user's rights, and refuses a replica.
    pub(crate) async fn ready(&self) -> Result<(), LockError> {
        // No error here names a key.
        let nothing = LockKey::from("");
        let check = |budget, _| self.check_server(true, budget);
        let ready = Retry::new(self.budget()).repeat(check).await;
        ready.map_err(|error| error.into_error(&nothing))
    }

    /// Whether a server is lost, which was logged.
    pub(crate) fn is_any_lost(&self) -> bool {
        self.changes.healths().is_any_lost()
    }

    /// The host and port of the server that has a key, if it is known.
    pub(crate) fn server_of(&self, key: &LockKey) -> Option<Box<str>> {
        self.nodes.node_of(key).map(|node| node.server().into())
    }

    /// Refuses a grant that arrived after its lease had ended.
    pub(crate) fn in_time(&self, request: &Request, reply: Reply) -> Result<Reply, CallError> {
        match reply {
            Reply::Granted(grant) if late(grant.sent, grant.ttl) => {
                let detail = too_slow(grant.ttl);
                let transient = Transient::new(Unavailability::TooSlow, detail, Applied::Unknown);
                let server = self.server_of(&request.key);
                Err(CallError::Transient(Transient { server, ..transient }))
            }
            reply => Ok(reply),
        }
    }

    /// Asks for a lock. Transient errors are retried within the manager's timeout, or until `until`
    /// for a caller that waits.
    pub(crate) async fn acquire(
        &self,
        request: &Request,
        until: Option<Instant>,
    ) -> Result<Answer, Failed> {
        // The first request of a waiter does not wait either.
        if until.is_none() && !request.only_if_free && self.is_lost(request) {
            Box::pin(self.refuse_lost(request))
                .await
                .map_err(|error| Failed { error, applied: Applied::No })?;
        }
        let waiting = until.map(|until| self.budget_while_waiting(until));
        let mut retry = Retry::new(waiting.unwrap_or_else(|| self.budget()));
        let ask = |budget, earlier: Applied| async move {
            // A plain SET would not recognize its own token from an earlier try.
            let reply = self.ask(request, !earlier.may_be(), budget).await?;
            self.in_time(request, reply)
        };
        let mut passes = PASSES_MAX;
        loop {
            let reply = retry.repeat(ask).await.map_err(|error| {
                let error = error.into_error(&request.key);
                Failed { error, applied: retry.earlier }
            })?;
            let earlier = retry.earlier;
            match reply {
                Reply::Granted(grant) => {
                    return Ok(Answer::Granted(Grant { earlier, ..grant }));
                }
                reply
                    if reply.is_held_by_nobody()
                        && passes > 0
                        && Instant::now() < retry.budget.until =>
                {
                    passes -= 1;
                }
                Reply::Contended { nth, holder, .. } => {
                    let queue = Queueing::Outside;
                    return Ok(Answer::Contended { nth, holder, queue, earlier });
                }
            }
        }
    }

    /// Asks once: by a plain SET while no request with this token was sent, then by the script,
    /// which recognizes the token. A fence always needs the script.
    pub(crate) async fn ask(
        &self,
        request: &Request,
        first: bool,
        budget: Budget,
    ) -> Result<Reply, CallError> {
        let every_key = self.may_use_every_key(budget).await?;
        if !request.several().is_empty() {
            return Box::pin(self.ask_for_several(request, budget)).await;
        }
        let is_exclusive = request.key.mode().is_exclusive();
        let plain = first && !request.is_fenced();
        if plain && every_key {
            let reply = match is_exclusive {
                true => self.set(request, budget).await?,
                false => Box::pin(self.share(request, budget)).await?,
            };
            if let Some(reply) = reply {
                return Ok(reply);
            }
        }
        let (ttl, limit) =
            (request.ttl.as_millis().to_string(), request.key.mode().limit().to_string());
        let fenced = if request.is_fenced() { "1" } else { "0" };
        let (window, retention) = (&CONFIRM_WINDOW_MS, &self.fence_retention);
        let args = [request.token.expose(), &ttl, fenced, window, retention, "0", &limit];
        let sent = Moment::now();
        // Boxed, because most locks are free and do not need it.
        let asked = Box::pin(self.eval(ACQUIRE.with(request.keys(), &args), budget)).await;
        match asked.and_then(|reply| answer(request, sent, reply)) {
            // The server checks rights before slots, so the keys are allowed.
            Err(split @ CallError::Split(_)) if plain && is_exclusive && !every_key => {
                self.set(request, budget).await?.ok_or(split)
            }
            reply => reply,
        }
    }

    /// Asks by a plain SET; `None` when the lock is contended and the script has to say how.
    async fn set(&self, request: &Request, budget: Budget) -> Result<Option<Reply>, CallError> {
        let (key, token) = (request.key.as_str(), request.token.expose());
        let mut set = Cmd::with_capacity(6, key.len() + token.len() + 16);
        set.arg("SET").arg(key).arg(token).arg("NX").arg("PX").arg(request.ttl.as_millis());
        let sent = Moment::now();
        match self.nodes.call(&request.key, set, budget).await? {
            Value::Okay => Ok(Some(Reply::granted(request, sent, Vec::new()))),
            Value::Nil if request.only_if_free => {
                let (holder, queued) = (Holder::default(), None);
                Ok(Some(Reply::Contended { nth: 0, holder, value: 0, queued }))
            }
            Value::Nil => Ok(None),
            other => Err(unexpected(&other)),
        }
    }

    /// Asks for a lock that others may share, without a fence and with a token that was not sent
    /// before. The call is merged with those of other callers; `None` where the whole script has to
    /// decide.
    pub(crate) async fn share(
        &self,
        request: &Request,
        budget: Budget,
    ) -> Result<Option<Reply>, CallError> {
        let (ttl, limit) = (request.ttl.as_millis().to_string(), request.key.mode().limit());
        let args = [request.token.expose(), &ttl, &limit.to_string()];
        let sent = Moment::now();
        let reply = self.eval(ACQUIRE_SHARED.with(request.keys(), &args), budget).await?;
        let is_granted: bool = parsed(reply)?;
        Ok(is_granted.then(|| Reply::granted(request, sent, Vec::new())))
    }

    /// The number of these keys, from the first on, that one script call can take.
    pub(crate) fn at_once(&self, keys: &[LockKey]) -> usize {
        if !self.slots.load(Ordering::Relaxed) {
            return keys.len();
        }
        let are_in_one = |one: &LockKey, next: &LockKey| slot(one.as_str()) == slot(next.as_str());
        keys.chunk_by(are_in_one).next().map_or(0, <[_]>::len)
    }

    /// Asks for all keys of a request, or none. A repeated request is granted again: the script
    /// recognizes its token.
    async fn ask_for_several(&self, request: &Request, budget: Budget) -> Result<Reply, CallError> {
        let ttl = request.ttl.as_millis().to_string();
        let fenced = if request.fenced { "1" } else { "0" };
        let limits = request.keys().iter().map(|key| key.mode().limit().to_string());
        let limits: Vec<_> = limits.collect();
        let token = request.token.expose();
        let mut args = vec![token, &ttl, fenced, &CONFIRM_WINDOW_MS, &self.fence_retention];
        args.extend(limits.iter().map(String::as_str));
        let sent = Moment::now();
        let reply = self.eval(ACQUIRE_ALL.with(request.keys(), &args), budget).await?;
        answer(request, sent, reply)
    }

    /// Calls a script with these keys.
    pub(crate) async fn eval(
        &self,
        call: ScriptCall<'_>,
        budget: Budget,
    ) -> Result<Value, CallError> {
        let reply = self.nodes.eval(call, budget).await;
        match reply {
            Err(CallError::CrossSlot) => self.slots.store(true, Ordering::Relaxed),
            Err(CallError::DeniedInScript(denied)) => {
                return Err(Box::pin(self.with_denied_commands(denied, call, budget)).await);
            }
            _ => {}
        }
        reply
    }

    pub(crate) fn budget(&self) -> Budget {
        Budget::new(self.answer_time(), self.timeout)
    }

    /// A budget for callers that must not be delayed: the time of one answer for the whole call.
    pub(crate) fn brief(&self) -> Budget {
        Budget::new(self.answer_time(), self.answer_time())
    }
}

#[cfg(test)]
impl Redis {
    /// Locks on the server of a URL.
    pub(crate) fn at(url: &str, timeout: Duration) -> Self {
        let servers = Url::parse(url).and_then(|url| Deployment::of(&url, timeout));
        Self::new(&servers.unwrap(), timeout, "")
    }
}

impl Servers for Redis {
    fn address(&self, request: &Request) -> Option<Box<str>> {
        self.server_of(&request.key)
    }

    fn answer_time(&self) -> Duration {
        self.timeout / CALLS_PER_TIMEOUT
    }

    fn round_trip(&self, key: &LockKey) -> Duration {
        self.nodes.node_of(key).map_or(Duration::ZERO, |node| node.health().round_trip.shortest())
    }

    fn may_forget(&self) -> bool {
        true
    }

    fn may_fail_over(&self) -> bool {
        self.fails_over
    }

    fn is_lost(&self, request: &Request) -> bool {
        self.nodes.nodes_of(request.keys()).iter().any(|node| node.health().is_lost())
    }

    fn is_news(&self) -> bool {
        self.changes.healths().is_news()
    }

    fn on_change(&self, callback: Box<dyn Fn() + Send + Sync>) {
        self.changes.on_change(callback);
    }

    fn abandoned(&self) -> Option<Arc<AbandonedTokens>> {
        Some(Arc::clone(&self.grants.waiters.abandoned))
    }

    fn alarm(&self) {
        self.grants.waiters.alarm_where(|_| true);
    }

    /// Notices a server that hangs or is no longer a primary.
    fn check(&self) -> Asked<'_, ()> {
        Box::pin(self.nodes.check(self.brief()))
    }

    fn close(&self) {
        self.nodes.close();
    }
}
