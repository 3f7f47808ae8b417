//! What a lock over several nodes asks of one of them: once, and without a second try.

use crate::protocol::vote::Introduction;
use crate::protocol::vote::Silence;
use crate::protocol::vote::Vote;
use std::slice;
use std::time::Duration;

use redis::{Cmd, Value};

use crate::protocol::request::Claim;
use crate::store::redis::client::error::unexpected;
use crate::store::redis::client::error::{Passing, Trouble};
use crate::store::redis::client::node::Node;
use crate::store::redis::reply::Reply;
use crate::store::redis::scripts::{RAISE_FENCE, RELEASE};
use crate::store::redis::store::{CLAIM_MS, Redis};
use crate::store::redis::topology::route::Nodes;
use crate::value::fence::Fence;
use crate::value::key::LockKey;
use crate::value::token::Token;
use crate::value::unavailability::Unavailability;

impl Redis {
    /// The number of the connection in use, if there is one; another one leads to a server that may
    /// have been started again.
    pub(crate) fn connection(&self) -> Option<u64> {
        self.only_node().ok()?.connection()
    }

    fn only_node(&self) -> Result<&Node, Trouble> {
        match &self.nodes {
            Nodes::One(node) => Ok(node),
            Nodes::Cluster(_) => Err(unexpected(&Value::Nil)),
        }
    }

    /// Connects if need be, and asks the server who it is.
    pub(crate) async fn introduce(&self) -> Result<Introduction, Silence> {
        let patience = self.brief();
        let nothing = LockKey::from("");
        let answer = async {
            let node = self.only_node()?;
            node.ready(patience.until).await?;
            let connection = node.connection();
            let mut info = Cmd::new();
            info.arg("INFO").arg("server");
            let Value::BulkString(text) = node.call(info, patience).await? else {
                return Err(unexpected(&Value::Nil));
            };
            let text = String::from_utf8_lossy(&text);
            let field = |name| text.lines().find_map(|line| line.strip_prefix(name));
            let uptime = field("uptime_in_seconds:").and_then(|uptime| uptime.parse().ok());
            let (Some(run_id), Some(uptime)) = (field("run_id:"), uptime) else {
                return Err(unexpected(&Value::Nil));
            };
            match connection {
                Some(connection) if node.connection() == Some(connection) => {
                    let (run_id, uptime) = (run_id.to_owned(), Duration::from_secs(uptime));
                    Ok(Introduction { connection, run_id, uptime })
                }
                _ => Err(Trouble::Passing(Passing::timeout("the connection was replaced", false))),
            }
        };
        answer.await.map_err(|trouble| silence(trouble, &nothing))
    }

    /// Asks what the user may do.
    pub(crate) async fn rights_of_a_node(&self) -> Result<(), Silence> {
        // There is no line over several nodes.
        let asked = self.rights(false, self.brief()).await;
        asked.map_err(|trouble| silence(trouble, &LockKey::from("")))
    }

    /// Asks for a lock on one key.
    pub(crate) async fn vote(&self, claim: &Claim) -> Result<Vote, Silence> {
        match self.ask(claim, true, self.brief()).await {
            Ok(Reply::Granted { fences, .. }) => Ok(Vote::Granted(fences)),
            Ok(Reply::Busy { owner, held, left, .. }) => Ok(Vote::Busy { owner, held, left }),
            Err(trouble) => Err(silence(trouble, &claim.key)),
        }
    }

    /// Lifts the last fence, if the lock is still held; tells whether it was.
    pub(crate) async fn raise(&self, claim: &Claim, fence: Fence) -> Result<bool, Silence> {
        let args = [claim.token.expose(), &fence.to_string(), &self.fence_retention];
        let reply = self.eval(&RAISE_FENCE, claim.keys(), &args, self.brief()).await;
        match reply {
            Ok(Value::Int(held)) => Ok(held == 1),
            Ok(other) => Err(silence(unexpected(&other), &claim.key)),
            Err(trouble) => Err(silence(trouble, &claim.key)),
        }
    }

    /// Takes a token away that is never asked with again.
    pub(crate) async fn withdraw(&self, key: &LockKey, token: &Token) -> Result<(), Silence> {
        let args = [token.expose(), "0", CLAIM_MS, &self.fence_retention];
        match self.eval(&RELEASE, slice::from_ref(key), &args, self.brief()).await {
            Ok(Value::Int(_)) | Err(Trouble::NotALock) => Ok(()),
            Ok(other) => Err(silence(unexpected(&other), key)),
            Err(trouble) => Err(silence(trouble, key)),
        }
    }
}

fn silence(trouble: Trouble, key: &LockKey) -> Silence {
    let (unknown, passing) = match &trouble {
        Trouble::Passing(Passing { reason, unknown, .. }) => {
            (*unknown, *reason != Unavailability::Protocol)
        }
        _ => (false, false),
    };
    Silence { error: Box::new(trouble.into_error(key)), unknown, passing }
}
