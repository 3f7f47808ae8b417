//! The state of all processes, of the server and of what is on its way.

use crate::message::Message;
use crate::process::{PROCESSES, Phase, Process, Token, owner};
use crate::server::{Block, Server};

/// The state of all.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct State {
    pub(crate) server: Server<Token>,
    pub(crate) processes: [Process; PROCESSES],
    /// Sorted.
    pub(crate) flying: Vec<Message>,
    /// The largest fence of a body.
    pub(crate) largest: u64,
    pub(crate) faults: u8,
    pub(crate) ticks: u8,
    pub(crate) broken: Option<&'static str>,
}

impl State {
    pub(crate) fn send(&mut self, message: Message) {
        let at = self.flying.partition_point(|other| *other <= message);
        self.flying.insert(at, message);
    }

    pub(crate) fn take(&mut self, message: &Message) {
        if let Some(at) = self.flying.iter().position(|other| other == message) {
            self.flying.remove(at);
        }
    }

    pub(crate) fn flies(&self, is: impl Fn(&Message) -> bool) -> bool {
        self.flying.iter().any(is)
    }

    pub(crate) fn asks(&self, token: Token) -> bool {
        self.flies(|message| matches!(message, Message::Ask { token: t, .. } if *t == token))
    }

    pub(crate) fn releases(&self, token: Token) -> bool {
        self.flies(|message| *message == Message::Release { token })
    }

    /// Whether anybody knows a token. One that nobody knows may be used as a new one.
    pub(crate) fn is_known(&self, token: Token) -> bool {
        let process = &self.processes[owner(token)];
        self.server.is_held_by(&token)
            || self.server.waits(&token)
            || process.phase.token() == Some(token)
            || process.is_retired(token)
            || self.flies(|message| message.token() == token)
    }

    pub(crate) fn new_token(&self, process: usize) -> Option<Token> {
        Process::tokens(process).find(|token| !self.is_known(*token))
    }

    pub(crate) fn ask(&mut self, process: usize, token: Token) {
        self.processes[process].phase = Phase::Asking { token, is_due: false };
        self.send(Message::Ask { token, age: 0 });
    }

    /// Releases a token until the server has answered, and no copy of a request may still arrive.
    pub(crate) fn retire(&mut self, token: Token) {
        self.processes[owner(token)].retire(token, true);
        if !self.releases(token) {
            self.send(Message::Release { token });
        }
    }

    /// The turn of a process ends: its token is released, and the next one is asked for. The two
    /// messages may arrive in any order.
    pub(crate) fn end_turn(&mut self, process: usize) {
        let token = self.processes[process].phase.token();
        self.processes[process].phase = Phase::Idle;
        token.into_iter().for_each(|token| self.retire(token));
        if self.processes[process].waiting > 0
            && let Some(new) = self.new_token(process)
        {
            self.ask(process, new);
        }
    }

    /// A body begins under the lock, with the next fence.
    pub(crate) fn begin(&mut self, process: usize, token: Token, left: u8, (fence, last): Block) {
        self.processes[process].waiting -= 1;
        self.processes[process].phase = Phase::Held { token, left, fences: (fence + 1, last) };
        if fence <= self.largest {
            self.broken = Some("a fence is not larger than every earlier one");
        }
        self.largest = self.largest.max(fence);
    }
}
