//! Keys held by clients of another make.

use std::time::Duration;

use lockmacro_runtime::{Lock, LockError};
use lockmacro_tests::log;

use crate::{KEY, LONG_TTL, Locked, TEST_TIMEOUT, lock, ms, served, works};

const SECRET: &str = "5f2b-php-worker-secret";

/// The fields and the text of `Busy` while the key holds `value`, as written by `SET` with `more`.
async fn busy(value: &[u8], more: &[&str]) -> (Option<String>, Option<Duration>, String) {
    let (server, manager) = served().await;
    let client = redis::Client::open(server.url()).expect("a valid address");
    let mut connection = client.get_connection().expect("the server is there");
    let mut set = redis::cmd("SET");
    set.arg(KEY).arg(value).arg(more).exec(&mut connection).expect("set");
    let error = lock(&manager).acquire().await.expect_err("held");
    let shown = format!("{error} {error:?}");
    assert_eq!(error.retry_after_secs(), Some(5), "nobody has seen how long it is held");
    let LockError::Busy { holder, .. } = error else { panic!("{error:?}") };
    let (owner, free_within) = (holder.owner, holder.free_within);
    redis::cmd("DEL").arg(KEY).exec(&mut connection).expect("deleted");
    works(&manager).await;
    (owner, free_within, shown)
}

#[tokio::test]
async fn a_foreign_lock_has_no_owner_and_an_end_if_it_expires() {
    let secret = SECRET.as_bytes();
    for (more, ends) in [(&["NX"][..], false), (&["NX", "EX", "60"], true)] {
        let (owner, free_within, shown) = busy(secret, more).await;
        assert_eq!((owner, free_within.is_some()), (None, ends), "{more:?}");
        assert!(free_within.is_none_or(|left| left <= LONG_TTL && left > LONG_TTL / 2), "{shown}");
        assert!(!shown.contains(SECRET), "{shown}");
    }
    // It may hold any bytes.
    let large = vec![b'x'; 1 << 20];
    let values: [&[u8]; 6] = [b"", b"\xff\xfe\0/", b"/", b"a/b", b"{\"id\":1}", &large];
    for value in values {
        let (owner, free_within, shown) = busy(value, &["NX", "PX", "60000"]).await;
        assert_eq!((owner, free_within.is_some()), (None, true), "{shown}");
        assert!(shown.len() < 1_000, "{} bytes of message", shown.len());
    }
}

#[tokio::test]
async fn a_foreign_client_is_excluded_and_frees_only_its_own() {
    const COMPARE_AND_DELETE: &str = "if redis.call('GET', KEYS[1]) == ARGV[1] then \
        return redis.call('DEL', KEYS[1]) end return 0";
    let (server, manager) = served().await;
    let mut foreign = server.admin();
    let guard = lock(&manager).acquire().await.expect("free");
    let refused: Option<String> = foreign.ask(&["SET", KEY, SECRET, "NX", "EX", "60"]);
    assert_eq!(refused, None);
    assert_eq!(foreign.ask::<i64>(&["EVAL", COMPARE_AND_DELETE, "1", KEY, SECRET]), 0);
    assert!(guard.is_held());
    guard.release().await.expect("released");

    let granted: Option<String> = foreign.ask(&["SET", KEY, SECRET, "NX", "EX", "60"]);
    assert!(granted.is_some());
    assert!(lock(&manager).run(async { Locked::Ok(()) }).await.expect_err("held").is_busy());
    assert_eq!(foreign.get(KEY).as_deref(), Some(SECRET), "it is left alone");
    assert_eq!(foreign.ask::<i64>(&["EVAL", COMPARE_AND_DELETE, "1", KEY, SECRET]), 1);
    works(&manager).await;
}

/// Characters that would move a cursor, ring a bell, forge a line of a log, or turn text round.
const ODD: &str = "\u{1b}]0;owned\u{7}\r\nforged\u{202e}\u{200b}";
const ESCAPED: &str = r"\u{1b}]0;owned\u{7}\r\nforged\u{202e}\u{200b}";

#[tokio::test]
async fn no_error_or_log_line_shows_control_characters() {
    log::start();
    let (server, manager) = served().await;
    let (key, label) = (format!("order:{ODD}"), format!("web{ODD}"));
    let value = format!("{label}/0123456789abcdef0123456789abcdef");
    let mut foreign = server.admin();
    foreign.ask::<()>(&["SET", &key, &value, "PX", "60000"]);
    let lock = || Lock::new(&*key).ttl(LONG_TTL).manager(&manager);
    let busy = lock().acquire().await.expect_err("held");
    let LockError::Busy { key: its, .. } = &busy else { panic!("{busy:?}") };
    let owner = busy.holder().owner.clone();
    assert_eq!((owner.as_deref(), its.as_str()), (Some(&*format!("web{ESCAPED}")), &*key));
    let timed_out = lock().wait(ms(50)).acquire().await.expect_err("held");
    let lock_there = manager.inspector().lock(&*key).await.expect("there").expect("held");
    assert_eq!(lock_there.holder.owner.as_deref(), owner.as_deref());
    assert!(manager.force_release(&lock_there).await.expect("there"), "it is the same value");
    // The waiter that has timed out may still be in the queue.
    let guard = lock().wait(TEST_TIMEOUT).acquire().await.expect("free");
    foreign.ask::<()>(&["SET", &key, "another"]);
    let lost = guard.extend(LONG_TTL).await.expect_err("taken");
    foreign.ask::<()>(&["DEL", &key]);
    foreign.ask::<()>(&["LPUSH", &key, "no lock"]);
    let no_lock = lock().acquire().await.expect_err("a list");
    for error in [busy, timed_out, lost, no_lock] {
        let (shown, debugged) = (error.to_string(), format!("{error:?}"));
        assert!(shown.contains(&format!("order:{ESCAPED}")), "{shown:?}");
        for text in [shown, debugged] {
            assert!(!text.contains(|c: char| ODD.contains(c) && !c.is_ascii_graphic()), "{text:?}");
        }
    }
    let log = log::so_far();
    assert!(log.contains(&format!("order:{ESCAPED}")), "{log:?}");
    let odd = |c: char| c != '\n' && c != ' ' && ODD.contains(c) && !c.is_ascii_graphic();
    assert!(!log.contains(odd) && !log.contains("\nforged"), "{log:?}");
}
