//! A caller's place at the line of its key.

use std::sync::{Arc, Weak};
use std::task::Waker;

use tokio::sync::oneshot;

use crate::engine::acquisition::{Acquisition, Refusal};
use crate::engine::line::{Contended, Ended, Place};
use crate::engine::line_holder::Holder;
use crate::engine::local_queue::{Effects, Found, Verdict};
use crate::engine::turn::Tenure;
use crate::protocol::answer::Queueing;
use crate::protocol::other_holder::OtherHolder;
use crate::protocol::request::Request;
use crate::value::error::LockError;
use crate::value::time::Moment;
use crate::value::unavailability::Unavailability;

impl Place {
    /// The caller has asked the store for itself, and was granted the lock. Returns whether the
    /// lock is the line's.
    pub(crate) fn granted(&self, holder: Weak<dyn Holder>) -> bool {
        self.line.with(|state| {
            let (is_ours, effects) = state.queue.asker_granted(self.ticket);
            if is_ours {
                state.holder = Some(holder);
                state.last = None;
            }
            (is_ours, effects)
        })
    }

    /// The caller has asked the store for itself, and found the lock busy. The caller waits in the
    /// line if `draft` is given.
    pub(crate) fn refused(&self, holder: &OtherHolder, draft: Option<Arc<Request>>) {
        self.line.with(|state| {
            state.note(holder, 0);
            ((), state.queue.asker_refused(self.ticket, draft))
        });
    }

    /// The caller has asked the store for itself, and failed or gave up. The caller waits in the
    /// line if `draft` is given.
    pub(crate) fn failed(&self, draft: Option<Arc<Request>>) {
        self.line.with(|state| ((), state.queue.asker_failed(self.ticket, draft)));
    }

    /// Checks whether the lock was passed to this waiter, or whether it is the waiter's turn.
    pub(crate) fn poll(&self, waker: &Waker) -> Found<Acquisition> {
        let core = self.line.core.upgrade();
        let is_sound = |tenure: &Tenure| {
            self.line.is_open() && core.is_some_and(|core| !core.has_changed_since(tenure.sent))
        };
        let waker = |last: Option<&Waker>| match last {
            Some(last) if last.will_wake(waker) => None,
            _ => Some(waker.clone()),
        };
        self.line.with(|state| {
            let (found, effects) = state.queue.poll(self.ticket, is_sound, waker, Moment::now());
            if let Found::Lock(tenure, token) = &found {
                state.holder = None;
                state.taken_up = Some((Arc::clone(token.request()), tenure.kept_until));
            }
            (found, effects)
        })
    }

    /// The waiter has taken the lock up.
    pub(crate) fn taken_up(&self, holder: Weak<dyn Holder>) {
        self.line.with(|state| {
            if state.queue.holder() == Some(self.ticket) {
                (state.holder, state.taken_up, state.last) = (Some(holder), None, None);
            }
            ((), Effects::default())
        });
    }

    /// The waiter leaves.
    pub(crate) fn leave(&self) {
        self.line.with(|state| {
            let turn = self.line.turn(state);
            ((), state.queue.leave(self.ticket, turn, Moment::now()))
        });
    }

    /// The refusal of a caller whose time is over. `None` while nothing is known of the lock,
    /// unless this is the `last` check. The caller came at `since`.
    pub(crate) fn over(&self, waits: bool, last: bool, since: Moment) -> Option<Refusal> {
        let mut held = None;
        let state = self.line.state.lock();
        let is_ours = state.queue.holder().is_some() || state.queue.passed().is_some();
        match &state.last {
            Some(Err(error)) if !is_ours => return Some(Refusal::Failed(error.clone())),
            // A caller that came before a holder of its process ended has waited for a busy lock.
            None if !is_ours && last && state.holder_ended.is_none_or(|ended| ended < since) => {
                let detail = "no answer while the caller waited".to_owned();
                let reason = Unavailability::Timeout;
                return Some(Refusal::Failed(LockError::unavailable(reason, detail)));
            }
            None if !is_ours && !last => return None,
            _ => {}
        }
        let ahead = match &state.last {
            Some(Ok(Contended { ahead, .. })) if !is_ours => *ahead,
            _ => 0,
        };
        let rank = u32::try_from(state.queue.rank(self.ticket)).unwrap_or(u32::MAX);
        let rank = rank.saturating_add(ahead);
        let queue = if waits { Queueing::Left(rank) } else { Queueing::Outside };
        Some(self.line.busy(&state, queue, &mut held))
    }

    /// The refusal of a waiter.
    pub(crate) fn refusal(&self, verdict: Verdict) -> Refusal {
        match verdict {
            Verdict::Failed(error) => Refusal::Failed(*error),
            Verdict::Busy => {
                let mut held = None;
                let state = self.line.state.lock();
                self.line.busy(&state, Queueing::Outside, &mut held)
            }
        }
    }

    /// The holder ends, in the process of the line. Passes the lock on if `tenure` allows that;
    /// `token` makes the token that goes with the lock.
    pub(crate) fn release(
        &self,
        tenure: Option<Tenure>,
        token: impl FnOnce() -> Option<Acquisition>,
    ) -> Ended {
        self.line.with(|state| {
            let tenure = tenure.filter(|_| state.queue.has_waiters() && self.line.is_open());
            let (turn, now) = (self.line.turn(state), Moment::now());
            if state.queue.holder() == Some(self.ticket) {
                (state.taken_up, state.holder_ended) = (None, Some(now));
            }
            let (is_passed, effects) = state.queue.release(self.ticket, tenure, token, turn, now);
            let ended = if is_passed {
                Ended::Passed
            } else if effects.release.is_some() {
                let (report, reported) = oneshot::channel();
                state.report = Some(report);
                Ended::Released(reported)
            } else {
                Ended::Kept
            };
            (ended, effects)
        })
    }

    /// The holder ends, and passes nothing on.
    pub(crate) fn ends(&self) {
        self.release(None, || None);
    }

    /// The holder has lost the lock. Returns whether another caller waits.
    pub(crate) fn lost(&self) -> bool {
        self.line.with(|state| state.queue.lost(self.ticket))
    }
}

#[cfg(test)]
mod tests {
    use std::hint;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::thread;
    use std::time::Duration;

    use super::*;
    use crate::engine::asker::Asker;
    use crate::engine::core::Core;
    use crate::engine::held::Held;
    use crate::engine::line::{Arrived, Line};
    use crate::engine::renewal::Renewable;
    use crate::protocol::answer::Grant;
    use crate::protocol::lease::Renewal;
    use crate::store::dispatch::Store;
    use crate::store::memory::Memory;
    use crate::store::redis::store::Redis;
    use crate::value::applied::Applied;
    use crate::value::defaults::Defaults;
    use crate::value::fence::Fences;
    use crate::value::token::Token;

    const HOUR: Duration = Duration::from_secs(60 * 60);

    /// Nothing answers at its server. Its turns do not end.
    fn core() -> Arc<Core> {
        core_over(Store::Redis(Arc::new(Redis::at("redis://127.0.0.1:1", HOUR))))
    }

    fn core_over(store: Store) -> Arc<Core> {
        let mut defaults = Defaults::default();
        defaults.turn = Some(HOUR);
        #[cfg(feature = "defer")]
        let core = Core::over(store, None, defaults, None, 1_024);
        #[cfg(not(feature = "defer"))]
        let core = Core::over(store, None, defaults);
        core
    }

    fn arrive(core: &Arc<Core>, key: &str) -> Arrived {
        let token = Token::new("test", "", "").unwrap();
        let mut request = Request::new(key.into(), token, HOUR);
        request.until = Some(request.asked.after(HOUR));
        Line::of_caller(core, request)
    }

    /// A holder, and a caller of the same process that waits.
    fn held_and_awaited(core: &Arc<Core>) -> (Arc<Held>, Place) {
        held_and_awaited_at(core, "order:1")
    }

    fn held_and_awaited_at(core: &Arc<Core>, key: &str) -> (Arc<Held>, Place) {
        let Arrived::Asks(place, request) = arrive(core, key) else {
            panic!("nobody else is there")
        };
        let acquisition = Acquisition::new(Arc::clone(core), request);
        assert!(acquisition.enter().is_ok());
        let (sent, fences) = (Moment::now(), Fences::default());
        let grant = Grant { sent, at: sent, ttl: HOUR, earlier: Applied::No, fences };
        let asker = Asker::new(place, None);
        let held = Held::new(acquisition, grant, Renewal::Off, asker).unwrap();
        let Arrived::Waits(waiter, _) = arrive(core, key) else { panic!("it is held") };
        (held, waiter)
    }

    fn has(waiter: &Place) -> bool {
        matches!(waiter.poll(Waker::noop()), Found::Lock(..))
    }

    /// The new server may have no data, and grant the lock to another process.
    #[tokio::test]
    async fn a_lock_is_not_passed_on_when_its_server_may_have_been_replaced() {
        for changes in [false, true] {
            let core = core();
            let (held, waiter) = held_and_awaited(&core);
            if changes {
                core.background().confirm_all();
            }
            let is_passed = matches!(held.pass_on(), Ended::Passed);
            assert_eq!((is_passed, has(&waiter)), (!changes, !changes));
        }
    }

    #[tokio::test]
    async fn a_pass_is_not_taken_up_when_the_server_may_have_been_replaced_meanwhile() {
        for changes in [false, true] {
            let core = core();
            let (held, waiter) = held_and_awaited(&core);
            assert!(matches!(held.pass_on(), Ended::Passed));
            if changes {
                core.background().confirm_all();
            }
            assert_eq!(has(&waiter), !changes);
        }
    }

    #[test]
    fn a_lock_that_a_renewal_finds_taken_can_be_passed_on_at_no_moment() {
        let core = core_over(Store::Memory(Memory::new()));
        let held_at = |nth| held_and_awaited_at(&core, &format!("order:{nth}"));
        let rounds: Vec<_> = (0..500).map(held_at).collect();
        // The renewal of each is in flight.
        rounds.iter().for_each(|(held, _)| held.sends(Moment::now().after(HOUR)));
        let mut passable = 0;
        let (watched, answered) = (AtomicUsize::new(0), AtomicUsize::new(0));
        thread::scope(|scope| {
            scope.spawn(|| {
                for (nth, (held, _)) in rounds.iter().enumerate() {
                    while watched.load(Ordering::SeqCst) <= nth {
                        hint::spin_loop();
                    }
                    held.answered(false, Moment::now(), Duration::ZERO);
                    answered.store(nth + 1, Ordering::SeqCst);
                }
            });
            for (nth, (held, _)) in rounds.iter().enumerate() {
                watched.store(nth + 1, Ordering::SeqCst);
                while answered.load(Ordering::SeqCst) <= nth {
                    passable += usize::from(held.tenure().is_some());
                }
            }
        });
        assert_eq!(passable, 0, "locks of others that could be passed on");
    }

    #[tokio::test]
    async fn a_wait_behind_a_holder_of_the_process_is_no_outage() {
        let core = core();
        let before = Moment::now();
        let (held, waiter) = held_and_awaited(&core);
        // The caller behind it asks no server.
        core.shutdown().close();
        assert!(!matches!(held.pass_on(), Ended::Passed));
        let after = Moment::now().after(HOUR);
        let refused = |since| waiter.over(true, true, since);
        assert!(matches!(refused(before), Some(Refusal::Contended { .. })));
        assert!(matches!(refused(after), Some(Refusal::Failed(_))), "nothing is known of the lock");
    }
}
