//! Histories of runs of a lock, and a judge of them.
//!
//! A history is what the clients of a lock saw, in the terms of Jepsen: one entry when an operation
//! is invoked, and one when it is over. `lockmacro-check` judges histories of any lock:
//!
//! ```sh
//! cargo run -p lockmacro-histories --bin lockmacro-check -- PATH...
//! ```
//!
//! # The format
//!
//! One map an entry, as EDN or as a line of JSON. A file may hold a vector of them, too.
//!
//! ```edn
//! {:type :invoke, :f :acquire, :value {:key "order:1"}, :process "a/0", :time 100}
//! {:type :ok, :f :acquire, :value {:key "order:1", :fence 7, :until 900}, :process "a/0",
//!  :time 120}
//! {:type :invoke, :f :release, :value {:key "order:1"}, :process "a/0", :time 300}
//! {:type :ok, :f :release, :value {:key "order:1"}, :process "a/0", :time 310}
//! ```
//!
//! * `type` is `invoke`, `ok`, `fail` (it had no effect) or `info` (its effect is unknown).
//! * `time` is in nanoseconds, by one clock for all processes.
//! * `value` is a map, or the fence alone, or nothing. Without a key all entries are of one key.
//! * `until` is the time at which the lease ends of which the client knows when it acquires.
//!
//! | `f` | meaning |
//! |---|---|
//! | `acquire` | the client has the lock from the time of `ok` on, at the latest |
//! | `use` | `ok`: the holder has worked with what the lock protects |
//! | `release` | from `invoke` on the client does not need the lock |
//! | `release`, `info` without `invoke` | the client has learnt that the lock is lost |
//! | `kill` | `info`: `process` is dead, and so are those whose names begin with `process/` |
//!
//! Entries with another `f` are kept and not judged, such as those of Jepsen's nemesis.
//!
//! # The verdict
//!
//! A client holds the lock from `ok` of its `acquire` until it invokes `release`, learns that the
//! lock is lost, dies, or until its lease ends; and in any case until its last `use`. Two clients
//! must not hold the lock of one key at once. Fences of one key must grow: where a grant or a whole
//! holding was over before another one began, the later fence is larger, and no fence is granted
//! twice. An `acquire` with `info`, or without an end, may have been granted or not, and proves
//! nothing.

mod contradiction;
mod edn;
mod entry;
mod history;
mod holding;
mod judge;
mod recorder;

pub use contradiction::{Contradiction, Rule, Verdict};
pub use entry::{Entry, Function, Kind};
pub use history::{History, Unreadable};
pub use holding::{Grant, Holding, grants};
pub use judge::judge;
pub use recorder::{Recorder, now};
