//! A PostgreSQL client: connections, batches, and errors. It acquires and releases nothing.
//!
//! A [`connection::Pool`] has a few connections to one of several [`hosts`], each driven by a task
//! of its own ([`live`]). What many callers send at the same time goes out in one [`batch`]. Each
//! failure says by its [`error`] whether the server may have applied what was sent.

pub(crate) mod batch;
pub(crate) mod connection;
pub(crate) mod error;
pub(crate) mod hosts;
pub(crate) mod limit;
pub(crate) mod live;
pub(crate) mod tls;
pub(crate) mod url;
pub(crate) mod values;
