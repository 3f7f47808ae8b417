//! A real server and a simulated one with the same clock, which are sent the same bytes.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::time::Duration;

use lockmacro_simulation_tests::server::{ConnectionId, Output, Server};
use lockmacro_tests::Clock;

/// The date on which the servers start.
const START: Duration = Duration::from_micros(1_900_000_000_123_456);

/// Both servers, with a number of connections to each; or the simulated one alone.
pub struct Both {
    real: Option<Real>,
    simulated: Server,
    connections: Vec<Connection>,
    now: Duration,
    marks: u64,
}

struct Real {
    clock: Arc<Clock>,
    // Last: the connections go before their server.
    streams: Vec<TcpStream>,
    _server: lockmacro_tests::Server,
}

/// A connection to the simulated server.
struct Connection {
    id: ConnectionId,
    /// What it has received and was not compared yet.
    received: Vec<u8>,
}

/// What a connection to the real server and one to the simulated server have received.
pub struct Received {
    pub real: Vec<u8>,
    pub simulated: Vec<u8>,
}

impl Both {
    pub fn start(connections: usize) -> Both {
        let clock = Arc::new(Clock::at(START));
        let server = lockmacro_tests::Server::with_clock(Arc::clone(&clock));
        let open = |_| {
            let stream = TcpStream::connect(("127.0.0.1", server.port())).expect("it listens");
            stream.set_read_timeout(Some(Duration::from_secs(20))).expect("a socket");
            stream.set_nodelay(true).expect("a socket");
            stream
        };
        let mut streams: Vec<TcpStream> = (0..connections).map(open).collect();
        // The real server had other clients before.
        let earlier = number_of(&mut streams[0]) - 1;
        let real = Real { clock, streams, _server: server };
        Both::with(Some(real), connections, earlier)
    }

    /// The simulated server alone.
    pub fn simulated_alone(connections: usize) -> Both {
        Both::with(None, connections, 0)
    }

    fn with(real: Option<Real>, connections: usize, earlier: u64) -> Both {
        let mut simulated = Server::new();
        for _ in 0..earlier {
            let id = simulated.connect();
            simulated.disconnect(id);
        }
        let connect = |_| Connection { id: simulated.connect(), received: Vec::new() };
        let connections = (0..connections).map(connect).collect();
        Both { real, simulated, connections, now: START, marks: 0 }
    }

    /// What clients sent and the simulated server does not know.
    pub fn unknown(&self) -> &[String] {
        self.simulated.unknown()
    }

    /// Lets time pass on both.
    pub fn advance(&mut self, time: Duration) {
        self.now += time;
        if let Some(real) = &self.real {
            real.clock.set(self.now);
        }
    }

    /// Sends bytes on a connection; returns what was received on it since the last time.
    pub fn ask(&mut self, nth: usize, bytes: &[u8]) -> Received {
        self.marks += 1;
        let mark = format!("mark-{}", self.marks);
        let bytes = [bytes, &packed(&[b"PING", mark.as_bytes()])].concat();
        let mark = format!("${}\r\n{mark}\r\n", mark.len()).into_bytes();
        for output in self.simulated.receive(self.connections[nth].id, &bytes, self.now) {
            if let Output::Send(to, bytes) = output {
                let to = self.connections.iter_mut().find(|connection| connection.id == to);
                to.expect("a connection").received.extend(bytes);
            }
        }
        let mut simulated = std::mem::take(&mut self.connections[nth].received);
        let end = simulated.len().saturating_sub(mark.len());
        let is_marked = simulated.ends_with(&mark);
        simulated.truncate(if is_marked { end } else { simulated.len() });
        let real = match &mut self.real {
            Some(real) => exchange(&mut real.streams[nth], &bytes, &mark),
            None => simulated.clone(),
        };
        Received { real, simulated }
    }

    /// Sends bytes on a connection, asserts that both servers answer the same, and returns the
    /// answer.
    pub fn same(&mut self, nth: usize, bytes: &[u8]) -> Vec<u8> {
        let received = self.ask(nth, bytes);
        if let Some(difference) = received.difference() {
            panic!("{} on {nth}:\n{difference}", bytes.escape_ascii());
        }
        received.real
    }
}

impl Received {
    pub fn difference(&self) -> Option<String> {
        let (real, simulated) = (self.real.escape_ascii(), self.simulated.escape_ascii());
        let differ = self.real != self.simulated;
        differ.then(|| format!("  real      {real}\n  simulated {simulated}"))
    }
}

/// Sends bytes, and reads what comes before the mark, or before the end of the connection.
fn exchange(stream: &mut TcpStream, bytes: &[u8], mark: &[u8]) -> Vec<u8> {
    // The server may have closed the connection.
    let _ = stream.write_all(bytes);
    let (mut received, mut buffer) = (Vec::new(), [0; 1 << 16]);
    loop {
        match stream.read(&mut buffer) {
            Ok(0) | Err(_) => return received,
            Ok(count) => received.extend_from_slice(&buffer[..count]),
        }
        if received.ends_with(mark) {
            received.truncate(received.len() - mark.len());
            return received;
        }
    }
}

fn number_of(stream: &mut TcpStream) -> u64 {
    let reply = exchange(stream, b"CLIENT ID\r\nPING end\r\n", b"$3\r\nend\r\n");
    let reply = String::from_utf8_lossy(&reply);
    reply.trim().trim_start_matches(':').parse().expect("a number")
}

pub fn packed(words: &[&[u8]]) -> Vec<u8> {
    let mut bytes = format!("*{}\r\n", words.len()).into_bytes();
    for word in words {
        bytes.extend(format!("${}\r\n", word.len()).bytes());
        bytes.extend_from_slice(word);
        bytes.extend_from_slice(b"\r\n");
    }
    bytes
}
