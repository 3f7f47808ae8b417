//! Expansions of the attribute, and its messages.
//!
//! `BLESS=1 cargo test -p lockmacro --all-features` rewrites the snapshots.

mod bodies;
mod keys;
mod messages;
mod pairs;
mod refused;
mod snapshots;
mod templates;
mod words;
