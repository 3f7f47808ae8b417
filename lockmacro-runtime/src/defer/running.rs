//! The call that a worker runs right now, for the function that it calls.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use crate::engine::observer::{Observer, observe};
use crate::guard::LockGuard;
use crate::jobs::call::Job;
use crate::value::error::LockError;
use crate::value::sync::Mutex;

/// Tells a worker of errors that the function it calls met.
const OBSERVER: Observer = Observer { refused, unreported };

tokio::task_local! {
    static RUNNING: Running;
}

/// Belongs to one task: what is spawned inside is outside of it.
#[derive(Debug, Clone)]
pub(crate) struct Running(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    id: String,
    function: Arc<str>,
    /// As the function itself would store them: a map may be stored in any order.
    arguments: String,
    /// What went wrong that the function's return type may not tell.
    error: Mutex<Option<LockError>>,
    /// Why a lock could not be had, outside of any body, for a reason that is not the call's.
    refused: Mutex<Option<LockError>>,
    /// How often each call was deferred inside.
    inside: Mutex<HashMap<(u64, u64), u32>>,
}

impl Running {
    /// `function` is its own name, without the prefix that it is stored under.
    pub(crate) fn new(job: &Job, function: &Arc<str>, arguments: String) -> Self {
        let (id, function) = (job.id.clone(), Arc::clone(function));
        let (error, refused, inside) = Default::default();
        Self(Arc::new(Inner { id, function, arguments, error, refused, inside }))
    }

    /// Runs `work` as this call.
    pub(crate) async fn around<F: Future>(self, work: F) -> F::Output {
        observe(OBSERVER);
        RUNNING.scope(self, work).await
    }

    /// The same for code that is not async.
    pub(crate) fn enter<R>(self, work: impl FnOnce() -> R) -> R {
        observe(OBSERVER);
        RUNNING.sync_scope(self, work)
    }

    /// What went wrong.
    pub(crate) fn error(&self) -> Option<LockError> {
        self.0.error.lock().take()
    }

    /// Why a lock could not be had, whatever the call may be.
    pub(crate) fn refused(&self) -> Option<LockError> {
        self.0.refused.lock().take()
    }

    fn note(&self, error: LockError) {
        *self.0.error.lock() = Some(error);
    }

    /// What tells a call that is deferred inside from all others but itself in another try of this one.
    fn id_inside(&self, function: &str, arguments: &str) -> String {
        let hash = |half: u8| {
            let mut hasher = DefaultHasher::new();
            (half, &self.0.id, &self.0.function, function, arguments).hash(&mut hasher);
            hasher.finish()
        };
        let call = (hash(0), hash(1));
        let mut inside = self.0.inside.lock();
        let nth = inside.entry(call).or_default();
        *nth += 1;
        format!("{:016x}{:016x}-{nth}", call.0, call.1)
    }
}

/// The id of a new call. One that is deferred inside of another has the same one each time that the other
/// is tried, so that it is stored once for as long as its id is known.
pub(crate) fn new_id(function: &str, arguments: &str) -> String {
    let inside = RUNNING.try_with(|running| running.id_inside(function, arguments));
    inside.unwrap_or_else(|_| format!("{:032x}", crate::value::token::chance()))
}

/// Whether this is the call that a worker runs here. Then it is stored already, and its worker is told
/// that it was busy.
pub(crate) fn is_running(function: &str, arguments: &str, busy: &LockError) -> bool {
    let is_this = |running: &Running| {
        let is_this = *running.0.function == *function && running.0.arguments == arguments;
        if is_this {
            running.note(busy.clone());
        }
        is_this
    };
    RUNNING.try_with(is_this).unwrap_or(false)
}

/// Takes note of an error that a return type cannot carry, so that the worker knows.
fn unreported(error: &LockError) {
    // What fails inside of the body is the body's own business.
    if LockGuard::current().is_some() {
        return;
    }
    // Outside of a worker there is nobody to tell.
    let _ = RUNNING.try_with(|running| running.note(error.clone()));
}

/// Takes note that a lock cannot be had now: the call's body does not run, and whether that is so has nothing
/// to do with the call.
fn refused(error: &LockError) {
    use LockError::{
        AccessDenied, Authentication, ConnectionLimit, InsufficientReplicas, NoQuorum,
        NotInstalled, Unavailable,
    };
    let transient = matches!(
        error,
        AccessDenied { .. }
            | Authentication { .. }
            | ConnectionLimit { .. }
            | InsufficientReplicas { .. }
            | NoQuorum { .. }
            | NotInstalled
            | Unavailable { .. }
    );
    if transient && LockGuard::current().is_none() {
        let note = |running: &Running| *running.0.refused.lock() = Some(error.clone());
        // The other ones are told of by who has met them.
        if RUNNING.try_with(note).is_ok() && *error == NotInstalled {
            tracing::warn!(%error, "a deferred call was not tried: there is no lock to be had here");
        }
    }
}
