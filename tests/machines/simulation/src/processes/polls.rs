//! Futures that are polled less often than they ask for, or no more.

use std::pin::{Pin, pin};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::time::{Sleep, sleep};

use crate::processes::sim::sim;

/// A call that is not polled for a time, from its nth poll on.
pub(crate) struct Sleeping<'a, F> {
    pub(crate) future: Pin<&'a mut F>,
    pub(crate) worker: usize,
    pub(crate) left: Option<(u32, Duration)>,
    pub(crate) asleep: Option<Pin<Box<Sleep>>>,
}

impl<F: Future> Future for Sleeping<'_, F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        if let Some(asleep) = &mut self.asleep {
            ready!(asleep.as_mut().poll(cx));
            trace!("{} is polled again", self.worker);
            self.asleep = None;
        }
        let polled = self.future.as_mut().poll(cx);
        if let (Poll::Pending, Some((left, time))) = (&polled, self.left) {
            self.left = (left > 1).then_some((left - 1, time));
            if left == 1 {
                let time = sim().callers.sleeps(self.worker, time);
                trace!("{} is not polled for {time:?}", self.worker);
                let mut asleep = Box::pin(sleep(time));
                let _ = asleep.as_mut().poll(cx);
                self.asleep = Some(asleep);
            }
        }
        polled
    }
}

/// A call that is dropped at its nth poll.
pub(crate) struct DroppedAt<F> {
    pub(crate) future: Option<Pin<Box<F>>>,
    pub(crate) left: Option<u32>,
}

impl<F: Future> Future for DroppedAt<F> {
    type Output = Option<F::Output>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let Some(future) = &mut self.future else { return Poll::Ready(None) };
        let polled = pin!(future).poll(cx);
        if let (Poll::Pending, Some(left)) = (&polled, &mut self.left) {
            *left -= 1;
            if *left == 0 {
                self.future = None;
                return Poll::Ready(None);
            }
        }
        polled.map(Some)
    }
}
