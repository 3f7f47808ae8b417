//! The builder of a lock. Long, because its items have examples.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures_util::{FutureExt as _, TryFutureExt as _};

use crate::engine::acquire::acquiring::{acquire, acquire_blocking};
use crate::engine::acquire::options::WaitMode;
use crate::engine::acquire::outcome::{Acquired, Errors};
use crate::engine::acquire::spec::LockSpec;
use crate::guard::LockGuard;
use crate::manager::lock_manager::LockManager;
use crate::value::error::LockError;
use crate::value::fence::Fence;
use crate::value::key::LockKey;
use crate::value::loss::OnLost;
use crate::value::mode::Mode;

/// A builder for a lock: the key, and the settings it is acquired with.
///
/// `#[distributed_lock]` expands to a `Lock`. Use it by hand where an attribute does not fit.
///
/// Without [`wait`](Lock::wait) the server is asked once, and acquiring fails at once with
/// [`LockError::Busy`] when somebody else holds the lock. A manager can have [another
/// default](crate::LockManagerBuilder::default_wait).
///
/// ```
/// # use std::time::Duration;
/// # use lockmacro_runtime::{Lock, LockManager, LockError};
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), LockError> {
/// # let locks = LockManager::isolated_memory();
/// let audited = Lock::new("order:42")
///     .ttl(Duration::from_secs(300))
///     .manager(&locks)
///     .run(async { Ok::<_, LockError>("audited") })
///     .await?;
/// assert_eq!(audited, "audited");
/// # Ok(()) }
/// ```
///
/// A `Lock` can be acquired and run as often as needed. A clone of it is cheap.
#[derive(Clone)]
#[must_use = "a lock does nothing until it is run or acquired"]
pub struct Lock {
    /// Behind a pointer, so that the futures that hold a `Lock` stay small; shared with the future
    /// that acquires it.
    pub(crate) spec: Arc<LockSpec>,
}

impl fmt::Debug for Lock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let keys: Vec<_> = self.spec.keys().collect();
        f.debug_struct("Lock").field("keys", &keys).finish_non_exhaustive()
    }
}

impl Lock {
    /// Creates a lock on `key`, for the installed manager unless [`manager`](Lock::manager) names
    /// another.
    ///
    /// The lease is 30 s, or the manager's
    /// [`default_ttl`](crate::LockManagerBuilder::default_ttl), and is renewed while the lock is
    /// held.
    ///
    /// ```
    /// # use lockmacro_runtime::Lock;
    /// let lock = Lock::new("order:42"); // or a `String`, or a `LockKey`
    /// ```
    pub fn new(key: impl Into<LockKey>) -> Self {
        Self { spec: LockSpec::new(key.into(), Box::default()) }
    }

    /// Creates a lock on all of `keys`, or on none of them, for work that touches several things at
    /// once.
    ///
    /// - `keys` are 1 to 128 keys in any order. A key that is given twice counts once.
    /// - Without a key, acquiring fails with [`LockError::InvalidKey`], because a body under no key
    ///   would run beside every other one.
    /// - The keys are renewed, extended and released together. The lock is lost when any of its
    ///   keys is lost.
    /// - [`LockError::Busy`] and [`LockError::TimedOut`] name the key that somebody else holds.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use lockmacro_runtime::{Lock, LockManager, LockError};
    /// # async fn book(_: u64, _: i64) -> Result<(), LockError> { Ok(()) }
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), LockError> {
    /// # let locks = LockManager::isolated_memory();
    /// let (from, to) = (7, 3);
    /// let accounts = [from, to].map(|id| format!("account:{id}"));
    /// let both = Lock::many(accounts).wait(Duration::from_secs(5)).manager(&locks);
    /// both.run(async {
    ///     book(from, -100).await?;
    ///     book(to, 100).await
    /// })
    /// .await
    /// # }
    /// ```
    ///
    /// # Waiting
    /// When all keys are free, they are acquired at once. A caller that has to
    /// [`wait`](Lock::wait) acquires the keys in the order of their bytes. It waits for each key in
    /// that key's queue, and holds the keys before it meanwhile. So two callers that name the same
    /// keys in opposite orders never deadlock, and no caller is overtaken for ever.
    ///
    /// The price is that a key may be busy while no body runs under it. If the waiter dies, that
    /// lasts 5 s at most.
    ///
    /// This order covers the keys of one lock. Locks that are acquired inside of another lock's
    /// body need an order of their own, which the program has to keep.
    ///
    /// # Inside of a body
    /// When one lock around the call holds all of the keys, the new lock joins it. When only some
    /// of the keys are held, or several locks hold them, acquiring fails with
    /// [`LockError::Nested`].
    ///
    /// # Cancellation
    /// Dropping one of its futures at any point leaves none of the keys locked.
    pub fn many(keys: impl IntoIterator<Item: Into<LockKey>>) -> Self {
        let mut keys = keys.into_iter().map(Into::into);
        let first = keys.next().unwrap_or_else(LockKey::none);
        Self { spec: LockSpec::new(first, keys.collect()) }
    }

    /// Sets how long the lock may be held at most. With [`renew`](Lock::renew): how long after the
    /// death of its holder the server frees it.
    ///
    /// 50 ms to 24 h, in whole milliseconds. Acquiring with any other ttl fails with
    /// [`LockError::InvalidSetting`].
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use lockmacro_runtime::Lock;
    /// let lock = Lock::new("order:42").ttl(Duration::from_secs(300));
    /// ```
    pub fn ttl(mut self, ttl: Duration) -> Self {
        self.spec_mut().options.ttl = Some(ttl);
        self
    }

    /// Renews the lease while the lock is held, from a third of the ttl on. This is the default
    /// where no ttl is given.
    ///
    /// A ttl of ten round trips to the server is enough in a steady network. A ttl of 200 ms plus
    /// twelve round trips also survives a lost connection. Below four round trips a WARN is logged,
    /// once.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use lockmacro_runtime::Lock;
    /// let lock = Lock::new("import").ttl(Duration::from_secs(10)).renew();
    /// ```
    pub fn renew(mut self) -> Self {
        self.spec_mut().options.renews = true;
        self
    }

    /// Sets when renewal ends: the lock is lost this long after its grant, so that a body that
    /// hangs does not hold it for ever.
    ///
    /// It has no effect on a lock that is not renewed, which ends with its ttl.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use lockmacro_runtime::Lock;
    /// let lock = Lock::new("import").max_hold(Duration::from_secs(600));
    /// ```
    pub fn max_hold(mut self, max_hold: Duration) -> Self {
        self.spec_mut().options.max_hold = Some(max_hold);
        self
    }

    /// Sets how long the key is kept at least, at most the ttl. When the body finishes earlier,
    /// nobody else gets the lock until then.
    ///
    /// It is for a job that every machine starts at about the same time and only one should run.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use lockmacro_runtime::{Lock, LockError, LockManager};
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), LockError> {
    /// # let locks = LockManager::isolated_memory();
    /// let report = Lock::new("report:7").min_hold(Duration::from_secs(5)).manager(&locks);
    /// report.run(async { Ok::<_, LockError>(()) }).await?;
    /// // The body has ended, and the key stays.
    /// assert!(report.acquire().await.is_err_and(|error| error.is_busy()));
    /// # Ok(()) }
    /// ```
    pub fn min_hold(mut self, min_hold: Duration) -> Self {
        self.spec_mut().options.min_hold = Some(min_hold);
        self
    }

    /// Sets what happens to the body when the lock is lost, by default [`OnLost::Cancel`].
    ///
    /// ```
    /// # use lockmacro_runtime::{Lock, OnLost};
    /// let lock = Lock::new("order:42").on_lost(OnLost::Error); // the body runs to its end
    /// ```
    pub fn on_lost(mut self, on_lost: OnLost) -> Self {
        self.spec_mut().options.on_lost = on_lost;
        self
    }

    /// Makes the methods that run a body return its value without waiting for the release. The
    /// release is sent when the body ends, which saves the caller a round trip to the server.
    ///
    /// It is for short bodies whose caller does not depend on the lock being free. Another machine
    /// may still find the lock held for about a round trip. A later call of the same manager does
    /// not: if it finds the lock busy because of the release, it waits for that, for a few answers
    /// of the server and at least a second, and asks again.
    ///
    /// - A release that fails is logged and repeated, as one that the caller waits for.
    /// - While 64 releases of the manager have no answer, a further call waits for its own.
    /// - [`shutdown`](LockManager::shutdown) waits for the releases in flight. A program that ends
    ///   without it may leave the lock held until its lease is over.
    /// - It applies to the methods that run a body, of the lock and of its guard.
    ///   [`LockGuard::release`] waits for the answer all the same, and a guard that is dropped is
    ///   released in the background anyway.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use lockmacro_runtime::{Lock, LockError, LockManager};
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), LockError> {
    /// # let locks = LockManager::isolated_memory();
    /// let lock = Lock::new("order:42").release_in_background().manager(&locks);
    /// assert_eq!(lock.run(async { Ok::<_, LockError>(1) }).await?, 1);
    /// // Never busy because of the release.
    /// assert_eq!(lock.run(async { Ok::<_, LockError>(2) }).await?, 2);
    /// locks.shutdown(Duration::from_secs(5)).await
    /// # }
    /// ```
    pub fn release_in_background(mut self) -> Self {
        self.spec_mut().options.releases_in_background = true;
        self
    }

    /// Shares the lock: the body runs beside other shared holders of the key, and never beside an
    /// exclusive one. This is a read lock, and a lock without `shared` is the write lock.
    ///
    /// - No shared caller overtakes an exclusive one that waits in the queue, and all shared
    ///   callers at its head are let in together. So neither kind starves. The exclusive callers
    ///   of one manager have one place in the queue, see
    ///   [`turn`](crate::LockManagerBuilder::turn).
    /// - Each holder has a lease, a fence and a release of its own. The fence is larger than every
    ///   earlier one of the key.
    /// - While the lock is shared, its key exists, and no client can lock it with `SET NX`.
    /// - Inside of the body, the same lock can be acquired shared, which joins it. Acquiring it
    ///   exclusively fails with [`LockError::Nested`].
    /// - It applies to all keys of the lock. [`LockKey::shared`] is for one of several keys.
    /// - A Redlock has exclusive locks only: acquiring fails with [`LockError::InvalidSetting`].
    ///
    /// ```
    /// # use lockmacro_runtime::{Lock, LockError, LockManager};
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), LockError> {
    /// # let locks = LockManager::isolated_memory();
    /// let order = Lock::new("order:42").manager(&locks);
    /// let one = order.clone().shared().acquire().await?;
    /// let other = order.clone().shared().acquire().await?;
    /// assert!(order.acquire().await.is_err_and(|error| error.is_busy()));
    /// # one.release().await?;
    /// # other.release().await }
    /// ```
    pub fn shared(self) -> Self {
        self.with_mode(Mode::Shared)
    }

    /// Lets `permits` callers hold the lock at the same time, 1 to 10,000. With 1, the lock is
    /// exclusive, as it is by default.
    ///
    /// The holders are a set of tokens with a lease each, and not a counter. The permit of a holder
    /// that dies is free when its lease ends.
    ///
    /// Give all callers of a key the same number. Where two differ, as while a new version is
    /// deployed, each caller is let in while fewer than its own number hold the lock. An exclusive
    /// caller waits until nobody holds it, and a shared one enters beside any number.
    ///
    /// Everything else is as for a [shared](Lock::shared) lock. Acquiring with a number out of
    /// bounds fails with [`LockError::InvalidSetting`].
    ///
    /// ```
    /// # use lockmacro_runtime::{Lock, LockError, LockManager};
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), LockError> {
    /// # let locks = LockManager::isolated_memory();
    /// let printer = Lock::new("printer").permits(2).manager(&locks);
    /// let one = printer.acquire().await?;
    /// let other = printer.acquire().await?;
    /// assert!(printer.acquire().await.is_err_and(|error| error.is_busy()));
    /// # one.release().await?;
    /// # other.release().await }
    /// ```
    pub fn permits(self, permits: u32) -> Self {
        self.with_mode(Mode::of_permits(permits))
    }

    fn with_mode(mut self, mode: Mode) -> Self {
        self.spec_mut().set_mode(mode);
        self
    }

    /// Sets how long to wait when somebody else holds the lock. By default a lock waits for the
    /// manager's [`default_wait`](crate::LockManagerBuilder::default_wait), which is zero unless
    /// it is set.
    ///
    /// - With `Duration::ZERO` the server is asked once, and acquiring fails at once with
    ///   [`LockError::Busy`].
    /// - The callers of one manager get the lock in the order of arrival. It passes from one to the
    ///   next without a command, for a bounded time: see
    ///   [`turn`](crate::LockManagerBuilder::turn). Then other processes have the lock, in the
    ///   order in which they asked.
    /// - A caller that does not wait, and whose manager holds the lock or waits for it, is refused
    ///   without a question to the server.
    /// - When the time is over, acquiring fails with [`LockError::TimedOut`].
    /// - When 10,000 callers wait already, it fails with [`LockError::QueueFull`].
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use lockmacro_runtime::{Lock, LockError, LockManager};
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), LockError> {
    /// # let locks = LockManager::isolated_memory();
    /// let order = Lock::new("order:42").wait(Duration::from_millis(20)).manager(&locks);
    /// let _guard = order.acquire().await?;
    /// let late = order.acquire().await.expect_err("it is held");
    /// assert!(matches!(late, LockError::TimedOut { .. }));
    /// # Ok(()) }
    /// ```
    ///
    /// A wait is from 1 ms to 24 h, zero for none, or [without a limit](Lock::wait_forever).
    /// Another one fails with [`LockError::InvalidSetting`] when the lock is acquired: raise what
    /// is left of a deadline to 1 ms, or give up.
    ///
    /// # Cancellation
    /// A waiter whose future is dropped leaves the queue.
    pub fn wait(mut self, wait: Duration) -> Self {
        self.spec_mut().options.wait = Some(wait);
        self
    }

    /// Waits without a limit, also while the server cannot be reached. See [`wait`](Lock::wait).
    ///
    /// ```
    /// # use lockmacro_runtime::Lock;
    /// let lock = Lock::new("import").wait_forever();
    /// ```
    pub fn wait_forever(self) -> Self {
        self.wait(Duration::MAX)
    }

    /// Sets the name that others see in [`LockError::Busy`] and in the key's value, after the
    /// manager's label. The attribute sets the name of the function. The values that
    /// `reuse` keeps belong to this name as well.
    ///
    /// ```
    /// # use lockmacro_runtime::Lock;
    /// let lock = Lock::new("order:42").name("orders.audit");
    /// ```
    pub fn name(mut self, name: impl Into<Cow<'static, str>>) -> Self {
        self.spec_mut().name = name.into();
        self
    }

    /// Sets the text of [`LockError::Busy`] and [`LockError::TimedOut`], for the person who asked
    /// for the lock. The `Display` of these errors adds the holder; [`LockError::message`] is the
    /// text alone.
    ///
    /// ```
    /// # use lockmacro_runtime::{Lock, LockError, LockManager};
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), LockError> {
    /// # let locks = LockManager::isolated_memory();
    /// let order = Lock::new("order:42").message("order 42 is being processed").manager(&locks);
    /// let _guard = order.acquire().await?;
    /// let busy = order.acquire().await.expect_err("it is held");
    /// assert_eq!(busy.message(), Some("order 42 is being processed"));
    /// # Ok(()) }
    /// ```
    pub fn message(mut self, message: impl Into<Cow<'static, str>>) -> Self {
        self.spec_mut().message = Some(message.into());
        self
    }

    /// Sets a note for callers that find the lock busy, such as the name of the person who holds
    /// it. They read it as the `note` of [`LockError::holder`], and the tool `lockmacro` shows it.
    ///
    /// The note is part of the key's value, so everybody who may read the key can read it. It has
    /// at most 64 bytes; a longer note is cut between two characters. Control characters become
    /// blanks. The note appears in no metric and in no log line of the holder.
    ///
    /// ```
    /// # use lockmacro_runtime::{Lock, LockError, LockManager};
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), LockError> {
    /// # let locks = LockManager::isolated_memory();
    /// let lock = Lock::new("order:42").manager(&locks);
    /// let guard = lock.clone().holder_note("Ann, desk 3").acquire().await?;
    /// let busy = lock.acquire().await.expect_err("it is held");
    /// assert_eq!(busy.holder().note.as_deref(), Some("Ann, desk 3"));
    /// # guard.release().await }
    /// ```
    pub fn holder_note(mut self, note: impl Into<String>) -> Self {
        self.spec_mut().holder_note = Some(note.into());
        self
    }

    /// Sets the manager to acquire the lock from, instead of the installed one.
    ///
    /// ```
    /// # use lockmacro_runtime::{Lock, LockError, LockManager};
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), LockError> {
    /// # let locks = LockManager::isolated_memory();
    /// let guard = Lock::new("order:42").manager(&locks).acquire().await?;
    /// # drop(guard);
    /// # Ok(()) }
    /// ```
    pub fn manager(mut self, manager: &LockManager) -> Self {
        self.spec_mut().manager = Some(Arc::clone(&manager.0));
        self
    }

    fn spec_mut(&mut self) -> &mut LockSpec {
        Arc::make_mut(&mut self.spec)
    }

    /// Sets that each grant has a [`Fence`](crate::Fence): a number that is larger than that of
    /// every earlier grant of the key, so that the resource that the lock protects can refuse the
    /// writes of an earlier holder.
    ///
    /// The guard has it, as [`fence`](LockGuard::fence), or [`fence_of`](LockGuard::fence_of) for
    /// each of several keys.
    ///
    /// ```
    /// # use lockmacro_runtime::{Lock, LockError, LockManager};
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), LockError> {
    /// # let locks = LockManager::isolated_memory();
    /// let stock = Lock::new("stock:7").fenced().manager(&locks);
    /// let guard = stock.acquire().await?;
    /// let first = guard.fence();
    /// guard.release().await?;
    /// assert!(stock.acquire().await?.fence() > first);
    /// # Ok(()) }
    /// ```
    ///
    /// Inside of the body of a lock without a fence, acquiring the same lock with one fails with
    /// [`LockError::Nested`].
    pub fn fenced(mut self) -> Self {
        self.spec_mut().options.fenced = true;
        self
    }

    /// Acquires the lock: asks once, or waits for it as long as [`wait`](Lock::wait) allows.
    ///
    /// While the server fails or does not answer, the request is repeated for as long as the
    /// manager's timeout or the wait allows. Every repetition has the same token, so a lost reply
    /// neither locks the caller out nor counts twice.
    ///
    /// Inside of a body under the same key and manager, the guard joins the outer lock without
    /// asking the server, and has the settings of the outer lock.
    ///
    /// ```
    /// # use lockmacro_runtime::{Lock, LockError, LockManager};
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), LockError> {
    /// # let locks = LockManager::isolated_memory();
    /// let order = Lock::new("order:42").manager(&locks);
    /// let guard = order.acquire().await?;
    /// assert!(order.acquire().await.is_err_and(|error| error.is_busy()));
    /// guard.release().await?;
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// - [`LockError::Busy`] when somebody else holds the lock, and there is no wait;
    /// - [`LockError::TimedOut`] when somebody else still holds it at the end of the wait;
    /// - [`LockError::QueueFull`] when too many callers wait already;
    /// - [`LockError::Lost`] when the call would join a lock that is lost;
    /// - every other [`LockError`].
    ///
    /// # Cancellation
    /// Dropping the future at any point leaves no lock behind. If the request was sent already, the
    /// lock is released in the background.
    ///
    /// A future that is polled once and then neither polled nor dropped, as in a `select!` whose
    /// other branch awaits for long, may have been granted the lock. An exclusive lock on one key
    /// is taken from it: after a third of the manager's timeout for other callers of the same
    /// process, and a few seconds later otherwise. The future asks again when it is polled.
    /// A shared lock, or a lock on several keys, stays for its ttl. A release that has to be sent
    /// again, as after a lost connection, waits for the next poll.
    ///
    /// # Panics
    /// Panics inside of tokio when the runtime was built without `enable_time` and `enable_io`.
    pub fn acquire(&self) -> impl Future<Output = Result<LockGuard, LockError>> + use<> {
        acquire(Arc::clone(&self.spec), WaitMode::AsSet, Errors::Carried).map_ok(LockGuard::from)
    }

    /// Acquires the lock if it is free, and returns `None` if somebody else holds it. The server
    /// is asked once, whatever [`wait`](Lock::wait) says.
    ///
    /// ```
    /// # use lockmacro_runtime::{Lock, LockError, LockManager};
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), LockError> {
    /// # let locks = LockManager::isolated_memory();
    /// let order = Lock::new("order:42").manager(&locks);
    /// if let Some(guard) = order.try_acquire().await? {
    ///     assert!(order.try_acquire().await?.is_none());
    ///     guard.release().await?;
    /// }
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// As [`acquire`](Lock::acquire), but for [`LockError::Busy`].
    ///
    /// # Cancellation
    /// As [`acquire`](Lock::acquire).
    pub fn try_acquire(
        &self,
    ) -> impl Future<Output = Result<Option<LockGuard>, LockError>> + use<> {
        acquire(Arc::clone(&self.spec), WaitMode::Never, Errors::Carried).map(unless_busy)
    }

    /// Acquires the lock as [`acquire`](Lock::acquire) does, in code that is not async.
    ///
    /// It blocks the thread for a round trip to the server, which a background thread makes. When
    /// the lock is busy, it blocks for up to the [`wait`](Lock::wait); when the server does not
    /// answer, for up to the manager's timeout.
    ///
    /// In a task of tokio's multi-thread runtime the other tasks go on meanwhile, as with
    /// `block_in_place`. The other branches of the same task (`join!`, `select!`) and the tasks of
    /// the same `LocalSet` do not. A call that waits there for a lock that one of these holds
    /// cannot succeed, and never returns if it waits without a limit.
    ///
    /// ```
    /// use lockmacro_runtime::{Lock, LockError, LockManager};
    ///
    /// fn main() -> Result<(), LockError> {
    ///     let locks = LockManager::isolated_memory();
    ///     let guard = Lock::new("order:42").manager(&locks).acquire_blocking()?;
    ///     guard.release_blocking()
    /// }
    /// ```
    ///
    /// # Errors
    /// As [`acquire`](Lock::acquire), and [`LockError::NoRuntime`] on the thread of a
    /// current-thread runtime. The `spawn_blocking` threads of such a runtime are fine.
    pub fn acquire_blocking(&self) -> Result<LockGuard, LockError> {
        acquire_blocking(&self.spec, WaitMode::AsSet, Errors::Carried).map(LockGuard::from)
    }

    /// Acquires the lock as [`try_acquire`](Lock::try_acquire) does, in code that is not async.
    ///
    /// ```
    /// use lockmacro_runtime::{Lock, LockError, LockManager};
    ///
    /// fn main() -> Result<(), LockError> {
    ///     let locks = LockManager::isolated_memory();
    ///     let order = Lock::new("order:42").manager(&locks);
    ///     let guard = order.try_acquire_blocking()?.expect("it is free");
    ///     assert!(order.try_acquire_blocking()?.is_none());
    ///     guard.release_blocking()
    /// }
    /// ```
    ///
    /// # Errors
    /// As [`acquire_blocking`](Lock::acquire_blocking), but for [`LockError::Busy`].
    pub fn try_acquire_blocking(&self) -> Result<Option<LockGuard>, LockError> {
        unless_busy(acquire_blocking(&self.spec, WaitMode::Never, Errors::Carried))
    }

    /// The fences of a guard that this lock has acquired, in the order in which the keys were
    /// given, for expansions. A key that was given twice has the same fence twice.
    ///
    /// # Panics
    /// When the lock is not [`fenced`](Lock::fenced), or the guard is of another lock.
    #[doc(hidden)]
    pub fn fences(&self, guard: &LockGuard) -> Vec<Fence> {
        let fence_of = |key| guard.fence_of(key).expect("a guard of this lock, which is fenced");
        self.spec.keys().map(fence_of).collect()
    }
}

fn unless_busy(acquired: Result<Acquired, LockError>) -> Result<Option<LockGuard>, LockError> {
    match acquired {
        Ok(lock) => Ok(Some(lock.into())),
        Err(error) if error.is_busy() => Ok(None),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// It was 120 bytes on a 64-bit machine when this was written. The size of a tokio task is a
    /// multiple of 128 bytes: with more than 152 bytes here it takes 128 more.
    #[test]
    fn the_future_of_a_locked_body_is_small() {
        let body = async { Ok::<_, LockError>(()) };
        let run = size_of_val(&Lock::new("order:42").run(body));
        assert!(run <= 152, "{run}");
    }
}
