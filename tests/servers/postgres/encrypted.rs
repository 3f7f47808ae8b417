//! Connections that only the server can read.

use lockmacro_runtime::{LockError, LockManager};
use lockmacro_tests::{Certificates, Postgres};

use crate::{TIMEOUT, manager, works};

/// A server that speaks TLS and nothing else, and its address for managers with these settings.
async fn server(certificates: &Certificates) -> Postgres {
    let setting = |name, file| format!("{name}={}", certificates.path(file));
    let files = [
        setting("ssl_cert_file", "server.pem"),
        setting("ssl_key_file", "server.key"),
        setting("ssl_ca_file", "ca.pem"),
    ];
    certificates.belong_to_servers();
    let mut arguments = vec!["-F", "-c", "ssl=on"];
    arguments.extend(files.iter().flat_map(|file| ["-c", file]));
    let server = Postgres::with(&arguments).await;
    server
        .wants("hostssl all safe 127.0.0.1/32 trust\nhostnossl all safe 127.0.0.1/32 reject")
        .await;
    server.execute("CREATE ROLE safe LOGIN SUPERUSER").await;
    server
}

async fn failure(url: &str) -> LockError {
    LockManager::builder().timeout(TIMEOUT).connect(url).await.expect_err("refused")
}

#[tokio::test]
async fn locks_work_over_encrypted_connections_and_no_others_are_made() {
    let certificates = Certificates::new();
    let server = server(&certificates).await;
    let (ca, encrypted) = (certificates.path("ca.pem"), "install=1&sslmode=require");
    let url = server.url_of("safe", &format!("{encrypted}&cacert={ca}"));
    let locks = manager(&url).await;
    works(&locks, "encrypted").await;
    let plain = "SELECT count(*)::text FROM pg_stat_ssl NATURAL JOIN pg_stat_activity
        WHERE application_name = 'lockmacro' AND NOT ssl";
    assert_eq!(server.ask(plain), ["0"]);

    let error = failure(&server.url_of("safe", encrypted)).await;
    assert!(
        error.to_string().contains("name the certificate of its issuer by `cacert=`"),
        "{error}"
    );
    let error = failure(&server.url_of("safe", "install=1")).await;
    assert!(matches!(error, LockError::Authentication { .. }), "{error:?}");
    assert!(error.to_string().contains("sslmode=require"), "{error}");
}

#[tokio::test]
async fn a_client_certificate_is_shown_to_a_server_that_wants_one() {
    let certificates = Certificates::new();
    let server = server(&certificates).await;
    server.execute("CREATE ROLE localhost LOGIN SUPERUSER").await;
    server.wants("hostssl all localhost 127.0.0.1/32 trust clientcert=verify-ca").await;
    let [ca, certificate, key] =
        ["ca.pem", "client.pem", "client.key"].map(|name| certificates.path(name));
    let without = server.url_of("localhost", &format!("install=1&cacert={ca}"));
    let with = format!("{without}&cert={certificate}&key={key}");
    works(&manager(&with).await, "certified").await;
    let error = failure(&without).await;
    assert!(matches!(error, LockError::Authentication { .. }), "{error:?}");
    let error = failure(&format!("{without}&cert={certificate}")).await;
    assert!(error.to_string().contains("give both, or none"), "{error}");
}

#[tokio::test]
async fn a_server_without_encryption_is_told_and_nothing_is_sent_to_it() {
    let server = crate::shared().await;
    let error = failure(&server.url_of("postgres", "install=1&sslmode=require")).await;
    assert!(error.to_string().contains("TLS"), "{error}");
}
