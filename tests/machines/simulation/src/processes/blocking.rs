//! The calls of a process that block a thread.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use lockmacro_runtime::{Lock, LockError, LockGuard, LockManager};

use crate::processes::call::{Call, How};
use crate::processes::sim::sim;
use crate::processes::thread::{ask, blocks, now, sleeps};
use crate::processes::work::{Body, lock, name_of, sharing};

/// Makes a call on a thread of its own.
pub(crate) async fn make(worker: usize, call: &Call, locks: &LockManager) -> Result<(), LockError> {
    let ended = Arc::new(Mutex::new(Ok(())));
    let (call, locks, result) = (call.clone(), locks.clone(), Arc::clone(&ended));
    blocks(move || {
        let made = made(worker, &call, &locks);
        *result.lock().expect("no panic") = made;
    })
    .await;
    ended.lock().expect("no panic").clone()
}

fn made(worker: usize, call: &Call, locks: &LockManager) -> Result<(), LockError> {
    let lock = lock(call, locks);
    if call.fenced {
        let lock = lock.fenced();
        let guard = lock.acquire_blocking()?;
        let fences = lock.fences(&guard).into_iter().map(u64::from).collect();
        return hold(worker, call, guard, fences);
    }
    match call.how {
        How::Run { in_background } if call.keys.len() == 1 => {
            let lock = if in_background { lock.release_in_background() } else { lock };
            lock.run_blocking(|| body(worker, call, locks))
        }
        _ => hold(worker, call, lock.acquire_blocking()?, Vec::new()),
    }
}

/// A body that has its guard, and stops when its lease is over.
fn hold(worker: usize, call: &Call, guard: LockGuard, fences: Vec<u64>) -> Result<(), LockError> {
    if !guard.remaining().is_zero() {
        runs(worker, call, fences, || guard.remaining());
    }
    match call.how {
        How::Guard { released: false } => {
            drop(guard);
            Ok(())
        }
        _ => guard.release_blocking(),
    }
}

/// A body that the engine calls. The engine cannot stop it.
fn body(worker: usize, call: &Call, locks: &LockManager) -> Result<(), LockError> {
    let left = || LockGuard::current().map(|guard| guard.remaining()).unwrap_or_default();
    if left().is_zero() {
        ask(|| sim().fails("bodies", "a body begins without a lock"));
        return Ok(());
    }
    if call.reenters {
        let again = sharing(Lock::new(name_of(call.keys[0])), call).manager(locks);
        match again.acquire_blocking() {
            Ok(again) if again.is_joined() => {}
            other => {
                let text = format!("{worker} has not joined: {other:?}");
                ask(|| sim().fails("re-entry", text));
            }
        }
    }
    runs(worker, call, Vec::new(), left);
    Ok(())
}

/// Runs until the body is done, or its lease is over.
fn runs(worker: usize, call: &Call, fences: Vec<u64>, left: impl Fn() -> Duration) {
    let (entered, lease) = (call.clone(), left());
    let body = Kept(Some(ask(move || Arc::new(Body::enter(worker, &entered, lease, &fences)))));
    let end = now() + call.body;
    loop {
        let lease = left();
        body.relies(lease);
        let rest = end.saturating_sub(now());
        if lease.is_zero() || rest.is_zero() {
            return;
        }
        sleeps(call.step.min(rest));
    }
}

/// A body on a thread. It belongs to the simulation.
struct Kept(Option<Arc<Body>>);

impl Kept {
    fn relies(&self, left: Duration) {
        let body = self.0.clone();
        ask(move || body.iter().for_each(|body| body.relies(left)));
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        let body = self.0.take();
        ask(move || drop(body));
    }
}
