//! The watch of a line: the background thread ends passes and turns that no waiter takes up, and
//! notices holders that have lost the lock.

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use tokio::time::timeout;

use crate::engine::core::Core;
use crate::engine::line::Line;
use crate::value::time::Moment;

/// Longest time between two checks of a line with waiters.
const LOOK: Duration = Duration::from_secs(2);

impl Line {
    /// Starts the watch of a line with waiters.
    pub(crate) fn start_watch(self: &Arc<Self>, core: &Arc<Core>) {
        let line = Arc::clone(self);
        if core.background().spawn(move |_| watch(line)).is_err() {
            self.state.lock().watched = None;
        }
    }
}

/// Watches a line for as long as there are waiters: ends passes that are not taken up, and notices
/// a holder that has lost the lock.
async fn watch(line: Arc<Line>) {
    let watch = Watch(line);
    while let Some(pause) = look(&watch.0) {
        let _ = timeout(pause, watch.0.sooner.notified()).await;
    }
}

/// The watch of a line. If it ends by a panic, such as one in the code of a waker, the next event
/// starts another watch.
struct Watch(Arc<Line>);

impl Drop for Watch {
    fn drop(&mut self) {
        if thread::panicking() {
            self.0.state.lock().watched = None;
        }
    }
}

/// Checks a line. Returns the pause until the next check; `None` without waiters.
fn look(line: &Arc<Line>) -> Option<Duration> {
    // What the check itself does to the line must not wake the watch again.
    line.state.lock().watched = Some(Moment::at(Duration::ZERO));
    // `lasts` reports a loss to the line.
    line.holder().and_then(|holder| holder.lasts());
    line.with(|state| {
        let turn = line.turn(state);
        ((), state.queue.lapse(line.unanswered(), turn, Moment::now()))
    });
    let ends = line.holder().map(|holder| holder.ends());
    let mut state = line.state.lock();
    let now = Moment::now();
    let lasts = ends.map(|ends| ends.since(now));
    let due = state.queue.lapses(line.unanswered()).map(|due| due.since(now));
    let pause = due.or(lasts).unwrap_or(LOOK).clamp(Duration::from_millis(1), LOOK);
    state.watched = line.is_watched(&state).then(|| now.after(pause));
    state.watched.map(|_| pause)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::acquisition::Refusal;
    use crate::engine::line::Arrived;
    use crate::engine::local_queue::Effects;
    use crate::protocol::answer::Queueing;
    use crate::protocol::request::Request;
    use crate::store::dispatch::Store;
    use crate::store::memory::Memory;
    use crate::value::defaults::Defaults;
    use crate::value::limits::QUEUE_MAX;
    use crate::value::token::Token;

    const HOUR: Duration = Duration::from_secs(60 * 60);

    fn core() -> Arc<Core> {
        let (store, defaults) = (Store::Memory(Memory::new()), Defaults::default());
        #[cfg(feature = "defer")]
        let core = Core::over(store, None, defaults, None, 1_024);
        #[cfg(not(feature = "defer"))]
        let core = Core::over(store, None, defaults);
        core
    }

    fn arrive(core: &Arc<Core>, waits: bool) -> Arrived {
        let token = Token::new("test", "", "").unwrap();
        let mut request = Request::new("order:1".into(), token, HOUR);
        request.until = waits.then(|| request.asked.after(HOUR));
        Line::of_caller(core, request)
    }

    #[tokio::test]
    async fn a_watch_that_ends_by_a_panic_is_followed_by_another() {
        let core = core();
        let Arrived::Asks(_asker, _) = arrive(&core, true) else { panic!("nobody else is there") };
        let Arrived::Waits(waiter, _) = arrive(&core, true) else { panic!("it is being asked") };
        let watched = || waiter.line.state.lock().watched;
        let watch = Watch(Arc::clone(&waiter.line));
        let panics = thread::spawn(move || {
            let _watch = watch;
            panic!("as planned");
        });
        panics.join().unwrap_err();
        assert_eq!(watched(), None);
        waiter.line.with(|_| ((), Effects::default()));
        assert!(watched().is_some());
    }

    #[tokio::test]
    async fn the_watch_of_a_line_ends_after_a_shutdown() {
        let core = core();
        let Arrived::Asks(_asker, _) = arrive(&core, true) else { panic!("nobody else is there") };
        let Arrived::Waits(waiter, _) = arrive(&core, true) else { panic!("it is being asked") };
        assert!(waiter.line.state.lock().watched.is_some());
        core.shutdown().close();
        assert_eq!(look(&waiter.line), None);
    }

    #[tokio::test]
    async fn callers_that_do_not_wait_are_counted_in_a_line() {
        let core = core();
        // No caller asks the store for the waiters in the line.
        core.shutdown().close();
        let Arrived::Asks(_asker, _) = arrive(&core, false) else { panic!("nobody else is there") };
        for _ in 0..QUEUE_MAX {
            assert!(matches!(arrive(&core, false), Arrived::Waits(..)));
        }
        let Arrived::Refused(_, refusal) = arrive(&core, false) else { panic!("it is full") };
        assert!(matches!(refusal, Refusal::Contended { queue: Queueing::Full, .. }));
    }
}
