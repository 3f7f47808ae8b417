//! Connecting: logins, rights, encryption, and addresses that are wrong.

use lockmacro_tests::Certificates;
use lockmacro_tests::times::{FAILOVER_TTL, LONG_TTL};

use super::*;

#[tokio::test]
async fn a_user_of_one_prefix_has_locks_there_and_nowhere_else() {
    let mut etcd = Etcd::start().await;
    etcd.ctl(&["role", "add", "billing"]);
    etcd.ctl(&["role", "grant-permission", "billing", "--prefix=true", "readwrite", "billing/"]);
    etcd.ctl(&["user", "add", "app:secret"]);
    etcd.ctl(&["user", "grant-role", "app", "billing"]);
    etcd.wants_logins("root");
    let connect =
        async |options: EtcdOptions| lockmacro_etcd::connect(etcd.endpoints(), options).await;
    // A request that a busy machine answers late would leave its lease.
    let app = EtcdOptions::default().user("app", "secret").timeout(LONG_TTL);
    let locks = connect(app.clone().prefix("billing/")).await.expect("it may");
    let lock = Lock::new("order").manager(&locks);
    lock.clone().acquire().await.expect("granted").release().await.expect("released");
    let wrong = EtcdOptions::default().user("app", "guess").prefix("billing/");
    for refused in [app, wrong, EtcdOptions::default().prefix("billing/")] {
        let error = connect(refused.clone()).await.expect_err("refused");
        assert!(matches!(error, LockError::AccessDenied { .. }), "{refused:?}: {error:?}");
        assert!(!error.to_string().contains("guess"), "{error}");
    }
    // A login from before rights were changed is no good any more.
    etcd.ctl(&["role", "grant-permission", "billing", "--prefix=true", "read", "public/"]);
    lock.clone().acquire().await.expect("granted").release().await.expect("released");
    // The node forgets its logins, and keeps its locks.
    let guard = lock.clone().acquire().await.expect("granted");
    etcd.kill(0);
    etcd.restart(0);
    etcd.answers().await;
    guard.release().await.expect("released with a new login");
    // What it may not write leaves no lease behind.
    etcd.ctl(&["role", "revoke-permission", "billing", "--prefix=true", "billing/"]);
    let refused = lock.ttl(FAILOVER_TTL).acquire().await.expect_err("refused");
    assert!(matches!(refused, LockError::AccessDenied { .. }), "{refused:?}");
    etcd.keeps_nothing().await;
}

#[tokio::test]
async fn connections_are_encrypted_and_both_sides_show_certificates() {
    let files = Certificates::new();
    let ca = files.path("ca.pem");
    let cert = files.path("server.pem");
    let key = files.path("server.key");
    let settings = ["--cert-file", &cert, "--key-file", &key];
    let settings = [&settings[..], &["--trusted-ca-file", &ca, "--client-cert-auth"]].concat();
    let tools = [
        format!("--cacert={ca}"),
        format!("--cert={}", files.path("client.pem")),
        format!("--key={}", files.path("client.key")),
    ];
    let etcd = Etcd::with(1, &settings, &tools.each_ref().map(String::as_str)).await;
    let read = |name: &str| std::fs::read(files.path(name)).expect("it is there");
    let trusting = EtcdOptions::default().ca_certificate(read("ca.pem"));
    let known = trusting.clone().client_certificate(read("client.pem"), read("client.key"));
    let locks = lockmacro_etcd::connect(etcd.endpoints(), known).await.expect("it may");
    let guard = Lock::new("order").manager(&locks).acquire().await.expect("granted");
    guard.release().await.expect("released");
    for unknown in [trusting, EtcdOptions::default()] {
        let refused = lockmacro_etcd::connect(etcd.endpoints(), unknown).await;
        refused.map(drop).expect_err("without a certificate, and without trust");
    }
    etcd.keeps_nothing().await;
}

#[tokio::test]
async fn what_is_no_endpoint_is_said_at_once() {
    for wrong in ["etcd-1:2379", "http://etcd-1", "ftp://etcd-1:2379", "http://etcd-1:x"] {
        let error = lockmacro_etcd::connect([wrong], EtcdOptions::default()).await;
        let error = error.map(drop).expect_err("no endpoint").to_string();
        assert!(error.contains(wrong) && error.contains("http://host:port"), "{error}");
    }
    for wrong in ["http://shop:hunter2@etcd-1:2379", "https://shop:hunter2@etcd-1", "hunter2@x"] {
        let error = lockmacro_etcd::connect([wrong], EtcdOptions::default()).await;
        let error = error.map(drop).expect_err("no endpoint");
        assert!(error.to_string().contains("`EtcdOptions::user`"), "{error}");
        assert!(!format!("{error} {error:?}").contains("hunter2"), "{error:?}");
    }
    let none = lockmacro_etcd::connect([""; 0], EtcdOptions::default()).await;
    none.map(drop).expect_err("no endpoint");
}
