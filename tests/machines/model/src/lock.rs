//! The lock: processes that ask one server for it, and messages between them that may be late, lost
//! or doubled.
//!
//! A process has callers, one token for each turn, and a lease that it counts from before its
//! request was sent. Time passes in ticks, for all alike. A process that does nothing while time
//! passes is a frozen one.

use crate::message::{Action, Message};
use crate::process::{PROCESSES, Phase, Process, Token, owner};
use crate::search::Model;
use crate::server::{Answer, Block, Rules, Server};
use crate::state::State;
use crate::variant::Variant;

/// The model of a lock.
#[derive(Debug, Clone)]
pub struct Lock {
    /// Times, and the mistake.
    pub rules: Rules,
    /// Number of callers of each process.
    pub callers: [u8; PROCESSES],
    /// Number of messages that are lost or doubled, callers that leave, and processes that die.
    pub faults: u8,
    /// The ticks for which the model runs.
    pub ticks: u8,
}

impl Lock {
    fn deliver(&self, state: &mut State, message: &Message) {
        state.take(message);
        let token = message.token();
        match *message {
            Message::Ask { age, .. } => {
                let (answer, handed_off) = state.server.ask(&self.rules, &token, true);
                self.push(state, handed_off);
                if let Answer::Granted(fences) = answer {
                    let left = self.rules.ttl.saturating_sub(age);
                    self.answer(state, Message::Grant { token, left, fences });
                }
            }
            Message::Release { .. } => {
                let (_, handed_off) = state.server.release(&self.rules, &token);
                self.push(state, handed_off);
                if !state.asks(token) {
                    state.processes[owner(token)].retire(token, false);
                }
            }
            Message::Renew { age, .. } => {
                let held = state.server.renew(&self.rules, &token);
                let new = self.rules.ttl.saturating_sub(age);
                if let Some((of, left)) = state.processes[owner(token)].phase.lease()
                    && *of == token
                {
                    if held {
                        *left = new.max(*left);
                    } else {
                        state.end_turn(owner(token));
                    }
                }
            }
            Message::Grant { left, fences, .. } => self.granted(state, token, left, fences),
        }
    }

    fn push(&self, state: &mut State, handed_off: Option<(Token, Block)>) {
        if let Some((token, fences)) = handed_off {
            let left = match self.rules.variant {
                Variant::NotConfirmed => self.rules.ttl,
                _ => self.rules.confirm_window,
            };
            self.answer(state, Message::Grant { token, left, fences });
        }
    }

    /// A message to a process, which may be dead.
    fn answer(&self, state: &mut State, message: Message) {
        if state.processes[owner(message.token())].is_alive {
            state.send(message);
        }
    }

    fn granted(&self, state: &mut State, token: Token, left: u8, fences: Block) {
        let process = owner(token);
        let left = match self.rules.variant {
            Variant::CountedFromTheAnswer => self.rules.ttl,
            _ => left,
        };
        match state.processes[process].phase {
            Phase::Asking { token: asked, .. } if asked == token && left > 0 => {
                state.begin(process, token, left, fences);
            }
            // Too little is left: it is released, and asked for again.
            Phase::Asking { token: asked, .. } if asked == token => state.end_turn(process),
            // A repeated answer.
            Phase::Held { token: held, .. } | Phase::Passed { token: held, .. }
                if held == token => {}
            _ if state.processes[process].is_retired(token) => {}
            // Nobody waits for it.
            _ => state.retire(token),
        }
    }

    fn tick(&self, state: &mut State) {
        state.server.tick();
        state.flying.iter_mut().for_each(|message| message.tick(self.rules.ttl));
        state.flying.sort_unstable();
        for process in 0..state.processes.len() {
            let phase = &mut state.processes[process].phase;
            if let Phase::Asking { is_due, .. } = phase {
                *is_due = true;
            }
            let is_passed = matches!(phase, Phase::Passed { .. });
            if let Some((_, left)) = phase.lease() {
                *left = left.saturating_sub(1);
                let stays = is_passed && self.rules.variant == Variant::TakenUpTooLate;
                if *left == 0 && !stays {
                    state.end_turn(process);
                }
            }
        }
    }

    /// Whether all is done, or somebody can go on, if only after some time.
    fn goes_on(&self, state: &State) -> bool {
        let mut later = state.clone();
        later.faults = 0;
        let mut actions = Vec::new();
        for _ in 0..=self.rules.ttl + self.rules.lease {
            self.somebody(&later, &mut actions);
            if !actions.is_empty() {
                return true;
            }
            self.tick(&mut later);
        }
        let mut processes = later.processes.iter().enumerate();
        processes.all(|(number, process)| process.is_over(number))
            && later.server.held.is_none()
            && later.server.queue.is_empty()
    }

    /// What may happen without time.
    fn somebody(&self, state: &State, actions: &mut Vec<Action>) {
        for process in 0..state.processes.len() {
            self.of_process(state, process, actions);
        }
        let mut last = None;
        for message in state.flying.iter().filter(|message| last.replace(*message) != Some(message))
        {
            actions.push(Action::Deliver(message.clone()));
            if state.faults > 0 {
                actions.push(Action::Lose(message.clone()));
                actions.push(Action::Double(message.clone()));
            }
        }
    }

    fn of_process(&self, state: &State, number: usize, actions: &mut Vec<Action>) {
        let process = &state.processes[number];
        if !process.is_alive {
            return;
        }
        match process.phase {
            Phase::Idle if process.waiting > 0 && state.new_token(number).is_some() => {
                actions.push(Action::Ask(number));
            }
            Phase::Asking { token, is_due: true }
                if self.rules.variant != Variant::NeverAsksAgain
                    && !state.flies(|message| message.token() == token) =>
            {
                actions.push(Action::AskAgain(number));
            }
            Phase::Held { token, left, fences } => {
                let renews = |message: &Message| matches!(message, Message::Renew { token: t, .. } if *t == token);
                let confirms = self.rules.variant != Variant::NotConfirmed;
                if confirms && left < self.rules.ttl && !state.flies(renews) {
                    actions.push(Action::Renew(number));
                }
                if process.waiting > 0 && fences.0 <= fences.1 {
                    actions.push(Action::Pass(number));
                }
                actions.push(Action::Release(number));
            }
            Phase::Passed { .. } => actions.push(Action::TakeUp(number)),
            _ => {}
        }
        let unanswered = process.retired(number).filter(|token| !state.releases(*token));
        actions.extend(unanswered.map(Action::ReleaseAgain));
        if state.faults > 0 {
            if process.waiting > 0 {
                actions.push(Action::Drop(number));
            }
            actions.push(Action::Crash(number));
        }
    }
}

impl Model for Lock {
    type State = State;
    type Action = Action;

    fn initial(&self) -> State {
        State {
            server: Server::new(),
            processes: self.callers.map(Process::new),
            flying: Vec::new(),
            largest: 0,
            faults: self.faults,
            ticks: self.ticks,
            broken: None,
        }
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        self.somebody(state, actions);
        if state.ticks > 0 && !state.flies(|message| message.is_late(self.rules.ttl)) {
            actions.push(Action::Tick);
        }
    }

    fn next(&self, state: &State, action: &Action) -> State {
        let mut state = state.clone();
        match action {
            Action::Ask(process) => {
                if let Some(token) = state.new_token(*process) {
                    state.ask(*process, token);
                }
            }
            Action::AskAgain(process) => {
                if let Some(token) = state.processes[*process].phase.token() {
                    state.ask(*process, token);
                }
            }
            Action::Renew(process) => {
                if let Some(token) = state.processes[*process].phase.token() {
                    state.send(Message::Renew { token, age: 0 });
                }
            }
            Action::Pass(process) => state.processes[*process].phase.pass(),
            Action::TakeUp(process) => {
                if let Phase::Passed { token, left, fences } = state.processes[*process].phase {
                    let (next, last) = fences;
                    let again = self.rules.variant == Variant::FencePassedOn;
                    let fences = (if again { next - 1 } else { next }, last);
                    state.begin(*process, token, left, fences);
                }
            }
            Action::Release(process) => state.end_turn(*process),
            Action::ReleaseAgain(token) => state.send(Message::Release { token: *token }),
            Action::Drop(process) => {
                state.faults -= 1;
                state.processes[*process].waiting -= 1;
                let holds = matches!(state.processes[*process].phase, Phase::Held { .. });
                if state.processes[*process].waiting == 0 && !holds {
                    state.end_turn(*process);
                }
            }
            Action::Crash(process) => {
                state.faults -= 1;
                state.processes[*process].crash();
                let from = |message: &Message| owner(message.token()) == *process;
                let is_lost = |m: &Message| from(m) && matches!(m, Message::Grant { .. });
                state.flying.retain(|message| !is_lost(message));
            }
            Action::Deliver(message) => self.deliver(&mut state, message),
            Action::Lose(message) => {
                state.faults -= 1;
                state.take(message);
            }
            Action::Double(message) => {
                state.faults -= 1;
                state.send(message.clone());
            }
            Action::Tick => {
                state.ticks -= 1;
                self.tick(&mut state);
            }
        }
        crate::fences::compress(&mut state, self.rules.block);
        state
    }

    fn check(&self, state: &State) -> Result<(), String> {
        if let Some(broken) = state.broken {
            return Err(broken.to_owned());
        }
        let mut holders = 0;
        for (number, process) in state.processes.iter().enumerate() {
            if let Phase::Held { token, .. } = process.phase {
                holders += 1;
                if !state.server.is_held_by(&token) {
                    return Err(format!("process {number} works under a lock it does not hold"));
                }
            }
        }
        if holders > 1 {
            return Err("two processes hold the lock".to_owned());
        }
        let server = &state.server;
        if server.held.is_none() && !server.queue.is_empty() && !server.was_freed {
            return Err("the lock was released, and is free, and somebody waits".to_owned());
        }
        let at_server = server.held.iter().chain(&server.queue);
        for (token, _) in at_server {
            let process = &state.processes[owner(*token)];
            let is_known = process.phase.token() == Some(*token)
                || process.is_retired(*token)
                || state.flies(|message| message.token() == *token);
            if process.is_alive && !is_known {
                return Err(format!("the token {token} is left behind at the server"));
            }
        }
        if self.goes_on(state) { Ok(()) } else { Err("nobody can go on".to_owned()) }
    }
}
