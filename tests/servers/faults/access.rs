//! Servers that do not let us in, or not everywhere.

use std::future::ready;

use lockmacro_runtime::inspect;
use lockmacro_runtime::{Lock, LockError, LockManager, UnavailableReason};
use lockmacro_tests::{Cluster, Server, eventually, log};

use crate::{
    KEY, LONG_TTL, Locked, TEST_TIMEOUT, TIMEOUT, first_error, keeps_nothing, lock, manager,
    reason, refusal, served, works,
};

const PASSWORD: &str = "hunter2";
const ACCESS: &str = include_str!("../../../docs/reference/servers.md");

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

/// The error of connecting as a user who has the rights given, to a server where nothing is left.
async fn denied_at_connect(server: &Server, rights: &[&str]) -> String {
    grant(server, rights);
    let connecting = LockManager::connect(&server.url_as("clerk", PASSWORD)).await;
    let error = connecting.expect_err("a right is missing");
    assert_denied(&error);
    assert_eq!(server.admin().keys(), Vec::<String>::new());
    error.to_string()
}

/// Without an error at that moment, each lock would stay for its whole ttl.
#[tokio::test]
async fn a_right_that_is_missing_is_named_when_a_manager_connects() {
    let server = Server::start();
    let line = ACCESS.lines().find(|line| line.starts_with("ACL SETUSER")).expect("it is there");
    let rights = line.split_whitespace().filter(|word| word.starts_with('+'));
    // A user of every key needs two more.
    let rights: Vec<_> = rights.chain(["+exists", "+zcount"]).collect();
    // Rights that are checked on other occasions, or that locks can do without.
    let others = ["+ping", "+subscribe", "+publish", "+pubsub|numsub"];
    for right in rights.iter().filter(|right| !others.contains(right)) {
        let lacking: Vec<_> = rights.iter().filter(|other| *other != right).copied().collect();
        let error = denied_at_connect(&server, &[&["~*", "&*"], &lacking[..]].concat()).await;
        let named = format!("the user lacks {right}, at 127.0.0.1:{}", server.port());
        assert!(error.ends_with(&named), "{right}: {error}");
    }
    let error = denied_at_connect(&server, &["~*", "+@all", "-evalsha", "-eval", "-zadd"]).await;
    assert!(error.contains("the user lacks +evalsha +eval, at 127.0.0.1:"), "{error}");
    // It is asked without a word in the log of the server's administrator, but for scripts.
    server.admin().ask::<()>(&["ACL", "LOG", "RESET"]);
    denied_at_connect(&server, &["~*", "+@all", "-zadd", "-hset"]).await;
    let denied: Vec<redis::Value> = server.admin().ask(&["ACL", "LOG"]);
    assert_eq!(denied, []);
}

/// Such a right cannot be known without a key.
#[tokio::test]
async fn a_right_on_some_keys_that_is_missing_is_named_when_a_lock_needs_it() {
    let server = Server::start();
    let rights = |lacking: &'static str| ["~order:*", "~lm1:*", "+@all", lacking];
    for waits in [false, true] {
        grant(&server, &rights("-zadd"));
        let some = manager(&server.url_as("clerk", PASSWORD)).await;
        let lock = || if waits { lock(&some).wait(LONG_TTL) } else { lock(&some) };
        let error = lock().acquire().await.expect_err("a right is missing");
        assert!(error.to_string().contains("the user lacks +zadd, at 127.0.0.1:"), "{error}");
        keeps_nothing(&server).await;
        grant(&server, &rights("-del"));
        let guard = lock().acquire().await.expect("no right is missing yet");
        let error = guard.release().await.expect_err("a right is missing");
        assert!(error.to_string().contains("the user lacks +del, at 127.0.0.1:"), "{error}");
        server.admin().ask::<()>(&["FLUSHALL"]);
    }
}

#[tokio::test]
async fn a_right_that_one_node_of_a_cluster_denies_is_named_when_a_manager_connects() {
    let cluster = Cluster::start(3, 0).await;
    let manager = LockManager::connect(&cluster.url()).await.expect("there");
    works(&manager).await;
    cluster.admin(2).ask::<()>(&["ACL", "SETUSER", "default", "-evalsha"]);
    let connecting = LockManager::connect(&cluster.url()).await;
    let error = connecting.expect_err("a right is missing").to_string();
    let named = format!("the user lacks +evalsha, at 127.0.0.1:{}", cluster.server(2).port());
    assert!(error.ends_with(&named), "{error}");
}

/// While its password is changed, for instance.
#[tokio::test]
async fn a_release_that_was_denied_is_repeated_until_the_user_is_back() {
    let all = ["~*", "&*", "+@all"];
    for taken in ["off", "-@all"] {
        let (server, manager) = with_user(&all).await;
        let released = lock(&manager).ttl(LONG_TTL).acquire().await.expect("free");
        let dropped = Lock::new("dropped").ttl(LONG_TTL).manager(&manager).acquire().await;
        let dropped = dropped.expect("free");
        let mut admin = server.admin();
        admin.ask::<()>(&["ACL", "SETUSER", "clerk", taken]);
        admin.ask::<()>(&["CLIENT", "KILL", "USER", "clerk"]);
        let error = released.release().await.expect_err("denied");
        assert!(!error.is_busy(), "{error}");
        drop(dropped);
        tokio::time::sleep(TIMEOUT).await;
        grant(&server, &all);
        keeps_nothing(&server).await;
    }
}

/// Waiting works without, by asking, so it is no error.
#[tokio::test]
async fn rights_that_only_waiters_use_are_named_in_the_log_when_a_manager_connects() {
    log::start();
    let logged = |server: &Server| {
        let server = format!("server=127.0.0.1:{} ", server.port());
        log::lines(|line| line.contains("without which waiters poll") && line.contains(&server))
    };
    for (rights, lacking) in [
        (["&*", "-subscribe"], "\"+subscribe\""),
        (["&lm1:*", "-publish"], "\"+publish\""),
        (["&*", "-pubsub"], "\"+pubsub|numsub\""),
        (["&other:*", "+@all"], "\"&lm1:*\""),
    ] {
        for keys in ["~*", "~order:*"] {
            let rights = ["~lm1:*", keys, "resetchannels", "+@all", rights[0], rights[1]];
            let (server, manager) = with_user(&rights).await;
            manager.ready().await.expect("there");
            let logged = logged(&server);
            assert_eq!(logged.len(), 1, "{rights:?}: {logged:#?}");
            let is_named = logged[0].contains(&format!("lacking={lacking}"));
            assert!(is_named && logged[0].starts_with("WARN"), "{rights:?}: {logged:#?}");
            assert_eq!(server.admin().ask::<Vec<redis::Value>>(&["ACL", "LOG"]), []);
        }
    }
    let (server, _manager) = with_user(&["~*", "resetchannels", "&lm1:*", "+@all"]).await;
    assert_eq!(logged(&server), Vec::<String>::new());
}

#[tokio::test]
async fn a_server_that_evicts_locks_is_warned_of_once_when_a_manager_connects() {
    log::start();
    let logged = |server: &Server| {
        let server = format!("server=127.0.0.1:{} ", server.port());
        log::lines(|line| line.contains("evicts locks when it is full") && line.contains(&server))
    };
    let evicting = ["--maxmemory", "100mb", "--maxmemory-policy", "volatile-lru"];
    let (server, unlimited) = (Server::with(&evicting), Server::with(&evicting[2..]));
    for server in [&server, &unlimited] {
        let manager = manager(&server.url()).await;
        manager.ready().await.expect("there");
        works(&manager).await;
    }
    let warned = logged(&server);
    assert_eq!(warned.len(), 1, "{warned:#?}");
    assert!(warned[0].starts_with("WARN") && warned[0].contains("policy=\"volatile-lru\""));
    assert_eq!(logged(&unlimited), Vec::<String>::new());
    // Nor is a user asked about who may not ask.
    let mut admin = server.admin();
    admin.ask::<()>(&["ACL", "SETUSER", "shop", "on", ">password", "~*", "&*", "+@all", "-info"]);
    manager(&server.url_as("shop", "password")).await.ready().await.expect("there");
    assert_eq!(
        (logged(&server).len(), admin.ask::<Vec<redis::Value>>(&["ACL", "LOG"])),
        (1, vec![])
    );
}

/// A plain SET would be granted there, and could not be released.
#[tokio::test]
async fn a_user_without_the_companion_keys_is_denied_the_lock_and_leaves_nothing() {
    let (server, manager) = with_user(&["~order:*", "+@all"]).await;
    for _ in 0..2 {
        let error = refusal(&manager).await;
        assert_denied(&error);
        let error = error.to_string();
        assert!(error.ends_with("the lock needs ~order:42 and ~lm1:w*:{order:42}"), "{error}");
        keeps_nothing(&server).await;
    }
}

/// The rights on some keys say nothing of the rights on others.
#[tokio::test]
async fn companion_keys_of_one_lock_do_not_stand_for_those_of_another() {
    let orders = inspect::rights("order:*", &[]).expect("a pattern");
    let rights: Vec<_> = orders.split(' ').chain(["~invoice:*", "+@all"]).collect();
    let (server, manager) = with_user(&rights).await;
    works(&manager).await;
    let invoice = Lock::new("invoice:1").ttl(LONG_TTL).manager(&manager);
    assert_denied(&invoice.acquire().await.expect_err("it could not be released"));
    keeps_nothing(&server).await;
}

/// By the script, which the server refuses where a companion key is denied.
#[tokio::test]
async fn a_user_of_some_keys_takes_a_free_lock_by_one_command() {
    let (server, manager) = with_user(&["~order:*", "~lm1:*", "+@all"]).await;
    // The server knows the scripts from then on.
    works(&manager).await;
    let mut admin = server.admin();
    admin.forget_calls();
    works(&manager).await;
    let calls = admin.calls();
    let times = |name: &str| calls.iter().find(|(known, _)| known == name).map_or(0, |call| call.1);
    assert_eq!((times("evalsha"), times("eval")), (2, 0), "{calls:?}");
}

#[tokio::test]
async fn a_user_without_the_key_is_denied() {
    let (server, manager) = with_user(&["~invoice:*", "~lm1:*", "+@all"]).await;
    assert_denied(&refusal(&manager).await);
    let allowed = Lock::new("invoice:1").ttl(LONG_TTL).manager(&manager);
    assert_eq!(allowed.run(async { Locked::Ok(7) }).await, Ok(7));
    keeps_nothing(&server).await;
}

#[tokio::test]
async fn a_prefix_takes_the_rights_of_the_same_form_and_no_others() {
    let server = Server::start();
    let printed = inspect::rights("shop:order:*", &[inspect::Use::Wait]).expect("a pattern");
    let keys: Vec<_> = printed.split(' ').filter(|right| right.starts_with('~')).collect();
    assert!(ACCESS.contains(&format!("`{}`", keys.join(" "))), "{keys:?}");
    grant(&server, &printed.split(' ').collect::<Vec<_>>());
    let shop = LockManager::builder().timeout(TEST_TIMEOUT).key_prefix("shop:");
    let other = shop.clone().connect(&server.url_as("clerk", PASSWORD)).await;
    let other = other.expect("it is let in");
    let shop = shop.connect(&server.url_as("clerk", PASSWORD)).await.expect("it is let in");
    let order = Lock::new("order:42").ttl(LONG_TTL).manager(&shop);
    let guard = order.clone().fenced().acquire().await.expect("free");
    let waiting = tokio::spawn(order.manager(&other).wait(LONG_TTL).acquire());
    let queued = || ready(server.admin().keys().iter().any(|k| k.contains("lm1:wq")));
    eventually("it is in the queue", TEST_TIMEOUT, queued).await;
    guard.release().await.expect("still held");
    waiting.await.expect("no panic").expect("its turn").release().await.expect("still held");
    for key in ["order:{42}", "order:4}2"] {
        let braces = Lock::new(key).ttl(LONG_TTL).manager(&shop);
        braces.run(async { Locked::Ok(()) }).await.expect("allowed");
    }
    let invoice = Lock::new("invoice:1").ttl(LONG_TTL).manager(&shop);
    assert_denied(&invoice.acquire().await.expect_err("no right"));
}

#[tokio::test]
async fn a_user_without_scripts_is_denied_what_needs_them_and_no_value() {
    let (server, manager) = with_user(&["~*", "+@all"]).await;
    grant(&server, &["~*", "+@all", "-eval", "-evalsha"]);
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

/// By its configuration, as some clouds have it.
#[tokio::test]
async fn a_server_without_scripts_is_refused_in_the_same_words_at_connect_and_by_a_first_lock() {
    let server = Server::with(&["--rename-command", "EVAL", "", "--rename-command", "EVALSHA", ""]);
    let connecting = LockManager::connect(&server.url()).await.expect_err("no scripts");
    let lazy = LockManager::builder().lazy().connect(&server.url()).await.expect("not asked");
    for error in [connecting, refusal(&lazy).await] {
        let words =
            "(locks need scripts, and it has none: ERR unknown command 'EVALSHA', at 127.0.0.1:";
        assert!(error.to_string().contains(words), "{error}");
        assert_eq!(reason(error), UnavailableReason::Protocol);
        assert_eq!(server.admin().keys(), Vec::<String>::new());
    }
}

#[tokio::test]
async fn a_release_that_is_denied_says_so_also_inside_of_a_script() {
    let (server, manager) = with_user(&["~*", "+@all"]).await;
    for denied in [&["-evalsha", "-eval"][..], &["-del"]] {
        let guard = lock(&manager).acquire().await.expect("free");
        grant(&server, &[&["~*", "+@all"], denied].concat());
        assert_denied(&guard.release().await.expect_err("denied"));
        grant(&server, &["~*", "+@all"]);
        server.admin().ask::<()>(&["DEL", KEY]);
    }
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
    let (server, manager) = with_user(&["~*", "+@all"]).await;
    grant(&server, &["~*", "+@all", "-set"]);
    assert_denied(&refusal(&manager).await);
    grant(&server, &["~*", "+@all"]);
    works(&manager).await;
}

#[tokio::test]
async fn a_wrong_login_or_none_is_an_authentication_error_that_does_not_show_it() {
    let server = Server::with(&["--requirepass", PASSWORD]);
    let without = format!("redis://127.0.0.1:{}", server.port());
    grant(&server, &["~*", "+@all", "off"]);
    let (wrong, unknown) =
        (server.url_as("", "wrong-guess"), server.url_as("nobody", "wrong-guess"));
    for url in [without, wrong, unknown, server.url_as("clerk", PASSWORD)] {
        let error = first_error(&url).await;
        assert!(matches!(error, LockError::Authentication { .. }), "{url}: {error:?}");
        let shown = format!("{error} {error:?}");
        assert!(!shown.contains(PASSWORD) && !shown.contains("wrong-guess"), "{shown}");
    }
    works(&manager(&server.url()).await).await;
}

/// A client that writes to a server that closes the connection may miss the server's answer.
async fn the_limit_is_reported_every_time_and_passes() {
    let server = Server::start();
    let mut admin = server.admin();
    admin.configure("maxclients", "1");
    // Each is as many tries as there is time for.
    for round in 0..3 {
        let builder = LockManager::builder().timeout(TIMEOUT);
        let error = builder.connect(&server.url()).await.expect_err("full");
        assert_eq!(reason(error), UnavailableReason::ConnectionLimit, "round {round}");
    }
    admin.configure("maxclients", "100");
    works(&manager(&server.url()).await).await;
}

#[tokio::test]
async fn a_connection_limit_is_reported_every_time() {
    the_limit_is_reported_every_time_and_passes().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_connection_limit_is_reported_every_time_on_many_threads() {
    the_limit_is_reported_every_time_and_passes().await;
}

#[tokio::test]
async fn a_limit_reached_while_reconnecting_is_reported_and_passes() {
    let (server, manager) = served().await;
    let mut admin = server.admin();
    admin.configure("maxclients", "1");
    admin.ask::<redis::Value>(&["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"]);
    assert_eq!(reason(refusal(&manager).await), UnavailableReason::ConnectionLimit);
    admin.configure("maxclients", "100");
    eventually("works again", TEST_TIMEOUT, || async {
        lock(&manager).run(async { Locked::Ok(7) }).await == Ok(7)
    })
    .await;
}
