//! One test body for every backend.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use lockmacro_runtime::{Lock, LockManager, LockManagerBuilder};

use tokio::sync::OnceCell;

use crate::times::{IN_TIME, LONG_TTL, TEST_TIMEOUT};
use crate::{Postgres, Server, eventually};

/// A store that several managers share, seen only through the public API.
pub struct Backend {
    url: String,
    servers: Vec<Arc<Server>>,
    postgres: Option<Arc<Postgres>>,
    /// Whether other tests have their keys on the same server.
    shared: bool,
    prefix: String,
    /// Asks for locks in the name of another process.
    rival: OnceCell<LockManager>,
}

impl Backend {
    /// The in-process store. It is one for the whole process, so keys differ by test.
    pub fn memory() -> Backend {
        Backend::at("memory://".to_owned(), Vec::new())
    }

    /// A Redis server of this test's own.
    pub fn redis() -> Backend {
        let server = Server::start();
        Backend::at(server.url(), vec![Arc::new(server)])
    }

    /// A Redlock of three servers of this test's own, which are not started again, and are waited
    /// for as long as a loaded machine needs.
    pub fn redlock() -> Backend {
        let servers: Vec<_> = (0..3).map(|_| Arc::new(Server::start())).collect();
        let places: Vec<_> = servers.iter().map(|s| format!("127.0.0.1:{}", s.port())).collect();
        let url = format!("redlock://{}?durable&node_timeout=10s", places.join(","));
        Backend::at(url, servers)
    }

    /// A Redis server of this test's own that wants the keys of a script in one slot: a cluster of
    /// one, which has all slots.
    pub async fn slots() -> Backend {
        let server = Backend::all_slots().await;
        Backend::at(server.url(), vec![Arc::new(server)])
    }

    /// The same server for all tests of a process, and managers that know it for a cluster.
    pub async fn cluster() -> Backend {
        static SHARED: OnceCell<Arc<Server>> = OnceCell::const_new();
        let start = || async { Arc::new(Backend::all_slots().await) };
        let server = Arc::clone(SHARED.get_or_init(start).await);
        let url = server.url().replace("redis://", "redis-cluster://");
        Backend { shared: true, ..Backend::at(url, vec![server]) }
    }

    /// A PostgreSQL database, the same for all tests of a process.
    pub async fn postgres() -> Backend {
        static SHARED: OnceCell<Arc<Postgres>> = OnceCell::const_new();
        let start = || async { Arc::new(Postgres::start().await) };
        let server = Arc::clone(SHARED.get_or_init(start).await);
        let backend = Backend::at(server.url(), Vec::new());
        Backend { shared: true, postgres: Some(server), ..backend }
    }

    async fn all_slots() -> Server {
        let server = Server::with(&["--cluster-enabled", "yes"]);
        let mut admin = server.admin();
        admin.ask::<()>(&["CLUSTER", "ADDSLOTSRANGE", "0", "16383"]);
        eventually("the cluster is up", IN_TIME, || {
            let info: String = admin.ask(&["CLUSTER", "INFO"]);
            std::future::ready(info.contains("cluster_state:ok"))
        })
        .await;
        server
    }

    fn at(url: String, servers: Vec<Arc<Server>>) -> Backend {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let prefix = format!("t{}:", NEXT.fetch_add(1, Ordering::Relaxed));
        Backend { url, servers, postgres: None, shared: false, prefix, rival: OnceCell::new() }
    }

    /// The address managers connect to.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// The PostgreSQL server, if it is one.
    pub fn database(&self) -> Option<&Arc<Postgres>> {
        self.postgres.as_ref()
    }

    /// A connection to look at the server with, if there is one and no other.
    pub fn admin(&self) -> Option<crate::Admin> {
        match self.servers.as_slice() {
            [server] => Some(server.admin()),
            _ => None,
        }
    }

    /// The address of the only server for a plain client.
    pub fn admin_url(&self) -> String {
        self.url.replace("redis-cluster://", "redis://")
    }

    /// A connection to each server.
    pub fn admins(&self) -> Vec<crate::Admin> {
        self.servers.iter().map(|server| server.admin()).collect()
    }

    /// A network in front of the only server.
    pub fn proxy(&self) -> crate::Proxy {
        match self.servers.as_slice() {
            [server] => crate::Proxy::to(server.port()),
            servers => panic!("{} servers", servers.len()),
        }
    }

    /// A network in front of each server, and the address for managers that go through them.
    pub fn proxies(&self) -> (Vec<crate::Proxy>, String) {
        let servers = self.servers.iter().map(|server| server.port());
        let ports: Vec<_> = servers.chain(self.postgres.iter().map(|db| db.port())).collect();
        let proxies: Vec<_> = ports.iter().map(|port| crate::Proxy::to(*port)).collect();
        let mut url = self.url.clone();
        for (port, proxy) in ports.iter().zip(&proxies) {
            url = url.replace(&format!(":{port}"), &format!(":{}", proxy.port()));
        }
        (proxies, url)
    }

    /// A key no other test uses.
    pub fn key(&self, name: &str) -> String {
        format!("{}{name}", self.prefix)
    }

    /// A new manager on the same store, as another process would have. It waits for answers as long
    /// as a loaded machine needs.
    pub async fn manager(&self) -> LockManager {
        self.manager_from(LockManager::builder().timeout(LONG_TTL)).await
    }

    /// A new manager with settings.
    pub async fn manager_from(&self, builder: LockManagerBuilder) -> LockManager {
        builder.connect(&self.url).await.expect("the backend is there")
    }

    /// Managers of two processes, and a key that no other test uses.
    pub async fn two_managers(&self, name: &str) -> (LockManager, LockManager, String) {
        (self.manager().await, self.manager().await, self.key(name))
    }

    /// Whether another process would get the lock now.
    pub async fn is_free(&self, key: &str) -> bool {
        let rival = self.rival.get_or_init(|| self.manager()).await;
        let lock = Lock::new(key).ttl(Duration::from_secs(10)).manager(rival);
        match lock.acquire().await {
            Ok(guard) => guard.release().await.map(|()| true).expect("released"),
            Err(error) if error.is_busy() => false,
            Err(error) => panic!("neither free nor busy: {error}"),
        }
    }

    /// Waits until another process would get the lock.
    pub async fn becomes_free(&self, key: &str, within: Duration) {
        eventually("the key is free", within, || self.is_free(key)).await;
        if self.postgres.is_some() {
            // A request that was dropped in flight may have been overtaken by its release, as they
            // are on different connections. It is released again then.
            tokio::time::sleep(Duration::from_millis(30)).await;
            eventually("the key stays free", within, || self.is_free(key)).await;
        }
    }

    /// Whether a key on the server, or one beside it, is this test's.
    pub fn has(&self, key: &str) -> bool {
        !self.shared || key.contains(&self.prefix)
    }

    /// Deletes the last fences of the test's keys, which a server keeps for a week.
    pub fn forget_fences(&self) {
        self.forget("f");
    }

    /// Deletes the values of the test's keys, which holders have kept for others.
    pub fn forget_values(&self) {
        self.forget("k");
    }

    fn forget(&self, kind: &str) {
        let is_one = |key: &str| {
            ["t", "w", "x"].iter().any(|form| key.starts_with(&format!("lm1:{form}{kind}:")))
        };
        for mut admin in self.admins() {
            for key in admin.keys() {
                if is_one(&key) && self.has(&key) {
                    assert!(admin.ttl(&key).is_some(), "{key} has no end");
                    admin.ask::<()>(&["DEL", &key]);
                }
            }
        }
    }

    /// Waits until the store is empty, as it must be after every test. A key that is there for long
    /// yet is to be removed: one whose end is waited for was left behind.
    pub async fn keeps_nothing(&self) {
        if let Some(postgres) = &self.postgres {
            postgres.keeps_nothing(&self.prefix).await;
        }
        // A key that a test left to its ttl on purpose has less.
        const LONG: Duration = Duration::from_secs(2);
        for server in &self.servers {
            let mut admin = server.admin();
            let mut first_left = HashMap::new();
            let start = Instant::now();
            loop {
                let mut keys = admin.keys();
                keys.retain(|key| self.has(key));
                if keys.is_empty() {
                    break;
                }
                for key in &keys {
                    let Some(left) = admin.ttl(key) else { continue };
                    let first = first_left.entry(key.clone()).or_insert((left, Instant::now()));
                    // A lock that was handed off meanwhile has another end.
                    if left + first.1.elapsed() + LONG < first.0 {
                        *first = (left, Instant::now());
                    }
                    let first = first.0;
                    // Three parts are time for a loaded machine, the last one is for looks that
                    // come late.
                    let is_going = first < LONG || left > first / 4;
                    assert!(is_going, "left to its end: {key}, {first:?} before it");
                }
                assert!(start.elapsed() < TEST_TIMEOUT, "left behind: {keys:?}");
                tokio::time::sleep(Duration::from_millis(3)).await;
            }
        }
    }
}
