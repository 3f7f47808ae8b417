//! Leading: a body that runs as long as its process holds the lock, term after term.

use std::panic::AssertUnwindSafe;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::{Either, select};
use tokio::time::sleep;

use crate::engine::current;
use crate::guard::LockGuard;
use crate::lock::Lock;
use crate::sys::backoff::Backoff;
use crate::value::error::LockError;
use crate::value::key::LockKey;
use crate::value::loss::OnLost;
use crate::value::mode::Mode;

/// The pause before the next campaign: after a term, and after the first failure.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
/// The pause after many failures.
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

impl Lock {
    /// Runs `body` whenever this process leads: as long as it holds this lock, of all the processes
    /// that campaign for the key.
    ///
    /// The others wait in the queue of the lock. A leader whose body returns or whose manager is
    /// shut down is followed within a round trip, and one that is killed or frozen within the
    /// [`ttl`](Lock::ttl). A Redlock has no queue: there the others ask again and again. The lease
    /// is renewed. `body` gets a guard of the lock, with the term's [fence](LockGuard::fence),
    /// which is larger than that of every earlier term. It is dropped at its next await when the
    /// lock is lost. A write that is on its way then can still arrive, also after the next leader
    /// has begun: a resource that checks the fence refuses it.
    ///
    /// A body that panics ends its term, too: the panic is logged as an error, and the lock is
    /// released. After a term the process campaigns again, with a pause of a second, in which
    /// another one becomes the leader. While the server fails, this process does not lead: the
    /// error is logged, and it campaigns again with pauses of up to 30 s. So [`wait`](Lock::wait)
    /// and [`on_lost`](Lock::on_lost) have no effect here.
    ///
    /// With the feature `inspect`, `LockManager::inspector` says who leads, and since when.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use lockmacro_runtime::{Lock, LockError, LockManager};
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> Result<(), LockError> {
    /// # let locks = LockManager::isolated_memory();
    /// let lead = Lock::new("role:billing").ttl(Duration::from_secs(10)).manager(&locks);
    /// let ended = tokio::spawn(async move {
    ///     lead.lead(async |term| {
    ///         println!("leads with fence {:?}", term.fence());
    ///         loop {
    ///             tokio::time::sleep(Duration::from_secs(60)).await; // … bills what is due …
    ///         }
    ///     })
    ///     .await
    /// });
    /// # tokio::time::sleep(Duration::from_secs(90)).await;
    /// // At the end of `main`:
    /// locks.shutdown(Duration::from_secs(5)).await?;
    /// assert_eq!(ended.await.expect("no panic"), Ok(()));
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// Those that do not pass by themselves: [`LockError::InvalidKey`],
    /// [`LockError::InvalidSetting`], [`LockError::KeyNotALock`], [`LockError::NotInstalled`] and
    /// [`LockError::NoRuntime`]. [`LockError::InvalidSetting`] is also returned for a lock that is
    /// [`shared`](Lock::shared) or has [`permits`](Lock::permits), and inside of a body that holds
    /// the lock already, as two would lead then. Returns `Ok` when the manager was shut down.
    ///
    /// # Cancellation
    /// Dropping the future drops the body, and ends the term or leaves the queue.
    pub async fn lead<B>(self, body: impl FnMut(LockGuard) -> B) -> Result<(), LockError>
    where
        B: Future<Output = ()>,
    {
        if let Some(mode) = self.spec.keys().map(LockKey::mode).find(|mode| !mode.is_exclusive()) {
            let setting = if mode == Mode::Shared { "shared" } else { "permits" };
            return Err(LockError::invalid(setting, "several would lead: remove it from the lock"));
        }
        let mut lock = self.fenced().renew().wait_forever().on_lost(OnLost::Cancel);
        let manager = lock.spec.manager.clone().map_or_else(current::manager, Ok)?;
        Arc::make_mut(&mut lock.spec).manager = Some(Arc::clone(&manager));
        match select(pin!(manager.core.shutdown.closed()), pin!(lock.campaigns(body))).await {
            Either::Left(_) | Either::Right((LockError::ShutDown { .. }, _)) => Ok(()),
            Either::Right((error, _)) => Err(error),
        }
    }

    /// Leads again and again, until there is an error that stays.
    async fn campaigns<B>(self, mut body: impl FnMut(LockGuard) -> B) -> LockError
    where
        B: Future<Output = ()>,
    {
        let new_pauses = || Backoff::new(FIRST_PAUSE, LONGEST_PAUSE);
        let mut pauses = new_pauses();
        loop {
            match self.acquire().await {
                Ok(guard) if guard.is_joined() => return inside_of_another(),
                // That one has no fence.
                Err(LockError::Nested { .. }) => return inside_of_another(),
                Ok(guard) => {
                    let key = guard.key().clone();
                    let handle = guard.handle();
                    let term = AssertUnwindSafe(async { body(handle).await }).catch_unwind();
                    // A loss was logged.
                    if let Ok(Err(_panic)) =
                        guard.run(async { Ok::<_, LockError>(term.await) }).await
                    {
                        tracing::error!(key = %key.shown(), "the body of a leader panicked");
                    }
                    pauses = new_pauses();
                }
                Err(error) if stays(&error) => return error,
                // It was logged.
                Err(_) => {}
            }
            sleep(pauses.next_within(LONGEST_PAUSE)).await;
        }
    }
}

fn inside_of_another() -> LockError {
    let detail = "a body around it holds the lock, so both would lead: call `lead` outside of that \
                  body, or with another key";
    LockError::invalid("lead", detail)
}

/// Whether only a change of the program or of the key fixes it.
fn stays(error: &LockError) -> bool {
    use LockError::{InvalidKey, InvalidSetting, KeyNotALock, NoRuntime, NotInstalled, ShutDown};
    matches!(
        error,
        InvalidKey { .. }
            | InvalidSetting { .. }
            | KeyNotALock { .. }
            | NotInstalled { .. }
            | NoRuntime { .. }
            | ShutDown { .. }
    )
}
