//! The requests of a lock on several nodes to one of them; none is retried.

use std::slice;
use std::time::Duration;

use redis::{Cmd, InfoDict, Value};

use super::release::Sending;
use super::store::{CONFIRM_WINDOW_MS, Redis};
use crate::protocol::answer::Answer;
use crate::protocol::request::Request;
use crate::store::redis::client::error::unexpected;
use crate::store::redis::client::node::Node;
use crate::store::redis::client::script::ScriptCall;
use crate::store::redis::reply::parsed;
use crate::store::redis::scripts::{RAISE_FENCE, RELEASE, REPAIR};
use crate::store::redis::topology::route::Topology;
use crate::store::remote::error::RemoteError;
use crate::value::applied::Applied;
use crate::value::error::LockError;
use crate::value::fence::Fence;
use crate::value::key::LockKey;
use crate::value::token::Token;

/// Identity of a server.
#[derive(Debug)]
pub(crate) struct NodeInfo {
    /// Number of the connection by which it was asked.
    pub(crate) connection: u64,
    /// The server's `run_id`, a new one after every start.
    pub(crate) run_id: String,
    /// Time since its start, in whole seconds.
    pub(crate) uptime: Duration,
}

impl Redis {
    /// The number of the connection in use, if there is one. Another number may stand for a server
    /// that was restarted.
    pub(crate) fn connection(&self) -> Option<u64> {
        self.only_node().ok()?.connection()
    }

    fn only_node(&self) -> Result<&Node, RemoteError> {
        match &self.nodes {
            Topology::One(node) => Ok(node),
            Topology::Cluster(_) => Err(unexpected(&Value::Nil)),
        }
    }

    /// Connects if necessary, and asks the server for its run id and uptime.
    pub(crate) async fn node_info(&self) -> Result<NodeInfo, RemoteError> {
        let budget = self.brief();
        let node = self.only_node()?;
        let connection = node.connect(budget.until).await?.channels.number;
        let mut info = Cmd::new();
        info.arg("INFO").arg("server");
        let info: InfoDict = parsed(node.call(info, budget).await?)?;
        let (Some(run_id), Some(uptime)) = (info.get("run_id"), info.get("uptime_in_seconds"))
        else {
            return Err(unexpected(&Value::Nil));
        };
        if node.connection() != Some(connection) {
            return Err(RemoteError::timeout("the connection was replaced", Applied::No));
        }
        Ok(NodeInfo { connection, run_id, uptime: Duration::from_secs(uptime) })
    }

    /// Asks for the user's rights, and refuses a replica, which cannot vote.
    pub(crate) async fn ready_to_vote(&self) -> Result<(), RemoteError> {
        // There is no queue over several nodes.
        self.check_server(false, self.brief()).await
    }

    /// Asks for a lock on one key.
    pub(crate) async fn vote(&self, request: &Request) -> Result<Answer, RemoteError> {
        self.ask(request, true, self.brief()).await
    }

    /// Raises the node's last fence if the token still holds the lock; returns whether it does.
    pub(crate) async fn raise(&self, request: &Request, fence: Fence) -> Result<bool, LockError> {
        let args = [request.token.secret.expose(), &fence.to_string(), &self.fence_retention];
        let reply = self.eval(RAISE_FENCE.with(request.ask.keys(), &args), self.brief()).await;
        reply.and_then(parsed).map_err(|error| error.into_error(&request.ask.key))
    }

    /// Gives the lock to the token for `ttl` if nobody has it here, and raises the node's last
    /// fence. It is sent on the connection of this number only, as another one may lead to a server
    /// that was restarted since.
    pub(crate) async fn repair(
        &self,
        request: &Request,
        ttl: Duration,
        fence: Option<Fence>,
        connection: u64,
    ) -> Result<(), RemoteError> {
        let fence = fence.map_or_else(|| "0".to_owned(), |fence| fence.to_string());
        let ttl = ttl.as_millis().to_string();
        let budget = self.brief();
        let args = [request.token.secret.expose(), &ttl, &fence, &self.fence_retention];
        let node = self.only_node()?;
        let live = node.connect(budget.until).await?;
        if live.channels.number != connection {
            return Err(RemoteError::timeout("the connection was replaced", Applied::No));
        }
        // By its text, which a server that was restarted does not know.
        let repair = REPAIR.with(request.ask.keys(), &args).by_text();
        node.send(&live, repair, budget).await.map(drop)
    }

    /// Removes a token that no later request uses.
    pub(crate) async fn withdraw(
        &self,
        key: &LockKey,
        token: &Token,
        Sending { sent, budget }: Sending,
    ) -> Result<(), LockError> {
        let args = [token.expose(), "0", &CONFIRM_WINDOW_MS, &self.fence_retention];
        let call = ScriptCall { sent, ..RELEASE.with(slice::from_ref(key), &args) };
        match self.eval(call, budget).await {
            Ok(_) | Err(RemoteError::NotALock) => Ok(()),
            Err(error) => Err(error.into_error(key)),
        }
    }
}
