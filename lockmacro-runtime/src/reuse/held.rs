//! What a queue of callers and a store hold for values.

use std::sync::Arc;

use crate::sys::random::HashMap;
use crate::sys::sync::Mutex;
use crate::sys::time::Moment;

/// The value that a caller of a queue has kept at the store or read there last.
pub(crate) type Noted = Option<NotedValue>;
/// What a store holds, for all of its handles.
pub(crate) type Values = Arc<HeldValues>;

#[derive(Debug)]
pub(crate) struct NotedValue {
    /// Of the function that made it.
    pub(crate) name: Box<str>,
    /// A moment since which it is there.
    pub(crate) since: Moment,
    pub(crate) text: Arc<str>,
}

#[derive(Debug, Default)]
pub(crate) struct HeldValues {
    /// Those of locks in memory.
    pub(crate) in_memory: Mutex<ValueTable>,
    /// Whether a task removes those of a database whose time is over.
    #[cfg(feature = "postgres")]
    pub(crate) forgets: std::sync::atomic::AtomicBool,
}

#[derive(Debug, Default)]
pub(crate) struct ValueTable {
    /// The value that a holder of a key has kept under a name, and its end.
    pub(crate) values: HashMap<(String, String), (Arc<str>, Moment)>,
    /// The number of values at which expired ones are removed next.
    pub(crate) sweep_at: usize,
}
