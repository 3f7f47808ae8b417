//! `rediss://`.

use std::time::Instant;

use lockmacro_runtime::UnavailableReason;
use lockmacro_tests::{Certificates, Server, eventually, in_time};

use crate::*;

/// A server that speaks nothing but TLS. `clients` tells whether it wants certificates of them.
fn server(certificates: &Certificates, clients: &str) -> Server {
    let settings = certificates.settings(clients);
    let mut arguments =
        vec!["--bind", "127.0.0.1", "127.0.0.2", "--tls-port", "{port}", "--port", "0"];
    arguments.extend(settings.iter().map(String::as_str));
    Server::with(&arguments)
}

fn url(server: &Server, host: &str, certificates: &Certificates) -> String {
    format!("rediss://{host}:{}/?cacert={}", server.port(), certificates.path("ca.pem"))
}

async fn refused(url: &str) -> LockError {
    let start = Instant::now();
    let error = patient().connect(url).await.expect_err("refused");
    assert!(
        !error.is_busy() && start.elapsed() < 2 * FAILOVER,
        "{error} after {:?}",
        start.elapsed()
    );
    error
}

fn no_secure_connection(error: LockError, word: &str) {
    match error {
        LockError::Unavailable { reason: UnavailableReason::Tls, detail, .. } => {
            assert!(detail.contains(word), "{detail}");
        }
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn a_lock_is_taken_refused_handed_off_and_released_by_tls() {
    let certificates = Certificates::new();
    let server = server(&certificates, "no");
    let mut fastest = FAILOVER;
    for host in ["localhost", "127.0.0.1", "localhost"] {
        let url = url(&server, host, &certificates);
        let one = patient().connect(&url).await.expect("the server is there");
        let other = patient().connect(&url).await.expect("the server is there");
        let third = patient().connect(&url).await.expect("the server is there");
        let held = lock(&one).wait(FAILOVER).acquire().await.expect("free");
        assert!(lock(&other).acquire().await.expect_err("held").is_busy());
        let next = tokio::spawn(lock(&other).wait_forever().acquire());
        eventually("it is in the queue", FAILOVER, || async {
            matches!(
                lock(&third).wait(Duration::from_millis(1)).acquire().await,
                Err(LockError::TimedOut { rank: 1, .. })
            )
        })
        .await;
        let start = Instant::now();
        held.release().await.expect("still held");
        let next = in_time(next).await.expect("no panic").expect("served");
        fastest = fastest.min(start.elapsed());
        next.release().await.expect("still held");
        // And what is dropped is released. Its waiter may only just be leaving the
        // line.
        drop(lock(&one).wait(FAILOVER).acquire().await.expect("free"));
        eventually("it is free", FAILOVER, || async { lock(&other).acquire().await.is_ok() }).await;
    }
    // By the push: the request comes after 1.6 s at the earliest.
    assert!(fastest < Duration::from_millis(1_500), "{fastest:?}");
}

#[tokio::test]
async fn a_server_whose_signer_is_not_trusted_is_refused() {
    let certificates = Certificates::new();
    let server = server(&certificates, "no");
    let strangers = Certificates::new();
    no_secure_connection(refused(&url(&server, "localhost", &strangers)).await, "cacert");
    let public = format!("rediss://localhost:{}", server.port());
    no_secure_connection(refused(&public).await, "cacert");
}

#[tokio::test]
async fn a_server_of_another_name_is_refused() {
    let certificates = Certificates::new();
    let server = server(&certificates, "no");
    let url = url(&server, "127.0.0.2", &certificates);
    no_secure_connection(refused(&url).await, "not valid for name");
}

#[tokio::test]
async fn a_client_certificate_is_shown_where_it_is_wanted() {
    let certificates = Certificates::new();
    let server = server(&certificates, "yes");
    let anonymous = url(&server, "localhost", &certificates);
    let (cert, key) = (certificates.path("client.pem"), certificates.path("client.key"));
    let known = patient().connect(&format!("{anonymous}&cert={cert}&key={key}")).await;
    let held = lock(&known.expect("let in")).acquire().await.expect("free");
    held.release().await.expect("still held");
    no_secure_connection(refused(&anonymous).await, "cert=");

    let strangers = Certificates::new();
    let (cert, key) = (strangers.path("client.pem"), strangers.path("client.key"));
    no_secure_connection(refused(&format!("{anonymous}&cert={cert}&key={key}")).await, "");
}

#[tokio::test]
async fn a_plain_client_of_an_encrypted_port_and_the_reverse_are_reported() {
    let certificates = Certificates::new();
    let encrypted = server(&certificates, "no");
    let plain = Server::start();
    let wrong = [
        (format!("redis://localhost:{}", encrypted.port()), UnavailableReason::Disconnected),
        // It waits for the end of a line.
        (url(&plain, "localhost", &certificates), UnavailableReason::Timeout),
    ];
    for (url, expected) in wrong {
        match LockManager::builder().timeout(Duration::from_secs(3)).connect(&url).await {
            Err(LockError::Unavailable { reason, .. }) => assert_eq!(reason, expected),
            other => panic!("{other:?}"),
        }
    }
}

#[tokio::test]
async fn missing_files_are_reported_by_name() {
    let certificates = Certificates::new();
    let (ca, key) = (certificates.path("ca.pem"), certificates.path("client.key"));
    let wrong = [
        ("cacert", "cacert=/no/such/file.pem".to_owned(), "/no/such/file.pem"),
        ("cacert", format!("cacert={key}"), "certificate"),
        ("cert", format!("cert={ca}"), "belongs together"),
        ("key", format!("cert={ca}&key={ca}"), "private key"),
        ("url", "hunter2=3".to_owned(), "does not have"),
    ];
    for (expected, query, word) in wrong {
        let error = refused(&format!("rediss://:hunter3@localhost:1/?{query}")).await;
        let LockError::InvalidSetting { setting, detail, .. } = error else {
            panic!("{query}: {error:?}")
        };
        assert_eq!(setting, expected, "{query}: {detail}");
        assert!(detail.contains(word) && !detail.contains("hunter3"), "{query}: {detail}");
    }
    let error = refused("redis://localhost:1/?cacert=ca.pem").await;
    assert!(matches!(error, LockError::InvalidSetting { setting: "cacert", .. }), "{error:?}");
}
