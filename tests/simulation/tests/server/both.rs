//! A real server and a simulated one, which are sent the same bytes.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use lockmacro_simulation_tests::server::{ConnectionId, Output, Server};

/// Both servers, with a number of connections to each.
pub struct Both {
    _real: lockmacro_tests::Server,
    streams: Vec<TcpStream>,
    simulated: Server,
    ids: Vec<ConnectionId>,
    /// What the simulated server has sent to each connection, and what was not compared yet.
    sent: Vec<Vec<u8>>,
    sends: u64,
}

impl Both {
    pub fn start(connections: usize) -> Both {
        Both::with(connections, &[])
    }

    pub fn with(connections: usize, arguments: &[&str]) -> Both {
        let real = lockmacro_tests::Server::with(arguments);
        let mut simulated = Server::new();
        let open = |_| {
            let stream = TcpStream::connect(("127.0.0.1", real.port())).expect("it listens");
            stream.set_read_timeout(Some(Duration::from_secs(20))).expect("a socket");
            stream.set_nodelay(true).expect("a socket");
            stream
        };
        let mut streams: Vec<TcpStream> = (0..connections).map(open).collect();
        // The real one had other clients before.
        for _ in 1..number_of_the_first(&mut streams[0]) {
            let id = simulated.connect();
            simulated.disconnect(id);
        }
        let ids = (0..connections).map(|_| simulated.connect()).collect();
        let sent = vec![Vec::new(); connections];
        Both { _real: real, streams, simulated, ids, sent, sends: 0 }
    }

    pub fn simulated(&self) -> &Server {
        &self.simulated
    }

    /// Sends words on a connection, and returns what the real and the simulated server sent on it.
    pub fn ask(&mut self, nth: usize, words: &[&[u8]]) -> (Vec<u8>, Vec<u8>) {
        self.send(nth, &packed(words));
        self.received(nth)
    }

    fn send(&mut self, nth: usize, bytes: &[u8]) {
        // The real one may close the connection.
        let _ = self.streams[nth].write_all(bytes);
        let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("a date");
        for output in self.simulated.receive(self.ids[nth], bytes, now) {
            if let Output::Send(to, bytes) = output {
                let to = self.ids.iter().position(|id| *id == to).expect("a connection");
                self.sent[to].extend(bytes);
            }
        }
    }

    /// What both have sent on a connection since the last time.
    pub fn received(&mut self, nth: usize) -> (Vec<u8>, Vec<u8>) {
        self.sends += 1;
        let mark = format!("mark-{}", self.sends);
        self.send(nth, &packed(&[b"PING", mark.as_bytes()]));
        let mark = format!("{mark}\r\n").into_bytes();
        let (mut real, mut buffer) = (Vec::new(), [0; 1 << 16]);
        while !real.ends_with(&mark) {
            match self.streams[nth].read(&mut buffer) {
                Ok(0) | Err(_) => break,
                Ok(count) => real.extend_from_slice(&buffer[..count]),
            }
        }
        (real, std::mem::take(&mut self.sent[nth]))
    }

    /// Sends a line of words on a connection, and asserts that all connections receive the same.
    pub fn same(&mut self, nth: usize, line: &str) {
        let words = words(line);
        let words: Vec<&[u8]> = words.iter().map(Vec::as_slice).collect();
        let replies = self.ask(nth, &words);
        compare(line, nth, &replies);
        for other in (0..self.ids.len()).filter(|other| *other != nth) {
            let received = self.received(other);
            compare(line, other, &received);
        }
    }
}

fn number_of_the_first(stream: &mut TcpStream) -> u64 {
    stream.write_all(b"CLIENT ID\r\n").expect("it listens");
    let mut reply = [0; 64];
    let length = stream.read(&mut reply).expect("it answers");
    let reply = String::from_utf8_lossy(&reply[..length]);
    reply.trim().trim_start_matches(':').parse().expect("a number")
}

fn compare(line: &str, nth: usize, (real, simulated): &(Vec<u8>, Vec<u8>)) {
    let (real, simulated) = (real.escape_ascii().to_string(), simulated.escape_ascii().to_string());
    assert!(real == simulated, "{line}, on {nth}:\n real      {real}\n simulated {simulated}");
}

/// Sends the lines to both, in each version of the protocol, and asserts the same replies.
pub fn same_replies(lines: &[&str]) {
    let mut both = Both::start(1);
    let mut differences = Vec::new();
    for protocol in ["2", "3"] {
        for line in [format!("HELLO {protocol}"), "FLUSHALL".to_owned()] {
            both.same(0, &line);
        }
        for line in lines {
            let words = words(line);
            let words: Vec<&[u8]> = words.iter().map(Vec::as_slice).collect();
            let (real, simulated) = both.ask(0, &words);
            if real != simulated {
                let (real, simulated) = (real.escape_ascii(), simulated.escape_ascii());
                differences.push(format!("{line}:\n  real      {real}\n  simulated {simulated}"));
            }
        }
    }
    assert!(differences.is_empty(), "{}", differences.join("\n"));
}

/// The words of a line. Those in quotes may have spaces, and line breaks as `\n`.
pub fn words(line: &str) -> Vec<Vec<u8>> {
    let (mut words, mut quoted, mut begun) = (vec![Vec::new()], false, false);
    let mut characters = line.chars();
    while let Some(character) = characters.next() {
        let word = words.last_mut().expect("there is always one");
        match character {
            '"' => (quoted, begun) = (!quoted, true),
            '\\' => match characters.next().expect("an escaped character") {
                'n' => word.push(b'\n'),
                'r' => word.push(b'\r'),
                'x' => {
                    let digits: String = characters.by_ref().take(2).collect();
                    word.push(u8::from_str_radix(&digits, 16).expect("two digits"));
                }
                other => word.extend(other.to_string().bytes()),
            },
            ' ' if !quoted => {
                if begun || !word.is_empty() {
                    words.push(Vec::new());
                    begun = false;
                }
            }
            other => word.extend(other.to_string().bytes()),
        }
    }
    words
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
