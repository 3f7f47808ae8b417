//! The watch of a key queue: the background thread tells the queue the time, and notices holders
//! that have lost the lock.

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use tokio::time::timeout;

use super::SharedQueue;
use crate::value::time::Moment;

/// Longest time between two checks of a queue with waiters.
const LOOK: Duration = Duration::from_secs(2);

impl SharedQueue {
    /// Starts the watch of a queue with waiters.
    pub(super) fn start_watch(self: &Arc<Self>) {
        let queue = Arc::clone(self);
        if self.core.background.spawn(move |_| watch(queue)).is_err() {
            self.state.lock().watched = None;
        }
    }
}

/// Watches a queue for as long as there are waiters.
async fn watch(queue: Arc<SharedQueue>) {
    let watch = Watch(queue);
    while let Some(pause) = look(&watch.0) {
        let _ = timeout(pause, watch.0.sooner.notified()).await;
    }
}

/// The watch of a queue. If it ends by a panic, such as one in the code of a waker, another
/// watch is started.
struct Watch(Arc<SharedQueue>);

impl Drop for Watch {
    fn drop(&mut self) {
        if thread::panicking() {
            self.0.watch_again();
        }
    }
}

/// Checks a queue. Returns the pause until the next check; `None` without waiters, whose watch
/// ends.
fn look(queue: &Arc<SharedQueue>) -> Option<Duration> {
    // `lasts` reports a loss to the queue.
    queue.holder().and_then(|holder| holder.lasts());
    queue.time();
    let ends = queue.holder().map(|holder| holder.ends());
    let (now, mut state) = (Moment::now(), queue.state.lock());
    let due = state.queue.due().or(ends).map(|due| due.since(now));
    let pause = due.unwrap_or(LOOK).clamp(Duration::from_millis(1), LOOK);
    // After a shutdown no caller waits for a lock, even if its future was not polled since.
    let is_open = state.queue.offered().is_some() || !queue.core.shutdown.is_closed();
    state.watched = (state.queue.count() > 0 && is_open).then(|| now.after(pause));
    state.watched.map(|_| pause)
}
