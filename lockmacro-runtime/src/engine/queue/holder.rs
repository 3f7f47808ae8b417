//! The holder of a lock, as the queue of its key sees it.

use std::fmt::Debug;
use std::time::Duration;

use crate::value::holder;
use crate::value::time::Moment;

/// A holder, as its queue sees it.
pub(crate) trait Holder: Debug + Send + Sync {
    /// For callers that find the lock busy.
    fn shown(&self) -> holder::Holder;

    /// When its lease ends.
    fn ends(&self) -> Moment;

    /// Until when the store may keep the lock without another command.
    fn kept_until(&self) -> Moment;

    /// How long its lease lasts; `None` once it is lost. Reports a loss to the queue.
    fn lasts(&self) -> Option<Duration>;

    /// The store has forgotten the lock. Reports the loss to the queue.
    #[cfg(feature = "test-util")]
    fn is_forgotten(&self);
}
