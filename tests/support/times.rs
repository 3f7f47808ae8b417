//! The times of the tests, each with one meaning in every suite.
//!
//! Four constants bound an event that must come, and a test that passes does not wait for so long.
//! There are four because such a bound must lie below whatever would bring the event about by
//! itself: an event that comes only when a lease ends is not to pass for one that came in time.

use std::time::Duration;

/// Bounds an event that must come by itself, below leases of six seconds and more.
pub const SOON: Duration = Duration::from_secs(5);

/// Bounds an event that must come before a dead waiter has left the queue, after 15 s: 10 s without
/// a question, and the confirm window.
pub const IN_TIME: Duration = Duration::from_secs(10);

/// Bounds an event that must come before a lease of the default ttl ends, after 30 s: far above
/// what a loaded machine needs.
pub const TEST_TIMEOUT: Duration = Duration::from_secs(20);

/// Bounds an event that needs several servers to agree: replicas, a failover, a move of slots.
/// Sentinels look at each other every two seconds, and do nothing for 30 after a machine was
/// suspended.
pub const FAILOVER: Duration = Duration::from_secs(120);

/// Bounds a grant that a push must bring: far below [`POLLED`], far above what a loaded machine
/// needs. A waiter that is served within this time was not served by asking again.
pub const PUSHED: Duration = Duration::from_millis(1_200);

/// After this time even the slowest waiter has asked again: 2 s and 20 %, and what a loaded machine
/// adds.
pub const POLLED: Duration = Duration::from_millis(3_400);

/// For how long a lock is handed off until its new holder confirms it, and for how long at a time a
/// key is held while others are waited for.
pub const CONFIRM_WINDOW: Duration = Duration::from_secs(5);

/// A ttl that does not end within a test, nor any other time that must not.
pub const LONG_TTL: Duration = Duration::from_secs(60);

/// A ttl that does not end within a test that waits for a [`FAILOVER`].
pub const FAILOVER_TTL: Duration = Duration::from_secs(600);

/// The delay of a job that is to be run at once.
pub const SHORT_DELAY: Duration = Duration::from_millis(20);

/// A number of milliseconds.
pub const fn ms(milliseconds: u64) -> Duration {
    Duration::from_millis(milliseconds)
}
