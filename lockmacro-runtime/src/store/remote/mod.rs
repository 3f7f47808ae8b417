//! Calls to a server, whatever it speaks: their time, their retries, what their failures mean, and
//! the wait of a waiter between its calls.

pub(crate) mod budget;
pub(crate) mod clock;
#[cfg(feature = "inspect")]
pub(crate) mod clock_facts;
pub(crate) mod error;
pub(crate) mod health;
pub(crate) mod push;
pub(crate) mod reply;
pub(crate) mod singleflight;
#[cfg(feature = "tls")]
pub(crate) mod tls;
pub(crate) mod wait;
