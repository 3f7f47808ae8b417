//! A simulated server, alone or beside a real one that must answer the same.

use std::time::Duration;

use redis::{Cmd, Parser, Value};

use crate::both::{Both, packed};
use crate::real::message;
use crate::store::{Connected, PROCESSES};

/// The time that passes before each request: longer and shorter than a millisecond.
const STEPS: [Duration; 3] =
    [Duration::from_micros(117), Duration::from_micros(3), Duration::from_micros(1_013)];

pub struct Simulated {
    both: Both,
    requests: usize,
}

impl Simulated {
    /// A simulated server alone.
    pub fn alone() -> Simulated {
        Simulated::with(Both::simulated_alone(1 + PROCESSES))
    }

    /// A simulated server and a real one. Each difference between them is a panic.
    pub fn beside_a_real_one() -> Simulated {
        Simulated::with(Both::start(1 + PROCESSES))
    }

    fn with(mut both: Both) -> Simulated {
        for process in 0..PROCESSES {
            both.same(1 + process, &packed(&[b"HELLO", b"3"]));
        }
        Simulated { both, requests: 0 }
    }

    fn ask(&mut self, connection: usize, bytes: &[u8]) -> Vec<Value> {
        self.requests += 1;
        self.both.advance(STEPS[self.requests % STEPS.len()]);
        let received = self.both.same(connection, bytes);
        let unknown = self.both.unknown();
        assert!(unknown.is_empty(), "not simulated: {unknown:?}");
        let (mut parser, mut rest) = (Parser::new(), &received[..]);
        // Ends with an error at the end of the bytes.
        std::iter::from_fn(|| parser.parse_value(&mut rest).ok()).collect()
    }
}

impl Connected for Simulated {
    fn run(&mut self, commands: &[Cmd]) -> Vec<Value> {
        let bytes: Vec<u8> = commands.iter().flat_map(Cmd::get_packed_command).collect();
        self.ask(0, &bytes)
    }

    fn subscribe(&mut self, process: usize, channel: &str) {
        self.ask(1 + process, &packed(&[b"SUBSCRIBE", channel.as_bytes()]));
    }

    fn unsubscribe(&mut self, process: usize, channel: &str) {
        self.ask(1 + process, &packed(&[b"UNSUBSCRIBE", channel.as_bytes()]));
    }

    fn messages(&mut self, process: usize) -> Vec<Vec<u8>> {
        let received = self.ask(1 + process, b"").into_iter();
        let messages = received.filter_map(|value| match value {
            Value::Push { kind, data } => message(kind, data),
            _ => None,
        });
        messages.collect()
    }

    fn pause(&mut self, time: Duration) {
        self.both.advance(time);
    }
}
