//! One lock, from the request to the release.

pub(crate) mod acquire;
pub(crate) mod acquired;
pub(crate) mod acquisition;
pub(crate) mod asker;
pub(crate) mod background;
pub(crate) mod background_thread;
pub(crate) mod blocking;
pub(crate) mod cleanup;
pub(crate) mod cleanup_retry;
pub(crate) mod core;
pub(crate) mod current;
pub(crate) mod held;
pub(crate) mod held_renewal;
pub(crate) mod hold_times;
pub(crate) mod in_flight;
pub(crate) mod in_turn;
pub(crate) mod manager;
pub(crate) mod observer;
pub(crate) mod queue;
pub(crate) mod reentry;
pub(crate) mod renewal;
pub(crate) mod spec;
pub(crate) mod telemetry;
pub(crate) mod timer;
pub(crate) mod unreported;
