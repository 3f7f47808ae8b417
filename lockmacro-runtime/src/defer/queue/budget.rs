//! The time for a call with many bytes.

use std::time::Duration;

use crate::store::backend::CALLS_PER_TIMEOUT;
use crate::store::remote::budget::Budget;

/// Assumed bandwidth of the network, in bytes a second.
const BANDWIDTH: f64 = 4.0 * 1024.0 * 1024.0;

/// For a call with this many bytes, in the request or in the reply.
pub(crate) fn of_bytes(bytes: usize, timeout: Duration) -> Budget {
    // An hour is more than any timeout may be.
    let more = Duration::from_secs_f64((bytes as f64 / BANDWIDTH).min(3_600.0));
    Budget::new(timeout / CALLS_PER_TIMEOUT + more, timeout + more * CALLS_PER_TIMEOUT)
}
