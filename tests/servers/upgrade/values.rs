//! What one version shows of the other, and the values that holders keep, which they do not share.

use lockmacro_runtime::LockError;
use lockmacro_tests::queue::Queue;
use lockmacro_tests::times::LONG_TTL;

use crate::client::{Program, Request};
use crate::{all_keys_have_an_end, lock, two_versions};

const KEY: &str = "report";
const VALUE: &str = include_str!("earlier/value.lua");

#[tokio::test]
async fn neither_version_finds_or_disturbs_a_value_of_the_other() {
    let (server, ours, mut earlier) = two_versions().await;
    let mut admin = server.admin();
    let value_key = format!("lm1:wv:{{{KEY}}}");
    let read = ["EVAL", VALUE, "2", KEY, &value_key];
    let held = earlier.ask(Request::of(KEY)).expect("free");
    let keep = [&read[..], &[&held.token, "7", "60000"]].concat();
    assert!(admin.ask::<bool>(&keep) && earlier.release(&held));

    for _ in 0..2 {
        let value = lock(&ours, KEY, 1).reuse(LONG_TTL).run(async { Ok::<_, LockError>(8) }).await;
        assert_eq!(value, Ok(8));
        assert_eq!(admin.ask::<Option<String>>(&read).as_deref(), Some("7"));
    }
    let other = lock(&ours, KEY, 1).reuse(LONG_TTL).run(async { Ok::<_, LockError>(9) }).await;
    assert_eq!(other, Ok(8), "it is kept");
}

#[tokio::test]
async fn inspection_shows_holders_and_waiters_of_the_earlier_version() {
    let (server, ours, mut earlier) = two_versions().await;
    let held = earlier.ask(Request::of(KEY)).expect("free");
    let mut waiting = Program::on(&server);
    let waiter = Queue::at(&server, KEY).join(waiting.acquire(Request::of(KEY))).await;
    let found = ours.inspector().lock(KEY).await.expect("an answer").expect("held");
    assert_eq!(found.holder.owner.as_deref(), Some("earlier:4711:order"));
    assert!(found.holder.asked.is_some() && found.waiters == Some(1));
    let waiters = ours.inspector().waiters(KEY, 9).await.expect("an answer").items;
    assert_eq!(waiters[0].owner.as_deref(), Some("earlier:4711:order"));
    all_keys_have_an_end(&mut server.admin());
    drop(waiter);
    assert!(earlier.release(&held));
}
