//! Releases that no caller waits for.

use std::mem;
use std::sync::Arc;

use futures_util::FutureExt as _;
use tokio::runtime::Handle;
use tokio::task::yield_now;

use crate::engine::core::inside_runtime;
use crate::engine::held::Held;
use crate::engine::in_flight::InFlightGuard;
use crate::engine::line::Ended;
use crate::store::dispatch::Store;
use crate::value::loss::Lost;
use crate::value::sync::Mutex;
use crate::value::task::spawn;

impl Held {
    /// Ends the renewal, and sends the release without waiting for its answer. A release that fails
    /// is repeated like that of a dropped lock.
    pub(crate) async fn release_in_background(self: &Arc<Self>) {
        if inside_runtime().is_err() {
            return self.release_by_thread();
        }
        let Some(release) = BackgroundRelease::of(self) else { return };
        let store = Arc::clone(self.manager().shared_store());
        // Sent from the caller's task, so that the caller's next command on this connection is sent
        // after it.
        let mut sent = Box::pin(release.send(store));
        if (&mut sent).now_or_never().is_none() {
            spawn(sent);
            // The caller may keep this thread busy. Then another worker thread writes the command.
            // Without another worker, the command is written before the caller goes on.
            if Handle::current().metrics().num_workers() == 1 {
                yield_now().await;
            }
        }
    }

    /// The same for blocking callers: the background thread sends the release.
    pub(crate) fn release_by_thread(self: &Arc<Self>) {
        if let Some(release) = BackgroundRelease::of(self) {
            // Cloned: a job that cannot be started must not be the last to drop it, because the
            // cleanup wants the mutex of the thread.
            let sent = Arc::clone(&release);
            let _ = self.manager().background().spawn(|store| sent.send(store));
        }
    }
}

/// A release that no caller waits for. If it is dropped without an answer, the lock is left to the
/// cleanup.
struct BackgroundRelease {
    held: Arc<Held>,
    lost: Option<Lost>,
    /// Callers that find the lock busy wait until these are dropped.
    in_flight: Mutex<Vec<InFlightGuard>>,
}

impl BackgroundRelease {
    /// Ends the renewal; `None` when the lock was passed on, or is released along with the request
    /// of the next caller.
    fn of(held: &Arc<Held>) -> Option<Arc<Self>> {
        let lost = held.remaining().err();
        // Recorded before the caller leaves the line, so that the next caller finds either the
        // holder or the release.
        let in_flight = Mutex::new(held.manager().releasing().join(held.request().keys()));
        if !matches!(held.pass_on(), Ended::Kept) {
            return None;
        }
        Some(Arc::new(Self { held: Arc::clone(held), lost, in_flight }))
    }

    async fn send(self: Arc<Self>, store: Arc<Store>) {
        let released = self.held.acquisition.release_at(&store).await;
        if released.is_ok() {
            drop(mem::take(&mut *self.in_flight.lock()));
        }
        self.held.report_release(released, self.lost.as_ref());
    }
}

impl Drop for BackgroundRelease {
    fn drop(&mut self) {
        self.held.acquisition.abandon_with(mem::take(&mut *self.in_flight.lock()));
    }
}
