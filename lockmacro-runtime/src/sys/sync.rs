//! A mutex of the standard library that ignores poison, and the wait for a change of shared values.
//!
//! A panic under a lock interrupts the code between two statements, and all code of the engine
//! keeps the locked value valid between statements. So the next caller may use it.

use std::sync;
pub(crate) use std::sync::MutexGuard;

use tokio::sync::Notify;

use crate::sys::world;

/// A [`std::sync::Mutex`] that ignores poison.
#[derive(Debug, Default)]
pub(crate) struct Mutex<T>(sync::Mutex<T>);

impl<T> Mutex<T> {
    pub(crate) const fn new(value: T) -> Self {
        Self(sync::Mutex::new(value))
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
        #[cfg(test)]
        entries::note::<T>();
        // Where threads are simulated, another one may have the mutex.
        while world::switch() {
            match self.0.try_lock() {
                Ok(guard) => return guard,
                Err(sync::TryLockError::Poisoned(poison)) => return poison.into_inner(),
                Err(sync::TryLockError::WouldBlock) => {}
            }
        }
        self.0.lock().unwrap_or_else(sync::PoisonError::into_inner)
    }

    pub(crate) fn get_mut(&mut self) -> &mut T {
        self.0.get_mut().unwrap_or_else(sync::PoisonError::into_inner)
    }
}

/// Waits until `check` has a result: checks now, and whenever all waiters of `changes` are
/// notified.
pub(crate) async fn until<T>(changes: &Notify, check: impl Fn() -> Option<T>) -> T {
    loop {
        // Before the check, so that no change in between is missed.
        let change = changes.notified();
        match check() {
            Some(result) => return result,
            None => drop(world::switch()),
        };
        change.await;
    }
}

/// How often each mutex is entered by a thread.
#[cfg(test)]
pub(crate) mod entries {
    use std::any::type_name;
    use std::cell::RefCell;
    use std::collections::BTreeMap;

    thread_local! {
        static ENTRIES: RefCell<BTreeMap<&'static str, usize>> = RefCell::default();
    }

    pub(super) fn note<T>() {
        ENTRIES.with_borrow_mut(|entries| *entries.entry(type_name::<T>()).or_default() += 1);
    }

    /// The entries since the last call, by the type of what each mutex protects.
    pub(crate) fn take() -> BTreeMap<&'static str, usize> {
        ENTRIES.take()
    }
}
