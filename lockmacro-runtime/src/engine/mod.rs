//! One lock, from the request to the release.

pub(crate) mod acquire;
pub(crate) mod acquisition;
pub(crate) mod background;
pub(crate) mod blocking;
pub(crate) mod cleanup;
pub(crate) mod cleanup_queue;
pub(crate) mod cleanup_retry;
pub(crate) mod core;
pub(crate) mod current;
pub(crate) mod held;
pub(crate) mod hold_times;
pub(crate) mod in_flight;
pub(crate) mod in_line;
pub(crate) mod line;
pub(crate) mod line_request;
pub(crate) mod lines;
pub(crate) mod local_queue;
pub(crate) mod observer;
pub(crate) mod per_process;
pub(crate) mod reentry;
pub(crate) mod releasing;
pub(crate) mod renewal;
pub(crate) mod spec;
pub(crate) mod telemetry;
pub(crate) mod turn;
pub(crate) mod unreported;
