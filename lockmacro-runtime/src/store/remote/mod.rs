//! A server seen from here, whatever it speaks.
//!
//! A store sends each call with a [`budget`]: the time for its answer, and for the whole with its
//! retries. A call that fails says by its [`error`] whether it may be repeated, and whether it may
//! have been applied. A token that may be at the server must not be forgotten, so this is carried
//! up to the engine. [`health`] is what all connections of a manager know of a server together, and
//! [`clock`] what is known of its time, by which a request that is late is not served any more.
//!
//! A [`server`] says how one request is sent; its retries, and what is made of the answers, are the
//! same for all of them. A waiter is driven by [`wait`]: it joins the queue of its server, and is
//! granted the lock by a [`push`]. It asks again from time to time, in case a push did not arrive.
//! Connecting is a [`singleflight`]: many callers wait for it, and none of them delays the others.

pub(crate) mod budget;
pub(crate) mod clock;
pub(crate) mod error;
pub(crate) mod health;
pub(crate) mod push;
pub(crate) mod server;
pub(crate) mod singleflight;
#[cfg(any(feature = "postgres-tls", feature = "tls"))]
pub(crate) mod tls;
pub(crate) mod wait;
