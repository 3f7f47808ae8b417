//! Blocking a thread without stopping the other tasks of its runtime.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use tokio::runtime::{Handle, RuntimeFlavor};
use tokio::task::{block_in_place, coop::unconstrained, yield_now};

use crate::sys::parking::{park, unparks_here};
use crate::value::error::LockError;

/// Refuses to block the only thread of a runtime, as the task that holds the lock may run there.
/// Threads of `spawn_blocking` may block.
pub(crate) fn may_block() -> Result<(), LockError> {
    match flavor() {
        Some(RuntimeFlavor::CurrentThread) if is_running_tasks() => {
            Err(LockError::BLOCKING_IN_ASYNC)
        }
        _ => Ok(()),
    }
}

/// Blocks the thread until the future is ready. A worker of a runtime first moves its other tasks
/// to another thread, as one of them may hold the lock.
pub(crate) fn block_on<F: Future>(future: F) -> F::Output {
    // A task that has used its budget up is woken when it yields, and this thread does not.
    let waker = unparks_here();
    let mut future = pin!(unconstrained(future));
    let mut wait = || {
        loop {
            match future.as_mut().poll(&mut Context::from_waker(&waker)) {
                Poll::Ready(value) => return value,
                Poll::Pending => park(Duration::MAX),
            }
        }
    };
    if is_worker() { block_in_place(wait) } else { wait() }
}

/// Whether this thread can move its tasks to another one. Elsewhere `block_in_place` must not be
/// called: inside a `LocalSet` it panics.
fn is_worker() -> bool {
    flavor() == Some(RuntimeFlavor::MultiThread) && is_running_tasks()
}

/// Whether this thread runs tasks of its runtime.
fn is_running_tasks() -> bool {
    // A thread with tasks defers the wake-up of a task that yields; any other thread wakes it at
    // once.
    let woken = Arc::new(Woken::default());
    let waker = Waker::from(Arc::clone(&woken));
    let _ = pin!(yield_now()).poll(&mut Context::from_waker(&waker));
    !woken.0.load(Ordering::Relaxed)
}

fn flavor() -> Option<RuntimeFlavor> {
    Handle::try_current().ok().map(|runtime| runtime.runtime_flavor())
}

#[derive(Default)]
struct Woken(AtomicBool);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use tokio::runtime::{Builder, Runtime};
    use tokio::task::{LocalSet, spawn_blocking, spawn_local};

    use super::*;

    fn workers() -> Runtime {
        Builder::new_multi_thread().worker_threads(1).build().unwrap()
    }

    #[test]
    fn only_tasks_of_a_multi_thread_runtime_are_on_a_worker() {
        let runtime = workers();
        assert!(!is_worker(), "a plain thread");
        let _inside = runtime.enter();
        assert!(!is_worker(), "a plain thread that knows a runtime");
        runtime.block_on(async {
            assert!(!is_worker(), "the thread that runs it");
            assert!(tokio::spawn(async { is_worker() }).await.unwrap(), "a task");
            let moved = tokio::spawn(async { block_in_place(is_worker) });
            assert!(!moved.await.unwrap(), "its tasks are on another thread already");
            assert!(!spawn_blocking(is_worker).await.unwrap(), "a thread to block");
            assert!(spawn_blocking(may_block).await.unwrap().is_ok(), "a thread to block");
            let local = LocalSet::new();
            local.run_until(async { assert!(!is_worker(), "the thread of a local set") }).await;
            let task = local.run_until(async { spawn_local(async { is_worker() }).await });
            assert!(!task.await.unwrap(), "a task of a local set");
        });
        let current = Builder::new_current_thread().build().unwrap();
        assert!(!current.block_on(async { is_worker() }), "a runtime of one thread");
    }

    #[test]
    fn only_the_thread_of_a_current_thread_runtime_may_not_block() {
        let refused = Err(LockError::BLOCKING_IN_ASYNC);
        let current = Builder::new_current_thread().build().unwrap();
        assert_eq!(may_block(), Ok(()), "a plain thread");
        {
            let _inside = current.enter();
            assert_eq!(may_block(), Ok(()), "a plain thread that knows a runtime");
        }
        current.block_on(async {
            assert_eq!(may_block(), refused, "the thread that runs it");
            assert_eq!(tokio::spawn(async { may_block() }).await.unwrap(), refused, "a task");
            // actix runs its workers like this.
            let local = LocalSet::new();
            let inside = local.run_until(async {
                let task = spawn_local(async { (may_block(), spawn_blocking(may_block).await) });
                (may_block(), task.await.unwrap())
            });
            let (here, (task, apart)) = inside.await;
            assert_eq!((here, task), (refused.clone(), refused.clone()), "a local set");
            assert_eq!(apart.unwrap(), Ok(()), "a thread to block");
        });
        let local = LocalSet::new();
        assert_eq!(local.block_on(&current, async { may_block() }), refused, "a local set");
    }

    #[test]
    fn blocking_never_panics() {
        let runtime = workers();
        runtime.block_on(async {
            let local = LocalSet::new();
            let task =
                local.run_until(async { spawn_local(async { block_on(async { 1 }) }).await });
            assert_eq!(task.await.unwrap(), 1);
            let nested = tokio::spawn(async {
                block_on(async {
                    let local = LocalSet::new();
                    Handle::current().block_on(
                        local.run_until(async { block_on(async { block_on(async { 2 }) }) }),
                    )
                })
            });
            assert_eq!(nested.await.unwrap(), 2);
            let inside = || {
                Handle::current()
                    .block_on(LocalSet::new().run_until(async { block_on(async { 3 }) }))
            };
            assert_eq!(spawn_blocking(inside).await.unwrap(), 3);
        });
        assert_eq!(
            Builder::new_current_thread()
                .build()
                .unwrap()
                .block_on(async { block_on(async { 4 }) }),
            4
        );
    }
}
