//! Tasks. In a simulation, a task belongs to the process that spawns it.

use std::future::pending;

use futures_util::future::Either;
use tokio::runtime::{self, Handle};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use crate::sys::world;

/// A set of tasks, each of which is [owned].
pub(crate) type JoinSet<T> = tokio::task::JoinSet<T>;

/// [`tokio::spawn`]. Nothing else spawns a task, but for a [`JoinSet`].
pub(crate) fn spawn<F>(future: F) -> JoinHandle<F::Output>
where
    F: Future<Output: Send> + Send + 'static,
{
    tokio::spawn(owned(future))
}

/// The runtime of the caller, if it is inside of one.
pub(crate) fn here() -> Option<runtime::Id> {
    Handle::try_current().ok().map(|handle| handle.id())
}

/// The work of a task, as that of the process that runs.
pub(crate) fn owned<F>(future: F) -> impl Future<Output = F::Output> + Send
where
    F: Future<Output: Send> + Send + 'static,
{
    let Some(world) = world::current() else { return Either::Left(future) };
    let (done, output) = oneshot::channel();
    let task = world.adopt(Box::pin(async move {
        // Fails only when the task is dropped.
        let _ = done.send(future.await);
    }));
    Either::Right(async move {
        task.await;
        match output.await {
            Ok(output) => output,
            // The process was killed.
            Err(_) => pending().await,
        }
    })
}
