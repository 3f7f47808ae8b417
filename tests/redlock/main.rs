//! Locks on a majority of several servers.

mod connecting;
mod doubts;
mod faults;
mod fences;
mod quorum;
mod restarts;
mod splits;
mod waits;

use std::time::Duration;

use lockmacro_runtime::{Lock, LockError, LockManager, LockManagerBuilder, NodeReply};
use lockmacro_tests::{Server, eventually};

/// A ttl that never ends within a test.
const LONG: Duration = Duration::from_secs(60);
/// Far above what anything here needs on a loaded machine.
const SOON: Duration = Duration::from_secs(10);
const KEY: &str = "order:42";

/// The servers of a Redlock.
struct Nodes(Vec<Server>);

impl Nodes {
    fn start(count: usize) -> Nodes {
        Nodes((0..count).map(|_| Server::start()).collect())
    }

    fn urls(&self) -> Vec<String> {
        self.0.iter().map(Server::url).collect()
    }

    /// A manager whose nodes vote at once, however young they are.
    async fn manager(&self) -> LockManager {
        self.manager_from(LockManager::builder()).await
    }

    async fn manager_from(&self, builder: LockManagerBuilder) -> LockManager {
        builder.durable().redlock(self.urls()).await.expect("a majority is there")
    }

    /// Waits until no node has anything left.
    async fn keep_nothing(&self) {
        for server in &self.0 {
            let mut admin = server.admin();
            let empty = || std::future::ready(admin.keys().is_empty());
            eventually("nothing is left behind", SOON, empty).await;
        }
    }

    /// The value of the key at every node.
    fn values(&self) -> Vec<Option<String>> {
        self.0.iter().map(|server| server.admin().get(KEY)).collect()
    }

    /// Puts a value of somebody else under the key.
    fn hold(&self, nodes: &[usize], value: &str) {
        for nth in nodes {
            self.0[*nth].admin().ask::<()>(&["SET", KEY, value, "PX", "60000"]);
        }
    }

    fn free(&self, nodes: &[usize]) {
        for nth in nodes {
            self.0[*nth].admin().ask::<()>(&["DEL", KEY]);
        }
    }
}

fn lock(manager: &LockManager) -> Lock {
    Lock::new(KEY).ttl(LONG).manager(manager)
}

fn ms(milliseconds: u64) -> Duration {
    Duration::from_millis(milliseconds)
}

/// What each node has said.
fn replies(error: &LockError) -> &[NodeReply] {
    match error {
        LockError::NoQuorum { nodes, .. } => nodes,
        other => panic!("not about a quorum: {other}"),
    }
}
