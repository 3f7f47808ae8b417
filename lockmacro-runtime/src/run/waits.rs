//! Counts how often bodies wait, for users' own tests.

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::task::{Context, Poll, Wake, Waker};

thread_local! {
    /// The waits of the call that is polled.
    static WATCHED: Cell<Option<Arc<WaitCount>>> = const { Cell::new(None) };
}

/// How often the bodies of a call have waited. A poll without a wake-up of the body itself, as for
/// the end of its lease, is no further wait.
#[derive(Default)]
pub(crate) struct WaitCount {
    number: AtomicUsize,
    begun: AtomicBool,
    woken: AtomicBool,
}

impl WaitCount {
    /// Counts those of the bodies that are polled here.
    pub(crate) fn watch<T>(self: &Arc<Self>, poll: impl FnOnce() -> T) -> T {
        WATCHED.set(Some(Arc::clone(self)));
        let polled = poll();
        WATCHED.set(None);
        polled
    }

    pub(crate) fn number(&self) -> usize {
        self.number.load(Ordering::SeqCst)
    }

    /// Whether a body was polled.
    pub(crate) fn is_begun(&self) -> bool {
        self.begun.load(Ordering::SeqCst)
    }
}

/// A body's own waker.
struct BodyWaker {
    waits: Arc<WaitCount>,
    waker: Waker,
}

impl Wake for BodyWaker {
    fn wake(self: Arc<Self>) {
        self.waits.woken.store(true, Ordering::SeqCst);
        self.waker.wake_by_ref();
    }
}

/// Polls a body, and counts when it waits. The bodies inside of it are parts of it.
pub(super) fn polled(
    begins: bool,
    cx: &mut Context<'_>,
    body: &mut dyn FnMut(&mut Context<'_>) -> Poll<()>,
) -> Poll<()> {
    let Some(waits) = WATCHED.take() else { return body(cx) };
    waits.begun.store(true, Ordering::SeqCst);
    let goes_on = waits.woken.swap(false, Ordering::SeqCst) || begins;
    let waker = BodyWaker { waits: Arc::clone(&waits), waker: cx.waker().clone() };
    let polled = body(&mut Context::from_waker(&Waker::from(Arc::new(waker))));
    if goes_on && polled.is_pending() {
        waits.number.fetch_add(1, Ordering::SeqCst);
    }
    WATCHED.set(Some(waits));
    polled
}
