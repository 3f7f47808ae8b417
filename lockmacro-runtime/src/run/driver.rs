//! Acquires a lock, polls a body while the lock is held, and releases the lock: everything about a
//! locked body that does not depend on the body's type.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use crate::engine::acquire::{Acquiring, acquire};
use crate::engine::acquire_blocking::acquire_blocking;
use crate::engine::reentry::Scope;
use crate::engine::spec::LockSpec;
use crate::engine::unreported::{Errors, unreported};
use crate::guard::LockGuard;
use crate::value::error::LockError;
use crate::value::loss::{Lost, OnLost};

/// Polls a body once; `Ready` when it has finished.
pub(crate) type PollBody<'a> = dyn FnMut(&mut Context<'_>) -> Poll<()> + 'a;

/// How a body ended.
#[derive(Debug)]
pub(crate) enum Ended {
    /// It finished under the lock, or its value counts although the lock was lost.
    Done,
    /// It finished after the lock was lost.
    Late(Lost),
    /// It did not run, or was dropped because the lock was lost.
    Refused(LockError),
}

impl Ended {
    fn after(on_lost: OnLost, lost: Option<Lost>) -> Self {
        match lost {
            Some(lost) if on_lost != OnLost::Finish => Ended::Late(lost),
            _ => Ended::Done,
        }
    }
}

/// The start of a body.
pub enum Start {
    /// A lock to acquire.
    Lock(Box<LockSpec>),
    /// A lock that is held.
    Guard(LockGuard),
}

impl Start {
    /// For a body that is skipped when the lock is busy: the manager's default wait does not apply.
    pub(crate) fn or_skip(self) -> Self {
        match self {
            Start::Lock(spec) => Start::Lock(spec.without_default_wait()),
            guard @ Start::Guard(_) => guard,
        }
    }

    /// For an async body. Nothing is sent before the first poll.
    pub(crate) fn driver(self, errors: Errors) -> Driver {
        match self {
            Start::Lock(spec) => Driver::acquiring(spec, errors),
            Start::Guard(guard) => Driver::running(guard, errors),
        }
    }

    /// Runs a body that is not async, on the caller's thread.
    pub(crate) fn block_on(self, errors: Errors, body: &mut dyn FnMut()) -> Ended {
        match self {
            Start::Lock(spec) => acquire_and_run(spec, errors, body),
            Start::Guard(guard) => run_held(guard, errors, body),
        }
    }
}

type Pending<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// Each state is boxed or small, because the future of every waiter and of every level of nested
/// locked functions contains all of them.
pub(crate) enum Driver {
    Acquiring(Acquiring, Errors),
    Running(Running),
    Ending(Ending),
}

/// The rest of a driver when its body is dropped. It is smaller than a driver, because the body's
/// value is stored beside it.
pub(crate) enum Ending {
    Releasing(Pending<Ended>),
    /// Boxed, because an error is larger than all the rest.
    Ended(Option<Box<Ended>>),
}

/// A body under its lock.
pub(crate) struct Running {
    /// Dropped before the guard, which releases the lock.
    lost: Option<Pending<Lost>>,
    scope: Scope,
    guard: LockGuard,
    errors: Errors,
    is_begun: bool,
}

impl Driver {
    fn acquiring(spec: Box<LockSpec>, errors: Errors) -> Self {
        Driver::Acquiring(acquire(spec, false, errors), errors)
    }

    fn running(guard: LockGuard, errors: Errors) -> Self {
        let scope = guard.level();
        Driver::Running(Running { lost: None, scope, guard, errors, is_begun: false })
    }

    /// Acquires the lock and polls the body while the lock is held, until the body has finished or
    /// has to be dropped. The release comes next.
    pub(crate) fn poll_body(&mut self, cx: &mut Context<'_>, body: &mut PollBody<'_>) -> Poll<()> {
        loop {
            *self = match self {
                Driver::Acquiring(acquire, errors) => match ready!(Pin::new(acquire).poll(cx)) {
                    Ok(acquired) => Self::running(acquired.into(), *errors),
                    Err(error) => {
                        let refused = Box::new(Ended::Refused(error));
                        Driver::Ending(Ending::Ended(Some(refused)))
                    }
                },
                Driver::Running(running) => {
                    let stopped = ready!(running.poll(cx, body)).err();
                    let over = Driver::Ending(Ending::Ended(None));
                    let Driver::Running(running) = std::mem::replace(self, over) else {
                        return Poll::Pending;
                    };
                    Driver::Ending(Ending::Releasing(Box::pin(running.release(stopped))))
                }
                Driver::Ending(_) => return Poll::Ready(()),
            }
        }
    }

    /// Takes the state after the last poll of the body. Leaves a driver that does nothing.
    pub(crate) fn take(&mut self) -> Ending {
        match std::mem::replace(self, Driver::Ending(Ending::Ended(None))) {
            Driver::Ending(ending) => ending,
            Driver::Acquiring(..) | Driver::Running(_) => Ending::Ended(None),
        }
    }
}

impl Ending {
    /// Releases the lock, when the body has finished or was dropped.
    pub(crate) fn poll_release(&mut self, cx: &mut Context<'_>) -> Poll<Ended> {
        match self {
            Ending::Releasing(release) => release.as_mut().poll(cx),
            Ending::Ended(ended) => match ended.take() {
                Some(ended) => Poll::Ready(*ended),
                None => Poll::Pending,
            },
        }
    }
}

impl Running {
    /// Polls the body until it has finished, or returns the loss that ended it.
    fn poll(&mut self, cx: &mut Context<'_>, body: &mut PollBody<'_>) -> Poll<Result<(), Lost>> {
        let stops = !self.is_begun || self.guard.on_lost() == OnLost::Cancel;
        // The lease is checked before every poll: after a pause of the process this comes first.
        if stops && let Err(lost) = self.guard.held().remaining() {
            return Poll::Ready(Err(lost));
        }
        self.is_begun = true;
        if self.scope.enter(|| body(cx)).is_ready() {
            return Poll::Ready(Ok(()));
        }
        if self.guard.on_lost() != OnLost::Cancel {
            return Poll::Pending;
        }
        // Created only for a body that awaits.
        let lost = self.lost.get_or_insert_with(|| {
            let guard = self.guard.share();
            Box::pin(async move { guard.lost().await })
        });
        lost.as_mut().poll(cx).map(Err)
    }

    async fn release(mut self, stopped: Option<Lost>) -> Ended {
        let lost = self.guard.held().remaining().err();
        if let Some(held) = self.guard.take_for_background() {
            held.release_in_background().await;
        } else if !self.guard.is_joined() {
            let released = self.guard.held().release().await;
            self.guard.held().report_release(released, lost.as_ref());
        }
        self.ended(stopped, lost)
    }

    fn ended(&self, stopped: Option<Lost>, lost: Option<Lost>) -> Ended {
        let ended = match stopped {
            Some(lost) => Ended::Refused(lost.into()),
            None => Ended::after(self.guard.on_lost(), lost),
        };
        let error = match (&ended, self.errors) {
            (_, Errors::Carried) | (Ended::Done, _) => None,
            (Ended::Late(_), Errors::ReportedUnlessLate) => None,
            (Ended::Late(lost), Errors::Reported) => Some(lost.clone().into()),
            (Ended::Refused(error), _) => Some(error.clone()),
        };
        if let Some(error) = error {
            let request = self.guard.held().request();
            unreported(&request.name, request.keys(), &error);
        }
        ended
    }
}

/// Acquires `lock`, runs `body` and releases the lock, on the caller's thread.
fn acquire_and_run(spec: Box<LockSpec>, errors: Errors, body: &mut dyn FnMut()) -> Ended {
    match acquire_blocking(spec, false, errors) {
        Ok(acquired) => run_held(acquired.into(), errors, body),
        Err(error) => Ended::Refused(error),
    }
}

/// Runs `body` under the lock and releases it, on the caller's thread.
fn run_held(guard: LockGuard, errors: Errors, body: &mut dyn FnMut()) -> Ended {
    let scope = guard.level();
    let mut running = Running { lost: None, scope, guard, errors, is_begun: true };
    // The last check before the body, which cannot be stopped later.
    let stopped = running.guard.held().remaining().map(|_| running.scope.enter(body)).err();
    let lost = running.guard.held().remaining().err();
    if let Some(held) = running.guard.take_for_background() {
        held.release_by_thread();
    } else if !running.guard.is_joined() {
        let held = running.guard.held();
        held.report_release(held.release_blocking(), lost.as_ref());
    }
    running.ended(stopped, lost)
}
