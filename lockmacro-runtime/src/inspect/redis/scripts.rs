//! The scripts that read locks.

use crate::store::redis::client::script::Script;

pub(crate) static LOCKS: Script = Script::new(include_str!("locks.lua"), &["q", "h"]);
pub(crate) static QUEUE: Script = Script::new(include_str!("queue.lua"), &["q", "w"]);
pub(crate) static HOLDERS: Script = Script::new(include_str!("holders.lua"), &["h"]);
pub(crate) static MAY_WRITE: Script = Script::new(include_str!("may_write.lua"), &[]);
/// Those for which a user needs rights.
pub(crate) static ALL: [&Script; 3] = [&LOCKS, &QUEUE, &HOLDERS];
