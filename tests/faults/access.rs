//! Servers that do not let us in, or not everywhere.

use lockmacro_runtime::{Lock, LockError, LockManager};
use lockmacro_tests::{Server, eventually};

use crate::{
    KEY, LONG, Locked, SOON, TIMEOUT, first_error, keeps_nothing, lock, manager, refusal, works,
};

const PASSWORD: &str = "hunter2";

/// A server with a user who has the rights given.
async fn with_user(rights: &[&str]) -> (Server, LockManager) {
    let server = Server::start();
    grant(&server, rights);
    let url = server.url_as("clerk", PASSWORD);
    let manager = manager(&url).await;
    (server, manager)
}

fn grant(server: &Server, rights: &[&str]) {
    let password = format!(">{PASSWORD}");
    let mut words = vec!["ACL", "SETUSER", "clerk", "reset", "on", &password];
    words.extend(rights);
    server.admin().ask::<()>(&words);
}

fn assert_denied(error: &LockError) {
    assert!(matches!(error, LockError::AccessDenied { .. }), "{error:?}");
    assert!(!format!("{error} {error:?}").contains(PASSWORD), "{error:?}");
}

#[tokio::test]
async fn a_user_without_set_is_denied() {
    let (_server, manager) = with_user(&["~*", "+@all", "-set"]).await;
    assert_denied(&refusal(&manager).await);
}

#[tokio::test]
async fn a_user_without_the_key_is_denied() {
    let (server, manager) = with_user(&["~invoice:*", "~lm1:*", "+@all"]).await;
    assert_denied(&refusal(&manager).await);
    let allowed = Lock::new("invoice:1").ttl(LONG).manager(&manager);
    assert_eq!(allowed.run(async { Locked::Ok(7) }).await, Ok(7));
    keeps_nothing(&server).await;
}

#[tokio::test]
async fn a_prefix_takes_the_rights_of_the_same_form_and_no_others() {
    let server = Server::start();
    // As the README has it, for keys that start with `shop:order:`.
    grant(&server, &["~shop:order:*", "~lm1:*:{shop:order:*", "&lm1:*", "+@all"]);
    let shop = LockManager::builder().timeout(SOON).key_prefix("shop:");
    let shop = shop.connect(&server.url_as("clerk", PASSWORD)).await.expect("it is let in");
    let order = Lock::new("order:42").ttl(LONG).manager(&shop);
    let (guard, _) = order.clone().acquire_fenced().await.expect("free");
    let waiting = tokio::spawn(order.wait(LONG).acquire());
    let in_line = || std::future::ready(server.admin().keys().iter().any(|k| k.contains("lm1:wq")));
    eventually("it stands in line", SOON, in_line).await;
    guard.release().await.expect("still held");
    waiting.await.expect("no panic").expect("its turn").release().await.expect("still held");
    let invoice = Lock::new("invoice:1").ttl(LONG).manager(&shop);
    assert_denied(&invoice.acquire().await.expect_err("no right"));
}

#[tokio::test]
async fn a_user_without_scripts_is_denied_what_needs_them_and_no_value() {
    let (server, manager) = with_user(&["~*", "+@all", "-eval", "-evalsha"]).await;
    let mut admin = server.admin();
    admin.ask::<()>(&["SET", KEY, "somebody", "PX", "60000"]);
    assert_denied(&refusal(&manager).await);
    admin.ask::<()>(&["DEL", KEY]);
    let result: Locked<u32> = lock(&manager).run(async { Ok(7) }).await;
    match result {
        Ok(value) => assert_eq!(value, 7),
        Err(error) => assert_denied(&error),
    }
}

#[tokio::test]
async fn a_release_that_is_denied_says_so() {
    let (server, manager) = with_user(&["~*", "+@all"]).await;
    let guard = lock(&manager).acquire().await.expect("free");
    grant(&server, &["~*", "+@all", "-evalsha", "-eval"]);
    assert_denied(&guard.release().await.expect_err("no scripts"));
}

#[tokio::test]
async fn a_command_denied_inside_a_script_is_denied_access() {
    let (server, manager) = with_user(&["~*", "+@all", "-del"]).await;
    let guard = lock(&manager).acquire().await.expect("free");
    assert_denied(&guard.release().await.expect_err("no DEL"));
    // Busy is decided by a script as well; without its reads nothing is known.
    grant(&server, &["~*", "+@all", "-get", "-getex", "-pttl", "-pexpire"]);
    server.admin().ask::<()>(&["SET", KEY, "somebody", "PX", "60000"]);
    assert_denied(&refusal(&manager).await);
}

#[tokio::test]
async fn scripts_need_not_be_loaded_to_be_used() {
    let (server, ours) = with_user(&["~*", "+@all", "-script", "-script|load"]).await;
    let theirs = manager(&server.url()).await;
    let guard = lock(&theirs).acquire().await.expect("free");
    server.admin().ask::<()>(&["SCRIPT", "FLUSH"]);
    assert!(lock(&ours).acquire().await.expect_err("held").is_busy());
    guard.release().await.expect("released");
    server.admin().ask::<()>(&["SCRIPT", "FLUSH"]);
    works(&ours).await;
    keeps_nothing(&server).await;
}

#[tokio::test]
async fn a_user_who_may_not_select_the_database_is_denied() {
    let server = Server::start();
    grant(&server, &["~*", "+@all", "-select"]);
    let url = server.url_as("clerk", PASSWORD);
    assert_denied(&first_error(&format!("{url}/1")).await);
    works(&manager(&url).await).await;
}

#[tokio::test]
async fn rights_granted_later_are_used_by_the_same_manager() {
    let (server, manager) = with_user(&["~*", "+@all", "-set"]).await;
    assert_denied(&refusal(&manager).await);
    grant(&server, &["~*", "+@all"]);
    works(&manager).await;
}

fn assert_not_let_in(error: &LockError) {
    assert!(matches!(error, LockError::Authentication { .. }), "{error:?}");
    let shown = format!("{error} {error:?}");
    assert!(!shown.contains(PASSWORD) && !shown.contains("wrong-guess"), "{shown}");
}

#[tokio::test]
async fn a_server_that_wants_a_password_is_an_authentication_error() {
    let server = Server::with(&["--requirepass", PASSWORD]);
    let url = format!("redis://127.0.0.1:{}", server.port());
    assert_not_let_in(&first_error(&url).await);
    works(&manager(&server.url()).await).await;
}

#[tokio::test]
async fn a_wrong_password_is_an_authentication_error_and_is_not_shown() {
    let server = Server::with(&["--requirepass", PASSWORD]);
    assert_not_let_in(&first_error(&server.url_as("", "wrong-guess")).await);
    assert_not_let_in(&first_error(&server.url_as("nobody", "wrong-guess")).await);
}

#[tokio::test]
async fn a_user_who_is_switched_off_is_an_authentication_error() {
    let server = Server::start();
    grant(&server, &["~*", "+@all", "off"]);
    assert_not_let_in(&first_error(&server.url_as("clerk", PASSWORD)).await);
}

#[tokio::test]
async fn a_server_with_too_many_clients_is_a_connection_limit() {
    let server = Server::start();
    let admin = server.admin();
    let mut last = server.admin();
    last.configure("maxclients", "1");
    drop(admin);
    let error = first_error(&server.url()).await;
    assert!(matches!(error, LockError::ConnectionLimit { .. }), "{error:?}");
    last.configure("maxclients", "100");
    works(&manager(&server.url()).await).await;
}

/// Who writes to a server that closes the connection may miss what it says.
async fn the_limit_is_told_every_time() {
    let server = Server::start();
    let mut admin = server.admin();
    admin.configure("maxclients", "1");
    // Each is as many tries as there is time for.
    for round in 0..3 {
        let builder = LockManager::builder().timeout(TIMEOUT);
        let error = builder.connect(&server.url()).await.expect_err("full");
        assert!(matches!(error, LockError::ConnectionLimit { .. }), "round {round}: {error:?}");
    }
}

#[tokio::test]
async fn a_connection_limit_is_told_every_time() {
    the_limit_is_told_every_time().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_connection_limit_is_told_every_time_on_many_threads() {
    the_limit_is_told_every_time().await;
}

#[tokio::test]
async fn a_limit_reached_while_reconnecting_is_told_and_passes() {
    let server = Server::start();
    let manager = manager(&server.url()).await;
    let mut admin = server.admin();
    admin.configure("maxclients", "1");
    admin.ask::<redis::Value>(&["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"]);
    let error = refusal(&manager).await;
    assert!(matches!(error, LockError::ConnectionLimit { .. }), "{error:?}");
    admin.configure("maxclients", "100");
    eventually("works again", SOON, || async {
        lock(&manager).run(async { Locked::Ok(7) }).await == Ok(7)
    })
    .await;
}
