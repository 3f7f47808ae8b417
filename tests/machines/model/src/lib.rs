//! A model of the lock's protocol, which is searched exhaustively, and a replay of traces into it.
//!
//! * [`Lock`](lock::Lock) – three processes with a line of callers each, one server, and messages
//!   that are late, lost or doubled: queue, hand-off, confirmation, turns, renewal, drop and crash
//! * [`Redlock`](redlock::Redlock) – the fence of a Redlock, with a node that forgets
//! * [`Repair`](repair::Repair) – a Redlock whose holder repairs nodes that forget
//! * [`Sharing`](sharing::Sharing) – shared locks and permits, in one queue with exclusive ones
//! * [`search`](search::search) – all states within a bound
//! * [`key_queue`] – the queue of a process's callers: the engine's own file, under random schedules
//! * [`life`] – the life of a held lock: the engine's own file, under every short sequence of events
//! * [`Replay`](replay::Replay) – a trace of a real server or of a simulation, event by event: one
//!   that the server of the model does not allow is an error
//!
//! What must hold in every state of the lock: at most one body runs, under a lock that its process
//! holds at the server; every body has a larger fence than those before; a lock that is released
//! while somebody waits is not free; a token that a process has given up does not stay at the
//! server; and as long as not all is done somebody can go on, if only after some time.
//!
//! What the model leaves out: several keys, clocks of different rates, foreign programs, a pass
//! that lapses, and the length of a turn: a turn may end at any time. A process has two tokens at
//! once at most, and no message but a release arrives later than a ttl after it was sent.
//!
//! The search is written by hand. It is a hundred lines, its traces are the shortest, and time
//! passes in it without a bound where the question is whether anybody can go on; a checker such as
//! `stateright` would bring its own server and many crates for the same search.
//!
//! [`TABLE`](table::TABLE) names the functions and scripts that each action stands for, and a test
//! holds that they are there.

#[allow(dead_code)]
mod engine;
mod fences;
mod message;
mod process;
mod state;

pub mod event;
pub mod key_queue;
pub mod life;
pub mod lock;
pub mod mutants;
pub mod redlock;
pub mod repair;
pub mod replay;
pub mod search;
pub mod server;
pub mod sharing;
pub mod table;
pub mod variant;

// The engine's files name them so.
use engine::protocol;
use key_queue::{sys, value};
