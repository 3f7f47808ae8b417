//! The replay allows what the model does, and nothing else.

use lockmacro_model_tests::event::{Event, Reply};
use lockmacro_model_tests::replay::Replay;

fn asked(token: &str, waits: bool, reply: Reply) -> Event {
    Event::Asked { token: token.to_owned(), waits, reply }
}

fn released(token: &str, held: bool) -> Event {
    Event::Released { token: token.to_owned(), held, keeps: false }
}

fn handed_off(token: &str, first: u64) -> Event {
    Event::HandedOff { token: token.to_owned(), fences: Some((first, first)) }
}

fn began(token: &str, fence: u64) -> Event {
    Event::Began { token: token.to_owned(), fence: Some(fence) }
}

fn ended(token: &str) -> Event {
    Event::Ended { token: token.to_owned() }
}

fn seen(held: &str, queue: &[&str]) -> Event {
    let held = (!held.is_empty()).then(|| held.to_owned());
    Event::Seen { held, queue: queue.iter().map(|token| (*token).to_owned()).collect() }
}

const GRANTED: Reply = Reply::Granted(Some((5, 5)));

#[test]
fn what_a_server_does_is_allowed() {
    let left = Event::Left { token: "c".to_owned() };
    let trace = [
        asked("a", true, GRANTED),
        began("a", 5),
        asked("b", true, Reply::Queued),
        asked("c", true, Reply::Queued),
        asked("d", false, Reply::Busy),
        asked("b", true, Reply::Queued),
        seen("a", &["b", "c"]),
        ended("a"),
        left,
        released("a", true),
        handed_off("b", 6),
        began("b", 6),
        ended("b"),
        Event::Freed,
        Event::Set { token: "e".to_owned(), granted: true },
        Event::Renewed { token: "b".to_owned(), held: false },
        released("b", false),
        seen("e", &[]),
    ];
    assert_eq!(Replay::all(&trace), Ok(()));
}

#[test]
fn what_a_server_must_not_do_is_an_error() {
    let holds = || vec![asked("a", true, GRANTED), asked("b", true, Reply::Queued)];
    for (more, why) in [
        (vec![asked("c", false, Reply::Granted(None))], "the answer is Busy"),
        (vec![released("a", true), seen("", &["b"])], "handed off to b"),
        (vec![released("b", true)], "holds the lock, or it does not"),
        (vec![released("a", true), handed_off("b", 5)], "fences after 5"),
        (vec![asked("c", true, Reply::Queued), seen("a", &["c", "b"])], "in the queue are"),
        (vec![released("b", false), seen("a", &["b"])], "in the queue are"),
        (vec![began("b", 6)], "it does not hold the lock"),
        (vec![began("a", 5), ended("a"), began("a", 5)], "the fence of an earlier body is 5"),
        (vec![began("a", 5), Event::Freed, handed_off("b", 6)], "nothing was handed off"),
        (vec![Event::Set { token: "c".to_owned(), granted: true }], "it is held"),
    ] {
        let trace = [holds(), more].concat();
        let error = Replay::all(&trace).expect_err("not allowed");
        assert!(error.contains(why), "{trace:?}: {error}");
    }
}
