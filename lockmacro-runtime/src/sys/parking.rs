//! Threads that block. Nothing else parks one.

use std::sync::Arc;
use std::task::{Wake, Waker};
use std::thread::{self, Thread};
use std::time::Duration;

#[cfg(feature = "test-util")]
use crate::sys::time::longest_park;
use crate::sys::world;

/// A waker of this thread, while it is parked.
pub(crate) fn unparks_here() -> Waker {
    if let Some(world) = world::current() {
        return world.unparks_here();
    }
    Waker::from(Arc::new(Unparks(thread::current())))
}

/// Blocks the thread until it is unparked, for this time at most. Under a paused clock it looks
/// again soon, as no timer of the system ends by virtual time.
pub(crate) fn park(longest: Duration) {
    if let Some(world) = world::current() {
        return world.park(longest);
    }
    #[cfg(feature = "test-util")]
    let longest = longest_park(longest);
    thread::park_timeout(longest);
}

struct Unparks(Thread);

impl Wake for Unparks {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}
