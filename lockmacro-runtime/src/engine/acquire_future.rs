//! The future of a request for a lock.

use std::mem;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use crate::engine::acquisition::{Acquisition, Refusal};
use crate::engine::telemetry::WaitingGauge;
use crate::protocol::answer::{Answer, Asked, Failed, Grant};
use crate::protocol::request::Request;

impl Acquisition {
    /// Requests the lock on the caller's runtime.
    pub(crate) fn acquire(self) -> Result<Acquire, Box<(Self, Refusal)>> {
        match self.enter() {
            Ok(()) => Ok(self.asking()),
            Err(refusal) => Err(Box::new((self, refusal))),
        }
    }

    fn asking(self) -> Acquire {
        let (manager, request) = (self.manager(), self.request());
        let asked = manager.releasing().acquire(&self.store(), request, manager.shutdown());
        let _waiting = WaitingGauge::new(Arc::clone(self.request()));
        Acquire::Asking { asked, _waiting, acquisition: self }
    }
}

/// An acquisition that requests its lock. Written by hand, as every waiter carries one: the future
/// of an `async fn` would keep its arguments as well, and has no type that can be named without a
/// box.
pub(crate) enum Acquire {
    /// The fields are dropped in this order: the request before the acquisition that releases it.
    Asking {
        asked: Asked<'static, Result<Answer, Failed>>,
        _waiting: WaitingGauge<Arc<Request>>,
        acquisition: Acquisition,
    },
    /// Boxed, as it is rare.
    Restarting(Asked<'static, (Acquisition, Result<(), Refusal>)>),
    Over,
}

impl Acquire {
    pub(crate) fn poll(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<(Acquisition, Result<Grant, Refusal>)> {
        loop {
            *self = match self {
                Acquire::Asking { asked, .. } => {
                    let answer = ready!(asked.as_mut().poll(cx));
                    let Some(acquisition) = self.asked() else { return Poll::Pending };
                    if !acquisition.is_to_restart(&answer) {
                        let granted = acquisition.take_answer(answer);
                        return Poll::Ready((acquisition, granted));
                    }
                    Acquire::Restarting(Box::pin(acquisition.restart()))
                }
                Acquire::Restarting(restart) => match ready!(restart.as_mut().poll(cx)) {
                    (acquisition, Ok(())) => acquisition.asking(),
                    (acquisition, Err(refusal)) => {
                        *self = Acquire::Over;
                        return Poll::Ready((acquisition, Err(refusal)));
                    }
                },
                Acquire::Over => return Poll::Pending,
            }
        }
    }

    /// The acquisition whose request is in flight.
    pub(crate) fn asking(&self) -> Option<&Acquisition> {
        match self {
            Acquire::Asking { acquisition, .. } => Some(acquisition),
            Acquire::Restarting(_) | Acquire::Over => None,
        }
    }

    /// Takes the acquisition out once its request was answered. It no longer counts as waiting.
    fn asked(&mut self) -> Option<Acquisition> {
        match mem::replace(self, Acquire::Over) {
            Acquire::Asking { acquisition, .. } => Some(acquisition),
            Acquire::Restarting(_) | Acquire::Over => None,
        }
    }
}
