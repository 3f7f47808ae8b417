//! Tasks. Nothing else spawns one. In a simulation, a task belongs to the process that spawns it.

use std::future::pending;
use std::ops::{Deref, DerefMut};

use tokio::sync::oneshot;
use tokio::task::{AbortHandle, JoinHandle};

use crate::value::world;

/// [`tokio::spawn`].
pub(crate) fn spawn<F>(future: F) -> JoinHandle<F::Output>
where
    F: Future<Output: Send> + Send + 'static,
{
    match world::current() {
        Some(world) => tokio::spawn(adopted(&*world, future)),
        None => tokio::spawn(future),
    }
}

/// [`tokio::task::JoinSet`].
#[derive(Debug)]
pub(crate) struct JoinSet<T>(tokio::task::JoinSet<T>);

impl<T> JoinSet<T> {
    pub(crate) fn new() -> Self {
        Self(tokio::task::JoinSet::new())
    }
}

impl<T: Send + 'static> JoinSet<T> {
    pub(crate) fn spawn(
        &mut self,
        future: impl Future<Output = T> + Send + 'static,
    ) -> AbortHandle {
        match world::current() {
            Some(world) => self.0.spawn(adopted(&*world, future)),
            None => self.0.spawn(future),
        }
    }
}

impl<T> Deref for JoinSet<T> {
    type Target = tokio::task::JoinSet<T>;

    fn deref(&self) -> &Self::Target {
        &self.0
    }
}

impl<T> DerefMut for JoinSet<T> {
    fn deref_mut(&mut self) -> &mut Self::Target {
        &mut self.0
    }
}

fn adopted<F>(
    world: &dyn world::World,
    future: F,
) -> impl Future<Output = F::Output> + Send + use<F>
where
    F: Future<Output: Send> + Send + 'static,
{
    let (done, output) = oneshot::channel();
    let task = world.adopt(Box::pin(async move {
        // Fails only when the task is dropped.
        let _ = done.send(future.await);
    }));
    async move {
        task.await;
        match output.await {
            Ok(output) => output,
            // The process was killed.
            Err(_) => pending().await,
        }
    }
}
