//! The rights that docs/reference/servers.md names for looking.

use lockmacro_runtime::LockError;

use super::*;

const ACCESS: &str = include_str!("../../../docs/reference/servers.md");

/// The words of the page's line that begins with `start` and are rights, keys or channels.
fn rights(start: &str) -> Vec<String> {
    let line = ACCESS.lines().find(|line| line.starts_with(start)).expect("the page has it");
    let words = line.split([' ', '`']).map(|word| word.trim_end_matches([',', '.', ':']));
    words.filter(|word| word.starts_with(['+', '~', '&'])).map(str::to_owned).collect()
}

/// The words that give a user the page's rights for locks and for looking.
fn grant() -> Vec<String> {
    let user = ["ACL", "SETUSER", "shop", "reset", "on", ">password"].map(str::to_owned);
    [&user[..], &rights("ACL SETUSER shop"), &rights("| inspection |")].concat()
}

async fn look(server: &Server) -> Result<(), LockError> {
    let locks = LockManager::connect(&server.url_as("shop", "password")).await?;
    let held = hold(&locks, "order:1").await;
    let shared = Lock::new("order:2").shared().manager(&locks).acquire().await?;
    assert_eq!(locks.inspector().locks("order:*", 10).await?.items.len(), 2);
    assert!(locks.inspector().waiters("order:1", 10).await?.items.is_empty());
    let seen = locks.inspector().lock("order:1").await?.expect("held");
    assert!(locks.force_release(&seen).await?);
    drop((held, shared));
    Ok(())
}

#[tokio::test]
async fn the_rights_that_the_page_names_are_enough_and_each_is_needed() {
    let server = Server::start();
    let mut admin = server.admin();
    let grant = grant();
    let words: Vec<_> = grant.iter().map(String::as_str).collect();
    admin.ask::<()>(&words);
    look(&server).await.expect("enough");
    let denied: Vec<redis::Value> = admin.ask(&["ACL", "LOG"]);
    assert_eq!(denied, [], "something was denied");
    for right in rights("| inspection |").iter().filter(|right| right.starts_with('+')) {
        admin.ask::<()>(&["FLUSHALL"]);
        admin.ask::<()>(&words);
        admin.ask::<()>(&["ACL", "SETUSER", "shop", &right.replace('+', "-")]);
        let error = look(&server).await.expect_err(right);
        assert!(matches!(error, LockError::AccessDenied { .. }), "{right}: {error:?}");
        assert!(error.to_string().contains(&right[1..]), "{right} is named: {error}");
    }
}

/// Also where the server tells only that a script was denied.
#[tokio::test]
async fn the_tool_names_the_right_that_its_user_lacks() {
    let server = Server::start();
    let mut admin = server.admin();
    admin.ask::<()>(&grant().iter().map(String::as_str).collect::<Vec<_>>());
    let _held = hold(&manager(&server, "desk").await, "order:1").await;
    let url = server.url_as("shop", "password");
    for (right, command) in [
        ("zcard", &["locks", "order:*"][..]),
        ("getrange", &["locks", "order:*"]),
        ("scan", &["locks", "order:*"]),
        ("zrange", &["queue", "order:1"]),
        ("getex", &["release", "order:1", "--force", "--yes"]),
    ] {
        admin.ask::<()>(&["ACL", "SETUSER", "shop", &format!("-{right}")]);
        let said = tool_at(&url, command).await;
        assert_eq!(said.code, Some(1), "{right}: {said:?}");
        let is_named = [format!("the user lacks +{right},"), format!("'{right}' command")];
        assert!(is_named.iter().any(|named| said.err.contains(named)), "{right}: {said:?}");
        admin.ask::<()>(&["ACL", "SETUSER", "shop", &format!("+{right}")]);
    }
}

#[tokio::test]
async fn keys_that_a_user_may_not_see_are_no_free_locks() {
    let server = Server::start();
    let mut admin = server.admin();
    admin.ask::<()>(&["SET", "report:1", &format!("desk/{:032x}", 1), "PX", "60000"]);
    admin.ask::<()>(&grant().iter().map(String::as_str).collect::<Vec<_>>());
    let url = server.url_as("shop", "password");
    let said = tool_at(&url, &["locks"]).await;
    assert_eq!(said.code, Some(1), "{said:?}");
    assert!(said.err.contains("refuses access"), "{said:?}");
    assert!(said.err.contains("name a pattern of keys that this user may read"), "{said:?}");
    assert_eq!(tool_at(&url, &["locks", "order:*"]).await.code, Some(0));
}
