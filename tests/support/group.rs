//! A primary with replicas, and sentinels that watch over them: real processes.

use tempfile::TempDir;

use crate::times::FAILOVER;
use crate::{Admin, Server, eventually};

const NAME: &str = "main";

/// A primary, and the sentinels that watch over it and its replicas.
pub struct Group {
    /// The first one starts as the primary.
    pub servers: Vec<Server>,
    /// The sentinels.
    pub sentinels: Vec<Server>,
    _files: TempDir,
}

impl Group {
    /// One primary and a sentinel that has further lines in its file, and is started with
    /// `arguments`.
    pub fn alone(primary: Server, lines: &str, arguments: &[&str]) -> Group {
        let files = tempfile::tempdir().expect("a directory for the sentinel");
        let file = files.path().join("sentinel.conf");
        let text = format!("sentinel monitor {NAME} 127.0.0.1 {} 1\n{lines}", primary.port());
        std::fs::write(&file, text).expect("written");
        let mut all = vec![file.to_str().expect("a plain path"), "--sentinel"];
        all.extend(arguments);
        Group { servers: vec![primary], sentinels: vec![Server::with(&all)], _files: files }
    }

    /// Starts one primary, two replicas and three sentinels, and waits until they know each other.
    pub async fn start() -> Group {
        let servers = with_replicas(2).await;
        let of = servers[0].port();
        let files = tempfile::tempdir().expect("a directory for the sentinels");
        let sentinels: Vec<_> = (0..3)
            .map(|nth| {
                let file = files.path().join(format!("sentinel-{nth}.conf"));
                let text = format!(
                    "sentinel monitor {NAME} 127.0.0.1 {of} 2\n\
                     sentinel down-after-milliseconds {NAME} 500\n\
                     sentinel failover-timeout {NAME} 3000\n"
                );
                std::fs::write(&file, text).expect("written");
                Server::with(&[file.to_str().expect("a plain path"), "--sentinel"])
            })
            .collect();
        for sentinel in &sentinels {
            let mut admin = sentinel.admin();
            eventually("the sentinels know each other", FAILOVER, || {
                let known = known(&mut admin);
                std::future::ready(known == (Some(2), Some(2)))
            })
            .await;
        }
        Group { servers, sentinels, _files: files }
    }

    /// The address for a client.
    pub fn url(&self) -> String {
        let hosts: Vec<_> =
            self.sentinels.iter().map(|one| format!("127.0.0.1:{}", one.port())).collect();
        format!("redis-sentinel://{}/{NAME}", hosts.join(","))
    }

    /// Has the sentinels name another server, whatever becomes of the first.
    pub fn names(&self, server: &Server) {
        let (port, quorum) =
            (server.port().to_string(), (self.sentinels.len() / 2 + 1).to_string());
        for sentinel in &self.sentinels {
            let mut admin = sentinel.admin();
            admin.ask::<()>(&["SENTINEL", "REMOVE", NAME]);
            admin.ask::<()>(&["SENTINEL", "MONITOR", NAME, "127.0.0.1", &port, &quorum]);
        }
    }

    /// Which of the servers most sentinels take for the primary.
    pub fn primary(&self) -> usize {
        let mut votes = [0; 3];
        for sentinel in &self.sentinels {
            let (_, port): (String, u16) =
                sentinel.admin().ask(&["SENTINEL", "GET-MASTER-ADDR-BY-NAME", NAME]);
            let nth = self.servers.iter().position(|server| server.port() == port);
            votes[nth.expect("one of ours")] += 1;
        }
        (0..3).max_by_key(|nth| votes[*nth]).expect("there are some")
    }

    /// Has a replica take over while all is well.
    pub fn fail_over(&self) {
        self.sentinels[0].admin().ask::<()>(&["SENTINEL", "FAILOVER", NAME]);
    }

    /// Waits until another server than the first one takes writes; gives a connection to it.
    pub async fn has_failed_over(&self) -> Admin {
        eventually("another server is the primary", FAILOVER, || {
            let nth = self.primary();
            let role = |nth: usize| self.servers[nth].admin().ask::<Vec<redis::Value>>(&["ROLE"]);
            let takes = nth != 0
                && matches!(&role(nth)[0], redis::Value::BulkString(role) if role == b"master");
            std::future::ready(takes)
        })
        .await;
        self.servers[self.primary()].admin()
    }
}

/// A primary and its replicas, which have all that it has.
pub async fn with_replicas(count: usize) -> Vec<Server> {
    let primary = Server::start();
    let of = primary.port().to_string();
    let replica = || Server::with(&["--replicaof", "127.0.0.1", &of]);
    let mut admin = primary.admin();
    let servers: Vec<_> =
        std::iter::once(primary).chain(std::iter::repeat_with(replica).take(count)).collect();
    eventually("the replicas are there", FAILOVER, || {
        let info: String = admin.ask(&["INFO", "replication"]);
        std::future::ready(info.matches("state=online").count() == count)
    })
    .await;
    // One that is online may still be loading, and hears nothing until then.
    admin.ask::<()>(&["SET", "first", "1"]);
    admin.ask::<()>(&["DEL", "first"]);
    let settled = FAILOVER.as_millis().to_string();
    assert_eq!(admin.ask::<usize>(&["WAIT", &count.to_string(), &settled]), count);
    servers
}

/// How many replicas and how many other sentinels one knows.
fn known(admin: &mut Admin) -> (Option<u32>, Option<u32>) {
    let facts: Vec<String> = admin.ask(&["SENTINEL", "MASTER", NAME]);
    let fact = |name: &str| {
        let nth = facts.iter().position(|fact| fact == name)?;
        facts.get(nth + 1)?.parse().ok()
    };
    (fact("num-slaves"), fact("num-other-sentinels"))
}
