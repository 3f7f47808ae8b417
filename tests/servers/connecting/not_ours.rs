//! Servers that can have no locks: replicas, databases that are not there, and what is no Redis.

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use lockmacro_runtime::{Lock, LockError, LockManager, UnavailableReason};

use lockmacro_tests::{Certificates, Server, with_replicas};

/// How long a caller waits for a server that fails. A refusal comes far sooner.
const TIMEOUT: Duration = Duration::from_secs(20);

async fn refusal(url: &str) -> LockError {
    let start = Instant::now();
    let error = LockManager::builder().timeout(TIMEOUT).connect(url).await.expect_err("refused");
    assert!(start.elapsed() < TIMEOUT / 2, "at once, and not after {:?}", start.elapsed());
    error
}

fn is_read_only(error: &LockError, primary: &Server) {
    let LockError::Unavailable { reason, detail, .. } = error else { panic!("{error:?}") };
    assert_eq!(*reason, UnavailableReason::ReadOnly, "{error}");
    assert!(detail.contains(&format!("127.0.0.1:{}", primary.port())), "{detail}");
}

#[tokio::test]
async fn a_replica_is_refused_and_the_error_names_its_primary() {
    let servers = with_replicas(1).await;
    let [primary, replica] = &servers[..] else { panic!("two servers") };
    is_read_only(&refusal(&replica.url()).await, primary);
    // A manager that has a connection is told by `ready`.
    let lazy = LockManager::builder().timeout(TIMEOUT).lazy();
    let manager = lazy.connect(&replica.url()).await.expect("it does not ask");
    is_read_only(&manager.ready().await.expect_err("a replica"), primary);
    // The server is promoted.
    replica.admin().ask::<()>(&["REPLICAOF", "NO", "ONE"]);
    manager.ready().await.expect("a primary");
    Lock::new("order:42").manager(&manager).run(async { Ok::<_, LockError>(()) }).await.unwrap();
}

#[tokio::test]
async fn a_replica_is_refused_to_a_user_who_may_not_ask_for_its_primary() {
    let servers = with_replicas(1).await;
    let mut admin = servers[1].admin();
    admin.ask::<()>(&["ACL", "SETUSER", "shop", "on", ">pw", "~*", "&*", "+@all", "-role"]);
    let error = refusal(&servers[1].url_as("shop", "pw")).await;
    let LockError::Unavailable { reason, detail, .. } = &error else { panic!("{error:?}") };
    assert_eq!((*reason, &**detail), (UnavailableReason::ReadOnly, "connect to its primary"));
}

#[tokio::test]
async fn a_server_that_is_demoted_for_a_moment_is_ready_again() {
    let servers = with_replicas(1).await;
    let [primary, server] = &servers[..] else { panic!("two servers") };
    let mut admin = server.admin();
    admin.ask::<()>(&["REPLICAOF", "NO", "ONE"]);
    let manager =
        LockManager::builder().timeout(TIMEOUT).connect(&server.url()).await.expect("a primary");
    admin.ask::<()>(&["REPLICAOF", "127.0.0.1", &primary.port().to_string()]);
    is_read_only(&manager.ready().await.expect_err("a replica"), primary);
    admin.ask::<()>(&["REPLICAOF", "NO", "ONE"]);
    manager.ready().await.expect("a primary again");
}

#[tokio::test]
async fn a_database_that_the_server_does_not_have_is_an_invalid_setting() {
    let server = Server::with(&["--databases", "4"]);
    let is_refused = |error: LockError, told: &str| {
        let LockError::InvalidSetting { setting, detail, .. } = &error else { panic!("{error:?}") };
        assert_eq!(*setting, "db");
        assert!(detail.contains(told) && detail.contains("no database 7"), "{detail}");
    };
    is_refused(refusal(&format!("{}/7", server.url())).await, "4 databases");
    let start = Instant::now();
    let lazy = LockManager::builder().timeout(TIMEOUT).lazy();
    let manager = lazy.connect(&format!("{}/7", server.url())).await.expect("it does not ask");
    is_refused(manager.ready().await.expect_err("no database"), "4 databases");
    let lock = Lock::new("order:42").manager(&manager).acquire().await;
    is_refused(lock.expect_err("no database"), "4 databases");
    assert!(start.elapsed() < TIMEOUT / 2, "at once, and not after {:?}", start.elapsed());
    let last = LockManager::connect(&format!("{}/3", server.url())).await;
    last.expect("it has this one");
    let mut admin = server.admin();
    admin.ask::<()>(&["ACL", "SETUSER", "shop", "on", ">pw", "~*", "&*", "+@all", "-config"]);
    is_refused(refusal(&format!("{}/7", server.url_as("shop", "pw"))).await, "out of range");
}

/// A server that is none: what it does with each client.
fn listener(serve: fn(TcpStream)) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let url = format!("redis://{}", listener.local_addr().expect("its port"));
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            thread::spawn(move || serve(stream));
        }
    });
    url
}

async fn told(url: &str) -> String {
    let builder = LockManager::builder().timeout(Duration::from_secs(2));
    let error = builder.connect(url).await.expect_err("no Redis server");
    assert!(matches!(error, LockError::Unavailable { .. }), "{error:?}");
    error.to_string()
}

#[tokio::test]
async fn what_is_no_redis_server_is_told_by_what_it_answers() {
    let http = listener(|mut stream| {
        let _ = stream.read(&mut [0; 512]);
        let _ = stream.write_all(b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n");
    });
    let text = told(&http).await;
    let expected = "does not speak the Redis protocol: it answered `HTTP/1.1 400 Bad Request`";
    assert!(text.contains(expected), "{text}");
    // It speaks first, and has read nothing.
    let mail = listener(|mut stream| {
        let _ = stream.write_all(b"220 mail.example ESMTP\r\n");
        let _ = stream.read(&mut [0; 512]);
    });
    let text = told(&mail).await;
    assert!(text.contains("it answered `220 mail.example ESMTP`"), "{text}");
    // PostgreSQL closes a connection whose first packet it cannot read.
    let postgres = listener(|mut stream| {
        let _ = stream.read(&mut [0; 512]);
    });
    let text = told(&postgres).await;
    assert!(text.contains("closes the connection without an answer"), "{text}");
}

#[tokio::test]
async fn a_server_that_wants_tls_is_told() {
    let certificates = Certificates::new();
    let encrypted = certificates.server();
    let plain = format!("redis://127.0.0.1:{}", encrypted.port());
    let text = told(&plain).await;
    assert!(text.contains("TLS") && text.contains("`rediss://`"), "{text}");
    let alert = listener(|mut stream| {
        let _ = stream.read(&mut [0; 512]);
        let _ = stream.write_all(&[21, 3, 1, 0, 2, 2, 40]);
    });
    let text = told(&alert).await;
    assert!(text.contains("it wants TLS, so write `rediss://`"), "{text}");
}
