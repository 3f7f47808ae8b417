//! A function for every two arguments that may stand beside each other: its future can be spawned,
//! also with an argument that threads cannot share.

use std::cell::Cell;
use std::fmt;
use std::pin::Pin;
use std::sync::OnceLock;
use std::time::Duration;

use lockmacro_runtime::{LockError, LockManager, Lost, distributed_lock};
use serde::{Deserialize, Serialize};
use tokio::task::yield_now;

type Audited = Result<Option<u64>, LockError>;

type Spawnable = Pin<Box<dyn Future<Output = Audited> + Send>>;

/// A value that is `Send` and not `Sync`: no reference to it may live across an await.
#[derive(Serialize, Deserialize)]
struct Note(Cell<u32>);

impl fmt::Display for Note {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.get().fmt(f)
    }
}

impl Note {
    fn key(&self, id: u64) -> String {
        format!("order:{id}:{self}")
    }

    fn text(&self) -> String {
        self.to_string()
    }

    fn lease(&self) -> Duration {
        Duration::from_secs(self.0.get().into())
    }

    fn permits(&self) -> u32 {
        self.0.get()
    }
}

fn installed() -> &'static LockManager {
    static LOCKS: OnceLock<LockManager> = OnceLock::new();
    LOCKS.get_or_init(LockManager::isolated_memory)
}

fn other() -> &'static LockManager {
    unreachable!("no id is 0")
}

async fn later(_: u64, _: Note) -> Audited {
    Ok(None)
}

fn undone(lost: Lost, _: Audited) -> Audited {
    Err(lost.into())
}

macro_rules! call {
    ($names:tt [key = $($one:tt)*] [$($other:tt)*]) => {
        call!($names, key = $($one)*, $($other)*)
    };
    ($names:tt [$($one:tt)*] [$($other:tt)*]) => {
        call!($names, key = "order:<id>", $($one)*, $($other)*)
    };
    (($id:ident, $note:ident), $($arguments:tt)*) => {{
        #[distributed_lock($($arguments)*)]
        async fn audit($id: u64, $note: Note) -> Audited {
            yield_now().await;
            Ok(Some($id).filter(|_| $note.0.get() > 0))
        }
        (stringify!($($arguments)*), |id| Box::pin(audit(id, Note(Cell::new(30)))))
    }};
}

type Call = (&'static str, fn(u64) -> Spawnable);

/// A row, whose `..` are the forms of the row `rest`.
macro_rules! row {
    ($names:tt { $($rest:tt)* } $([$($form:tt)*])* ..) => {
        row!($names {} $([$($form)*])* $($rest)*)
    };
    ($names:tt $rest:tt $one:tt $($other:tt)*) => { vec![$(call!($names $one $other)),*] };
}

macro_rules! rows {
    ($names:tt rest $rest:tt $($row:ident { $($form:tt)* })*) => {
        $(fn $row() -> Vec<Call> {
            row!($names $rest $($form)*)
        })*

        fn calls() -> Vec<Call> {
            [$($row()),*].concat()
        }
    };
}

include!("pairs.allowed.rs");

#[tokio::test]
async fn the_future_of_every_two_arguments_can_be_spawned() {
    for (id, (arguments, call)) in (1..).zip(calls()) {
        let audited = tokio::spawn(installed().scope(call(id))).await.unwrap();
        assert_eq!(audited, Ok(Some(id)), "{arguments}");
    }
    assert!(calls().len() > 400, "only {} pairs", calls().len());
}
