//! Replies and pushes of any shape, for the tests of those that read them: none may panic, and
//! only what says so is a grant.

use fastrand::Rng;
use redis::{PushInfo, PushKind, Value};

use crate::protocol::answer::Answer;
use crate::protocol::ask::Ask;
use crate::protocol::request::Request;
use crate::store::redis::client::channels::{Channels, Grants};
use crate::store::redis::reply::answer;
use crate::store::subscriptions::Signal;
use crate::sys::time::Moment;
use crate::value::token::Token;

/// Texts that have a meaning somewhere, whole or as parts of others.
const TEXTS: [&str; 16] = [
    "",
    "0",
    "1",
    "-1",
    "9007199254740992",
    "18446744073709551615",
    "99999999999999999999",
    "1-9",
    "9-1",
    "|",
    "/",
    " ",
    "web-3:4711:audit t8nxqs Ann/00112233445566778899aabbccddeeff",
    "web-3:4711/00112233445566778899aabbccddeeff/shared",
    "127.0.0.1",
    "lm1:wq:{order:42}",
];
const NUMBERS: [i64; 9] = [i64::MIN, -2, -1, 0, 1, 2, 65_535, 16_384, i64::MAX];

/// Calls `check` with many generators. `LOCKMACRO_FUZZ` is their number, 100,000 by default.
pub(crate) fn fuzz(mut check: impl FnMut(&mut Rng)) {
    let asked = std::env::var("LOCKMACRO_FUZZ").ok().and_then(|count| count.parse().ok());
    for seed in 0..asked.unwrap_or(100_000) {
        let caught = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            check(&mut Rng::with_seed(seed));
        }));
        assert!(caught.is_ok(), "seed {seed}");
    }
}

/// A text of known parts, with some of its bytes changed.
fn bytes(rng: &mut Rng) -> Vec<u8> {
    let mut bytes = Vec::new();
    for _ in 0..rng.usize(0..4) {
        bytes.extend_from_slice(TEXTS[rng.usize(..TEXTS.len())].as_bytes());
    }
    for _ in 0..rng.usize(0..3) {
        if !bytes.is_empty() {
            let at = rng.usize(..bytes.len());
            bytes[at] = rng.u8(..);
        }
    }
    bytes
}

/// A reply of any shape.
pub(crate) fn value(rng: &mut Rng, depth: usize) -> Value {
    match rng.usize(..if depth == 0 { 6 } else { 9 }) {
        0 => Value::Nil,
        1 => Value::Okay,
        2 => Value::Int(NUMBERS[rng.usize(..NUMBERS.len())]),
        3 => Value::Int(rng.i64(..)),
        4 => Value::SimpleString(String::from_utf8_lossy(&bytes(rng)).into_owned()),
        5 => Value::BulkString(bytes(rng)),
        6 => Value::Map(
            (0..rng.usize(0..3)).map(|_| (value(rng, 0), value(rng, depth - 1))).collect(),
        ),
        _ => Value::Array((0..rng.usize(0..6)).map(|_| value(rng, depth - 1)).collect()),
    }
}

#[test]
fn only_a_reply_that_says_so_is_a_grant() {
    let token = Token::new("web-1", "audit", "").unwrap();
    let ask = Ask::new("order:42".into(), std::time::Duration::from_secs(30), Moment::now());
    let request = Request::new(ask, token);
    let mut grants = 0;
    fuzz(|rng| {
        let reply = value(rng, 2);
        let says_so = match &reply {
            Value::Int(1) | Value::BulkString(_) => true,
            Value::Array(parts) => parts.iter().all(|part| matches!(part, Value::BulkString(_))),
            _ => false,
        };
        if let Ok(Answer::Granted(_)) = answer(&request, Moment::now(), reply.clone()) {
            assert!(says_so, "{reply:?}");
            grants += 1;
        }
    });
    assert!(grants > 100, "{grants}: it tries what is no grant only");
}

#[test]
fn only_a_push_with_the_secret_of_a_waiter_is_its_grant() {
    let grants = Grants::new(false, "");
    let channels = Channels::new(&grants);
    let mut granted = 0;
    let mut asks = 0;
    fuzz(|rng| {
        let subscription = grants.subscriptions.join(0, rng.u64(..));
        let id = subscription.next_id();
        let valid = format!("{id}|{}|7|5000", ["0", "3-9", "12"][rng.usize(..3)]);
        let mut push = valid.clone().into_bytes();
        match rng.usize(..4) {
            0 => {}
            1 => {
                let at = rng.usize(..push.len());
                push[at] = rng.u8(..);
            }
            2 => push.truncate(rng.usize(..push.len())),
            _ => push = bytes(rng),
        }
        // A number may begin with a sign.
        let digits = String::from_utf8_lossy(&push).replace('+', "0");
        let has_secret = digits.starts_with(&id);
        let kind = [PushKind::Message, PushKind::SMessage, PushKind::Other("x".to_owned())];
        let data = match rng.usize(..8) {
            0 => vec![value(rng, 1), value(rng, 1)],
            1 => vec![Value::BulkString(push)],
            _ => vec![value(rng, 0), Value::BulkString(push)],
        };
        channels.push(&PushInfo { kind: kind[rng.usize(..3)].clone(), data });
        match futures_util::FutureExt::now_or_never(subscription.signal()) {
            Some(Signal::Granted(_)) => {
                assert!(has_secret, "{id}");
                granted += 1;
            }
            Some(Signal::Unknown) => asks += 1,
            None => {}
        }
    });
    assert!(granted > 100 && asks > 100, "{granted} and {asks}");
}
