//! What is known of a server's clock: enough to tell a request until when it may be served.

use std::time::Duration;

use crate::sys::sync::Mutex;
use crate::sys::time::Moment;

/// The last reading of a server's clock.
///
/// A request without an answer in time is repeated on another connection, and its first copy may
/// still be on its way: in a buffer, or in a proxy that holds the connection back. If it arrived
/// after the lock was released, the lock would be held by nobody until its ttl. So the request says
/// until when it may be served, by the server's own clock.
#[derive(Debug, Default)]
pub(crate) struct ServerClock(Mutex<Option<Reading>>);

#[derive(Debug, Clone, Copy)]
struct Reading {
    /// When the answer with the time was here: the server's time is later than `micros` since then.
    received: Moment,
    micros: u64,
}

impl ServerClock {
    /// Notes the server's time in microseconds, which an answer has brought just now.
    pub(crate) fn note(&self, micros: u64) {
        *self.0.lock() = Some(Reading { received: Moment::now(), micros });
    }

    /// The server's time in microseconds when nobody waits any more for the answer to a request
    /// that is sent now; `None` while its clock is not known. Never later than that, so that a
    /// clock that was set ahead, or runs faster, refuses a request that nobody has given up: then
    /// the refusal brings the right time, and the request is repeated.
    pub(crate) fn end_of(&self, answer: Duration) -> Option<u64> {
        let Reading { received, micros } = (*self.0.lock())?;
        let later = Moment::now().since(received) + answer;
        Some(micros.saturating_add(u64::try_from(later.as_micros()).unwrap_or(u64::MAX)))
    }
}
