//! The rights that the tool prints are those that locks need, for every kind of key.

use std::future::pending;

use lockmacro_runtime::LockError;
use lockmacro_runtime::defer::{JobState, Keep, NewJob, Settled, TakeOptions};
use lockmacro_tests::Backend;

use super::*;

const ACCESS: &str = include_str!("../../../docs/reference/servers.md");
/// Without a hash tag, with one, and with braces that are none.
const KEYS: [&str; 6] =
    ["order:42", "order:{7}", "order:{7}:audit", "order:a}b", "order:{}x", "order:a{b"];

/// The output of the tool, without connecting.
async fn printed(words: &[&str]) -> String {
    let said = tool_at("", &[&["acl"], words].concat()).await;
    assert_eq!((said.code, &*said.err), (Some(0), ""), "{said:?}");
    said.out
}

/// Makes a user of exactly this line, of which nothing is left of before.
fn grant(admin: &mut Admin, line: &str) {
    admin.ask::<()>(&["ACL", "SETUSER", "shop", "reset"]);
    admin.ask::<()>(&line.split_whitespace().collect::<Vec<_>>());
    admin.ask::<()>(&["ACL", "LOG", "RESET"]);
}

fn nothing_was_denied(admin: &mut Admin, line: &str) {
    let denied: Vec<redis::Value> = admin.ask(&["ACL", "LOG"]);
    assert_eq!(denied, [], "denied with {line}");
}

/// Takes a lock in every way and releases it, so that nothing of it is left.
async fn plain(locks: &LockManager, key: &str) -> Result<(), LockError> {
    let lock = || Lock::new(key).ttl(LONG_TTL).manager(locks);
    let guard = lock().acquire().await?;
    assert!(lock().acquire().await.expect_err("held").is_busy());
    guard.extend(LONG_TTL).await?;
    guard.release().await
}

async fn all_that_wait_in_one_slot(locks: &LockManager, key: &str) -> Result<(), LockError> {
    plain(locks, key).await?;
    let lock = || Lock::new(key).ttl(LONG_TTL).wait(LONG_TTL).manager(locks);
    let guard = lock().acquire().await?;
    // Another process waits, and one gives up.
    let gone = tokio::time::timeout(Duration::from_millis(50), lock().acquire()).await;
    assert!(gone.is_err(), "it is held");
    guard.release().await
}

async fn all_that_wait(locks: &LockManager, key: &str) -> Result<(), LockError> {
    all_that_wait_in_one_slot(locks, key).await?;
    let fenced = Lock::new(key).ttl(LONG_TTL).wait(LONG_TTL).manager(locks);
    fenced.fenced().acquire().await?.release().await?;
    let more = format!("{key}:more");
    let both = Lock::many([key, &*more]).ttl(LONG_TTL).wait(LONG_TTL);
    both.manager(locks).acquire().await?.release().await
}

async fn all_that_is_deferred(locks: &LockManager) -> Result<(), LockError> {
    let job_queue = locks.job_queue();
    for how in [Settled::Dead { error: "no".into() }, Settled::Done] {
        let mut job = NewJob::new("shop::audit", format!("{how:?}"), "[1]", "order:42");
        job.keep = Keep::First;
        job_queue.put(job).await?;
        let order = TakeOptions::new(["shop::audit"], 1, LONG_TTL);
        let job = job_queue.take(order, Box::pin(pending())).await?.remove(0);
        assert!(job_queue.keep(job.clone(), LONG_TTL).await?);
        assert!(job_queue.settle(job, how).await?);
    }
    assert_eq!(job_queue.list("shop::audit".into(), JobState::Dead, 0, 9).await?.total, 1);
    job_queue.remove_dead("shop::audit".into(), 9).await.map(drop)
}

#[tokio::test]
async fn the_line_of_the_page_is_what_is_printed() {
    let line = ACCESS.lines().find(|line| line.starts_with("ACL SETUSER shop"));
    assert_eq!(line.map(|line| format!("{line}\n")), Some(printed(&["order:*"]).await));
    let all = printed(&["order:*", "--features", "wait,defer,inspect"]).await;
    for start in ["| jobs |", "| inspection |"] {
        let line = ACCESS.lines().find(|line| line.starts_with(start)).expect("it is there");
        let words = line.split([' ', '`']).map(|word| word.trim_end_matches([',', '.', ':']));
        for right in words.filter(|word| word.starts_with('+')) {
            assert!(all.split_whitespace().any(|its| its == right), "{right}: {all}");
        }
    }
}

#[tokio::test]
async fn a_user_made_of_the_line_can_lock_every_kind_of_key_and_leaves_nothing() {
    let server = Server::start();
    let mut admin = server.admin();
    let url = server.url_as("shop", "password");
    for features in ["none", "wait", "wait,fence,several", "wait,database"] {
        let line = printed(&["order:*", "--features", features]).await;
        grant(&mut admin, &line);
        let url = if features.contains("database") { format!("{url}/0") } else { url.clone() };
        let locks = LockManager::connect(&url).await.expect("let in");
        for key in KEYS {
            let done = match features {
                "none" => plain(&locks, key).await,
                _ => all_that_wait(&locks, key).await,
            };
            assert_eq!(done, Ok(()), "{key} with {line}");
            assert_eq!(admin.get(key), None, "{key} is released with {line}");
        }
        locks.shutdown(IN_TIME).await.expect("all are released");
        nothing_was_denied(&mut admin, &line);
        // Nothing else is the user's.
        let locks = LockManager::connect(&url).await.expect("let in");
        let foreign = Lock::new("invoice:1").manager(&locks);
        let error = foreign.acquire().await.expect_err("not its own");
        assert!(matches!(error, LockError::AccessDenied { .. }), "{error:?}");
    }
}

#[tokio::test]
async fn a_user_of_every_key_can_lock_every_kind_of_key() {
    let server = Server::start();
    let mut admin = server.admin();
    let line = printed(&["*", "--features", "wait,defer,inspect"]).await;
    grant(&mut admin, &line);
    let locks = LockManager::connect(&server.url_as("shop", "password")).await.expect("let in");
    for key in KEYS {
        assert_eq!(all_that_wait(&locks, key).await, Ok(()), "{key} with {line}");
    }
    all_that_is_deferred(&locks).await.expect("enough");
    nothing_was_denied(&mut admin, &line);
}

/// Redis 6.2 gives a new user all channels.
#[tokio::test]
async fn the_line_is_for_a_user_who_has_all_keys_and_channels_too() {
    let server = Server::start();
    let mut admin = server.admin();
    for (pattern, features) in [("order:*", "none"), ("order:*", "wait"), ("*", "defer")] {
        admin.ask::<()>(&["ACL", "SETUSER", "shop", "reset", "allchannels", "allkeys"]);
        let line = printed(&[pattern, "--features", features]).await;
        admin.ask::<()>(&line.split_whitespace().collect::<Vec<_>>());
        let shown: Vec<String> = admin.ask(&["ACL", "LIST"]);
        let shop = shown.iter().find(|user| user.starts_with("user shop ")).expect("it is made");
        assert!(!shop.contains("&*") && shop.contains("~*") == (pattern == "*"), "{shop}");
    }
}

#[tokio::test]
async fn a_waiter_with_the_rights_of_the_line_gets_a_push_and_does_not_poll() {
    let server = Server::start();
    let mut admin = server.admin();
    let line = printed(&["order:*"]).await;
    grant(&mut admin, &line);
    let url = server.url_as("shop", "password");
    let locks = LockManager::connect(&url).await.expect("let in");
    let other = LockManager::connect(&url).await.expect("let in");
    for key in KEYS {
        let guard = hold(&locks, key).await;
        let waiting = Lock::new(key).ttl(LONG_TTL).wait(LONG_TTL).manager(&other);
        let waiting = tokio::spawn(async move { waiting.acquire().await });
        let queue = format!("lm1:?q:*{}*", key.replace(['{', '}'], "?"));
        eventually("it is in the queue", IN_TIME, || {
            std::future::ready(!admin.ask::<Vec<String>>(&["KEYS", &queue]).is_empty())
        })
        .await;
        guard.release().await.expect("held");
        waiting.await.expect("no panic").expect("its turn").release().await.expect("held");
    }
    nothing_was_denied(&mut admin, &line);
}

#[tokio::test]
async fn a_user_made_of_the_line_can_defer_and_look() {
    let server = Server::start();
    let mut admin = server.admin();
    let line = printed(&["order:*", "--features", "wait,defer,inspect"]).await;
    grant(&mut admin, &line);
    let locks = LockManager::connect(&server.url_as("shop", "password")).await.expect("let in");
    all_that_is_deferred(&locks).await.expect("enough");
    for key in KEYS {
        let guard = hold(&locks, key).await;
        assert!(locks.inspector().waiters(key, 10).await.expect("enough").items.is_empty());
        let seen = locks.inspector().lock(key).await.expect("enough").expect("held");
        assert!(locks.force_release(&seen).await.expect("enough"));
        drop(guard);
    }
    locks.inspector().locks("order:*", 10).await.expect("enough");
    locks.inspector().job_functions(10).await.expect("enough");
    nothing_was_denied(&mut admin, &line);
    // Not without the feature.
    grant(&mut admin, &printed(&["order:*"]).await);
    let denied = all_that_is_deferred(&locks).await.expect_err("not granted");
    assert!(matches!(denied, LockError::AccessDenied { .. }), "{denied:?}");
}

#[tokio::test]
async fn a_user_made_of_the_line_can_lock_on_a_cluster() {
    let backend = Backend::cluster().await;
    let mut admin = backend.admin().expect("a server");
    let line = printed(&["order:*", "--features", "wait,defer,cluster"]).await;
    assert!(!line.contains("+subscribe ") && line.contains(" +ssubscribe "), "{line}");
    grant(&mut admin, &line);
    let url = backend.url().replace("://", "://shop:password@");
    let locks = LockManager::connect(&url).await.expect("let in");
    for key in KEYS {
        assert_eq!(all_that_wait_in_one_slot(&locks, key).await, Ok(()), "{key} with {line}");
    }
    all_that_is_deferred(&locks).await.expect("enough");
    nothing_was_denied(&mut admin, &line);
}

#[tokio::test]
async fn a_pattern_with_a_tag_has_one_form_and_one_that_no_rule_can_name_is_refused() {
    let line = printed(&["{order:*}:audit", "--user", "web", "--features", "none"]).await;
    assert!(
        line.starts_with(
            "ACL SETUSER web on >password resetchannels resetkeys ~{order:*}:audit \
             ~lm1:t?:{order:*}:audit +"
        ),
        "{line}"
    );
    assert!(!line.contains("&lm1:") && !line.contains("publish"), "{line}");
    for pattern in ["", "a b", "a\n+@all", "lm1:*"] {
        let said = tool_at("", &["acl", pattern]).await;
        assert_eq!((said.code, &*said.out), (Some(2), ""), "{pattern:?}: {said:?}");
        assert!(said.err.contains("not a usable key"), "{said:?}");
    }
    let said = tool_at("", &["acl", "a", "--user", "x +@all"]).await;
    assert_eq!(said.code, Some(1), "{said:?}");
}
