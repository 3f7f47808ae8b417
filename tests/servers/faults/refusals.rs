//! Servers that answer, and say no.

use std::future::ready;
use std::time::Instant;

use lockmacro_runtime::{Lock, LockError, LockManager, UnavailableReason};
use lockmacro_tests::{Fault, Proxy, Server, eventually};

use crate::{
    KEY, LONG_TTL, Locked, TEST_TIMEOUT, TIMEOUT, becomes_free, keeps_nothing, lock, manager, ms,
    reason, refusal, served, within, works,
};

#[tokio::test]
async fn a_script_flush_at_any_moment_is_invisible() {
    let server = Server::start();
    let (ours, theirs) = (manager(&server.url()).await, manager(&server.url()).await);
    let mut admin = server.admin();
    let mut flush = || admin.ask::<()>(&["SCRIPT", "FLUSH"]);
    for _ in 0..5 {
        flush();
        let guard = lock(&ours).acquire().await.expect("free");
        flush();
        assert!(lock(&theirs).acquire().await.expect_err("held").is_busy());
        flush();
        guard.release().await.expect("released");
        flush();
        let result = lock(&theirs).run(async {
            flush();
            Locked::Ok(7)
        });
        assert_eq!(result.await, Ok(7));
        keeps_nothing(&server).await;
    }
}

#[tokio::test]
async fn scripts_flushed_all_the_time_are_invisible() {
    let (server, manager) = served().await;
    let mut admin = server.admin();
    let flushing = std::thread::spawn(move || {
        let until = Instant::now() + ms(300);
        while Instant::now() < until {
            admin.ask::<()>(&["SCRIPT", "FLUSH"]);
        }
    });
    while !flushing.is_finished() {
        let guard = lock(&manager).acquire().await.expect("free");
        assert!(lock(&manager).acquire().await.expect_err("held").is_busy());
        guard.release().await.expect("released");
    }
    flushing.join().expect("flushed");
}

#[tokio::test]
async fn a_server_that_misses_replicas_takes_no_locks_and_a_release_is_made_up_for() {
    let (server, manager) = served().await;
    let mut admin = server.admin();
    admin.configure("min-replicas-to-write", "1");
    assert_eq!(reason(refusal(&manager).await), UnavailableReason::NotEnoughReplicas);
    admin.configure("min-replicas-to-write", "0");
    works(&manager).await;
    let result = lock(&manager).run(async {
        admin.configure("min-replicas-to-write", "1");
        Locked::Ok(7)
    });
    assert_eq!(result.await, Ok(7));
    admin.configure("min-replicas-to-write", "0");
    keeps_nothing(&server).await;
}

/// A caller without a `wait` asks again, too, while there is time.
#[tokio::test]
async fn a_refusal_that_passes_in_time_is_not_reported() {
    let server = Server::start();
    let manager = within(LONG_TTL, &server.url()).await;
    let mut admin = server.admin();
    for (code, name) in [("NOREPLICAS", "min-replicas-to-write"), ("OOM", "maxmemory")] {
        admin.configure(name, "1");
        let asked = tokio::spawn(lock(&manager).acquire());
        eventually(code, LONG_TTL, || ready(admin.refused(code) > 2)).await;
        admin.configure(name, "0");
        let guard = asked.await.expect("no panic").expect("granted at last");
        guard.release().await.expect("still held");
    }
}

#[tokio::test]
async fn a_replica_is_read_only_to_locks_until_it_is_promoted() {
    let (primary, replica) = (Server::start(), Server::start());
    let manager = manager(&replica.url()).await;
    follow(&replica, primary.port()).await;
    assert_eq!(reason(refusal(&manager).await), UnavailableReason::ReadOnly);
    // A key that the replica shows as held does not show whether the caller may lock it.
    primary.admin().ask::<()>(&["SET", KEY, "somebody", "PX", "60000"]);
    let mut admin = replica.admin();
    eventually("replicated", TEST_TIMEOUT, || ready(admin.get(KEY).is_some())).await;
    assert_eq!(reason(refusal(&manager).await), UnavailableReason::ReadOnly);
    admin.ask::<()>(&["REPLICAOF", "NO", "ONE"]);
    admin.ask::<()>(&["DEL", KEY]);
    works(&manager).await;
}

#[tokio::test]
async fn a_release_on_a_replica_is_refused_and_not_taken_for_a_lost_lock() {
    let (primary, server) = (Server::start(), Server::start());
    // The time limit of a release is a part of this timeout.
    let manager = within(LONG_TTL, &server.url()).await;
    let guard = lock(&manager).acquire().await.expect("free");
    // The key is gone there after the first synchronisation.
    follow(&server, primary.port()).await;
    let error = guard.release().await.expect_err("a replica");
    assert_eq!(reason(error), UnavailableReason::ReadOnly);
}

#[tokio::test]
async fn a_repeated_acquire_on_a_server_demoted_meanwhile_is_not_busy() {
    let (primary, server) = (Server::start(), Server::start());
    primary.admin().ask::<()>(&["SET", KEY, "somebody", "PX", "60000"]);
    let proxy = Proxy::to(server.port());
    let manager = within(ms(2_400), &proxy.url()).await;
    proxy.on_next("SET", Fault::LoseReply);
    let asked = tokio::spawn(lock(&manager).acquire());
    let mut admin = server.admin();
    eventually("sent", TEST_TIMEOUT, async || proxy.orders_are_done()).await;
    // Before the command is sent again, the key holds somebody else's value, as far as a replica
    // can tell.
    follow(&server, primary.port()).await;
    assert_eq!(admin.get(KEY).as_deref(), Some("somebody"));
    let error = asked.await.expect("no panic").expect_err("a replica");
    assert_eq!(reason(error), UnavailableReason::ReadOnly);
}

#[tokio::test]
async fn a_server_demoted_in_mid_body_costs_no_value() {
    let (primary, server) = (Server::start(), Server::start());
    let manager = manager(&server.url()).await;
    let result = lock(&manager).run(async {
        follow(&server, primary.port()).await;
        Locked::Ok(7)
    });
    assert_eq!(result.await, Ok(7));
}

pub async fn follow(replica: &Server, primary: u16) {
    let mut admin = replica.admin();
    admin.ask::<()>(&["REPLICAOF", "127.0.0.1", &primary.to_string()]);
    eventually("synchronised", TEST_TIMEOUT, || {
        let info: String = admin.ask(&["INFO", "replication"]);
        ready(info.contains("master_link_status:up"))
    })
    .await;
}

/// A value of before the failover may be an old one.
#[tokio::test]
async fn a_replica_returns_no_value_that_a_holder_has_kept() {
    let server = Server::start();
    let manager = manager(&server.url()).await;
    let call = || lock(&manager).reuse(LONG_TTL).run(async { Locked::Ok(7) });
    assert_eq!(call().await, Ok(7));
    let mut admin = server.admin();
    // It goes on with the data that it has.
    admin.ask::<()>(&["REPLICAOF", "127.0.0.1", "1"]);
    let error = call().await.expect_err("a replica");
    let reason = reason(error);
    assert!(
        matches!(reason, UnavailableReason::ReadOnly | UnavailableReason::PrimaryDown),
        "{reason:?}"
    );
}

#[tokio::test]
async fn a_replica_without_its_primary_serves_no_locks() {
    let replica = Server::start();
    let manager = manager(&replica.url()).await;
    let mut admin = replica.admin();
    admin.configure("replica-serve-stale-data", "no");
    // Port 1 of this machine: nobody is there.
    admin.ask::<()>(&["REPLICAOF", "127.0.0.1", "1"]);
    assert_eq!(reason(refusal(&manager).await), UnavailableReason::PrimaryDown);
    admin.ask::<()>(&["REPLICAOF", "NO", "ONE"]);
    works(&manager).await;
}

#[tokio::test]
async fn a_cluster_that_does_not_serve_the_key_is_down_until_it_does() {
    let server = Server::with(&["--cluster-enabled", "yes"]);
    let manager = manager(&server.url()).await;
    assert_eq!(reason(refusal(&manager).await), UnavailableReason::ClusterDown);
    server.admin().ask::<()>(&["CLUSTER", "ADDSLOTSRANGE", "0", "16383"]);
    eventually("the cluster is up", TEST_TIMEOUT, || async {
        lock(&manager).run(async { Locked::Ok(7) }).await == Ok(7)
    })
    .await;
}

#[tokio::test]
async fn a_server_busy_with_a_script_is_waited_for_and_named() {
    let (server, manager) = served().await;
    let guard = Lock::new("held").ttl(LONG_TTL).manager(&manager).acquire().await.expect("free");
    let mut admin = server.admin();
    admin.configure("busy-reply-threshold", "5");
    let mut stuck = server.admin();
    let endless = std::thread::spawn(move || {
        stuck.send::<()>(&["EVAL", "while true do end", "0"]).expect_err("killed")
    });
    eventually("the script runs", TEST_TIMEOUT, || {
        ready(admin.send::<()>(&["GET", KEY]).is_err_and(|e| e.code() == Some("BUSY")))
    })
    .await;

    assert_eq!(reason(refusal(&manager).await), UnavailableReason::BusyScript);
    let result = guard.run(async { Locked::Ok(7) }).await;
    assert_eq!(result, Ok(7), "the release costs no value");

    admin.ask::<()>(&["SCRIPT", "KILL"]);
    endless.join().expect("the script ends");
    keeps_nothing(&server).await;
    works(&manager).await;
}

#[tokio::test]
async fn a_key_of_another_type_is_refused_at_once_as_not_a_lock() {
    let (server, manager) = served().await;
    let mut admin = server.admin();
    let fill: [&[&str]; 5] = [
        &["RPUSH", KEY, "a"],
        &["HSET", KEY, "a", "b"],
        &["SADD", KEY, "a"],
        &["ZADD", KEY, "1", "a"],
        &["XADD", KEY, "*", "a", "b"],
    ];
    for words in fill {
        admin.ask::<redis::Value>(words);
        let start = Instant::now();
        let LockError::KeyNotALock { key, .. } = refusal(&manager).await else {
            panic!("{words:?} is taken for a lock");
        };
        assert_eq!(key.to_string(), KEY);
        assert!(start.elapsed() < TIMEOUT, "not at once: {:?}", start.elapsed());
        assert_eq!(admin.keys(), [KEY], "it is left alone");
        admin.ask::<()>(&["DEL", KEY]);
    }
    works(&manager).await;
}

#[tokio::test]
async fn a_key_that_becomes_another_type_while_held_costs_no_value() {
    let (server, manager) = served().await;
    let mut admin = server.admin();
    let result = lock(&manager).run(async {
        admin.ask::<()>(&["DEL", KEY]);
        admin.ask::<()>(&["RPUSH", KEY, "a"]);
        Locked::Ok(7)
    });
    assert_eq!(result.await, Ok(7));
    assert_eq!(admin.ask::<i64>(&["LLEN", KEY]), 1, "it is left alone");
}

/// A server that answers `LOADING` for some seconds, with a manager that knew it before.
async fn loading() -> (Server, LockManager, LockManager) {
    let mut server = Server::start();
    let hasty = manager(&server.url()).await;
    let patient = within(LONG_TTL, &server.url()).await;
    works(&hasty).await;
    works(&patient).await;
    keeps_nothing(&server).await;
    let mut admin = server.admin();
    // Uncompressed, so that the server looks up often while it reads.
    admin.configure("rdbcompression", "no");
    for n in 0..1_200 {
        // They end before the test does, so that the server is empty again.
        admin.ask::<()>(&["SET", &format!("ballast:{n}"), &"x".repeat(200), "PX", "60000"]);
    }
    admin.ask::<()>(&["SAVE"]);
    server.kill();
    let slow = ["--key-load-delay", "3000", "--loading-process-events-interval-bytes", "1024"];
    server.restart_with(&slow);
    (server, hasty, patient)
}

#[tokio::test]
async fn a_loading_server_is_waited_for_and_named() {
    let (server, hasty, patient) = loading().await;
    assert_eq!(reason(refusal(&hasty).await), UnavailableReason::Loading);
    // A caller that has the time gets the lock when the server is ready.
    works(&patient).await;
    works(&hasty).await;
    becomes_free(&server).await;
}
