//! Where the background jobs of a manager run: on a thread with a small runtime of its own.
//!
//! With the feature `test-util`, they are tasks of the caller's runtime where that has a virtual
//! clock. Leases end by that clock, so they have to be renewed by it as well. The virtual clock
//! does not advance while its runtime has work, so no other thread could follow it.

use std::pin::Pin;
use std::sync::Arc;
use std::{io, thread};

use tokio::runtime::{self, Handle};
use tokio::sync::mpsc;

use crate::engine::in_flight::InFlight;
use crate::store::dispatch::Store;
use crate::value::task::spawn;
#[cfg(feature = "test-util")]
use crate::value::time::virtual_runtime;

pub(crate) type Work = Pin<Box<dyn Future<Output = ()> + Send>>;
pub(crate) type Job = Box<dyn FnOnce(Arc<Store>) -> Work + Send>;

/// Starts to run jobs, until the sender is dropped and all jobs are done.
pub(crate) fn start(store: Arc<Store>) -> io::Result<(mpsc::UnboundedSender<Job>, Handle)> {
    let (sender, jobs) = mpsc::unbounded_channel();
    #[cfg(feature = "test-util")]
    if let Some(runtime) = virtual_runtime() {
        spawn(work(store, jobs));
        return Ok((sender, runtime));
    }
    let runtime = runtime::Builder::new_current_thread().enable_all().build()?;
    let handle = runtime.handle().clone();
    thread::Builder::new()
        .name("lockmacro-bg".to_owned())
        .spawn(move || runtime.block_on(work(store, jobs)))?;
    Ok((sender, handle))
}

async fn work(store: Arc<Store>, mut jobs: mpsc::UnboundedReceiver<Job>) {
    // Counted rather than kept, so that a finished job is freed at once.
    let in_flight = InFlight::default();
    while let Some(job) = jobs.recv().await {
        let (guard, work) = (in_flight.join(), job(Arc::clone(&store)));
        spawn(async move {
            work.await;
            drop(guard);
        });
    }
    // The manager is gone. Its last jobs are finished first, and every job has an end.
    in_flight.empty().await;
}
