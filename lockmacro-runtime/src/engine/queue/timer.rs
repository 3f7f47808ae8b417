//! A timer with a hidden type.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::time::sleep;

/// A timer of tokio. Its type is hidden: otherwise the compiler would have to prove for every
/// function with a lock that each part of the timer is `Send`.
pub(crate) struct Timer(Pin<Box<dyn Future<Output = ()> + Send>>);

impl Timer {
    pub(crate) fn new(time: Duration) -> Self {
        Self(Box::pin(sleep(time)))
    }

    pub(crate) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        self.0.as_mut().poll(cx)
    }
}
