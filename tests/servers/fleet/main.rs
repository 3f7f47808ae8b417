//! Several processes that contend for one lock, and a crate that is not ours.

mod counters;
mod outside;
