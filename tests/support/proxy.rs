//! A network between a client and a server that delays, loses and cuts, by order.

use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use lockmacro_runtime::LockManager;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Runtime;
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;

use crate::times::TEST_TIMEOUT;
use crate::{Call, Server, eventually};

/// A fault of one command in flight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The server carries it out; its reply, and everything after it on that connection, never
    /// comes. (On TCP a reply cannot be missing and a later one arrive.)
    LoseReply,
    /// The server carries it out; the connection is cut instead of the reply.
    CutReply,
    /// The reply comes that much later, and the connection is cut right behind it.
    CutAfterReply(Duration),
    /// The connection is cut before the server sees the command.
    CutCommand,
    /// The reply comes that much later.
    DelayReply(Duration),
    /// The command, and all after it on that connection, reaches the server that much later, also
    /// when the client has given the connection up. Other connections are not held up.
    HoldCommand(Duration),
    /// The same, and what comes after it on that connection never reaches the server, as when the
    /// client aborts the connection.
    HoldLastCommand(Duration),
}

/// Which commands a fault is for.
enum Which {
    /// Those that contain the word, between the ends of lines.
    Word(String),
    /// Those that contain the text anywhere.
    Text(String),
    Call(Box<dyn Fn(&Call<'_>) -> bool + Send>),
}

/// A TCP proxy in front of a server, on a runtime of its own.
pub struct Proxy {
    address: SocketAddr,
    state: Arc<State>,
    runtime: Option<Runtime>,
}

struct State {
    server: Mutex<SocketAddr>,
    /// How much later than they came commands are passed on.
    delay: Mutex<Duration>,
    /// The fault for the next command of a kind.
    orders: Mutex<Vec<(Which, Fault)>>,
    /// Passages of commands, and what is passed on instead, of the same length.
    rewritten: Mutex<Vec<(&'static str, &'static str)>>,
    /// How many bytes of replies a second pass on a connection; 0 for any number.
    bandwidth: AtomicUsize,
    /// While true, bytes wait in both directions.
    stalled: watch::Sender<bool>,
    /// A change cuts every connection there is.
    cuts: watch::Sender<()>,
    refusing: AtomicBool,
    /// Commands that are held and that the server has not answered yet.
    held: AtomicUsize,
    accepted: AtomicUsize,
}

impl Proxy {
    /// A faultless proxy to `127.0.0.1:port`.
    pub fn to(port: u16) -> Proxy {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port for the proxy");
        listener.set_nonblocking(true).expect("a listener that does not block");
        let address = listener.local_addr().expect("a bound address");
        let state = Arc::new(State {
            server: Mutex::new(SocketAddr::from(([127, 0, 0, 1], port))),
            delay: Mutex::default(),
            orders: Mutex::default(),
            rewritten: Mutex::default(),
            bandwidth: AtomicUsize::new(0),
            stalled: watch::Sender::new(false),
            cuts: watch::Sender::new(()),
            refusing: AtomicBool::new(false),
            held: AtomicUsize::new(0),
            accepted: AtomicUsize::new(0),
        });
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .thread_name("proxy")
            .enable_all()
            .build()
            .expect("a runtime for the proxy");
        runtime.spawn(serve(listener, Arc::clone(&state)));
        Proxy { address, state, runtime: Some(runtime) }
    }

    /// A way to a server that takes so long there and back, and a manager that goes it.
    pub async fn far_away(server: &Server, round_trip: Duration) -> (Proxy, LockManager) {
        let proxy = Proxy::to(server.port());
        proxy.delay(round_trip);
        let manager = LockManager::connect(&proxy.url()).await.expect("there");
        (proxy, manager)
    }

    /// The address for a client.
    pub fn url(&self) -> String {
        format!("redis://{}", self.address)
    }

    /// The port that clients connect to.
    pub fn port(&self) -> u16 {
        self.address.port()
    }

    /// Orders a fault for the next command that contains `word`, such as `"SET"` or a key.
    pub fn on_next(&self, word: &str, fault: Fault) {
        self.order(Which::Word(format!("\r\n{word}\r\n")), fault);
    }

    /// Orders a fault for the next command that contains the text, such as `"lm1.ask("`.
    pub fn on_next_with(&self, text: &str, fault: Fault) {
        self.order(Which::Text(text.to_owned()), fault);
    }

    /// Orders a fault for the next command for which `which` holds.
    pub fn on_next_call<W>(&self, which: W, fault: Fault)
    where
        W: Fn(&Call<'_>) -> bool + Send + 'static,
    {
        self.order(Which::Call(Box::new(which)), fault);
    }

    fn order(&self, which: Which, fault: Fault) {
        self.state.orders.lock().expect("orders").push((which, fault));
    }

    /// Whether every ordered fault has happened.
    pub fn orders_are_done(&self) -> bool {
        self.state.orders.lock().expect("orders").is_empty()
    }

    /// Waits until every command that was to be held has reached the server, and was answered.
    pub async fn held_commands_arrive(&self) {
        let arrived = || {
            let none = self.state.held.load(Ordering::SeqCst) == 0;
            std::future::ready(self.orders_are_done() && none)
        };
        eventually("the held commands arrive", TEST_TIMEOUT, arrived).await;
    }

    /// Lets every command from now on reach the server that much later, as by a long way.
    pub fn delay(&self, delay: Duration) {
        *self.state.delay.lock().expect("the delay") = delay;
    }

    /// Lets this many bytes of replies a second pass on each connection from now on.
    pub fn bandwidth(&self, bytes_a_second: usize) {
        self.state.bandwidth.store(bytes_a_second, Ordering::SeqCst);
    }

    /// Passes on `new` from now on where a command has `old`, which is as long.
    pub fn rewrite(&self, old: &'static str, new: &'static str) {
        assert_eq!(old.len(), new.len(), "a command says how long its parts are");
        self.state.rewritten.lock().expect("the passages").push((old, new));
    }

    /// Leads new connections to another server; see [`Proxy::cut`] for those that there are.
    pub fn lead_to(&self, port: u16) {
        self.state.server.lock().expect("the server").set_port(port);
    }

    /// Stops or continues the forwarding of bytes; connections stay open.
    pub fn stall(&self, stalled: bool) {
        self.state.stalled.send_replace(stalled);
    }

    /// Cuts every connection there is; new ones are accepted.
    pub fn cut(&self) {
        self.state.cuts.send_replace(());
    }

    /// Cuts new connections at once, or no longer.
    pub fn refuse(&self, refusing: bool) {
        self.state.refusing.store(refusing, Ordering::SeqCst);
    }

    /// How many connections clients have opened so far.
    pub fn accepted(&self) -> usize {
        self.state.accepted.load(Ordering::SeqCst)
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            // A plain drop would block, which is not allowed inside a runtime.
            runtime.shutdown_background();
        }
    }
}

async fn serve(listener: std::net::TcpListener, state: Arc<State>) -> io::Result<()> {
    let listener = TcpListener::from_std(listener)?;
    loop {
        let (client, _) = listener.accept().await?;
        state.accepted.fetch_add(1, Ordering::SeqCst);
        if !state.refusing.load(Ordering::SeqCst) {
            tokio::spawn(connect(client, Arc::clone(&state)));
        }
    }
}

/// Forwards both directions until either ends or the connection is cut.
async fn connect(client: TcpStream, state: Arc<State>) -> io::Result<()> {
    let mut cuts = state.cuts.subscribe();
    let server = *state.server.lock().expect("the server");
    let server = TcpStream::connect(server).await?;
    client.set_nodelay(true)?;
    server.set_nodelay(true)?;
    let (from_client, to_client) = client.into_split();
    let (from_server, to_server) = server.into_split();
    let pending = Mutex::new(None);
    tokio::select! {
        _ = cuts.changed() => Ok(()),
        end = commands(from_client, to_server, &state, &pending) => end,
        end = replies(from_server, to_client, &state, &pending) => end,
    }
}

type Pending = Mutex<Option<Fault>>;

async fn commands(
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    state: &State,
    pending: &Pending,
) -> io::Result<()> {
    let mut stalled = state.stalled.subscribe();
    let (came, mut on_their_way) = mpsc::unbounded_channel::<(Instant, Vec<u8>)>();
    let reading = async move {
        let mut bytes = vec![0; 64 * 1024];
        loop {
            let length = from.read(&mut bytes).await.unwrap_or(0);
            if length == 0 {
                drop(came);
                return std::future::pending().await;
            }
            let due = Instant::now() + *state.delay.lock().expect("the delay");
            let mut came_now = bytes[..length].to_vec();
            state.rewrite(&mut came_now);
            let _ = came.send((due, came_now));
        }
    };
    let writing = async {
        while let Some((due, bytes)) = on_their_way.recv().await {
            tokio::time::sleep_until(due).await;
            let fault = state.fault_for(&bytes);
            if fault == Some(Fault::CutCommand) {
                return Ok(());
            }
            match fault {
                Some(Fault::HoldCommand(time) | Fault::HoldLastCommand(time)) => {
                    tokio::time::sleep(time).await;
                    *pending.lock().expect("the pending fault") = fault;
                }
                Some(_) => *pending.lock().expect("the pending fault") = fault,
                None => {}
            }
            wait_while_stalled(&mut stalled).await;
            to.write_all(&bytes).await?;
            if matches!(fault, Some(Fault::HoldLastCommand(_))) {
                return std::future::pending().await;
            }
        }
        // The server ends the connection when it has done what was sent before.
        to.shutdown().await?;
        std::future::pending().await
    };
    tokio::select! {
        end = reading => end,
        end = writing => end,
    }
}

async fn replies(
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    state: &State,
    pending: &Pending,
) -> io::Result<()> {
    let mut stalled = state.stalled.subscribe();
    let mut bytes = vec![0; 64 * 1024];
    loop {
        let length = from.read(&mut bytes).await?;
        if length == 0 {
            return Ok(());
        }
        let fault = pending.lock().expect("the pending fault").take();
        match fault {
            Some(Fault::LoseReply) => std::future::pending().await,
            Some(Fault::CutReply | Fault::CutCommand) => return Ok(()),
            Some(Fault::DelayReply(time)) => tokio::time::sleep(time).await,
            Some(Fault::HoldCommand(_) | Fault::HoldLastCommand(_)) => {
                state.held.fetch_sub(1, Ordering::SeqCst);
            }
            Some(Fault::CutAfterReply(time)) => {
                tokio::time::sleep(time).await;
                return to.write_all(&bytes[..length]).await;
            }
            None => {}
        }
        if let bandwidth @ 1.. = state.bandwidth.load(Ordering::SeqCst) {
            tokio::time::sleep(Duration::from_secs_f64(length as f64 / bandwidth as f64)).await;
        }
        wait_while_stalled(&mut stalled).await;
        // When the client has given the connection up, what it sent before is still in flight.
        let _ = to.write_all(&bytes[..length]).await;
    }
}

impl State {
    fn rewrite(&self, bytes: &mut [u8]) {
        for (old, new) in self.rewritten.lock().expect("the passages").iter() {
            let mut from = 0;
            while let Some(at) =
                bytes[from..].windows(old.len()).position(|at| at == old.as_bytes())
            {
                bytes[from + at..][..new.len()].copy_from_slice(new.as_bytes());
                from += at + new.len();
            }
        }
    }

    fn fault_for(&self, bytes: &[u8]) -> Option<Fault> {
        let mut orders = self.orders.lock().expect("orders");
        // Many orders may have the same word. It is searched once: a script is long, and every
        // connection waits for this search.
        let mut absent: Vec<&str> = Vec::new();
        let found = orders.iter().position(|(which, _)| match which {
            Which::Word(word) if absent.contains(&word.as_str()) => false,
            Which::Word(word) => {
                let mut parts = bytes.windows(word.len());
                let is_there = parts.any(|part| part.eq_ignore_ascii_case(word.as_bytes()));
                if !is_there {
                    absent.push(word);
                }
                is_there
            }
            Which::Text(text) => bytes.windows(text.len()).any(|part| part == text.as_bytes()),
            Which::Call(which) => Call::all(bytes).iter().any(which),
        })?;
        let (_, fault) = orders.remove(found);
        if matches!(fault, Fault::HoldCommand(_) | Fault::HoldLastCommand(_)) {
            self.held.fetch_add(1, Ordering::SeqCst);
        }
        Some(fault)
    }
}

async fn wait_while_stalled(stalled: &mut watch::Receiver<bool>) {
    // An error means that the proxy is gone, and with it the stall.
    let _ = stalled.wait_for(|stalled| !stalled).await;
}
