//! An etcd cluster of the test's own.

use std::process::{Child, Command, Stdio};
use std::sync::Mutex;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::eventually;
use crate::partition::Partition;
use crate::port::Port;
use crate::server::spawn_from_a_lasting_thread;
use crate::times::{FAILOVER, TEST_TIMEOUT};

/// One node or several on free ports of 127.0.0.1, with a directory of their own.
///
/// They are killed when dropped, and by the system when the test process dies before that. The
/// nodes reach each other through a network that can be cut.
pub struct Etcd {
    nodes: Vec<Node>,
    /// Where each node is reached by the others.
    network: Vec<Partition>,
    /// Settings of every node, and of `etcdctl`.
    settings: Vec<String>,
    tools: Mutex<Vec<String>>,
    directory: TempDir,
}

struct Node {
    clients: Port,
    peers: Port,
    child: Option<Child>,
}

impl Etcd {
    /// Starts a single node.
    pub async fn start() -> Etcd {
        Self::with(1, &[], &[]).await
    }

    /// Starts three nodes that elect a leader.
    pub async fn cluster() -> Etcd {
        Self::with(3, &[], &[]).await
    }

    /// Starts nodes with these settings, for which `etcdctl` needs those.
    pub async fn with(nodes: usize, settings: &[&str], tools: &[&str]) -> Etcd {
        let node = |_| Node { clients: Port::any(), peers: Port::any(), child: None };
        let nodes: Vec<_> = (0..nodes).map(node).collect();
        let network = nodes.iter().map(|node| Partition::to(node.peers.number())).collect();
        // In memory, where there is such a place: a disk of a test machine may take seconds.
        let memory = std::path::Path::new("/dev/shm");
        let directory = if memory.is_dir() { TempDir::new_in(memory) } else { tempfile::tempdir() };
        let owned = |texts: &[&str]| texts.iter().map(|&text| text.to_owned()).collect::<Vec<_>>();
        let mut this = Etcd {
            nodes,
            network,
            settings: owned(settings),
            tools: Mutex::new(owned(tools)),
            directory: directory.expect("a directory for etcd"),
        };
        (0..this.nodes.len()).for_each(|node| this.launch(node));
        this.answers().await;
        this
    }

    /// The addresses for clients.
    pub fn endpoints(&self) -> Vec<String> {
        self.nodes.iter().map(|node| self.endpoint(node.clients.number())).collect()
    }

    /// The address of a port, which may be that of a proxy.
    pub fn endpoint(&self, port: u16) -> String {
        let is_tls = self.settings.iter().any(|setting| setting == "--cert-file");
        format!("{}://127.0.0.1:{port}", if is_tls { "https" } else { "http" })
    }

    /// The port that clients of a node connect to.
    pub fn port(&self, node: usize) -> u16 {
        self.nodes[node].clients.number()
    }

    /// Waits until a majority agrees.
    pub async fn answers(&self) {
        let asks = || async { self.try_ctl(&["get", "any"]).is_some() };
        eventually("etcd answers", FAILOVER, asks).await;
    }

    /// The node that leads, as soon as there is one among those that run.
    pub async fn leader(&self) -> usize {
        let mut leader = None;
        eventually("there is a leader", FAILOVER, || {
            leader = (0..self.nodes.len()).find(|&node| self.leads(node));
            std::future::ready(leader.is_some())
        })
        .await;
        leader.expect("it was found")
    }

    fn leads(&self, node: usize) -> bool {
        let endpoint = self.endpoint(self.port(node));
        let asked = ["--endpoints", &endpoint, "endpoint", "status", "-w", "fields"];
        let Some(status) = self.try_ctl(&asked) else { return false };
        let field = |name: &str| {
            status.lines().find_map(|line| line.strip_prefix(&format!("\"{name}\" : ")))
        };
        field("Leader").is_some_and(|leader| field("MemberID") == Some(leader))
    }

    /// Runs `etcdctl`, which must succeed. Returns what it says.
    pub fn ctl(&self, arguments: &[&str]) -> String {
        let said = self.ctl_within(TEST_TIMEOUT, arguments);
        said.unwrap_or_else(|| panic!("etcdctl {arguments:?} failed"))
    }

    /// The same, or `None` if it fails.
    pub fn try_ctl(&self, arguments: &[&str]) -> Option<String> {
        self.ctl_within(Duration::from_secs(2), arguments)
    }

    fn ctl_within(&self, time: Duration, arguments: &[&str]) -> Option<String> {
        let mut command = Command::new("etcdctl");
        command.env("ETCDCTL_API", "3").arg(format!("--command-timeout={}s", time.as_secs()));
        if !arguments.contains(&"--endpoints") {
            command.args(["--endpoints", &self.endpoints().join(",")]);
        }
        command.args(&*self.tools.lock().expect("no panic")).args(arguments);
        let said = command.stderr(Stdio::null()).output();
        let said = said.expect("etcdctl is installed: run `sh tests/run`");
        said.status.success().then(|| String::from_utf8(said.stdout).expect("a text"))
    }

    /// Wants a login from now on. `root` has this password.
    pub fn wants_logins(&self, password: &str) {
        self.ctl(&["user", "add", &format!("root:{password}")]);
        self.ctl(&["user", "grant-role", "root", "root"]);
        self.ctl(&["auth", "enable"]);
        self.tools.lock().expect("no panic").push(format!("--user=root:{password}"));
    }

    /// The revision: how often something was written, and where fences are.
    pub fn revision(&self) -> u64 {
        let status = self.ctl(&["get", "any", "-w", "fields"]);
        let revision = status.lines().find_map(|line| line.strip_prefix("\"Revision\" : "));
        revision.and_then(|revision| revision.trim().parse().ok()).expect("a revision")
    }

    /// A metric of the first node.
    pub async fn metric(&self, name: &str) -> usize {
        let node = TcpStream::connect(("127.0.0.1", self.port(0))).await;
        let mut node = node.expect("it listens");
        // The answer to this version comes in one piece.
        let get = b"GET /metrics HTTP/1.0\r\nHost: etcd\r\n\r\n";
        node.write_all(get).await.expect("it is there");
        let mut text = String::new();
        node.read_to_string(&mut text).await.expect("a text");
        let value = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        let value = value.unwrap_or_else(|| panic!("no {name} in {text}"));
        value.trim().parse().expect("a number")
    }

    /// How many keys and leases there are.
    pub fn left(&self) -> (usize, usize) {
        self.try_left().expect("etcd answers")
    }

    fn try_left(&self) -> Option<(usize, usize)> {
        let keys = self.try_ctl(&["get", "", "--prefix", "--keys-only"])?;
        let leases = self.try_ctl(&["lease", "list"])?;
        let keys = keys.lines().filter(|line| !line.is_empty()).count();
        Some((keys, leases.lines().skip(1).count()))
    }

    /// Waits until there is no key and no lease, as it must be soon after every test.
    pub async fn keeps_nothing(&self) {
        let nothing = || async { self.try_left() == Some((0, 0)) };
        eventually("nothing is left", TEST_TIMEOUT, nothing).await;
    }

    /// Stops a node (SIGSTOP): connections stay open, nothing is answered.
    pub fn pause(&self, node: usize) {
        self.signal(node, Signal::STOP);
    }

    /// Lets a paused node go on.
    pub fn resume(&self, node: usize) {
        self.signal(node, Signal::CONT);
    }

    fn signal(&self, node: usize, signal: Signal) {
        let child = self.nodes[node].child.as_ref().expect("it runs");
        kill_process(Pid::from_child(child), signal).expect("it runs");
    }

    /// Kills a node. Its ports then refuse connections until [`Etcd::restart`].
    pub fn kill(&mut self, node: usize) {
        if let Some(mut child) = self.nodes[node].child.take() {
            child.kill().expect("it can be killed");
            child.wait().expect("it can be waited for");
        }
    }

    /// Starts a node again, with what it has written.
    pub fn restart(&mut self, node: usize) {
        self.launch(node);
    }

    /// Cuts a node off from the others, or no longer. Clients reach it all the same.
    pub fn cut_off(&self, node: usize, is_cut: bool) {
        let members = self.ctl(&["member", "list"]);
        let named = |line: &&str| line.split(", ").nth(2) == Some(&format!("node-{node}"));
        let id = members.lines().find(named).and_then(|line| line.split(", ").next());
        let id = id.expect("a member");
        for (other, network) in self.network.iter().enumerate() {
            if other == node { network.cut_all(is_cut) } else { network.cut_from(id, is_cut) }
        }
    }

    fn launch(&mut self, node: usize) {
        let scheme = |port: u16| format!("http://127.0.0.1:{port}");
        let peers = self.network.iter().enumerate();
        let peers = peers.map(|(nth, way)| format!("node-{nth}={}", scheme(way.port())));
        let cluster = peers.collect::<Vec<_>>().join(",");
        let clients = self.endpoint(self.port(node));
        // setpriv (util-linux) lets the kernel kill the server when the test process dies.
        let mut command = Command::new("setpriv");
        command
            .args(["--pdeathsig", "KILL", "etcd", "--name", &format!("node-{node}")])
            .arg("--data-dir")
            .arg(self.directory.path().join(node.to_string()))
            .args(["--listen-client-urls", &clients, "--advertise-client-urls", &clients])
            .args(["--listen-peer-urls", &scheme(self.nodes[node].peers.number())])
            .args(["--initial-advertise-peer-urls", &scheme(self.network[node].port())])
            .args(["--initial-cluster", &cluster, "--log-level", "error"])
            .args(&self.settings)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        self.nodes[node].child = Some(spawn_from_a_lasting_thread(command));
    }
}

impl Drop for Etcd {
    fn drop(&mut self) {
        (0..self.nodes.len()).for_each(|node| self.kill(node));
    }
}
