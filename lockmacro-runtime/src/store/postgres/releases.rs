//! The releases in flight. They are on several connections, so what has to come after them waits.

use std::collections::BTreeSet;
use std::sync::Arc;

use tokio::sync::Notify;

use crate::value::sync::Mutex;
#[cfg(feature = "defer")]
use crate::value::sync::until;

#[derive(Debug, Default)]
pub(super) struct Releases {
    /// The number of the next one, and the numbers of those in flight.
    numbers: Mutex<(u64, BTreeSet<u64>)>,
    ended: Notify,
}

/// A release in flight, until it is dropped.
pub(super) struct Releasing {
    all: Arc<Releases>,
    number: u64,
}

impl Releases {
    pub(super) fn begin(self: &Arc<Self>) -> Releasing {
        let mut numbers = self.numbers.lock();
        let number = numbers.0;
        numbers.0 += 1;
        numbers.1.insert(number);
        Releasing { all: Arc::clone(self), number }
    }

    /// Waits until the releases that have begun by now are answered, or have failed.
    #[cfg(feature = "defer")]
    pub(super) async fn answered(&self) {
        let next = self.numbers.lock().0;
        let earlier = || self.numbers.lock().1.first().is_some_and(|first| *first < next);
        until(&self.ended, || (!earlier()).then_some(())).await;
    }
}

impl Drop for Releasing {
    fn drop(&mut self) {
        self.all.numbers.lock().1.remove(&self.number);
        self.all.ended.notify_waiters();
    }
}
