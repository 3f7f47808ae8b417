//! The fence of a Redlock: three nodes, of which one may come back empty, and clients that ask all
//! of them.
//!
//! A node's clock may be ahead of another's, and its fences do not fall below its clock. A client
//! that has a majority takes the largest fence of its nodes (round 1), and has a majority raise
//! theirs to it (round 2). Messages of one client to one node may take any time, and so come in any
//! order among nodes.

use crate::search::Model;
use crate::variant::Variant;

const NODES: usize = 3;
const MAJORITY: usize = 2;

/// The model of a Redlock's fence.
#[derive(Debug, Clone)]
pub struct Redlock {
    /// The mistake.
    pub variant: Variant,
    /// Number of clients, each of which locks once.
    pub clients: usize,
    /// The ticks for which a lock is granted.
    pub ttl: u8,
    /// The ticks by which the clock of each node is ahead.
    pub ahead: [u8; NODES],
    /// How often a node comes back empty.
    pub restarts: u8,
    /// The ticks for which the model runs.
    pub ticks: u8,
}

/// A node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
struct Node {
    /// The holder, and the ticks until its lease ends.
    held: Option<(u8, u8)>,
    fence: u8,
    /// The ticks for which it has no vote, after it came back.
    young: u8,
}

/// A client.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Client {
    stage: Stage,
    /// The fence of each node that has granted the lock.
    votes: [Option<u8>; NODES],
    /// The nodes that have raised their fence.
    raised: [bool; NODES],
    /// The ticks until its lease ends.
    left: u8,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Stage {
    Waits,
    Asks,
    Raises { fence: u8 },
    Holds,
    // At these nodes.
    Gone { released: [bool; NODES] },
}

/// The state of all.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct State {
    nodes: [Node; NODES],
    clients: Vec<Client>,
    now: u8,
    largest: u8,
    restarts: u8,
    broken: Option<&'static str>,
}

/// What happens. The numbers are those of the client and of the node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action {
    /// A client begins to ask all nodes.
    Ask(usize),
    /// A node grants the lock, and tells its next fence.
    Vote(usize, usize),
    /// The client has a majority, and the largest fence.
    Choose(usize),
    /// A node raises its fence.
    Raise(usize, usize),
    /// A majority has raised theirs: the client holds the lock.
    Hold(usize),
    /// The client ends, or gives up.
    Leave(usize),
    /// A node releases the lock.
    Release(usize, usize),
    /// A node comes back without its locks and its fence.
    Restart(usize),
    /// Time passes.
    Tick,
}

impl Client {
    fn asks(&self) -> bool {
        !matches!(self.stage, Stage::Waits | Stage::Gone { .. })
    }
}

/// A client needs its lock no more. It releases it at the nodes that have granted it.
fn leave(client: &mut Client) {
    let released = client.votes.map(|vote| vote.is_none());
    *client = Client { stage: Stage::Gone { released }, ..WAITS };
}

const WAITS: Client =
    Client { stage: Stage::Waits, votes: [None; NODES], raised: [false; NODES], left: 0 };

impl Redlock {
    fn is_forgetful(&self) -> bool {
        self.variant == Variant::ForgetfulNodeVotes
    }

    fn of_client(&self, state: &State, number: usize, actions: &mut Vec<Action>) {
        let client = &state.clients[number];
        let id = number as u8;
        let nodes = || (0..NODES).map(|node| (node, &state.nodes[node]));
        match client.stage {
            Stage::Waits => actions.push(Action::Ask(number)),
            Stage::Asks => {
                for (nth, node) in nodes() {
                    let is_free = node.held.is_none() && node.young == 0;
                    if is_free && client.votes[nth].is_none() {
                        actions.push(Action::Vote(number, nth));
                    }
                }
                if client.votes.iter().flatten().count() >= MAJORITY {
                    actions.push(Action::Choose(number));
                }
                actions.push(Action::Leave(number));
            }
            Stage::Raises { .. } => {
                for (nth, node) in nodes() {
                    let holds = node.held.is_some_and(|(held, _)| held == id);
                    // A node that came back is known by its name, and is not counted.
                    if client.votes[nth].is_some() && holds && !client.raised[nth] {
                        actions.push(Action::Raise(number, nth));
                    }
                }
                if client.raised.iter().filter(|raised| **raised).count() >= MAJORITY {
                    actions.push(Action::Hold(number));
                }
                actions.push(Action::Leave(number));
            }
            Stage::Holds => actions.push(Action::Leave(number)),
            Stage::Gone { released } => {
                let open = (0..NODES).filter(|node| !released[*node]);
                actions.extend(open.map(|node| Action::Release(number, node)));
            }
        }
    }

    fn hold(&self, state: &mut State, number: usize, fence: u8) {
        state.clients[number].stage = Stage::Holds;
        if fence <= state.largest {
            state.broken = Some("a fence is not larger than every earlier one");
        }
        state.largest = state.largest.max(fence);
    }
}

impl Model for Redlock {
    type State = State;
    type Action = Action;

    fn initial(&self) -> State {
        State {
            nodes: [Node::default(); NODES],
            clients: vec![WAITS; self.clients],
            // Later than a node that came back may vote again.
            now: 1,
            largest: 0,
            restarts: self.restarts,
            broken: None,
        }
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        for client in 0..state.clients.len() {
            self.of_client(state, client, actions);
        }
        if state.restarts > 0 {
            actions.extend((0..NODES).map(Action::Restart));
        }
        if state.now <= self.ticks {
            actions.push(Action::Tick);
        }
    }

    fn next(&self, state: &State, action: &Action) -> State {
        let mut state = state.clone();
        match *action {
            Action::Ask(client) => {
                state.clients[client].stage = Stage::Asks;
                state.clients[client].left = self.ttl;
            }
            Action::Vote(client, nth) => {
                let node = &mut state.nodes[nth];
                node.fence = (node.fence + 1).max(state.now + self.ahead[nth]);
                node.held = Some((client as u8, self.ttl));
                state.clients[client].votes[nth] = Some(node.fence);
            }
            Action::Choose(client) => {
                let votes = state.clients[client].votes.iter().flatten();
                let fence = match self.variant {
                    Variant::FenceOfOneNode => votes.copied().next(),
                    _ => votes.copied().max(),
                };
                let fence = fence.unwrap_or_default();
                match self.variant {
                    Variant::NoSecondRound | Variant::FenceOfOneNode => {
                        self.hold(&mut state, client, fence);
                    }
                    _ => state.clients[client].stage = Stage::Raises { fence },
                }
            }
            Action::Raise(client, nth) => {
                if let Stage::Raises { fence } = state.clients[client].stage {
                    state.nodes[nth].fence = state.nodes[nth].fence.max(fence);
                    state.clients[client].raised[nth] = true;
                }
            }
            Action::Hold(client) => {
                if let Stage::Raises { fence } = state.clients[client].stage {
                    self.hold(&mut state, client, fence);
                }
            }
            Action::Leave(client) => leave(&mut state.clients[client]),
            Action::Release(client, nth) => {
                let node = &mut state.nodes[nth];
                node.held = node.held.filter(|(held, _)| usize::from(*held) != client);
                if let Stage::Gone { released } = &mut state.clients[client].stage {
                    released[nth] = true;
                }
            }
            Action::Restart(nth) => {
                state.restarts -= 1;
                let young = if self.is_forgetful() { 0 } else { self.ttl };
                state.nodes[nth] = Node { young, ..Node::default() };
            }
            Action::Tick => {
                state.now += 1;
                for node in &mut state.nodes {
                    node.young = node.young.saturating_sub(1);
                    node.held =
                        node.held.and_then(|(held, left)| (left > 1).then_some((held, left - 1)));
                }
                for client in 0..state.clients.len() {
                    let asked = state.clients[client].asks();
                    let left = &mut state.clients[client].left;
                    *left = left.saturating_sub(1);
                    if asked && *left == 0 {
                        leave(&mut state.clients[client]);
                    }
                }
            }
        }
        state
    }

    fn check(&self, state: &State) -> Result<(), String> {
        if let Some(broken) = state.broken {
            return Err(broken.to_owned());
        }
        let holders = state.clients.iter().filter(|client| client.stage == Stage::Holds).count();
        if holders > 1 { Err("two clients hold the lock".to_owned()) } else { Ok(()) }
    }
}
