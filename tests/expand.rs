//! Expansions of the attribute, from the macro's own modules.
//!
//! `BLESS=1 cargo test -p lockmacro-tests --test expand` rewrites the snapshots.

#[path = "../lockmacro/src/args.rs"]
mod args;
#[path = "../lockmacro/src/boxed.rs"]
mod boxed;
#[path = "../lockmacro/src/check.rs"]
mod check;
#[path = "../lockmacro/src/defer.rs"]
mod defer;
#[path = "../lockmacro/src/duration.rs"]
mod duration;
#[path = "../lockmacro/src/expand.rs"]
mod expand;
#[path = "../lockmacro/src/faults.rs"]
mod faults;
#[path = "../lockmacro/src/item.rs"]
mod item;
#[path = "../lockmacro/src/key.rs"]
mod key;
#[path = "../lockmacro/src/known.rs"]
mod known;
#[path = "../lockmacro/src/literal.rs"]
mod literal;
#[path = "../lockmacro/src/lock.rs"]
mod lock;
#[path = "../lockmacro/src/lock_policy.rs"]
mod lock_policy;
#[path = "../lockmacro/src/misplaced.rs"]
mod misplaced;
#[path = "../lockmacro/src/path.rs"]
mod path;
#[path = "../lockmacro/src/placeholder.rs"]
mod placeholder;
#[path = "../lockmacro/src/policy.rs"]
mod policy;
#[path = "../lockmacro/src/returns.rs"]
mod returns;
#[path = "../lockmacro/src/runtime.rs"]
mod runtime;
#[path = "../lockmacro/src/sharing.rs"]
mod sharing;
#[path = "../lockmacro/src/slips.rs"]
mod slips;
#[path = "../lockmacro/src/spans.rs"]
mod spans;
#[path = "../lockmacro/src/stray.rs"]
mod stray;
#[path = "../lockmacro/src/taking.rs"]
mod taking;
#[path = "../lockmacro/src/template.rs"]
mod template;
#[path = "../lockmacro/src/text.rs"]
mod text;
#[path = "../lockmacro/src/unfilled.rs"]
mod unfilled;
#[path = "../lockmacro/src/values.rs"]
mod values;
#[path = "../lockmacro/src/words.rs"]
mod words;

#[path = "expand/bodies.rs"]
mod bodies;
#[path = "expand/keys.rs"]
mod key_forms;
#[path = "expand/messages.rs"]
mod messages;
#[path = "expand/pairs.rs"]
mod pairs;
#[path = "expand/refused.rs"]
mod refused;
#[path = "expand/snapshots.rs"]
mod snapshots;
#[path = "expand/templates.rs"]
mod templates;
#[path = "expand/words.rs"]
mod word_mistakes;
