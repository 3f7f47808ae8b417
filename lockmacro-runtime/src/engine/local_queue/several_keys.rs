//! The effect of events on the queue of a key, where callers of several keys wait in it.

use super::events::{
    PLAIN, Queue, SEVERAL, TURN, UNANSWERED, at, held, poll, release, tenure, wait,
};
use super::*;

#[test]
fn a_caller_that_does_not_wait_is_refused_when_the_turn_of_several_keys_begins() {
    let mut queue = Queue::default();
    let Arrival::Asks(asker) = queue.arrive(false, true, at(0)) else { panic!("nobody waits") };
    let several = wait(&mut queue, SEVERAL);
    let Arrival::Waits(leaves) = queue.arrive(false, false, at(0)) else { panic!("not answered") };
    queue.wait(leaves, PLAIN, true);
    assert!(matches!(poll(&mut queue, leaves, 0).0, Found::Nothing));
    assert_eq!(queue.asker_failed(asker, None, at(1)).wake, [leaves]);
    assert!(matches!(poll(&mut queue, leaves, 1).0, Found::Refused(Verdict::Busy)));
    assert!(matches!(poll(&mut queue, several, 1).0, Found::Turn));
}

#[test]
fn a_caller_that_does_not_wait_is_refused_when_its_own_poll_begins_such_a_turn() {
    let (mut queue, tickets) = held(0);
    let several = wait(&mut queue, SEVERAL);
    assert_eq!(release(&mut queue, tickets[0], 0).1.request, None);
    let _ = queue.lapse(UNANSWERED, TURN, at(50));
    let Arrival::Asks(asker) = queue.arrive(false, false, at(50)) else { panic!("nobody asks") };
    let Arrival::Waits(leaves) = queue.arrive(false, false, at(50)) else { panic!("not answered") };
    queue.wait(leaves, PLAIN, true);
    let request = queue.asker_failed(asker, None, at(51)).request.expect("for the one awake");
    let granted = Tenure { was_held: false, ..tenure(51) };
    assert!(queue.granted(request, granted, "token", at(52)).release.is_none());
    assert!(matches!(poll(&mut queue, several, 53).0, Found::Nothing));
    let (found, effects) = queue.poll(leaves, |_| false, |_| Some(leaves), at(53));
    assert!(matches!(found, Found::Refused(Verdict::Busy)), "{found:?}");
    assert_eq!((effects.release, effects.wake.as_slice()), (Some("token"), &[several][..]));
}

#[test]
fn a_caller_of_several_keys_asks_the_store_itself_when_its_turn_comes() {
    let (mut queue, tickets) = held(0);
    let (several, next) = (wait(&mut queue, SEVERAL), wait(&mut queue, PLAIN));
    for ticket in [several, next] {
        assert!(matches!(poll(&mut queue, ticket, 0), (Found::Nothing, _)));
    }
    let (passed, effects) = release(&mut queue, tickets[0], 1);
    assert!(!passed && effects.wake == [several] && effects.request.is_none());
    assert!(matches!(poll(&mut queue, next, 1).0, Found::Nothing));
    assert!(matches!(poll(&mut queue, several, 1).0, Found::Turn));
    assert!(queue.asker_granted(several).0);
    let (passed, effects) = queue.release(several, None, || None, TURN, at(2));
    assert!(!passed && effects.request == Some(1), "the next caller has a request of its own");
}

#[test]
fn a_request_of_the_queue_is_withdrawn_for_a_caller_of_several_keys() {
    let (mut queue, tickets) = held(1);
    let several = wait(&mut queue, SEVERAL);
    let request = queue.lost(tickets[0], at(1)).1.request.unwrap();
    let effects = queue.leave(tickets[1], TURN, at(1));
    assert!(effects.withdraw && effects.request.is_none());
    assert_eq!(queue.granted(request, tenure(1), "late", at(2)).release, Some("late"));
    assert!(matches!(poll(&mut queue, several, 2).0, Found::Turn));
    assert_eq!(queue.asker_failed(several, None, at(3)).request, None);
    assert!(queue.is_empty());
}

#[test]
fn a_turn_that_is_not_begun_lapses() {
    let (mut queue, tickets) = held(0);
    let (several, next) = (wait(&mut queue, SEVERAL), wait(&mut queue, PLAIN));
    assert_eq!(release(&mut queue, tickets[0], 0).1.request, None);
    let due = TAKE_UP.as_millis() as u64;
    assert_eq!(queue.lapses(Duration::ZERO), Some(at(due)));
    assert_eq!(queue.lapse(Duration::ZERO, TURN, at(due - 1)).request, None);
    let request = queue.lapse(Duration::ZERO, TURN, at(due)).request.unwrap();
    // Awake again, it comes first.
    let (found, effects) = poll(&mut queue, several, due);
    assert!(matches!(found, Found::Turn) && effects.withdraw);
    let late = queue.granted(request, tenure(due), "late", at(due));
    assert_eq!(late.release, Some("late"));
    assert_eq!(queue.asker_failed(several, None, at(due)).request, Some(request + 1));
    assert!(queue.leave(next, TURN, at(due)).withdraw);
    assert!(queue.is_empty());
}

#[test]
fn a_caller_of_several_keys_keeps_the_line_while_it_is_polled() {
    let mut queue = Queue::default();
    let Arrival::Asks(several) = queue.arrive(true, true, at(0)) else { panic!() };
    let waiter = wait(&mut queue, PLAIN);
    let window = CONFIRM_WINDOW.as_millis() as u64;
    assert_eq!(queue.lapse(UNANSWERED, TURN, at(window - 1)).request, None);
    queue.asker_polled(several, at(window - 1));
    assert_eq!(queue.lapse(UNANSWERED, TURN, at(2 * window - 2)).request, None);
    assert_eq!(queue.arrive(false, false, at(window)), Arrival::Busy, "its process waits");
    assert!(matches!(queue.arrive(false, false, at(2 * window)), Arrival::Waits(_)));
    assert_eq!(queue.lapse(UNANSWERED, TURN, at(2 * window)).request, Some(1));
    queue.asker_polled(several, at(2 * window));
    assert!(!queue.asker_granted(several).0, "the line has gone on");
    let _ = queue.leave(waiter, TURN, at(2 * window));
    assert!(queue.is_empty());
}

#[test]
fn a_turn_that_a_lone_sleeper_does_not_begin_is_given_up() {
    let (mut queue, tickets) = held(0);
    let several = wait(&mut queue, SEVERAL);
    assert_eq!(release(&mut queue, tickets[0], 0).1.request, None);
    let _ = queue.lapse(UNANSWERED, TURN, at(50));
    let Arrival::Asks(other) = queue.arrive(false, false, at(50)) else { panic!("nobody asks") };
    assert!(matches!(poll(&mut queue, several, 51).0, Found::Nothing));
    let _ = queue.asker_failed(other, None, at(52));
    assert!(matches!(poll(&mut queue, several, 52).0, Found::Turn));
}
