//! The effect of each event on the queue of a key.

use super::*;

/// A caller: its ttl, and whether it wants a fence.
#[derive(Debug, Clone, Copy)]
pub(super) struct Caller(u64, bool);

impl Wants for Caller {
    fn ttl(&self) -> Duration {
        Duration::from_millis(self.0)
    }

    fn is_fenced(&self) -> bool {
        self.1
    }
}

pub(super) type Queue = LocalQueue<&'static str, Caller, Ticket>;

pub(super) const TURN: Duration = Duration::from_millis(20);
pub(super) const PLAIN: Caller = Caller(30_000, false);

pub(super) fn at(ms: u64) -> Moment {
    Moment::at(Duration::from_millis(ms))
}

pub(super) fn tenure(began: u64) -> Tenure {
    Tenure {
        began: at(began),
        sent: at(began),
        ends: at(began + 29_000),
        kept_until: at(began + 30_000),
        fences: None,
        was_held: true,
    }
}

/// A queue whose first caller holds the lock. The tickets are those of the holder and of the
/// waiters, in this order.
pub(super) fn held(waiters: usize) -> (Queue, Vec<Ticket>) {
    let mut queue = Queue::default();
    let Arrival::Asks(holder) = queue.arrive(true, at(0)) else { panic!("nobody else is there") };
    assert!(queue.asker_granted(holder).0);
    let mut tickets = vec![holder];
    tickets.extend((0..waiters).map(|_| wait(&mut queue, PLAIN)));
    for ticket in &tickets[1..] {
        assert!(matches!(poll(&mut queue, *ticket, 0), (Found::Nothing, _)));
    }
    (queue, tickets)
}

pub(super) fn wait(queue: &mut Queue, caller: Caller) -> Ticket {
    let Arrival::Waits(ticket) = queue.arrive(true, at(0)) else { panic!("it has to wait") };
    queue.wait(ticket, caller, false);
    ticket
}

pub(super) fn poll(
    queue: &mut Queue,
    ticket: Ticket,
    now: u64,
) -> (Found<&'static str>, Effects<&'static str, Ticket>) {
    queue.poll(ticket, |_| true, |_| Some(ticket), at(now))
}

pub(super) fn release(
    queue: &mut Queue,
    by: Ticket,
    now: u64,
) -> (bool, Effects<&'static str, Ticket>) {
    queue.release(by, Some(tenure(0)), || Some("token"), TURN, at(now))
}

#[test]
fn a_lock_is_passed_on_in_the_order_of_arrival() {
    let (mut queue, tickets) = held(3);
    for pair in tickets.windows(2) {
        let (passed, effects) = release(&mut queue, pair[0], 1);
        assert!(passed && effects.wake == [pair[1]] && effects.request.is_none());
        assert!(matches!(poll(&mut queue, pair[1], 1).0, Found::Lock(..)));
    }
    let (passed, effects) = release(&mut queue, tickets[3], 1);
    assert!(!passed && effects.request.is_none() && queue.is_empty());
}

#[test]
fn a_turn_ends_with_a_request_for_the_next_caller() {
    let (mut queue, tickets) = held(1);
    let (passed, effects) = release(&mut queue, tickets[0], 20);
    assert_eq!((passed, effects.request), (false, Some(1)));
    let first = Tenure { was_held: false, ..tenure(30) };
    assert_eq!(queue.granted(1, first, "next", at(31)).wake, tickets[1..]);
    assert!(matches!(poll(&mut queue, tickets[1], 32).0, Found::Lock(_, "next")));
}

#[test]
fn a_pass_that_is_dropped_goes_on_at_once() {
    let (mut queue, tickets) = held(2);
    assert!(release(&mut queue, tickets[0], 1).0);
    assert_eq!(queue.leave(tickets[1], TURN, at(2)).wake, [tickets[2]]);
    let effects = queue.leave(tickets[2], TURN, at(3));
    assert_eq!(effects.release, Some("token"));
    assert!(queue.is_empty());
}

#[test]
fn a_lease_is_checked_again_when_a_pass_is_taken_up() {
    for (is_sound, now) in [(false, 2), (true, 29_000)] {
        let (mut queue, tickets) = held(1);
        assert!(release(&mut queue, tickets[0], 1).0);
        let (found, effects) = queue.poll(tickets[1], |_| is_sound, |_| None, at(now));
        assert!(matches!(found, Found::Nothing), "it stays the first");
        assert_eq!((effects.release, effects.request), (Some("token"), Some(1)));
        assert_eq!(queue.rank(tickets[1]), 0);
    }
}

#[test]
fn a_pass_that_nobody_takes_up_lapses() {
    let (mut queue, tickets) = held(2);
    assert!(release(&mut queue, tickets[0], 1).0);
    let first = Tenure { was_held: false, ..tenure(1) };
    if let State::Passed { tenure, .. } = &mut queue.state {
        *tenure = first;
    }
    assert_eq!(queue.lapses(TAKE_UP), Some(at(51)));
    assert!(queue.lapse(TAKE_UP, TURN, at(50)).wake.is_empty());
    assert_eq!(queue.lapse(TAKE_UP, TURN, at(51)).wake, [tickets[2]]);
    assert!(matches!(poll(&mut queue, tickets[1], 60).0, Found::Nothing), "it was passed over");
    assert!(matches!(poll(&mut queue, tickets[2], 60).0, Found::Lock(..)));
    // The waiter has kept its place, and has twice the time now.
    assert!(queue.release(tickets[2], Some(tenure(50)), || Some("token"), TURN, at(61)).0);
    assert_eq!(queue.lapses(TAKE_UP), Some(at(161)));
}

#[test]
fn with_sleepers_only_the_lock_goes_back_after_the_confirm_window() {
    let (mut queue, tickets) = held(1);
    assert!(release(&mut queue, tickets[0], 1).0);
    let effects = queue.lapse(TAKE_UP, TURN, at(51));
    assert!(effects.release.is_none());
    assert_eq!(queue.lapses(TAKE_UP), Some(at(5_001)));
    let effects = queue.lapse(TAKE_UP, TURN, at(5_001));
    assert_eq!((effects.release, effects.request), (Some("token"), None));
    // The request is sent again when the waiter is polled.
    assert_eq!(poll(&mut queue, tickets[1], 9_000).1.request, Some(1));
}

#[test]
fn a_caller_that_does_not_wait_is_refused_by_what_is_known() {
    let (mut queue, tickets) = held(0);
    assert_eq!(queue.arrive(false, at(0)), Arrival::Busy, "while it is held");
    let _ = release(&mut queue, tickets[0], 0);
    let Arrival::Asks(first) = queue.arrive(true, at(0)) else { panic!() };
    let Arrival::Waits(second) = queue.arrive(false, at(0)) else { panic!("no answer yet") };
    queue.wait(second, PLAIN, true);
    let effects = queue.asker_refused(first, Some(PLAIN));
    assert_eq!(effects.request, Some(1));
    assert!(matches!(poll(&mut queue, second, 0).0, Found::Refused(Verdict::Busy)));
    assert_eq!(queue.arrive(false, at(0)), Arrival::Busy, "the answer is known");
    assert!(queue.leave(first, TURN, at(0)).withdraw && queue.is_empty());
}

#[test]
fn a_caller_that_does_not_wait_and_sleeps_is_refused_when_another_one_has_its_pass() {
    let mut queue = Queue::default();
    let Arrival::Asks(first) = queue.arrive(false, at(0)) else { panic!() };
    let Arrival::Waits(second) = queue.arrive(false, at(0)) else { panic!() };
    queue.wait(second, PLAIN, true);
    let next = wait(&mut queue, PLAIN);
    assert_eq!(queue.asker_failed(first, None).request, Some(1));
    let _ = queue.granted(1, Tenure { was_held: false, ..tenure(0) }, "token", at(1));
    let _ = queue.lapse(TAKE_UP, TURN, at(51));
    assert!(matches!(poll(&mut queue, second, 52).0, Found::Refused(Verdict::Busy)));
    assert!(matches!(poll(&mut queue, next, 52).0, Found::Lock(..)));
}

#[test]
fn a_holder_that_leaves_without_a_guard_lets_the_next_one_ask() {
    let (mut queue, tickets) = held(1);
    assert_eq!(queue.leave(tickets[0], TURN, at(1)).request, Some(1));
}

#[test]
fn a_lock_that_is_lost_before_its_line_knows_it_lets_the_next_one_ask() {
    let mut queue = Queue::default();
    let Arrival::Asks(first) = queue.arrive(true, at(0)) else { panic!() };
    wait(&mut queue, PLAIN);
    let (waits, effects) = queue.lost(first);
    assert_eq!((waits, effects.request), (true, Some(1)));
    assert!(!queue.asker_granted(first).0);
}

#[test]
fn a_caller_that_asks_in_vain_lets_the_next_one_ask() {
    let mut queue = Queue::default();
    let Arrival::Asks(first) = queue.arrive(false, at(0)) else { panic!() };
    let Arrival::Waits(second) = queue.arrive(false, at(0)) else { panic!() };
    queue.wait(second, PLAIN, true);
    assert_eq!(queue.asker_failed(first, None).request, Some(1));
    let effects = queue.granted(1, Tenure { was_held: false, ..tenure(0) }, "token", at(1));
    assert!(effects.release.is_none());
    assert!(matches!(poll(&mut queue, second, 1).0, Found::Lock(..)), "nobody else has the lock");
}

#[test]
fn an_answer_is_not_known_any_more_after_a_failure() {
    let (mut queue, tickets) = held(1);
    let request = queue.lost(tickets[0]).1.request.unwrap();
    let _ = queue.found_busy(request);
    assert_eq!(queue.arrive(false, at(0)), Arrival::Busy);
    queue.unanswered(request);
    assert!(matches!(queue.arrive(false, at(0)), Arrival::Waits(_)), "nobody may have it");
    let _ = queue.found_busy(request);
    queue.unanswered(request + 1);
    assert_eq!(queue.arrive(false, at(0)), Arrival::Busy, "it is about another request");
}

#[test]
fn a_request_that_is_not_polled_delays_the_next_caller_for_a_while_only() {
    let mut queue = Queue::default();
    let Arrival::Asks(first) = queue.arrive(true, at(0)) else { panic!() };
    let second = wait(&mut queue, PLAIN);
    assert_eq!(queue.lapse(TAKE_UP, TURN, at(49)).request, None);
    assert_eq!(queue.lapse(TAKE_UP, TURN, at(50)).request, Some(1));
    assert!(!queue.asker_granted(first).0, "its lock is not the line's");
    assert_eq!(queue.rank(second), 0);
}

#[test]
fn a_line_with_a_request_in_flight_is_not_empty() {
    for outcome in 0..3 {
        let mut queue = Queue::default();
        let Arrival::Asks(first) = queue.arrive(true, at(0)) else { panic!() };
        let second = wait(&mut queue, PLAIN);
        assert_eq!(queue.lapse(TAKE_UP, TURN, at(50)).request, Some(1));
        assert!(queue.leave(second, TURN, at(51)).withdraw && !queue.is_empty());
        match outcome {
            0 => drop(queue.asker_granted(first)),
            1 => drop(queue.asker_failed(first, None)),
            _ => drop(queue.asker_refused(first, None)),
        }
        assert!(queue.is_empty(), "{outcome}");
    }
}

#[test]
fn an_unused_waker_is_returned_to_be_dropped_without_the_mutex() {
    let (mut queue, tickets) = held(2);
    assert_eq!(poll(&mut queue, tickets[1], 0).1.unused, Some(tickets[1]), "another one");
    assert_eq!(queue.leave(tickets[1], TURN, at(0)).unused, Some(tickets[1]));
    assert!(release(&mut queue, tickets[0], 1).0);
    assert_eq!(poll(&mut queue, tickets[2], 1).1.unused, None, "it was woken");
}

#[test]
fn an_error_is_for_the_first_or_for_all() {
    for (all, woken) in [(false, 1), (true, 2)] {
        let (mut queue, tickets) = held(2);
        let request = queue.lost(tickets[0]).1.request.unwrap();
        let effects = queue.failed(request, &LockError::ShutDown, all);
        assert_eq!((effects.wake.len(), effects.request.is_some()), (woken, !all));
        let failed = |found| matches!(found, Found::Refused(Verdict::Failed(_)));
        assert!(failed(poll(&mut queue, tickets[1], 0).0));
        assert_eq!(failed(poll(&mut queue, tickets[2], 0).0), all);
    }
}

#[test]
fn a_caller_that_needs_a_fence_or_another_ttl_ends_the_turn() {
    for next in [Caller(30_000, true), Caller(1_000, false)] {
        let (mut queue, tickets) = held(0);
        wait(&mut queue, next);
        let (passed, effects) = release(&mut queue, tickets[0], 1);
        assert_eq!((passed, effects.request), (false, Some(1)));
    }
}

#[test]
fn a_grant_to_a_request_of_before_is_released() {
    let (mut queue, tickets) = held(1);
    let (_, effects) = queue.lost(tickets[0]);
    assert_eq!(effects.request, Some(1));
    let _ = queue.leave(tickets[1], TURN, at(0));
    assert_eq!(queue.granted(1, tenure(0), "late", at(1)).release, Some("late"));
}
