//! Single flight across processes: one caller runs the body, and the others get its value.

use std::sync::Arc;
use std::time::Duration;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::engine::acquire::acquiring::acquire;
use crate::engine::acquire::outcome::{Acquired, Errors};
use crate::engine::acquire::spec::LockSpec;
use crate::engine::core::inside_runtime;
use crate::engine::current;
use crate::engine::lease::held::Held;
use crate::engine::queue::shared_queue::SharedQueue;
use crate::guard::LockGuard;
use crate::lock::Lock;
use crate::run::driver::Running;
use crate::run_policy::Returnable;
use crate::value::error::LockError;
use crate::value::key::LockKey;
use crate::value::random::random_name;
use crate::value::time::Moment;

/// A longer value is not kept.
const VALUE_MAX: usize = 1024 * 1024;
/// The shortest and the longest time for which a server keeps one.
const SHORTEST: Duration = Duration::from_millis(1);
const LONGEST: Duration = Duration::from_secs(366 * 24 * 60 * 60);

/// A [`Lock`] whose callers reuse the value of the one before them: see [`Lock::reuse`].
#[derive(Debug, Clone)]
#[must_use = "a lock does nothing until it is run or acquired"]
pub struct ReusingLock<P> {
    lock: Lock<P>,
    reuse: Reuse,
}

#[derive(Debug, Clone)]
struct Reuse {
    keep: Duration,
    same: Option<LockKey>,
}

/// A value as it is kept.
#[derive(Serialize)]
struct ToKeep<'a, T> {
    id: u64,
    same: Option<&'a str>,
    value: &'a T,
}

/// A value that was kept.
#[derive(Deserialize)]
struct Kept {
    id: u64,
    same: Option<String>,
    value: Box<RawValue>,
}

/// The start of a call: the value of another caller, or the lock.
enum Begun<T> {
    Value(T),
    Lock(Acquired, Arc<SharedQueue>),
}

impl<P> Lock<P> {
    /// Makes callers that find the lock busy wait for it, and get the holder's value: one caller
    /// runs the body for all, also for those of other processes.
    ///
    /// The value of a body that returns `Ok` is kept for `keep` after its end, and callers get it
    /// within that time without the lock. With [`Duration::ZERO`] only those get it that were there
    /// before its end. An `Err` is not shared: the next caller runs its body, and so it does when
    /// the holder dies. Without a [`wait`](Lock::wait), and without one of the manager, a caller
    /// waits as long as a lease.
    ///
    /// The value is JSON in a companion key of the lock. It is never in a log. A value of more than
    /// 1 MiB is not kept, nor is one whose lock was lost before its body ended. Where the value
    /// cannot be read as a `T`, as after a deployment with another type, the body runs.
    ///
    /// A free lock costs three calls to the server more than without this, and those that wait have
    /// the lock one after the other. It is for bodies that are slow, or that must not run twice. A
    /// server that forgets the value, as by a failover, lets the body run once more.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use lockmacro_runtime::{Lock, LockError, LockManager};
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), LockError> {
    /// # let locks = LockManager::isolated_memory();
    /// let token = Lock::new("oauth:acme").manager(&locks).reuse(Duration::from_secs(50));
    /// let first = token.clone().run(async { Ok::<_, LockError>("first".to_owned()) }).await?;
    /// let second = token.run(async { Ok::<_, LockError>("second".to_owned()) }).await?;
    /// assert_eq!((&*first, &*second), ("first", "first"));
    /// # Ok(()) }
    /// ```
    pub fn reuse(self, keep: Duration) -> ReusingLock<P> {
        ReusingLock { lock: self, reuse: Reuse { keep, same: None } }
    }
}

impl<P> ReusingLock<P> {
    /// Refuses a kept value that was made of something else: a call with another text under the
    /// same key gets [`LockError::ReusedKey`]. For idempotency keys, which a client may use for two
    /// requests by mistake. A [template](LockKey::template) keeps several values apart.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use lockmacro_runtime::{Lock, LockError, LockManager};
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), LockError> {
    /// # let locks = LockManager::isolated_memory();
    /// let day = Duration::from_secs(24 * 60 * 60);
    /// let payment = Lock::new("payment:4f1c").manager(&locks).reuse(day);
    /// payment.clone().same("5 EUR").run(async { Ok::<_, LockError>(1) }).await?;
    /// let other = payment.same("7 EUR").run(async { Ok::<_, LockError>(2) }).await;
    /// assert!(matches!(other, Err(LockError::ReusedKey { .. })));
    /// # Ok(()) }
    /// ```
    pub fn same(mut self, what: impl Into<LockKey>) -> Self {
        self.reuse.same = Some(what.into());
        self
    }

    /// Runs `body` as [`Lock::run`] does, unless there is a value of another caller.
    ///
    /// # Errors
    /// Those of [`Lock::run`]; [`LockError::InvalidSetting`] for a lock that is shared, has permits
    /// or several keys, and on a Redlock, which keeps no values; and [`LockError::ReusedKey`].
    ///
    /// # Cancellation
    /// Dropping the future at any point drops the body and leaves no lock behind. A value that was
    /// on its way is kept, or not.
    pub fn run<B, T, E>(self, body: B) -> impl Future<Output = Result<T, E>>
    where
        B: Future<Output = Result<T, E>>,
        T: Serialize + DeserializeOwned,
        Result<T, E>: Returnable<P>,
    {
        // Boxed, so that the future does not have space for it in each of its states.
        let (Self { lock: Lock { spec, policy }, reuse }, body) = (self, Box::pin(body));
        async move {
            let (lock, queue) = match reuse.begin(spec).await {
                Ok(Begun::Value(value)) => return Ok(value),
                Ok(Begun::Lock(lock, queue)) => (lock, queue),
                Err(error) => return Result::conclude(policy, Err(error), None),
            };
            // Not released by the body's end: the value is kept before that.
            let joining = Acquired { held: Arc::clone(&lock.held), joined: true, ..lock };
            let ended = LockGuard { lock: joining, policy }.run(body).await;
            if let Some(text) = ended.as_ref().ok().map(|value| reuse.text(value)) {
                reuse.keep(&lock.held, &queue, text).await;
            }
            // An error was logged.
            let _ = Running::new(lock, Errors::Carried).release(Ok(())).await;
            ended
        }
    }
}

impl Reuse {
    /// Looks for a value, acquires the lock, and looks again.
    async fn begin<T: DeserializeOwned>(
        &self,
        mut spec: Box<LockSpec>,
    ) -> Result<Begun<T>, LockError> {
        let manager = spec.manager.take().map_or_else(current::manager, Ok)?;
        spec.manager = Some(Arc::clone(&manager));
        // Those of an acquisition, before the first call.
        inside_runtime()?;
        manager.label()?;
        let defaults = &manager.defaults;
        defaults.usable()?;
        if manager.shutdown.is_closed() {
            return Err(LockError::SHUT_DOWN);
        }
        let key = only_key(&spec)?.clone().under(&defaults.prefix)?;
        let ttl = spec.policy.ttl.unwrap_or(defaults.ttl());
        spec.policy.wait.get_or_insert(if defaults.wait.is_zero() { ttl } else { defaults.wait });
        let (queue, began) = (manager.queue(&key), Moment::now());
        let look = async || manager.store.kept(&key).await;
        let before = kept(look().await?.as_deref());
        if !self.keep.is_zero()
            && let Some(value) = self.value(&key, before.as_ref())?
        {
            return Ok(Begun::Value(value));
        }
        let lock = acquire(spec, false, Errors::Carried).await?;
        // Those before it in this process know the value. One that is older than `keep` is none.
        let is_fresh = self.keep.is_zero() || began.elapsed() < self.keep;
        let known = queue.value_since(began).filter(|_| is_fresh);
        let found = match known {
            Some(text) => Some(text),
            None => {
                let (asked, found) = (Moment::now(), look().await?.map(Arc::<str>::from));
                if let Some(text) = &found {
                    queue.note_value(asked, Arc::clone(text));
                }
                found
            }
        };
        let found = kept(found.as_deref());
        // Without a time to keep it, a value that was there before is too old.
        let is_old = |found: &Kept| before.as_ref().is_some_and(|before| before.id == found.id);
        let found = found.filter(|found| !self.keep.is_zero() || !is_old(found));
        match self.value(&key, found.as_ref())? {
            Some(value) => {
                // An error was logged, and the lock is released in the background then.
                _ = LockGuard::from(lock).release().await;
                Ok(Begun::Value(value))
            }
            None => Ok(Begun::Lock(lock, queue)),
        }
    }

    /// The value, if it can be read as one of this type.
    fn value<T: DeserializeOwned>(
        &self,
        key: &LockKey,
        kept: Option<&Kept>,
    ) -> Result<Option<T>, LockError> {
        let Some(kept) = kept else { return Ok(None) };
        // Where one of them has none, as before and after a deployment, nothing is known.
        if let (Some(before), Some(now)) = (&kept.same, &self.same)
            && before != now.as_str()
        {
            return Err(LockError::ReusedKey { key: key.clone() });
        }
        Ok(serde_json::from_str(kept.value.get()).ok())
    }

    /// A value as text, or why it cannot be kept.
    fn text<T: Serialize>(&self, value: &T) -> Result<String, &'static str> {
        let (id, same) = (random_name() as u64, self.same.as_ref().map(LockKey::as_str));
        match serde_json::to_string(&ToKeep { id, same, value }) {
            Ok(text) if text.len() > VALUE_MAX => Err("it is longer than 1 MiB"),
            Ok(text) => Ok(text),
            Err(_) => Err("it cannot be written as JSON"),
        }
    }

    /// Keeps a value, unless the lock was lost. Without it the next caller runs its body.
    async fn keep(&self, held: &Held, queue: &SharedQueue, text: Result<String, &'static str>) {
        // Those who wait have the lock within milliseconds, one after the other.
        let sent = Moment::now();
        let time = if self.keep.is_zero() { held.request.ttl } else { self.keep };
        let time = time.clamp(SHORTEST, LONGEST);
        let kept = match &text {
            Ok(text) => {
                let kept = held.manager.store.keep(&held.request, text, time);
                held.suspect_until_answered(kept).await
            }
            Err(reason) => Err(LockError::invalid("reuse", *reason)),
        };
        if let (Ok(true), Ok(text)) = (&kept, text) {
            queue.note_value(sent, text.into());
        }
        if let Err(error) = kept {
            let key = held.request.key.shown();
            tracing::warn!(%key, %error, "a value was not kept: the next caller makes it again");
        }
    }
}

fn kept(text: Option<&str>) -> Option<Kept> {
    serde_json::from_str(text?).ok()
}

/// The key of a lock whose holder's value can be kept.
fn only_key(spec: &LockSpec) -> Result<&LockKey, LockError> {
    let mut keys = spec.keys();
    match (keys.next(), keys.next()) {
        (Some(key), None) if key.mode().is_exclusive() => {
            key.check()?;
            Ok(key)
        }
        _ => Err(LockError::invalid("reuse", "it needs a lock that is exclusive and has one key")),
    }
}
