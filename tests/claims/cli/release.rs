//! Locks that are taken away by force.

use std::fs::File;
use std::io::Write;

use lockmacro_runtime::LockError;
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use serde_json::json;

use super::*;

#[on(redis, postgres)]
async fn a_lock_that_is_taken_away_goes_to_the_first_waiter_and_its_holder_notices(
    backend: &Backend,
) {
    let key = &*backend.key("order:1");
    let (desk, night) = (manager(backend, "desk").await, manager(backend, "night").await);
    let ttl = Duration::from_secs(1);
    let held = Lock::new(key).ttl(ttl).renew().manager(&desk).acquire().await.unwrap();
    let next = wait_for(&night, key).await;
    let last = wait_for(&manager(backend, "desk").await, key).await;
    let said = tool(backend, &["release", key, "--force", "--yes"]).await;
    assert_eq!(said.code, Some(0), "{said:?}");
    assert_eq!(said.out, format!("`{key}` was taken away from desk\n"));
    let next = in_time(next).await.unwrap();
    in_time(held.lost()).await;
    assert!(!last.is_finished());
    let is_next = async || {
        let lock = night.inspector().lock(key).await.unwrap().unwrap();
        assert_eq!(lock.holder.owner.as_deref(), Some("night"));
        lock.waiters == Some(1)
    };
    eventually("the last one waits still", IN_TIME, is_next).await;
    assert!(matches!(held.release().await, Err(LockError::Lost(_))));
    next.release().await.unwrap();
    in_time(last).await.unwrap().release().await.unwrap();
}

#[on(redis, postgres)]
async fn a_shared_lock_is_taken_away_from_a_number_of_holders(backend: &Backend) {
    let key = &*backend.key("order:1");
    let mut guards = Vec::new();
    for label in ["desk", "night", "door"] {
        let lock = Lock::new(key).ttl(LONG_TTL).shared();
        let lock = lock.manager(&manager(backend, label).await);
        guards.push(lock.acquire().await.expect("shared"));
    }
    let words = ["release", key, "--force"];
    let said = at_a_terminal(backend, &words, "no\n").await;
    let question = format!("`{key}` is held by door and 2 others for another ");
    assert!(said.err.contains(&question), "{said:?}");
    // Callers of the holders' processes may wait there, and are not seen.
    assert!(said.err.contains(", with 0 in its queue. Its body"), "{said:?}");
    let said = tool(backend, &["release", key, "--force", "--yes"]).await;
    let expected = format!("`{key}` was taken away from 3 holders; door came last\n");
    assert_eq!((said.code, said.out), (Some(0), expected));
    assert!(backend.is_free(key).await);
}

#[on(redis, postgres)]
async fn a_lock_that_changed_hands_meanwhile_stays(backend: &Backend) {
    let key = &*backend.key("order:1");
    let locks = manager(backend, "desk").await;
    let first = hold(&locks, key).await;
    let seen = locks.inspector().lock(key).await.unwrap().unwrap();
    first.release().await.unwrap();
    let second = hold(&locks, key).await;
    assert!(!locks.force_release(&seen).await.unwrap());
    second.release().await.expect("it was not touched");
    assert!(!locks.force_release(&seen).await.unwrap());
    let said = tool(backend, &["release", key, "--force", "--yes", "--json"]).await;
    assert_eq!(said.code, Some(1));
    let nothing = json!({ "key": key, "holder": null, "released": false, "holders": 0 });
    assert_eq!(said.json(), nothing);
}

#[tokio::test]
async fn what_is_not_a_lock_of_ours_stays() {
    let server = Server::start();
    let mut admin = server.admin();
    admin.ask::<()>(&["SET", "session", "foreign"]);
    admin.ask::<()>(&["RPUSH", "list", "x"]);
    for key in ["session", "list"] {
        let said = tool(&server, &["release", key, "--force", "--yes"]).await;
        assert_eq!(said.code, Some(1));
        assert!(said.err.contains("is not a lock") && !said.err.contains("foreign"), "{said:?}");
    }
    assert_eq!(admin.get("session").as_deref(), Some("foreign"));
    assert_eq!(admin.ask::<u32>(&["LLEN", "list"]), 1);
}

#[on(redis, postgres)]
async fn nothing_is_taken_away_without_being_asked_for(backend: &Backend) {
    let key = &*backend.key("order:1");
    let locks = manager(backend, "desk").await;
    let held = hold(&locks, key).await;
    let said = tool(backend, &["release", key, "--yes"]).await;
    assert_eq!(said.code, Some(2), "{said:?}");
    assert!(said.err.contains("--force"), "{said:?}");
    let said = tool(backend, &["release", key, "--force"]).await;
    assert_eq!(said.code, Some(2), "{said:?}");
    assert!(said.err.contains("--yes"), "{said:?}");
    held.release().await.expect("it was not touched");
}

/// Runs the tool with a terminal for its input, at which `typed` is typed.
pub async fn at_a_terminal(place: &impl Place, words: &[&str], typed: &str) -> Said {
    let (mut terminal, input) = terminal();
    let mut command = command(&place.address(), words);
    terminal.write_all(typed.as_bytes()).expect("typed");
    command.stdin(input);
    said(command).await
}

/// A new terminal, and what a program at it reads.
pub fn terminal() -> (File, File) {
    let terminal = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).expect("a terminal");
    grantpt(&terminal).expect("a terminal");
    unlockpt(&terminal).expect("a terminal");
    let name = ptsname(&terminal, Vec::new()).expect("a name");
    let input = File::options().read(true).write(true).open(name.to_str().unwrap()).unwrap();
    (File::from(terminal), input)
}

#[tokio::test]
async fn a_person_at_a_terminal_is_asked_for_the_key() {
    let server = Server::start();
    let locks = manager(&server, "desk").await;
    let held = hold(&locks, "order:1").await;
    let words = ["release", "order:1", "--force"];
    for wrong in ["order:2\n", "y\n", "\n"] {
        let said = at_a_terminal(&server, &words, wrong).await;
        assert_eq!(said.code, Some(1), "{said:?}");
        assert!(said.err.contains("`order:1` is held by desk for another "), "{said:?}");
        let ends =
            "Its body is not stopped, but `lockmacro run` ends its command at its next renewal.";
        assert!(said.err.contains(ends) && said.err.contains("nothing was done"), "{said:?}");
    }
    held.check().expect("held");
    assert!(server.admin().get("order:1").is_some());
    let said = at_a_terminal(&server, &words, "order:1\n").await;
    assert_eq!((said.code, &*said.out), (Some(0), "`order:1` was taken away from desk\n"));
    assert_eq!(server.admin().get("order:1"), None);
    drop(held);
}
