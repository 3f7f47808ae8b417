//! The trait of a store of one's own.

use std::any::type_name;
use std::fmt;
use std::future::{pending, ready};
use std::time::Duration;

use crate::store::lock_store::error::StoreError;
use crate::store::lock_store::limits::StoreLimits;
use crate::store::lock_store::messages::{AcquireRequest, HeldKey, Outcome};

/// A place where locks are kept: a server, a cluster, or a table of yours.
///
/// Three methods have to be written: [`acquire`](LockStore::acquire), [`renew`](LockStore::renew)
/// and [`release`](LockStore::release). Each asks the store once and returns its answer. The engine
/// does everything else: waiting, the order of the callers in a process, renewal before the lease
/// ends, deadlines, retries, outages and metrics. [`connect_store`] makes a manager of a store.
///
/// # What every method promises
///
/// - **The token decides.** Every acquisition has a token of its own, which no other one ever has.
///   A key is held by one token at a time. Only this token renews or releases it.
/// - **A repeated call does no harm.** The engine repeats a call whose answer was lost, with the
///   same token. The second call has to find what the first one did.
/// - **The store knows, and not its client.** Any client of the store can renew or release a key by
///   its token: another process of the same program, or another value that is connected to it.
/// - **The store's clock decides.** A key is free when its ttl is over by the clock of the store,
///   even if nobody released it. The clocks of its clients do not matter.
/// - **An answer is the truth.** A method that cannot know whether its call was applied says
///   [`StoreError::unknown`]. It never guesses: the engine releases such a token until the store
///   has answered.
/// - **Each decision is one atomic step of the store**: a transaction, a compare-and-set, or a
///   script. To read a key first and to write it in a second call is not enough, because another
///   process writes in between.
/// - **No method blocks its thread.** What blocks, such as a driver without async or a mutex that is
///   held across a round trip, belongs into [`spawn_blocking`]. The manager renews all leases of a
///   process on one thread, so a renewal that blocks it stops all others, and their locks are lost.
///
/// `testing::conformance` checks these promises and names the one that a
/// store breaks.
///
/// # Cancellation
///
/// The engine may drop a future at any of its awaits, as when the answer takes longer than a quarter
/// of the manager's [timeout], or when the caller is dropped. The call then counts as unknown. The
/// engine releases its token later, and repeats that in case the call is still on its way. So a
/// dropped future may leave the key with the token, and must leave nothing else: no half-written
/// key, no key without an end, and no lock that the next call needs.
///
/// **Nothing of a dropped call may reach the store more than 5 s after it was dropped.** The engine
/// releases a token of which it does not know three times, the last time 6 s after the one before.
/// What arrives after that locks the key for the rest of its ttl. So a request that still waits for
/// a connection or a thread when its caller is gone must not be sent: look at
/// [`is_closed`](tokio::sync::oneshot::Sender::is_closed) of the channel for its answer, or give
/// each request a deadline.
///
/// # Runtimes
///
/// The engine polls a future where it is needed: in the task of a caller, or on the manager's own
/// thread, which renews leases even while the program's runtime is blocked. Both have a tokio
/// runtime with time and I/O. A blocking caller polls on its own thread, inside the runtime of the
/// manager's thread.
///
/// A client whose connection is driven by a task of one runtime stops when that runtime is blocked
/// or dropped. Such a store returns a second connection from [`apart`](LockStore::apart), which
/// the manager's thread and blocking callers use.
///
/// # Example
///
/// A store in memory, without fences:
///
/// ```
/// use std::collections::HashMap;
/// use std::sync::Mutex;
/// use std::time::{Duration, Instant};
///
/// use lockmacro_runtime::store::{AcquireRequest, HeldKey, LockStore, Outcome, StoreError};
/// use lockmacro_runtime::{Lock, LockError, LockManager};
///
/// /// The token that holds each key, and until when.
/// #[derive(Debug, Default)]
/// struct Table(Mutex<HashMap<String, (String, Instant)>>);
///
/// impl LockStore for Table {
///     async fn acquire(&self, ask: AcquireRequest<'_>) -> Result<Outcome, StoreError> {
///         let mut keys = self.0.lock().unwrap();
///         let now = Instant::now();
///         let held = keys.get(ask.key()).filter(|(_, end)| *end > now);
///         let mut end = now + ask.ttl();
///         match held {
///             Some((by, end)) if by != ask.token() => {
///                 return Ok(Outcome::Held { by: Some(by.clone()), left: Some(*end - now) });
///             }
///             // A repeated request never shortens the lease.
///             Some((_, until)) => end = end.max(*until),
///             None => {}
///         }
///         keys.insert(ask.key().to_owned(), (ask.token().to_owned(), end));
///         Ok(Outcome::granted())
///     }
///
///     async fn renew(&self, held: HeldKey<'_>, ttl: Duration) -> Result<bool, StoreError> {
///         let mut keys = self.0.lock().unwrap();
///         let now = Instant::now();
///         let ours = keys.get_mut(held.key()).filter(|(by, end)| by == held.token() && *end > now);
///         Ok(ours.map(|(_, end)| *end = (*end).max(now + ttl)).is_some())
///     }
///
///     async fn release(&self, held: HeldKey<'_>, keep: Duration) -> Result<bool, StoreError> {
///         let mut keys = self.0.lock().unwrap();
///         let now = Instant::now();
///         let ours = keys.get_mut(held.key()).filter(|(by, end)| by == held.token() && *end > now);
///         Ok(ours.map(|entry| *entry = (held.kept(), now + keep)).is_some())
///     }
/// }
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), LockError> {
/// let locks = LockManager::builder().connect_store(Table::default()).await?;
/// let order = Lock::new("order:42").manager(&locks);
/// let guard = order.clone().acquire().await?;
/// assert!(order.acquire().await.is_err_and(|error| error.is_busy()));
/// guard.release().await
/// # }
/// ```
///
/// [`connect_store`]: crate::LockManagerBuilder::connect_store
/// [`spawn_blocking`]: tokio::task::spawn_blocking
/// [timeout]: crate::LockManagerBuilder::timeout
pub trait LockStore: fmt::Debug + Send + Sync + 'static {
    /// Grants the key to the token for `ask.ttl()` from now on, if no other token holds it. It asks
    /// once and does not wait for the key.
    ///
    /// - A key that another token holds is [`Outcome::Held`], and nothing changes.
    /// - A token that already holds the key is granted it again: for the ttl from now on, never for
    ///   less than it had, and with the same fence or a larger one.
    /// - A fence is larger than that of every earlier grant of the key to another token, also
    ///   after the key was released, or has expired, or the store was restarted.
    ///
    /// [`StoreError::unknown`] if it is not known whether the key was granted.
    fn acquire(
        &self,
        ask: AcquireRequest<'_>,
    ) -> impl Future<Output = Result<Outcome, StoreError>> + Send;

    /// Lets the key end `ttl` from now on, if the token still holds it, and never earlier than it
    /// would have ended. It never acquires: a key that has expired stays free.
    ///
    /// `false` means that the token does not hold the key, so its lock is lost. Where that is not
    /// known, the answer is [`StoreError::unknown`], and the engine asks again until the lease is
    /// over.
    fn renew(
        &self,
        held: HeldKey<'_>,
        ttl: Duration,
    ) -> impl Future<Output = Result<bool, StoreError>> + Send;

    /// Frees the key if the token holds it. With a `keep` above zero, the key stays held by nobody
    /// and ends `keep` from now on: that is the rest of a lock's
    /// [`min_hold`](crate::Lock::min_hold).
    ///
    /// Either way the token does not hold the key afterwards, so that a late renewal finds nothing
    /// to renew. A store that keeps the token as the value of the key can write
    /// [`HeldKey::kept`] in its place.
    ///
    /// `false` means that the token did not hold the key: it had expired, or was released before.
    /// The engine also releases tokens of which it does not know whether they were ever granted.
    fn release(
        &self,
        held: HeldKey<'_>,
        keep: Duration,
    ) -> impl Future<Output = Result<bool, StoreError>> + Send;

    /// Checks that the store answers and permits what locks need. The manager calls it once when it
    /// is connected, so that a wrong password is found when the program starts.
    fn ready(&self) -> impl Future<Output = Result<(), StoreError>> + Send {
        ready(Ok(()))
    }

    /// Ends when the key may have become free. The engine calls it right after an answer that
    /// another token holds the key, once for all callers of a process, and asks again when it ends.
    ///
    /// It is a hint, so it may end too early, or too late, or never. The default never ends, and
    /// waiters ask again after 25 to [100 ms](StoreLimits::longest_pause) or when the lease of the
    /// holder is over.
    fn freed(&self, key: &str) -> impl Future<Output = ()> + Send {
        let _ = key;
        pending()
    }

    /// What the store can do. It is read once, when the manager is made.
    fn limits(&self) -> StoreLimits {
        StoreLimits::default()
    }

    /// The name of the store in errors and logs, such as `etcd at etcd-1:2379`. Without a password.
    /// The default is the name of the type.
    fn name(&self) -> String {
        let path = type_name::<Self>();
        path.rsplit("::").next().unwrap_or(path).to_owned()
    }

    /// The same locks through a connection of its own, for the manager's own thread. `None`, the
    /// default, is for a store whose futures run on any runtime. See [Runtimes](#runtimes).
    fn apart(&self) -> Option<Self>
    where
        Self: Sized,
    {
        None
    }

    /// Closes the connections, as the manager was shut down: its own, and each that came from
    /// [`apart`](LockStore::apart). It may be called more than once. Locks that are still held are
    /// released later all the same, so a later call may open a connection again.
    fn close(&self) {}
}
