//! Locks on a majority of several servers.

mod connecting;
mod doubts;
mod faults;
mod fences;
mod quorum;
mod restarts;
mod rights;
mod splits;
mod waits;

use lockmacro_runtime::{
    Lock, LockError, LockManager, LockManagerBuilder, NodeReply, UnavailableReason,
};
use lockmacro_tests::times::{IN_TIME, LONG_TTL, ms};
use lockmacro_tests::{Proxy, Server, eventually};

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

    /// A manager whose nodes vote at once, however young they are, and are waited for as long as a
    /// loaded machine needs.
    async fn manager(&self) -> LockManager {
        self.manager_from(LockManager::builder().timeout(IN_TIME * 4).node_timeout(IN_TIME)).await
    }

    /// A manager that waits no longer for a node than by default.
    async fn brisk_manager(&self) -> LockManager {
        self.manager_from(LockManager::builder()).await
    }

    async fn manager_from(&self, builder: LockManagerBuilder) -> LockManager {
        connected(builder.durable(), self.urls()).await
    }

    /// Waits until no node has anything left.
    async fn keep_nothing(&self) {
        for server in &self.0 {
            let mut admin = server.admin();
            let empty = || std::future::ready(admin.keys().is_empty());
            eventually("nothing is left behind", IN_TIME, empty).await;
        }
    }

    /// Waits until a manager asks every node, and leaves nothing behind.
    async fn are_known_to(&self, manager: &LockManager) {
        self.all_have(&lock(manager), |server| server.admin().get(KEY).is_some()).await;
    }

    /// Takes a lock until every node has it, and leaves nothing behind.
    async fn all_have(&self, lock: &Lock, has_it: impl Fn(&Server) -> bool) {
        let all_have = async || {
            let guard = lock.clone().wait(IN_TIME).acquire().await.expect("free in the end");
            // Those that are slow add to the margin; one that was slow to connect is not asked.
            let start = std::time::Instant::now();
            let all = || self.0.iter().all(&has_it);
            while !all() && start.elapsed() < ms(500) {
                tokio::time::sleep(ms(3)).await;
            }
            let all = all();
            guard.release().await.expect("released");
            self.keep_nothing().await;
            all
        };
        eventually("every node has it", IN_TIME * 2, all_have).await;
    }

    /// Waits until every node has the lock: those that answer after the decision add to the margin.
    async fn have_it(&self) {
        let all = || std::future::ready(self.values().iter().all(Option::is_some));
        eventually("every node has it", IN_TIME, all).await;
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

/// Three nodes, the last of which is reached by a proxy, and a manager that is connected to all.
async fn behind_a_proxy() -> (Nodes, Proxy, LockManager) {
    let nodes = Nodes::start(3);
    let proxy = Proxy::to(nodes.0[2].port());
    let urls = vec![nodes.0[0].url(), nodes.0[1].url(), proxy.url()];
    let manager = connected(LockManager::builder().durable(), urls).await;
    nodes.are_known_to(&manager).await;
    (nodes, proxy, manager)
}

/// A manager that may need more time to connect than it gives itself.
async fn connected(builder: LockManagerBuilder, urls: Vec<String>) -> LockManager {
    let start = std::time::Instant::now();
    loop {
        match builder.clone().redlock(urls.clone()).await {
            Ok(manager) => return manager,
            Err(error) => assert!(start.elapsed() < IN_TIME * 2, "a majority is there: {error}"),
        }
    }
}

fn lock(manager: &LockManager) -> Lock {
    Lock::new(KEY).ttl(LONG_TTL).manager(manager)
}

/// The reply of each node.
fn replies(error: &LockError) -> &[NodeReply] {
    assert!(matches!(error, LockError::Unavailable { .. }), "{error}");
    match error {
        LockError::Unavailable { reason: UnavailableReason::NoQuorum, nodes, .. } => nodes,
        other => panic!("not about a quorum: {other}"),
    }
}
