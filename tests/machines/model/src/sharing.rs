//! A lock that clients share: shared, with permits, or exclusive, in one queue at one server.
//!
//! Requests, releases, replies and pushes may take any time, and a push may be lost. A client may
//! leave at any time, or die. Each locks once, and a lease may be renewed.
//!
//! What must hold: an exclusive body is alone; no more bodies run than there are permits; every
//! body has a lease at the server; no client is let in before one that waits for longer; whoever
//! may enter is let in by the next release or request; and nothing is left in the end.

use crate::search::Model;

/// What is wrong with a model of sharing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Variant {
    /// Nothing.
    None,
    /// A shared client is let in beside an exclusive holder.
    SharedBesideExclusive,
    /// One client more than permits is let in.
    OneMorePermit,
    /// A client that may enter does not look at those who wait.
    Overtakes,
    /// A holder counts when its lease is over.
    CountsAfterItsLease,
    /// A release removes all holders.
    ReleasesAll,
    /// Of those at the head of the queue only one is let in.
    OnlyTheFirst,
    /// A client that leaves stays in the queue.
    StaysInQueue,
}

/// The model.
#[derive(Debug, Clone)]
pub struct Sharing {
    /// The mistake.
    pub variant: Variant,
    /// The limit of each client: it is let in beside fewer holders. 1 is exclusive, 0 no limit.
    pub limits: Vec<u8>,
    /// The ticks for which a lock is granted.
    pub ttl: u8,
    /// The ticks for which it is handed off.
    pub confirm_window: u8,
    /// The ticks for which a waiter stays in the queue without asking.
    pub lease: u8,
    /// How often a client dies, or a push is lost.
    pub faults: u8,
    /// The ticks for which the model runs.
    pub ticks: u8,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Stage {
    Idle,
    /// Its request is in flight, and its lease would end after these ticks.
    Asks(u8),
    Waits,
    /// The grant is in flight.
    Granted(u8),
    /// Its body runs.
    Holds(u8),
    /// Its release is in flight.
    Leaves,
    Gone,
    Dead,
}

/// The state of all.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct State {
    clients: Vec<Stage>,
    /// Those who hold the lock at the server, with the ticks until their leases end.
    holders: Vec<(u8, u8)>,
    /// Those who wait, with the ticks until they leave.
    queue: Vec<(u8, u8)>,
    ticks: u8,
    faults: u8,
    broken: Option<&'static str>,
}

/// What happens, by the number of the client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action {
    /// It sends its request.
    Ask(usize),
    /// The request arrives.
    Asked(usize),
    /// A waiter asks again, and the request arrives at once.
    AskAgain(usize),
    /// The grant arrives: its body begins, unless the lease is over.
    Begin(usize),
    /// The push is lost.
    Lose(usize),
    /// The lease is renewed.
    Renew(usize),
    /// It ends, or gives up.
    Leave(usize),
    /// The release arrives.
    Released(usize),
    /// It does nothing any more.
    Die(usize),
    /// Time passes.
    Tick,
}

impl Sharing {
    /// Whether a client may enter beside these holders.
    fn may_enter(&self, client: u8, holders: &[(u8, u8)]) -> bool {
        let limit = self.limits[usize::from(client)];
        let is_exclusive = |(holder, _): &(u8, u8)| self.limits[usize::from(*holder)] == 1;
        match limit {
            1 => holders.is_empty(),
            _ if holders.iter().any(is_exclusive) => false,
            0 => true,
            limit => holders.len() < usize::from(limit),
        }
    }

    /// The same at the server of this variant.
    fn lets_in(&self, client: u8, state: &State) -> bool {
        let limit = self.limits[usize::from(client)];
        match self.variant {
            Variant::SharedBesideExclusive if limit == 0 => true,
            Variant::OneMorePermit if limit > 1 => state.holders.len() <= usize::from(limit),
            _ => self.may_enter(client, &state.holders),
        }
    }

    fn enter(&self, state: &mut State, client: u8, left: u8) {
        let lives = |(waiter, lease): &&(u8, u8)| {
            *lease > 0 && state.clients[usize::from(*waiter)] != Stage::Dead
        };
        if state.queue.iter().take_while(|(waiter, _)| *waiter != client).any(|one| lives(&one)) {
            state.broken = Some("a client has overtaken another one");
        }
        state.queue.retain(|(waiter, _)| *waiter != client);
        state.holders.push((client, left));
        state.holders.sort_unstable();
    }

    /// Lets in those at the head of the queue who may enter.
    fn promote(&self, state: &mut State) {
        while let Some((head, lease)) = state.queue.first().copied() {
            if lease == 0 {
                state.queue.remove(0);
                continue;
            }
            if !self.lets_in(head, state) {
                break;
            }
            self.enter(state, head, self.confirm_window.min(self.ttl));
            let stage = &mut state.clients[usize::from(head)];
            if *stage == Stage::Waits {
                *stage = Stage::Granted(self.confirm_window.min(self.ttl));
            }
            if self.variant == Variant::OnlyTheFirst {
                break;
            }
        }
        if let Some((head, _)) = state.queue.iter().find(|(_, lease)| *lease > 0)
            && self.may_enter(*head, &live(&state.holders))
        {
            state.broken = Some("a client may enter, and waits");
        }
    }

    fn asked(&self, state: &mut State, client: usize, left: u8) {
        let token = client as u8;
        if let Some(holder) = state.holders.iter_mut().find(|(holder, _)| *holder == token) {
            holder.1 = self.ttl;
            state.clients[client] = Stage::Granted(left);
            return;
        }
        match state.queue.iter_mut().find(|(waiter, _)| *waiter == token) {
            Some(waiter) => waiter.1 = self.lease,
            None => state.queue.push((token, self.lease)),
        }
        state.clients[client] = Stage::Waits;
        if self.variant == Variant::Overtakes && self.lets_in(token, state) {
            self.enter(state, token, self.ttl);
        }
        self.promote(state);
        // The reply tells what the push would.
        if let Some(holder) = state.holders.iter_mut().find(|(holder, _)| *holder == token) {
            holder.1 = self.ttl;
            state.clients[client] = Stage::Granted(left);
        }
    }
}

/// The holders whose lease is not over.
fn live(holders: &[(u8, u8)]) -> Vec<(u8, u8)> {
    holders.iter().copied().filter(|(_, left)| *left > 0).collect()
}

impl Model for Sharing {
    type State = State;
    type Action = Action;

    fn initial(&self) -> State {
        State {
            clients: vec![Stage::Idle; self.limits.len()],
            holders: Vec::new(),
            queue: Vec::new(),
            ticks: self.ticks,
            faults: self.faults,
            broken: None,
        }
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        for (client, stage) in state.clients.iter().enumerate() {
            match stage {
                Stage::Idle => actions.push(Action::Ask(client)),
                Stage::Asks(_) => actions.extend([Action::Asked(client), Action::Leave(client)]),
                Stage::Waits => actions.extend([Action::AskAgain(client), Action::Leave(client)]),
                Stage::Granted(_) => {
                    actions.extend([Action::Begin(client), Action::Leave(client)]);
                    actions.extend((state.faults > 0).then_some(Action::Lose(client)));
                }
                Stage::Holds(_) => actions.extend([Action::Renew(client), Action::Leave(client)]),
                Stage::Leaves => actions.push(Action::Released(client)),
                Stage::Gone | Stage::Dead => continue,
            }
            actions.extend((state.faults > 0).then_some(Action::Die(client)));
        }
        actions.extend((state.ticks > 0).then_some(Action::Tick));
    }

    fn next(&self, state: &State, action: &Action) -> State {
        let mut state = state.clone();
        match *action {
            Action::Ask(client) => state.clients[client] = Stage::Asks(self.ttl),
            Action::Asked(client) => {
                if let Stage::Asks(left) = state.clients[client] {
                    self.asked(&mut state, client, left);
                }
            }
            Action::AskAgain(client) => self.asked(&mut state, client, self.ttl),
            Action::Begin(client) => {
                state.clients[client] = match state.clients[client] {
                    Stage::Granted(left) if left > 0 => Stage::Holds(left),
                    _ => Stage::Leaves,
                };
            }
            Action::Lose(client) => {
                state.faults -= 1;
                state.clients[client] = Stage::Waits;
            }
            Action::Renew(client) => {
                let token = client as u8;
                match state.holders.iter_mut().find(|(holder, _)| *holder == token) {
                    Some(holder) => {
                        holder.1 = self.ttl;
                        state.clients[client] = Stage::Holds(self.ttl);
                    }
                    None => state.clients[client] = Stage::Leaves,
                }
            }
            Action::Leave(client) => state.clients[client] = Stage::Leaves,
            Action::Released(client) => {
                let token = client as u8;
                state.clients[client] = Stage::Gone;
                let before = state.holders.len();
                let was_head = state.queue.first().is_some_and(|(waiter, _)| *waiter == token);
                let all = self.variant == Variant::ReleasesAll
                    && state.holders.iter().any(|(holder, _)| *holder == token);
                state.holders.retain(|(holder, _)| *holder != token && !all);
                if self.variant != Variant::StaysInQueue {
                    state.queue.retain(|(waiter, _)| *waiter != token);
                }
                if state.holders.len() < before || was_head || before == 0 {
                    self.promote(&mut state);
                }
            }
            Action::Die(client) => {
                state.faults -= 1;
                state.clients[client] = Stage::Dead;
            }
            Action::Tick => {
                state.ticks -= 1;
                for stage in &mut state.clients {
                    *stage = match *stage {
                        Stage::Asks(left) => Stage::Asks(left.saturating_sub(1)),
                        Stage::Granted(left) => Stage::Granted(left.saturating_sub(1)),
                        // The body is stopped when the lease ends.
                        Stage::Holds(0 | 1) => Stage::Leaves,
                        Stage::Holds(left) => Stage::Holds(left - 1),
                        other => other,
                    };
                }
                for (_, left) in state.holders.iter_mut().chain(&mut state.queue) {
                    *left = left.saturating_sub(1);
                }
                if self.variant != Variant::CountsAfterItsLease {
                    state.holders.retain(|(_, left)| *left > 0);
                }
            }
        }
        state
    }

    fn check(&self, state: &State) -> Result<(), String> {
        if let Some(broken) = state.broken {
            return Err(broken.to_owned());
        }
        let bodies = |client: &usize| matches!(state.clients[*client], Stage::Holds(_));
        let bodies: Vec<_> = (0..state.clients.len()).filter(bodies).collect();
        let holds =
            |client: &usize| state.holders.iter().any(|(holder, _)| *holder == *client as u8);
        if !bodies.iter().all(holds) {
            return Err("a body has no lease at the server".to_owned());
        }
        let limits: Vec<_> = bodies.iter().map(|client| self.limits[*client]).collect();
        if limits.contains(&1) && limits.len() > 1 {
            return Err("an exclusive body is not alone".to_owned());
        }
        // With one number of permits for all.
        if limits.iter().any(|limit| *limit > 1 && limits.len() > usize::from(*limit)) {
            return Err("more bodies than permits".to_owned());
        }
        let is_over = state.clients.iter().all(|stage| *stage == Stage::Gone);
        if is_over && !(live(&state.holders).is_empty() && state.queue.is_empty()) {
            return Err("something is left behind".to_owned());
        }
        Ok(())
    }
}
