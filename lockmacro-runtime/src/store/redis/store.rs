//! Locks on one Redis server or cluster: acquiring by `SET NX PX` or a script, and retries.

use std::fmt::{self, Write as _};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, LazyLock, OnceLock};
use std::time::Duration;

use redis::{Cmd, Value};

use crate::protocol::answer::{Answer, Contention};
use crate::protocol::request::Request;
use crate::store::redis::client::channels::Grants;
use crate::store::redis::client::connector::Server;
use crate::store::redis::client::error::unexpected;
use crate::store::redis::client::node::Node;
use crate::store::redis::client::script::ScriptCall;
use crate::store::redis::client::url::{Addresses, Deployment, ReplicaAcks};
use crate::store::redis::reply::{answer, parsed};
use crate::store::redis::scripts::{ACQUIRE, ACQUIRE_ALL, ACQUIRE_SHARED};
use crate::store::redis::topology::route::Topology;
use crate::store::remote::budget::{Budget, Retry};
use crate::store::remote::error::RemoteError;
use crate::store::remote::health::Monitor;
use crate::sys::time::Moment;
use crate::value::companion::slot;
use crate::value::error::LockError;
use crate::value::fence::RETENTION;
use crate::value::key::LockKey;
use crate::value::limits::CONFIRM_WINDOW;
#[cfg(test)]
use crate::value::url::Url;

/// [`CONFIRM_WINDOW`](crate::value::limits::CONFIRM_WINDOW) in milliseconds, as the scripts take
/// it.
pub(super) static CONFIRM_WINDOW_MS: LazyLock<String> =
    LazyLock::new(|| CONFIRM_WINDOW.as_millis().to_string());

pub(crate) struct Redis {
    pub(crate) nodes: Topology,
    pub(super) monitor: Arc<Monitor>,
    /// Whether another server may take over at any time.
    pub(super) can_fail_over: bool,
    /// Delivers grants to the waiters.
    pub(crate) grants: Arc<Grants>,
    pub(crate) timeout: Duration,
    /// Whether the server wants the keys of a script in one slot, as a CROSSSLOT error has shown.
    pub(super) slots: Arc<AtomicBool>,
    /// The replicas that have to acknowledge a lock, if any.
    pub(super) replicated: Option<ReplicaAcks>,
    /// The retention of a key's last fence in milliseconds, as the scripts take it.
    pub(super) fence_retention: Arc<str>,
    /// Whether the user may use every key, as the last check of the rights found. Otherwise a lock
    /// that a plain SET is granted may not be releasable, because its companion keys are denied.
    pub(super) every_key: Arc<OnceLock<bool>>,
    /// Whether callers without a wait fail at once while their server is down.
    pub(crate) fails_fast: bool,
}

impl Redis {
    /// Locks on these servers, not connected yet. No call takes longer than `timeout`. The keys
    /// have the prefix already; the names of channels get it here.
    pub(crate) fn new(servers: &Deployment, timeout: Duration, key_prefix: &str) -> Self {
        let is_cluster = matches!(servers.at, Addresses::Cluster(_));
        let can_fail_over = !matches!(servers.at, Addresses::One(Server::At(_)));
        let grants = Grants::new(is_cluster, key_prefix);
        let monitor = Arc::default();
        let nodes = Topology::new(servers, timeout, &monitor, &grants);
        let slots = Arc::new(AtomicBool::new(is_cluster));
        let fence_retention = servers.fence_retention.unwrap_or(RETENTION).as_millis();
        Self {
            nodes,
            monitor,
            can_fail_over,
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
        let slots = Arc::clone(&self.slots);
        let every_key = Arc::clone(&self.every_key);
        let fence_retention = Arc::clone(&self.fence_retention);
        let grants = self.grants.apart();
        let monitor = Arc::clone(&self.monitor);
        let nodes = self.nodes.apart(&grants);
        Self { nodes, monitor, grants, slots, fence_retention, every_key, ..*self }
    }

    /// Connects, checks the user's rights, and refuses a replica.
    pub(super) async fn connected(&self) -> Result<(), LockError> {
        // No error here names a key.
        let nothing = LockKey::from("");
        let check = |budget, _| self.check_server(true, budget);
        let ready = Retry::new(self.budget()).repeat(check).await;
        ready.map_err(|error| error.into_error(&nothing))
    }

    /// Whether the user may use every key, as the last check found. Checks the rights if the
    /// manager was made without.
    pub(super) async fn may_use_every_key(&self, budget: Budget) -> Result<bool, RemoteError> {
        match self.every_key.get() {
            Some(every_key) => Ok(*every_key),
            None => Box::pin(self.check_rights(true, budget)).await,
        }
    }

    /// Whether a server is down, which was logged.
    pub(crate) fn is_any_down(&self) -> bool {
        self.monitor.is_any_down()
    }

    /// The host and port of the server that has a key, if it is known.
    pub(super) fn server_of(&self, key: &LockKey) -> Option<Box<str>> {
        self.nodes.node_of(key).map(|node| node.server().into())
    }

    /// Asks once: by a plain SET while no request with this token was sent, then by the script,
    /// which recognizes the token. A fence always needs the script. Of several keys all are
    /// granted, or none.
    pub(super) async fn ask(
        &self,
        request: &Request,
        first: bool,
        budget: Budget,
    ) -> Result<Answer, RemoteError> {
        let every_key = self.may_use_every_key(budget).await?;
        let is_exclusive = request.ask.key.mode().is_exclusive();
        let is_single = request.ask.several.is_empty();
        let plain = first && is_single && !request.ask.needs_fence_now();
        if plain && every_key {
            let reply = if is_exclusive {
                self.set(request, budget).await?
            } else {
                Box::pin(self.share(request, budget)).await?
            };
            if let Some(reply) = reply {
                return Ok(reply);
            }
        }
        let ttl = request.ask.ttl.as_millis().to_string();
        let mut limits = String::new();
        for key in request.ask.keys() {
            // It cannot fail.
            let _ = write!(limits, "{} ", key.mode().limit());
        }
        let fenced = if request.ask.needs_fence_now() { "1" } else { "0" };
        let window = &CONFIRM_WINDOW_MS;
        let retention = &self.fence_retention;
        let args = [request.token.secret.expose(), &ttl, fenced, window, retention, &limits, "0"];
        let script = if is_single { &ACQUIRE } else { &ACQUIRE_ALL };
        // Before the request: a lease that counted from the answer would outlast the key.
        let sent = Moment::now();
        // Boxed, because most locks are free and do not need it.
        let asked = Box::pin(self.eval(script.with(request.ask.keys(), &args), budget)).await;
        match asked.and_then(|reply| answer(request, sent, reply)) {
            // The server checks rights before slots, so the keys are allowed.
            Err(split @ RemoteError::Split(_)) if plain && is_exclusive && !every_key => {
                self.set(request, budget).await?.ok_or(split)
            }
            reply => reply,
        }
    }

    /// Asks by a plain SET; `None` when the lock is contended and the script has to say how.
    async fn set(&self, request: &Request, budget: Budget) -> Result<Option<Answer>, RemoteError> {
        let key = request.ask.key.as_str();
        let token = request.token.secret.expose();
        let send = |node: Node| {
            let mut set = Cmd::with_capacity(6, key.len() + token.len() + 16);
            set.arg("SET").arg(key).arg(token).arg("NX").arg("PX").arg(request.ask.ttl.as_millis());
            async move { node.call(set, budget).await }
        };
        let sent = Moment::now();
        match self.nodes.route(|| slot(key), budget, send).await? {
            Value::Okay => Ok(Some(Answer::granted(request, sent, Vec::new()))),
            // The caller waits anyway, and learns of the holder by the request that joins the
            // queue.
            Value::Nil if request.ask.only_if_free => {
                Ok(Some(Answer::Contended(Contention::default())))
            }
            Value::Nil => Ok(None),
            other => Err(unexpected(&other)),
        }
    }

    /// Asks for a lock that others may share, without a fence and with a token that was not sent
    /// before. The call is merged with those of other callers; `None` where the whole script has to
    /// decide.
    pub(super) async fn share(
        &self,
        request: &Request,
        budget: Budget,
    ) -> Result<Option<Answer>, RemoteError> {
        let ttl = request.ask.ttl.as_millis().to_string();
        let limit = request.ask.key.mode().limit();
        let args = [request.token.secret.expose(), &ttl, &limit.to_string()];
        let sent = Moment::now();
        let reply = self.eval(ACQUIRE_SHARED.with(request.ask.keys(), &args), budget).await?;
        let is_granted: bool = parsed(reply)?;
        Ok(is_granted.then(|| Answer::granted(request, sent, Vec::new())))
    }

    /// Whether the keys of one script call have to be in one slot.
    pub(super) fn has_slots(&self) -> bool {
        self.slots.load(Ordering::Relaxed)
    }

    /// Calls a script with these keys.
    pub(crate) async fn eval(
        &self,
        call: ScriptCall<'_>,
        budget: Budget,
    ) -> Result<Value, RemoteError> {
        let reply = self.nodes.eval(call, budget).await;
        match reply {
            // A proxy in front of a cluster looks like one server until it says so.
            Err(RemoteError::CrossSlot) => self.slots.store(true, Ordering::Relaxed),
            Err(RemoteError::DeniedInScript(denied)) => {
                return Err(Box::pin(self.with_denied_commands(denied, call, budget)).await);
            }
            _ => {}
        }
        reply
    }

    pub(crate) fn budget(&self) -> Budget {
        Budget::within(self.timeout)
    }

    pub(crate) fn brief(&self) -> Budget {
        Budget::brief(self.timeout)
    }
}

impl fmt::Debug for Redis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Without the channels: a client that knows their names can make waiters ask again.
        let mut redis = f.debug_struct("Redis");
        redis.field("nodes", &self.nodes).field("timeout", &self.timeout);
        redis.field("replicated", &self.replicated).finish_non_exhaustive()
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
