//! What the attribute expands to, from the macro's own modules.
//!
//! `BLESS=1 cargo test -p lockmacro-tests --test expand` writes the snapshots anew.

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
#[path = "../lockmacro/src/item.rs"]
mod item;
#[path = "../lockmacro/src/key.rs"]
mod key;
#[path = "../lockmacro/src/policy.rs"]
mod policy;
#[path = "../lockmacro/src/returns.rs"]
mod returns;
#[path = "../lockmacro/src/template.rs"]
mod template;

#[path = "expand/bodies.rs"]
mod bodies;
#[path = "expand/snapshots.rs"]
mod snapshots;
#[path = "expand/templates.rs"]
mod templates;
