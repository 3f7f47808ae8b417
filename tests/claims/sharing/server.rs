//! What only a server can show: rights that are missing, and crowds of holders and waiters.

use lockmacro_runtime::{Lock, LockError, LockKey, LockManager};
use lockmacro_tests::times::IN_TIME;
use lockmacro_tests::{Admin, Server, eventually};

use crate::{LONG_TTL, SOON, held, is_busy, lock, manager, released};

const KEY: &str = "report";
const HOLDERS: &str = "lm1:wh:{report}";
/// Most waiters that one call lets in, as in queue.lua.
const ENTER_AT_ONCE: u64 = 256;
/// Most dead waiters that one call removes, as in queue.lua.
const DEAD_AT_ONCE: u64 = 128;

/// Takes this lock as a user who is denied a command after connecting, beside other holders on the
/// same server, and waits until nothing of it is left. A server before Redis 7 finds out about a
/// right only when the script uses it.
async fn leaves_nothing(right: &str, lock: impl FnOnce(&LockManager) -> Lock, reads: bool) {
    let server = Server::start();
    let mut admin = server.admin();
    let grant = ["ACL", "SETUSER", "clerk", "reset", "on", ">secret", "~*", "&*", "+@all"];
    admin.ask::<()>(&grant);
    let url = server.url_as("clerk", "secret");
    let clerk = LockManager::connect(&url).await.expect("let in");
    let other = manager(&server).await;
    let mut reader = None;
    if reads {
        reader = Some(held(crate::lock(&other, KEY).shared()).await);
    }
    admin.ask::<()>(&["ACL", "SETUSER", "clerk", right]);
    let error = lock(&clerk).acquire().await.expect_err("denied");
    assert!(matches!(error, LockError::AccessDenied { .. }), "{right}: {error:?}");
    released(reader).await;
    let gone = || std::future::ready(admin.keys().is_empty());
    eventually(&format!("nothing is left without {right}"), IN_TIME, gone).await;
}

#[tokio::test]
async fn a_right_that_is_missing_leaves_no_key_that_nobody_holds() {
    for right in ["-zadd", "-pexpire", "-set"] {
        leaves_nothing(right, |clerk| lock(clerk, KEY).shared(), false).await;
    }
}

#[tokio::test]
async fn a_right_that_is_missing_leaves_no_holder_beside_another() {
    for right in ["-zadd", "-zcard", "-set", "-pttl", "-pexpire"] {
        // It has to extend what the other one has set.
        let longer = |clerk: &LockManager| lock(clerk, KEY).shared().ttl(LONG_TTL * 2);
        leaves_nothing(right, longer, true).await;
    }
}

#[tokio::test]
async fn a_right_that_is_missing_leaves_none_of_several_keys() {
    for right in ["-pexpire", "-time", "-zrange"] {
        let both = |clerk: &LockManager| {
            let keys = [LockKey::from(KEY).shared(), "account".into()];
            Lock::many(keys).ttl(LONG_TTL).manager(clerk)
        };
        leaves_nothing(right, both, false).await;
    }
}

/// Adds waiters that share, which another process answers for. The first of them are dead.
fn crowd(admin: &mut Admin, dead: u64, others: u64) {
    let script = "for nth = 1, ARGV[1] do
        local token = string.format('other/%032d', nth)
        local deadline = nth <= tonumber(ARGV[2]) and '1' or '9999999999999'
        redis.call('ZADD', KEYS[1], nth, token)
        redis.call('HSET', KEYS[2], token, deadline .. '|60000|0|0|' .. nth .. '|lm1:other|1|0')
    end
    redis.call('PEXPIRE', KEYS[1], 60000)
    redis.call('PEXPIRE', KEYS[2], 60000)";
    let (queue, records) = (format!("lm1:wq:{{{KEY}}}"), format!("lm1:ww:{{{KEY}}}"));
    let (all, dead) = ((dead + others).to_string(), dead.to_string());
    admin.ask::<()>(&["EVAL", script, "2", &queue, &records, &all, &dead]);
}

/// The waiters that are told to ask again, until there are so many of them.
fn told_to_ask(pushes: &mut redis::PubSub<'_>, count: usize) -> Vec<u64> {
    let mut told = Vec::new();
    while told.len() < count {
        let push = pushes.get_message().unwrap_or_else(|error| panic!("{told:?}, then {error}"));
        let text: String = push.get_payload().expect("text");
        if let Some(id) = text.strip_suffix("|0") {
            told.push(id.split('|').next().and_then(|id| id.parse().ok()).expect("a number"));
        }
    }
    told
}

#[tokio::test]
async fn a_crowd_is_let_in_on_and_on_also_when_another_caller_asks_in_between() {
    let server = Server::start();
    let (writer, reader) = (manager(&server).await, manager(&server).await);
    let client = redis::Client::open(server.url()).expect("an address");
    let mut connection = client.get_connection().expect("let in");
    let mut pushes = connection.as_pubsub();
    pushes.subscribe("lm1:other").expect("allowed");
    pushes.set_read_timeout(Some(SOON)).expect("a timeout");
    let guard = held(lock(&writer, KEY)).await;
    crowd(&mut server.admin(), 0, 4 * ENTER_AT_ONCE);
    released([guard]).await;
    assert_eq!(told_to_ask(&mut pushes, 1), [ENTER_AT_ONCE + 1]);
    // That one does not ask yet, and is let in together with those behind it.
    assert!(is_busy(lock(&reader, KEY).shared()).await);
    assert_eq!(told_to_ask(&mut pushes, 1), [2 * ENTER_AT_ONCE + 1]);
    // The same for one that asks for several keys.
    let several = Lock::many([LockKey::from(KEY).shared(), "another".into()]).ttl(LONG_TTL);
    let error = several.manager(&reader).acquire().await.expect_err("others come first");
    assert!(error.is_busy(), "{error:?}");
    assert_eq!(told_to_ask(&mut pushes, 1), [3 * ENTER_AT_ONCE + 1]);
}

/// The first living waiter may share the lock, and would learn that only when it asks.
#[tokio::test]
async fn the_waiter_behind_too_many_dead_ones_is_told_by_a_caller_for_several_keys() {
    let server = Server::start();
    let (first, other) = (manager(&server).await, manager(&server).await);
    let client = redis::Client::open(server.url()).expect("an address");
    let mut connection = client.get_connection().expect("let in");
    let mut pushes = connection.as_pubsub();
    pushes.subscribe("lm1:other").expect("allowed");
    pushes.set_read_timeout(Some(SOON)).expect("a timeout");
    let guard = held(lock(&first, KEY).shared()).await;
    crowd(&mut server.admin(), DEAD_AT_ONCE, 1);
    let several = Lock::many([LockKey::from(KEY).shared(), "another".into()]).ttl(LONG_TTL);
    let error = several.manager(&other).acquire().await.expect_err("another comes first");
    assert!(error.is_busy(), "{error:?}");
    assert_eq!(told_to_ask(&mut pushes, 1), [DEAD_AT_ONCE + 1]);
    released([guard]).await;
}

/// While others hold the lock, its holders never expire as a whole.
#[tokio::test]
async fn holders_that_died_do_not_pile_up() {
    const DEAD: u64 = 300;
    let server = Server::start();
    let mut admin = server.admin();
    let first = manager(&server).await;
    let _guard = held(lock(&first, KEY).shared()).await;
    for nth in 0..DEAD {
        admin.ask::<()>(&["ZADD", HOLDERS, &(1_000 + nth).to_string(), &format!("dead/{nth}")]);
    }
    let mut guards = Vec::new();
    let mut lengths = vec![DEAD + 1];
    for _ in 0..4 {
        guards.push(held(lock(&manager(&server).await, KEY).shared()).await);
        lengths.push(admin.ask(&["ZCARD", HOLDERS]));
    }
    // A bounded number in one call.
    assert!(lengths.windows(2).all(|pair| pair[0] <= pair[1] + 127), "{lengths:?}");
    let live = 1 + guards.len() as u64;
    assert_eq!(lengths.last(), Some(&live), "{lengths:?}");
    released(guards).await;
}
