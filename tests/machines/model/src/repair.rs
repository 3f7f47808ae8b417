//! A Redlock whose holder renews, and repairs nodes that have forgotten it: three nodes, each of
//! which may come back empty at any time, and a rival that asks all of them.
//!
//! A repair is sent in a round of renewals in which a majority of other nodes has said yes. It may
//! be in flight for any time, but not past a restart of its node, which ends the connection.
//!
//! There are no fences and no releases here: once one of the two has no lease, the other is alone.

use crate::search::Model;

const NODES: usize = 3;
const HOLDER: usize = 0;

/// A mistake that the search must find.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Variant {
    /// Nothing.
    None,
    /// A holder repairs while it believes in its lease, without a majority in the same round.
    WithoutMajority,
    /// A holder repairs for as long as the round's lease lasts.
    Late,
    /// A repair reaches a node that was restarted after it was sent.
    OnAnotherConnection,
    /// A repair takes the place of another client's lock.
    Overwrites,
    /// A lease has no allowance for clocks that run faster.
    NoAllowance,
}

/// The model. Times are ticks.
#[derive(Debug, Clone)]
pub struct Repair {
    /// The mistake.
    pub variant: Variant,
    /// The ttls of the holder and of the rival.
    pub ttls: [u8; 2],
    /// How long a node has no vote after a restart: the longest ttl.
    pub young: u8,
    /// How long the rival collects votes, after the tick in which it begins.
    pub attempt: u8,
    /// Until when a repair is sent, after the tick in which its round begins.
    pub repair: u8,
    /// By how much the first node's clock is faster in a ttl, and a lease shorter.
    pub drift: u8,
    /// How often a node comes back empty.
    pub restarts: u8,
    /// For how long the model runs.
    pub ticks: u8,
}

/// A set of nodes.
type Nodes = [bool; NODES];

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
struct Node {
    /// The holder, and the time until the node forgets it.
    held: Option<(u8, u8)>,
    young: u8,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Client {
    stage: Stage,
    /// The nodes that have granted the lock.
    votes: Nodes,
    /// The time since the attempt or the round began.
    age: u8,
    /// What the lease has left.
    left: u8,
    /// The nodes that have said yes, and no, in this round.
    yes: Nodes,
    no: Nodes,
    /// The repairs that are in flight, with the ttl that they bring.
    repairs: [u8; NODES],
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Stage {
    Waits,
    Asks,
    Holds,
    Gone,
}

/// The state of all.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct State {
    nodes: [Node; NODES],
    clients: [Client; 2],
    now: u8,
    restarts: u8,
}

/// What happens. The numbers are those of the client and of the node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action {
    /// A client begins to ask all nodes.
    Ask(usize),
    /// A node grants the lock.
    Vote(usize, usize),
    /// The client has a majority, and holds the lock.
    Hold(usize),
    /// The holder begins a round of renewals.
    Renew(usize),
    /// A node answers in this round.
    Answer(usize, usize),
    /// A majority has said yes: the lease is longer.
    Renewed(usize),
    /// The holder sends a repair to a node that has said no.
    Repair(usize, usize),
    /// The repair arrives.
    Repaired(usize, usize),
    /// A node comes back empty.
    Restart(usize),
    /// Time passes.
    Tick,
}

const WAITS: Client = Client {
    stage: Stage::Waits,
    votes: [false; NODES],
    age: 0,
    left: 0,
    yes: [false; NODES],
    no: [false; NODES],
    repairs: [0; NODES],
};

fn is_majority(nodes: &Nodes) -> bool {
    nodes.iter().filter(|is_in| **is_in).count() > NODES / 2
}

impl Repair {
    /// What a node keeps of a ttl, by its clock.
    fn kept(&self, node: usize, ttl: u8) -> u8 {
        if node == 0 { ttl.saturating_sub(self.drift) } else { ttl }
    }

    /// What a client believes in.
    fn lease(&self, client: usize) -> u8 {
        let allowance = if self.variant == Variant::NoAllowance { 0 } else { self.drift };
        self.ttls[client] - allowance
    }

    fn may_repair(&self, client: &Client, number: usize) -> bool {
        let until = match self.variant {
            Variant::Late | Variant::WithoutMajority => self.ttls[number] - 1,
            _ => self.repair,
        };
        let has_majority = is_majority(&client.yes) || self.variant == Variant::WithoutMajority;
        has_majority && client.age <= until
    }

    fn of_client(&self, state: &State, number: usize, actions: &mut Vec<Action>) {
        let client = &state.clients[number];
        let mut at_nodes = |action: fn(usize, usize) -> Action, may: &dyn Fn(usize) -> bool| {
            actions.extend((0..NODES).filter(|nth| may(*nth)).map(|nth| action(number, nth)));
        };
        at_nodes(Action::Repaired, &|nth| client.repairs[nth] > 0);
        match client.stage {
            Stage::Waits => actions.push(Action::Ask(number)),
            Stage::Asks => {
                at_nodes(Action::Vote, &|nth| {
                    let node = &state.nodes[nth];
                    let is_free = node.held.is_none() && node.young == 0;
                    is_free && !client.votes[nth] && client.age <= self.attempt
                });
                if is_majority(&client.votes) {
                    actions.push(Action::Hold(number));
                }
            }
            Stage::Holds if number == HOLDER => {
                at_nodes(Action::Answer, &|nth| !client.yes[nth] && !client.no[nth]);
                at_nodes(Action::Repair, &|nth| {
                    client.no[nth] && client.repairs[nth] == 0 && self.may_repair(client, number)
                });
                if is_majority(&client.yes) {
                    actions.push(Action::Renewed(number));
                }
                if client.age > 0 {
                    actions.push(Action::Renew(number));
                }
            }
            Stage::Holds | Stage::Gone => {}
        }
    }
}

impl Model for Repair {
    type State = State;
    type Action = Action;

    fn initial(&self) -> State {
        // The holder was granted the lock by the first two nodes.
        let [has, has_not] = [true, false];
        let yes = [has, has, has_not];
        let left = self.lease(HOLDER);
        let holder = Client { stage: Stage::Holds, yes, no: yes.map(|yes| !yes), left, ..WAITS };
        let held = |nth| Some((HOLDER as u8, self.kept(nth, self.ttls[HOLDER])));
        let node = |nth: usize| Node { held: yes[nth].then(|| held(nth)).flatten(), young: 0 };
        State {
            nodes: [node(0), node(1), node(2)],
            clients: [holder, WAITS],
            now: 0,
            restarts: self.restarts,
        }
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        if state.clients.iter().any(|client| client.stage == Stage::Gone) {
            return;
        }
        for client in 0..state.clients.len() {
            self.of_client(state, client, actions);
        }
        if state.restarts > 0 {
            actions.extend((0..NODES).map(Action::Restart));
        }
        if state.now < self.ticks {
            actions.push(Action::Tick);
        }
    }

    fn next(&self, state: &State, action: &Action) -> State {
        let mut state = state.clone();
        match *action {
            Action::Ask(number) => {
                let client = &mut state.clients[number];
                (client.stage, client.left) = (Stage::Asks, self.lease(number));
            }
            Action::Vote(number, nth) => {
                state.nodes[nth].held = Some((number as u8, self.kept(nth, self.ttls[number])));
                state.clients[number].votes[nth] = true;
            }
            Action::Hold(number) => {
                let client = &mut state.clients[number];
                // The votes are a first round.
                (client.stage, client.yes, client.votes) =
                    (Stage::Holds, client.votes, WAITS.votes);
            }
            Action::Renew(number) => {
                let client = &mut state.clients[number];
                (client.age, client.yes, client.no) = (0, WAITS.yes, WAITS.no);
            }
            Action::Answer(number, nth) => {
                let (client, node) = (&mut state.clients[number], &mut state.nodes[nth]);
                match &mut node.held {
                    Some((held, left)) if usize::from(*held) == number => {
                        *left = (*left).max(self.kept(nth, self.ttls[number]));
                        client.yes[nth] = true;
                    }
                    _ => client.no[nth] = true,
                }
            }
            Action::Renewed(number) => {
                let client = &mut state.clients[number];
                client.left = client.left.max(self.lease(number).saturating_sub(client.age));
            }
            Action::Repair(number, nth) => {
                let client = &mut state.clients[number];
                client.no[nth] = false;
                // No second answer in this round.
                client.repairs[nth] = self.ttls[number] - client.age;
            }
            Action::Repaired(number, nth) => {
                let rest = std::mem::take(&mut state.clients[number].repairs[nth]);
                let held = &mut state.nodes[nth].held;
                if held.is_none() || self.variant == Variant::Overwrites {
                    let rest = self.kept(nth, rest);
                    *held = (rest > 0).then_some((number as u8, rest));
                }
            }
            Action::Restart(nth) => {
                state.restarts -= 1;
                // The age of a server is counted by its own clock.
                state.nodes[nth] = Node { held: None, young: self.kept(nth, self.young) };
                if self.variant != Variant::OnAnotherConnection {
                    state.clients.iter_mut().for_each(|client| client.repairs[nth] = 0);
                }
            }
            Action::Tick => {
                state.now += 1;
                for node in &mut state.nodes {
                    node.young = node.young.saturating_sub(1);
                    node.held =
                        node.held.and_then(|(held, left)| (left > 1).then_some((held, left - 1)));
                }
                for client in &mut state.clients {
                    if matches!(client.stage, Stage::Asks | Stage::Holds) {
                        // Nothing is done later than that.
                        client.age = (client.age + 1).min(self.young);
                        client.left = client.left.saturating_sub(1);
                        if client.left == 0 {
                            client.stage = Stage::Gone;
                        }
                    }
                }
            }
        }
        state
    }

    fn check(&self, state: &State) -> Result<(), String> {
        let holders = state.clients.iter().filter(|client| client.stage == Stage::Holds).count();
        if holders > 1 { Err("two clients hold the lock".to_owned()) } else { Ok(()) }
    }
}
