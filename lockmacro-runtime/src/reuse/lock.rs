//! The lock whose callers reuse the value of the one before them.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::panic::Location;
use std::sync::Arc;
use std::time::Duration;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::engine::acquire::acquiring::acquire;
use crate::engine::acquire::options::WaitMode;
use crate::engine::acquire::outcome::{Acquired, Errors};
use crate::engine::acquire::spec::LockSpec;
use crate::engine::core::inside_runtime;
use crate::engine::current;
use crate::engine::lease::held::Held;
use crate::engine::manager::Manager;
use crate::engine::queue::shared_queue::SharedQueue;
use crate::guard::LockGuard;
use crate::lock::Lock;
use crate::reuse::held::NotedValue;
use crate::reuse::value::ValueOf;
use crate::reuse::values;
use crate::run::driver::{Run, RunningBody, Start};
use crate::run::same_value::is_same;
use crate::run_policy::{Returnable, RunPolicy};
use crate::sys::random::random_name;
use crate::sys::sync::Mutex;
use crate::sys::time::Moment;
use crate::value::error::LockError;
use crate::value::key::LockKey;

/// A longer value is not kept.
const VALUE_MAX: usize = 1024 * 1024;
/// The longest time for which a server keeps one.
const LONGEST: Duration = Duration::from_secs(366 * 24 * 60 * 60);
/// A server keeps it for so much longer at most, for those that wait. They have the lock within
/// milliseconds, one after the other.
const LINGER_MAX: Duration = Duration::from_secs(10);
/// Of so many functions it is reported that their values cannot be kept.
const REPORTED_MAX: usize = 1_000;

/// A [`Lock`] whose callers reuse the value of the one before them: see [`Lock::reuse`].
#[derive(Debug, Clone)]
#[must_use = "a lock does nothing until it is run or acquired"]
pub struct ReusingLock {
    lock: Lock,
    reuse: Reuse,
}

#[derive(Debug, Clone)]
struct Reuse {
    keep: Duration,
    same: Option<LockKey>,
    site: &'static Location<'static>,
}

/// A value as it is kept.
#[derive(Serialize)]
struct ToKeep<'a, T> {
    id: u64,
    linger_ms: u64,
    same: Option<&'a str>,
    /// While a body runs that has a `same`, and after it has failed: there is no value yet.
    is_open: bool,
    value: &'a T,
}

/// A value that was kept.
#[derive(Deserialize)]
struct Kept {
    id: u64,
    /// The end of its time, in which only those get it that waited when it was made.
    #[serde(default)]
    linger_ms: u64,
    same: Option<String>,
    #[serde(default)]
    is_open: bool,
    value: Box<RawValue>,
}

/// The start of a call: the value of another caller, or the lock.
enum Begun<T> {
    Value(T),
    Lock(Acquired, Place),
}

/// Where the values of a call are. They are the caller's own also where its lock joins another one,
/// whose request has another name, and maybe further keys.
struct Place {
    key: LockKey,
    name: Cow<'static, str>,
    queue: Arc<SharedQueue>,
}

impl Place {
    fn of(&self) -> ValueOf<'_> {
        ValueOf { key: &self.key, name: &self.name }
    }

    /// Notes a value that is at the store since this moment, for the waiters of this process.
    fn note(&self, since: Moment, text: Arc<str>) {
        let name = (*self.name).into();
        self.queue.with_noted(|noted| *noted = Some(NotedValue { name, since, text }));
    }

    /// A value that came to be at the store after `since`, or was there then.
    fn noted_since(&self, since: Moment) -> Option<Arc<str>> {
        self.queue.with_noted(|noted| {
            let value = noted.as_ref().filter(|value| *value.name == *self.name)?;
            (since <= value.since).then(|| Arc::clone(&value.text))
        })
    }
}

impl Lock {
    /// Makes callers that find the lock busy wait for it, and get the holder's value: one caller
    /// runs the body for all, also for those of other processes.
    ///
    /// The value of a body that returns `Ok` is kept for `keep` after its end, and callers get it
    /// within that time without the lock. Those that waited before its end get it however long
    /// `keep` is; with [`Duration::ZERO`] only they do. An `Err` is not shared: the next caller
    /// runs its body, and so it does when the holder dies. Without a [`wait`](Lock::wait), and
    /// without one of the manager, a caller waits as long as a lease.
    ///
    /// A value belongs to the [`name`](Lock::name) under which it was made, which is the function
    /// where the attribute is used. Other names exclude one another by the key, but each has a
    /// value of its own. So a function that moves to another module finds none of before. Locks
    /// without a name share one value: give each of your functions a name. A path that two
    /// functions have, such as methods of two types in a module, is refused to the second one.
    ///
    /// A [`min_hold`](Lock::min_hold) counts for a caller whose body runs.
    ///
    /// The value is JSON in a companion key of the lock. It is never in a log. A value of more than
    /// 1 MiB is not kept, nor is one that JSON changes, such as `Some(NaN)`, nor one whose lock was
    /// lost before its body ended. Where the value cannot be read as a `T`, as after a deployment
    /// with another type, the body runs.
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
    /// let first = token.run(async { Ok::<_, LockError>("first".to_owned()) }).await?;
    /// let second = token.run(async { Ok::<_, LockError>("second".to_owned()) }).await?;
    /// assert_eq!((&*first, &*second), ("first", "first"));
    /// # Ok(()) }
    /// ```
    #[track_caller]
    pub fn reuse(self, keep: Duration) -> ReusingLock {
        ReusingLock { lock: self, reuse: Reuse { keep, same: None, site: Location::caller() } }
    }
}

impl ReusingLock {
    /// Binds the key to what a call is made of: one with another text under the same key gets
    /// [`LockError::ReusedKey`]. For idempotency keys, which a client may use for two requests by
    /// mistake. A [template](LockKey::template) keeps several values apart.
    ///
    /// The key is bound for `keep`, from the start of the body on and again from its end: another
    /// text is refused at once while the body runs, and after it has failed, as it may have had an
    /// effect. That is one call more to the server, before the body.
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

    /// Removes the kept value, so that the next caller runs its body: for a token that was revoked.
    /// It waits for the lock as a call does.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use lockmacro_runtime::{Lock, LockError, LockManager};
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), LockError> {
    /// # let locks = LockManager::isolated_memory();
    /// let token = Lock::new("oauth:acme").manager(&locks).reuse(Duration::from_secs(50));
    /// token.run(async { Ok::<_, LockError>(1) }).await?;
    /// token.forget().await?;
    /// assert_eq!(token.run(async { Ok::<_, LockError>(2) }).await?, 2);
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// Those of [`run`](Self::run), and [`LockError::Lost`] where the lock was lost meanwhile: the
    /// value may still be there.
    ///
    /// # Cancellation
    /// Dropping the future leaves no lock behind. The value may be there, or not.
    pub async fn forget(&self) -> Result<(), LockError> {
        let mut spec = Arc::clone(&self.lock.spec);
        let (manager, place) = prepare(Arc::make_mut(&mut spec))?;
        // Nothing is done for which the key would have to stay.
        Arc::make_mut(&mut spec).options.min_hold = None;
        let lock = acquire(spec, WaitMode::AsSet, Errors::Carried).await?;
        let held = Arc::clone(&lock.held);
        let store = &manager.core.store;
        let forgotten = values::keep(store, &held.request, place.of(), "", Duration::ZERO);
        let forgotten = held.suspect_until_answered(forgotten).await;
        // Nor do those of this process that wait get the value of before.
        place.note(Moment::now(), "".into());
        let released = LockGuard::from(lock).release().await;
        forgotten.and(released)
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
    pub fn run<B, T, E>(&self, body: B) -> impl Future<Output = Result<T, E>> + use<B, T, E>
    where
        B: Future<Output = Result<T, E>>,
        T: Serialize + DeserializeOwned,
        E: From<LockError>,
    {
        self.clone().run_under(<RunPolicy>::default(), body)
    }

    /// The same, where the caller gets what `policy` says.
    pub(crate) fn run_under<B, T, E, P>(
        self,
        policy: P,
        body: B,
    ) -> impl Future<Output = Result<T, E>> + use<B, T, E, P>
    where
        B: Future<Output = Result<T, E>>,
        T: Serialize + DeserializeOwned,
        Result<T, E>: Returnable<P>,
    {
        let Self { lock: Lock { spec }, reuse } = self;
        // Boxed, so that the future does not have space for it in each of its states.
        let body = Box::pin(body);
        async move {
            let (lock, place) = match reuse.begin(spec).await {
                Ok(Begun::Value(value)) => return Ok(value),
                Ok(Begun::Lock(lock, place)) => (lock, place),
                Err(error) => return Result::conclude(policy, Err(error), None),
            };
            // Not released by the body's end: the value is kept before that.
            let joining = Acquired { held: Arc::clone(&lock.held), joined: true, ..lock };
            let ended = Run::new(Start::Guard(joining), policy, body).await;
            if let Ok(value) = &ended {
                reuse.keep(&lock.held, &place, value).await;
            }
            // An error was logged.
            let _ = RunningBody::new(lock, Errors::Carried).release(Ok(())).await;
            ended
        }
    }
}

impl Reuse {
    /// Looks for a value, acquires the lock, and looks again.
    async fn begin<T: DeserializeOwned>(
        &self,
        mut spec: Arc<LockSpec>,
    ) -> Result<Begun<T>, LockError> {
        let own = Arc::make_mut(&mut spec);
        let (manager, place) = prepare(own)?;
        manager.core.sites.check(&place.name, self.site)?;
        // Who finds a value has done nothing for which the key would have to stay.
        let min_hold = own.options.min_hold.take();
        let began = Moment::now();
        let look = async || values::kept(&manager.core.store, place.of()).await;
        let there = look().await?;
        let before = there.as_ref().and_then(|there| kept(&there.text));
        let is_fresh = |before: &Kept, left: Duration| {
            !self.keep.is_zero() && left > Duration::from_millis(before.linger_ms)
        };
        let fresh = before.as_ref().zip(there.as_ref());
        let fresh = fresh.filter(|(before, there)| is_fresh(before, there.left));
        if let Some(value) = self.value(&place.key, fresh.map(|(before, _)| before))? {
            return Ok(Begun::Value(value));
        }
        let lock = acquire(spec, WaitMode::AsSet, Errors::Carried).await?;
        // Any other one was made while this caller waited, however long that was.
        let is_new = |found: &Kept| before.as_ref().is_none_or(|before| before.id != found.id);
        // Those before it in this process know the value, or the one that was there before.
        let noted = place.noted_since(began);
        let found = match noted.and_then(|text| kept(&text)).filter(is_new) {
            Some(found) => Some(found),
            None => {
                let asked = Moment::now();
                let text = look().await?.map(|found| found.text);
                let found = text.as_ref().and_then(|text| kept(text));
                // Another process may make the value of one that is open.
                if let (Some(text), Some(Kept { is_open: false, .. })) = (text, &found) {
                    place.note(asked, text);
                }
                found
            }
        };
        match self.value(&place.key, found.filter(is_new).as_ref())? {
            None => {
                self.bind(&lock.held, &place).await?;
                if let Some(min_hold) = min_hold.filter(|_| !lock.joined) {
                    let request = &lock.held.request;
                    request
                        .token
                        .note_stays_until(Moment::now().after(min_hold.min(request.ask.ttl)));
                }
                Ok(Begun::Lock(lock, place))
            }
            Some(value) => {
                // An error was logged, and the lock is released in the background then.
                _ = LockGuard::from(lock).release().await;
                Ok(Begun::Value(value))
            }
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
        Ok(serde_json::from_str(kept.value.get()).ok().filter(|_| !kept.is_open))
    }

    /// A value as text, or why it cannot be kept.
    fn text<T: Serialize + DeserializeOwned>(
        &self,
        value: &T,
        linger: Duration,
        is_open: bool,
    ) -> Result<String, &'static str> {
        let id = random_name() as u64;
        let same = self.same.as_ref().map(LockKey::as_str);
        let linger_ms = u64::try_from(linger.as_millis()).unwrap_or(u64::MAX);
        let to_keep = ToKeep { id, linger_ms, same, is_open, value };
        let text = serde_json::to_string(&to_keep).map_err(|_| "it cannot be written as JSON")?;
        if text.len() > VALUE_MAX {
            return Err("it is longer than 1 MiB");
        }
        let again = kept(&text).and_then(|kept| serde_json::from_str(kept.value.get()).ok());
        match again {
            Some(again) if is_same(value, &again) => Ok(text),
            _ => Err("it is another one when it is read again, as `Some(NaN)` is"),
        }
    }

    /// For how long after its time a server keeps a value, for those that wait.
    fn linger(&self, ttl: Duration) -> Duration {
        if self.keep.is_zero() { ttl } else { ttl.min(LINGER_MAX) }
    }

    /// Refuses calls with another `same` from now on, also when the body fails.
    async fn bind(&self, held: &Held, place: &Place) -> Result<(), LockError> {
        if self.same.is_none() || self.keep.is_zero() {
            return Ok(());
        }
        let linger = self.linger(held.request.ask.ttl);
        let open = self.text(&(), linger, true).unwrap_or_default();
        self.store(held, place, &open, linger).await
    }

    /// Keeps a value, unless the lock was lost. Without it the next caller runs its body.
    async fn keep<T: Serialize + DeserializeOwned>(&self, held: &Held, place: &Place, value: &T) {
        let key = place.key.shown();
        let sent = Moment::now();
        let linger = self.linger(held.request.ask.ttl);
        let text = match self.text(value, linger, false) {
            Ok(text) => text,
            Err(reason) if is_first_of(&place.name) => {
                let name = &*place.name;
                tracing::warn!(
                    name, %key, reason,
                    "a value is not kept, nor are later ones like it: each call runs its body"
                );
                return;
            }
            Err(_) => return,
        };
        match self.store(held, place, &text, linger).await {
            Ok(()) => place.note(sent, text.into()),
            Err(error) => {
                tracing::warn!(%key, %error, "a value was not kept: the next caller makes it again");
            }
        }
    }

    async fn store(
        &self,
        held: &Held,
        place: &Place,
        text: &str,
        linger: Duration,
    ) -> Result<(), LockError> {
        let time = self.keep.min(LONGEST) + linger;
        let kept = values::keep(&held.manager.store, &held.request, place.of(), text, time);
        held.suspect_until_answered(kept).await
    }
}

/// The manager and the values of a lock, which waits as long as a lease if nothing else is set.
/// Fails as an acquisition would, before the first call.
fn prepare(spec: &mut LockSpec) -> Result<(Arc<Manager>, Place), LockError> {
    let manager = spec.manager.take().map_or_else(current::manager, Ok)?;
    spec.manager = Some(Arc::clone(&manager));
    inside_runtime()?;
    manager.core.label()?;
    let defaults = &manager.core.defaults;
    defaults.usable()?;
    if manager.core.shutdown.is_closed() {
        return Err(LockError::SHUT_DOWN);
    }
    let key = only_key(spec)?.clone().under(&defaults.prefix)?;
    let ttl = spec.options.ttl.unwrap_or(defaults.ttl());
    spec.options.wait.get_or_insert(if defaults.wait.is_zero() { ttl } else { defaults.wait });
    let queue = manager.queue(&key);
    Ok((manager, Place { key, name: spec.name.clone(), queue }))
}

/// Whether no value of this function was reported before.
fn is_first_of(name: &str) -> bool {
    static REPORTED: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());
    let mut reported = REPORTED.lock();
    reported.len() < REPORTED_MAX && reported.insert(name.to_owned())
}

fn kept(text: &str) -> Option<Kept> {
    serde_json::from_str(text).ok()
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
