//! How a manager starts: while the server is down, without a runtime, and by what others know of
//! it.

use std::time::{Duration, Instant};

use lockmacro_runtime::{Lock, LockError, LockManager, UnavailableReason};
use lockmacro_tests::{Cluster, Server, in_time, is_no_runtime, on_a_plain_thread};

const TIMEOUT: Duration = Duration::from_millis(800);
/// Far more than a loaded machine needs.
const SLACK: Duration = Duration::from_secs(8);

async fn works(manager: &LockManager) {
    let run = Lock::new("order:42").manager(manager).run(async { Ok::<_, LockError>(7) });
    assert_eq!(run.await, Ok(7));
}

fn refused<T: std::fmt::Debug>(result: Result<T, LockError>) {
    let error = result.expect_err("nobody is there");
    let LockError::Unavailable { reason, .. } = &error else { panic!("{error:?}") };
    let source = std::error::Error::source(&error);
    let is_known = source.is_some_and(|source| source.is::<redis::RedisError>());
    assert!(is_known || *reason != UnavailableReason::Refused, "{error:?}");
    let gone =
        [UnavailableReason::Refused, UnavailableReason::Disconnected, UnavailableReason::Timeout];
    assert!(gone.contains(reason), "{error:?}");
}

#[tokio::test]
async fn a_lazy_manager_starts_while_the_server_is_down_and_works_when_it_is_there() {
    in_time(async {
        let mut server = Server::start();
        server.kill();
        let builder = LockManager::builder().timeout(TIMEOUT).lazy();
        refused(LockManager::builder().timeout(TIMEOUT).connect(&server.url()).await);
        let start = Instant::now();
        let manager = builder.connect(&server.url()).await.expect("it does not ask");
        assert!(start.elapsed() < TIMEOUT / 2, "{:?}", start.elapsed());
        let mut ran = false;
        let run = Lock::new("order:42").manager(&manager).run(async {
            ran = true;
            Ok::<_, LockError>(())
        });
        refused(run.await);
        assert!(!ran);
        refused(manager.ready().await);
        assert!(start.elapsed() < 2 * TIMEOUT + SLACK, "{:?}", start.elapsed());
        server.restart();
        manager.ready().await.expect("it is there");
        works(&manager).await;
        // Each time it is asked.
        server.kill();
        refused(manager.ready().await);
        server.restart();
        manager.ready().await.expect("it is there again");
        manager.shutdown(SLACK).await.expect("nothing is held");
        assert_eq!(manager.ready().await, Err(LockError::ShutDown { held: 0 }));
    })
    .await;
}

#[tokio::test]
async fn a_lazy_manager_fails_at_once_where_no_server_can_help() {
    let connecting = LockManager::builder().lazy().connect("http://localhost").await;
    assert!(
        matches!(connecting, Err(LockError::InvalidSetting { setting: "url", .. })),
        "{connecting:?}"
    );
}

#[tokio::test]
async fn a_readiness_probe_reports_a_wrong_password_and_a_missing_right() {
    let server = Server::with(&["--requirepass", "secret"]);
    let mut admin = server.admin();
    let lazy = |url: String| async move { LockManager::builder().lazy().connect(&url).await };
    let wrong = lazy(server.url_as("", "guess")).await.expect("it does not ask");
    assert!(matches!(wrong.ready().await, Err(LockError::Authentication { .. })));
    admin.ask::<()>(&["ACL", "SETUSER", "shop", "on", ">secret", "~*", "+@all", "-zadd"]);
    let lacking = lazy(server.url_as("shop", "secret")).await.expect("it does not ask");
    let error = lacking.ready().await.expect_err("a right is missing");
    assert!(matches!(error, LockError::AccessDenied { .. }), "{error:?}");
    // Its first lock asks as well, before anything is granted.
    let acquired = Lock::new("order:42").manager(&lacking).acquire().await;
    assert_eq!(acquired.expect_err("a right is missing"), error);
    assert_eq!(admin.keys(), Vec::<String>::new());
}

#[tokio::test]
async fn a_cluster_and_a_redlock_are_ready_when_they_answer() {
    in_time(async {
        let cluster = Cluster::start(3, 0).await;
        let manager = LockManager::builder().lazy().connect(&cluster.url()).await;
        let manager = manager.expect("it does not ask");
        manager.ready().await.expect("they are there");
        works(&manager).await;
        let mut nodes: Vec<_> = (0..3).map(|_| Server::start()).collect();
        nodes[0].kill();
        nodes[1].kill();
        let builder = LockManager::builder().durable().timeout(TIMEOUT).lazy();
        let redlock = builder.redlock(nodes.iter().map(Server::url)).await;
        let redlock = redlock.expect("it does not ask");
        let error = redlock.ready().await.expect_err("no majority");
        assert!(
            matches!(error, LockError::Unavailable { reason: UnavailableReason::NoQuorum, .. }),
            "{error:?}"
        );
        nodes[1].restart();
        let start = Instant::now();
        while let Err(error) = redlock.ready().await {
            assert!(start.elapsed() < SLACK, "{error}");
        }
        works(&redlock).await;
    })
    .await;
}

#[test]
fn a_program_without_a_runtime_connects_by_blocking() {
    let server = Server::with(&["--requirepass", "secret"]);
    let manager = LockManager::connect_blocking(&server.url()).expect("there");
    let body = || Ok::<_, LockError>(7);
    assert_eq!(Lock::new("order:42").manager(&manager).run_blocking(body), Ok(7));
    let wrong = LockManager::connect_blocking(&server.url_as("", "guess"));
    assert!(matches!(wrong, Err(LockError::Authentication { .. })), "{wrong:?}");
    let nowhere = LockManager::builder().timeout(TIMEOUT).connect_blocking("redis://127.0.0.1:1");
    refused(nowhere);
    let memory = LockManager::connect_blocking("memory://").expect("always there");
    assert_eq!(Lock::new("order:42").manager(&memory).run_blocking(body), Ok(7));
    let later = LockManager::builder().lazy().connect_blocking("redis://127.0.0.1:1");
    later.expect("it does not ask");
}

#[tokio::test]
async fn connecting_by_blocking_is_refused_where_it_would_stop_other_tasks() {
    let server = Server::start();
    let url = server.url();
    let here = LockManager::connect_blocking(&url).map(drop);
    assert!(is_no_runtime(&here, "spawn_blocking"), "{here:?}");
    on_a_plain_thread(move || LockManager::connect_blocking(&url)).await.expect("there");
}

#[tokio::test]
async fn a_manager_is_made_of_what_the_redis_crate_knows_of_a_server() {
    let server = Server::with(&["--requirepass", "secret"]);
    let url = format!("{}/3", server.url());
    let client = redis::Client::open(url).expect("a valid url");
    let info = client.get_connection_info().clone();
    let managers = [
        LockManager::builder().from_redis(&client).await.expect("there"),
        LockManager::builder().timeout(TIMEOUT).from_redis(info.clone()).await.expect("there"),
        LockManager::builder().from_redis(client).await.expect("there"),
    ];
    let guard = Lock::new("order:42").manager(&managers[0]).acquire().await.expect("free");
    let mut admin = server.admin();
    admin.ask::<()>(&["SELECT", "3"]);
    assert!(admin.get("order:42").is_some(), "in the client's database");
    for manager in &managers[1..] {
        let busy = Lock::new("order:42").manager(manager).acquire().await.expect_err("held");
        assert!(busy.is_busy(), "{busy}");
    }
    // By the background thread, too.
    drop(guard);
    for manager in managers {
        let run = Lock::new("order:42").wait(SLACK).manager(&manager);
        assert_eq!(run.run(async { Ok::<_, LockError>(7) }).await, Ok(7));
    }
    // Of these the crate has settings of its own.
    for (named, builder) in [
        ("cacert", LockManager::builder().ca_cert("/etc/ca.pem")),
        ("cert", LockManager::builder().client_cert("/etc/client.pem", "/etc/client.key")),
    ] {
        match builder.from_redis(info.clone()).await {
            Err(LockError::InvalidSetting { setting, detail, .. }) => {
                assert_eq!(setting, named);
                assert!(detail.contains("`redis::Client`"), "{detail}");
            }
            other => panic!("{named}: {other:?}"),
        }
    }
    let shown = format!("{:?}", lockmacro_runtime::RedisServer::from(info));
    assert!(!shown.contains("secret"), "{shown}");
}
