//! A Redis Cluster of the test's own.

use std::future::ready;
use std::time::{Duration, Instant};

use redis::Value;

use crate::port::Port;
use crate::times::{FAILOVER, ms};
use crate::{Admin, Certificates, Server, eventually};

const SLOTS: usize = 16_384;
/// Longer than a handshake may take.
const MEET_AGAIN: Duration = ms(3_000);

/// Primaries that share the slots, each with replicas. The primaries are the first servers.
pub struct Cluster {
    servers: Vec<Server>,
    buses: Vec<Port>,
    /// Where they speak TLS, if they do.
    _encrypted: Vec<Port>,
}

impl Cluster {
    /// Starts a cluster and waits until each of its nodes serves.
    pub async fn start(primaries: usize, replicas: usize) -> Cluster {
        Cluster::with(primaries, replicas, |_| Vec::new()).await
    }

    /// Two primaries that speak TLS at further ports, and to each other. Gives these ports as well.
    pub async fn encrypted(certificates: &Certificates) -> (Cluster, Vec<u16>) {
        let ports = [Port::any(), Port::any()];
        let numbers: Vec<_> = ports.iter().map(Port::number).collect();
        let cluster = Cluster::with(2, 0, |nth| {
            let mut more = certificates.settings("no").to_vec();
            let port = numbers[nth].to_string();
            more.extend(["--tls-port", &port, "--tls-cluster", "yes"].map(str::to_owned));
            more
        });
        let mut cluster = cluster.await;
        cluster._encrypted = ports.into();
        (cluster, numbers)
    }

    async fn with(
        primaries: usize,
        replicas: usize,
        more: impl Fn(usize) -> Vec<String>,
    ) -> Cluster {
        let buses: Vec<_> = (0..primaries * (1 + replicas)).map(|_| Port::any()).collect();
        let servers = buses.iter().enumerate().map(|(nth, bus)| {
            let (bus, more) = (bus.number().to_string(), more(nth));
            let arguments = "--cluster-enabled yes --cluster-node-timeout 1000 \
                --cluster-require-full-coverage no --cluster-replica-validity-factor 0 \
                --cluster-allow-replica-migration no --cluster-port";
            let mut arguments: Vec<_> = arguments.split_whitespace().chain([&*bus]).collect();
            arguments.extend(more.iter().map(String::as_str));
            Server::with(&arguments)
        });
        let cluster = Cluster { servers: servers.collect(), buses, _encrypted: Vec::new() };
        cluster.give_slots(primaries);
        cluster.meet().await;
        for nth in primaries..cluster.servers.len() {
            let primary = cluster.id(nth % primaries);
            cluster.admin(nth).ask::<()>(&["CLUSTER", "REPLICATE", &primary]);
        }
        cluster.serves().await;
        cluster
    }

    fn give_slots(&self, primaries: usize) {
        for nth in 0..self.servers.len() {
            let mut admin = self.admin(nth);
            admin.ask::<()>(&["CLUSTER", "SET-CONFIG-EPOCH", &(nth + 1).to_string()]);
            if nth < primaries {
                let first = (nth * SLOTS / primaries).to_string();
                let last = ((nth + 1) * SLOTS / primaries - 1).to_string();
                admin.ask::<()>(&["CLUSTER", "ADDSLOTSRANGE", &first, &last]);
            }
        }
    }

    async fn meet(&self) {
        let known = format!("cluster_known_nodes:{}\r", self.servers.len());
        let mut introduced: Option<Instant> = None;
        eventually("the nodes know each other", FAILOVER, || {
            // A node that is not answered within the timeout of the nodes, 1 s, is forgotten.
            if introduced.is_none_or(|at| at.elapsed() > MEET_AGAIN) {
                introduced = Some(Instant::now());
                let mut first = self.admin(0);
                for (server, bus) in self.servers.iter().zip(&self.buses).skip(1) {
                    let (port, bus) = (server.port().to_string(), bus.number().to_string());
                    first.ask::<()>(&["CLUSTER", "MEET", "127.0.0.1", &port, &bus]);
                }
            }
            ready(self.each(|admin| info(admin).contains(&known)))
        })
        .await;
    }

    /// Waits until each node serves and knows the owners of the slots, and each replica has its
    /// primary's data.
    pub async fn serves(&self) {
        eventually("the cluster serves", FAILOVER, || {
            ready(self.each(|admin| {
                let replication: String = admin.ask(&["INFO", "replication"]);
                let complete = replication.contains("role:master")
                    || replication.contains("master_link_status:up");
                let info = info(admin);
                // A node that does not know the owner of some slots yet is healthy, too.
                let knows = info.contains(&format!("cluster_slots_assigned:{SLOTS}\r"));
                complete && knows && info.contains("cluster_state:ok")
            }))
        })
        .await;
    }

    fn each(&self, mut holds: impl FnMut(&mut Admin) -> bool) -> bool {
        (0..self.servers.len()).all(|nth| holds(&mut self.admin(nth)))
    }

    /// The address for a client, with the primaries in it.
    pub fn url(&self) -> String {
        let hosts: Vec<String> =
            self.servers.iter().map(|server| format!("127.0.0.1:{}", server.port())).collect();
        format!("redis-cluster://{}", hosts.join(","))
    }

    /// One of its servers.
    pub fn server(&self, nth: usize) -> &Server {
        &self.servers[nth]
    }

    /// One of its servers, to kill it or to start it again.
    pub fn server_mut(&mut self, nth: usize) -> &mut Server {
        &mut self.servers[nth]
    }

    /// How many servers there are.
    pub fn size(&self) -> usize {
        self.servers.len()
    }

    /// A connection to look at a node with.
    pub fn admin(&self, nth: usize) -> Admin {
        self.servers[nth].admin()
    }

    /// The name by which the nodes know one of them.
    pub fn id(&self, nth: usize) -> String {
        self.admin(nth).ask(&["CLUSTER", "MYID"])
    }

    /// The slot of a key.
    pub fn slot(&self, key: &str) -> u16 {
        self.admin(0).ask(&["CLUSTER", "KEYSLOT", key])
    }

    /// Which server has a key, as a server sees it that runs.
    pub fn owner(&self, key: &str) -> usize {
        let (slot, start) = (i64::from(self.slot(key)), Instant::now());
        // A node that receives two messages of a failover, the older one last, has no primary
        // for a moment.
        let owner = loop {
            if let Some(owner) = self.port_of(slot) {
                break owner;
            }
            assert!(start.elapsed() < FAILOVER, "the slot is no node's");
            std::thread::sleep(ms(3));
        };
        let of_port = |server: &Server| i64::from(server.port()) == owner;
        self.servers.iter().position(of_port).expect("the node is one of ours")
    }

    fn port_of(&self, slot: i64) -> Option<i64> {
        let ranges: Vec<Vec<Value>> = self.admin(0).ask(&["CLUSTER", "SLOTS"]);
        ranges.iter().find_map(|range| match range.as_slice() {
            [Value::Int(first), Value::Int(last), Value::Array(primary), ..]
                if (*first..=*last).contains(&slot) =>
            {
                match primary[1] {
                    Value::Int(port) => Some(port),
                    _ => None,
                }
            }
            _ => None,
        })
    }

    /// A connection to the node that has a key.
    pub fn admin_of(&self, key: &str) -> Admin {
        self.admin(self.owner(key))
    }

    /// Every key there is on the primaries, sorted.
    pub fn keys(&self) -> Vec<String> {
        let mut keys = Vec::new();
        for nth in 0..self.servers.len() {
            let mut admin = self.admin(nth);
            let role: Vec<Value> = admin.ask(&["ROLE"]);
            if role[0] == Value::BulkString(b"master".to_vec()) {
                keys.extend(admin.keys());
            }
        }
        keys.sort();
        keys
    }

    /// Begins to move the slot of a key to another node.
    pub fn begin_to_move(&self, key: &str, to: usize) -> Move<'_> {
        let (slot, from) = (self.slot(key).to_string(), self.owner(key));
        let (giver, taker) = (self.id(from), self.id(to));
        self.admin(to).ask::<()>(&["CLUSTER", "SETSLOT", &slot, "IMPORTING", &giver]);
        self.admin(from).ask::<()>(&["CLUSTER", "SETSLOT", &slot, "MIGRATING", &taker]);
        Move { cluster: self, slot, from, to }
    }
}

/// A slot on its way from one node to another.
pub struct Move<'a> {
    cluster: &'a Cluster,
    slot: String,
    from: usize,
    to: usize,
}

impl Move<'_> {
    /// Carries all keys of the slot over.
    pub fn carry_keys(&self) {
        let mut admin = self.cluster.admin(self.from);
        let port = self.cluster.server(self.to).port().to_string();
        loop {
            let keys: Vec<String> = admin.ask(&["CLUSTER", "GETKEYSINSLOT", &self.slot, "100"]);
            if keys.is_empty() {
                return;
            }
            let mut migrate = vec!["MIGRATE", "127.0.0.1", &port, "", "0", "5000", "KEYS"];
            migrate.extend(keys.iter().map(String::as_str));
            // One that is gone meanwhile is no key.
            admin.ask::<Value>(&migrate);
        }
    }

    /// Carries one key over.
    pub fn carry(&self, key: &str) {
        let port = self.cluster.server(self.to).port().to_string();
        let mut admin = self.cluster.admin(self.from);
        admin.ask::<()>(&["MIGRATE", "127.0.0.1", &port, key, "0", "5000"]);
    }

    /// Carries the keys over that are still there, and tells all nodes whose the slot is.
    pub fn end(self) {
        let id = self.cluster.id(self.to);
        self.carry_keys();
        for nth in [self.to, self.from] {
            self.cluster.admin(nth).ask::<()>(&["CLUSTER", "SETSLOT", &self.slot, "NODE", &id]);
        }
    }
}

fn info(admin: &mut Admin) -> String {
    admin.ask(&["CLUSTER", "INFO"])
}
