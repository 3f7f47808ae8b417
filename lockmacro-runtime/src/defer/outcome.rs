//! The outcome of an attempt of a job.

use std::any::Any;
use std::fmt;
use std::time::Duration;

/// The outcome of one attempt.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum JobEnd {
    Done,
    /// The lock was busy, or its server failed: the job was not tried.
    Busy {
        /// The holder, or the failure of the server.
        error: String,
        /// The rest of the holder's lease, if that is known.
        left: Option<Duration>,
    },
    Failed(String),
    /// A newer job has taken its place: its body did not run.
    Superseded,
}

impl JobEnd {
    /// The outcome of a job that panicked, with the panic's message if it has one.
    pub(crate) fn with_panic(panic: &(dyn Any + Send)) -> Self {
        let text = panic.downcast_ref::<String>().map(String::as_str);
        Self::Failed(match text.or_else(|| panic.downcast_ref::<&str>().copied()) {
            Some(text) => format!("it panicked: {text}"),
            None => "it panicked".to_owned(),
        })
    }
}

/// The return type of a deferred function, which shows whether the job is done or has to be tried
/// again.
///
/// It is implemented for `()`, `Option<T>` and every `Result<T, E>` whose `E` implements `Display`.
#[diagnostic::on_unimplemented(
    message = "a job must be able to say whether it failed, and `{Self}` cannot",
    note = "return `()`, `Option<T>`, or a `Result<T, E>` whose `E` implements `Display`",
    note = "a type of your own can implement `lockmacro_runtime::defer::JobOutcome`"
)]
pub trait JobOutcome {
    /// Returns why the job has failed; `None` when it is done.
    fn failure(self) -> Option<String>;
}

impl JobOutcome for () {
    fn failure(self) -> Option<String> {
        None
    }
}

impl<T> JobOutcome for Option<T> {
    fn failure(self) -> Option<String> {
        None
    }
}

#[diagnostic::do_not_recommend]
impl<T, E: fmt::Display> JobOutcome for Result<T, E> {
    fn failure(self) -> Option<String> {
        self.err().map(|error| error.to_string())
    }
}
