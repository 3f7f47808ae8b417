//! An outage in the log: two lines for each server, and not one for each caller.

use std::time::Instant;

use lockmacro_runtime::{
    Lock, LockError, LockManager, LockManagerBuilder, OnLost, UnavailableReason,
};
use lockmacro_tests::{Call, Cluster, Fault, Proxy, Server, eventually, in_time, log, until_lost};

use crate::{LONG_TTL, Locked, TEST_TIMEOUT, TIMEOUT, ms, works};

/// Every line at one of these levels that is about a server or a lock with one of these names.
/// Other tests of this process log as well.
fn lines(levels: &[&str], names: &[&str]) -> Vec<String> {
    log::lines(|line| {
        levels.iter().any(|level| line.starts_with(&format!("{level} message=")))
            && names.iter().any(|name| line.contains(name))
    })
}

fn count(lines: &[String], words: &str) -> usize {
    lines.iter().filter(|line| line.contains(words)).count()
}

fn builder() -> LockManagerBuilder {
    LockManager::builder().timeout(TIMEOUT)
}

/// Has many callers ask for locks, each again and again, until `end`; tells how many calls have
/// failed.
async fn many_callers(manager: &LockManager, name: &'static str, end: Instant) -> usize {
    let callers: Vec<_> = (0..500)
        .map(|nth| {
            let manager = manager.clone();
            tokio::spawn(async move {
                let mut failed = 0;
                while Instant::now() < end {
                    let key = format!("{name}:{nth}");
                    let lock = Lock::new(key).name(name).ttl(LONG_TTL).manager(&manager);
                    let done: Locked<()> = lock.run(async { Ok(()) }).await;
                    failed += usize::from(done.is_err());
                }
                failed
            })
        })
        .collect();
    let mut failed = 0;
    for caller in callers {
        failed += caller.await.expect("no panic");
    }
    failed
}

/// Asks until the server is back, and it was logged.
async fn back(manager: &LockManager, name: &'static str, server: &str) {
    eventually("the log says that it is back", TEST_TIMEOUT, async || {
        let lock = Lock::new(name).name(name).ttl(LONG_TTL).manager(manager);
        let _: Locked<()> = lock.run(async { Ok(()) }).await;
        count(&lines(&["INFO"], &[server]), "lock server back") > 0
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_outage_with_many_callers_is_logged_once_and_so_is_its_end() {
    log::start();
    const NAME: &str = "many-callers";
    let mut server = Server::with(&["--requirepass", "hunter2"]);
    let place = format!("127.0.0.1:{}", server.port());
    let manager = builder().connect(&server.url()).await.expect("there");
    let held = Lock::new("many-callers:held").name(NAME).ttl(ms(1_000)).renew();
    let held = held.manager(&manager).acquire().await.expect("free");
    server.kill();
    let failed = many_callers(&manager, NAME, Instant::now() + 2 * TIMEOUT).await;
    assert!(failed >= 500, "{failed} calls have failed");
    let warned = lines(&["WARN", "ERROR"], &[NAME, &place]);
    let lost: Vec<_> = warned.iter().filter(|line| line.contains("lock server lost")).collect();
    assert_eq!(lost.len(), 1, "{warned:#?}");
    for words in ["server=", "since=", "reason="] {
        assert!(lost[0].contains(words), "{lost:?}");
    }
    assert!(lost[0].contains(&format!("server={place}")), "{lost:?}");
    // The lease that could not be renewed has two lines of its own: of its half, and of its end.
    assert_eq!(count(&warned, "lock not renewed for half of its time"), 1, "{warned:#?}");
    assert_eq!(count(&warned, "lock lost"), 1, "{warned:#?}");
    assert!(warned.len() <= 5, "{} lines: {warned:#?}", warned.len());
    let noted = lines(&["DEBUG"], &[NAME]);
    assert!(count(&noted, "lock unavailable") >= 500, "each is logged at DEBUG");
    let named = noted.iter().filter(|line| line.contains("lock unavailable"));
    assert!(named.clone().all(|line| line.contains(&format!("at {place}"))), "by its server");
    assert!(lines(&["INFO"], &[&place]).is_empty());

    server.restart();
    back(&manager, NAME, &place).await;
    let logged = lines(&["INFO"], &[&place]);
    assert_eq!(logged.len(), 1, "{logged:?}");
    assert!(logged[0].contains("after="), "{logged:?}");
    assert!(!log::so_far().contains("hunter2"));
    drop(held);
}

#[tokio::test]
async fn a_server_that_stalls_is_reported_as_one_that_is_gone() {
    log::start();
    const NAME: &str = "stands-still";
    let server = Server::start();
    let place = format!("127.0.0.1:{}", server.port());
    let manager = builder().connect(&server.url()).await.expect("there");
    server.pause();
    let lock = || Lock::new(NAME).name(NAME).ttl(LONG_TTL).manager(&manager);
    let error = lock().acquire().await.expect_err("nobody answers");
    assert!(error.to_string().contains(&format!(", at {place})")), "{error}");
    assert_eq!(count(&lines(&["WARN"], &[&place]), "lock server lost"), 1);
    server.resume();
    back(&manager, NAME, &place).await;
    assert_eq!(lines(&["WARN", "INFO"], &[&place]).len(), 2);
}

#[tokio::test]
async fn a_connection_that_is_cut_and_replaced_is_no_outage() {
    log::start();
    let server = Server::start();
    let proxy = Proxy::to(server.port());
    let manager = LockManager::connect(&proxy.url()).await.expect("there");
    let place = proxy.url().replace("redis://", "");
    for _ in 0..20 {
        let lock = Lock::new("cut").name("cut").ttl(LONG_TTL).manager(&manager);
        lock.run(async { Locked::Ok(()) }).await.expect("it works");
        proxy.cut();
    }
    assert_eq!(lines(&["WARN", "INFO"], &[&place, "name=cut"]), [""; 0]);
}

/// Every caller that a server refuses gets an error. The log gets one now and then.
#[tokio::test]
async fn a_full_server_is_logged_now_and_then() {
    log::start();
    const NAME: &str = "full-server";
    let server = Server::with(&["--maxmemory-policy", "noeviction"]);
    let place = format!("127.0.0.1:{}", server.port());
    let manager = builder().connect(&server.url()).await.expect("there");
    server.admin().configure("maxmemory", "1");
    let start = Instant::now();
    // All at once: each of them asks until its manager's timeout.
    let full = (0..100).map(|nth| {
        let lock = Lock::new(format!("{NAME}:{nth}")).name(NAME).manager(&manager);
        async move { lock.acquire().await.expect_err("full") }
    });
    for error in futures::future::join_all(full).await {
        let LockError::Unavailable { reason, .. } = &error else { panic!("{error:?}") };
        assert_eq!(*reason, UnavailableReason::OutOfMemory, "{error}");
        assert!(error.to_string().contains(&place), "{error}");
    }
    let warned = lines(&["WARN"], &[NAME, &place]);
    // One in five seconds.
    let most = 1 + start.elapsed().as_secs() as usize / 5;
    assert!((1..=most).contains(&warned.len()), "{warned:#?}");
    assert_eq!(count(&warned, "lock unavailable"), warned.len(), "it is not lost: {warned:#?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_node_of_a_cluster_that_is_lost_is_named_and_no_other() {
    log::start();
    let cluster = Cluster::start(3, 0).await;
    let manager = builder().connect(&cluster.url()).await.expect("there");
    let keys: Vec<_> = (0..30).map(|nth| format!("node:{nth}")).collect();
    let ask = async || {
        let mut errors = Vec::new();
        for key in &keys {
            let lock = Lock::new(&**key).name("lost-node").ttl(LONG_TTL).manager(&manager);
            let done: Locked<()> = lock.run(async { Ok(()) }).await;
            errors.extend(done.err());
        }
        errors
    };
    assert_eq!(ask().await, []);
    let lost = cluster.owner(&keys[0]);
    cluster.server(lost).pause();
    let key = &*keys[0];
    let lock = Lock::new(key).name("lost-node").ttl(LONG_TTL).manager(&manager);
    let error = lock.acquire().await.expect_err("it stalls");
    let places: Vec<_> =
        (0..3).map(|nth| format!("127.0.0.1:{}", cluster.server(nth).port())).collect();
    assert!(error.to_string().contains(&places[lost]), "{error}");
    for (nth, place) in places.iter().enumerate() {
        let logged = count(&lines(&["WARN"], &[&format!("server={place} ")]), "lock server lost");
        assert_eq!(logged, usize::from(nth == lost), "{place}");
    }
    cluster.server(lost).resume();
    eventually("it is back", TEST_TIMEOUT, async || {
        let _ = ask().await;
        count(&lines(&["INFO"], &[&format!("server={} ", places[lost])]), "lock server back") == 1
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_failure_is_logged_at_warn_again_after_a_replica_has_taken_over() {
    log::start();
    let mut cluster = Cluster::start(3, 1).await;
    let manager = builder().connect(&cluster.url()).await.expect("there");
    const NAME: &str = "taken-over";
    let lock = || Lock::new(NAME).name(NAME).ttl(LONG_TTL).manager(&manager);
    lock().run(async { Locked::Ok(()) }).await.expect("all are there");
    let lost = (0..3).find(|nth| *nth == cluster.owner(NAME)).expect("a primary");
    let place = format!("server=127.0.0.1:{} ", cluster.server(lost).port());
    cluster.server_mut(lost).kill();
    eventually("its replica has the slot", TEST_TIMEOUT, async || {
        lock().run(async { Locked::Ok(()) }).await.is_ok()
    })
    .await;
    assert!(count(&lines(&["WARN"], &[&place]), "lock server lost") <= 1);
    for nth in (0..6).filter(|nth| *nth != lost) {
        cluster.server(nth).admin().configure("maxmemory", "1");
    }
    lock().acquire().await.expect_err("it is full");
    assert_eq!(count(&lines(&["WARN"], &[NAME]), "lock unavailable"), 1);
}

#[tokio::test]
async fn a_server_that_was_never_reached_is_logged_as_lost() {
    log::start();
    const NAME: &str = "never-reached";
    let mut server = Server::start();
    let place = format!("127.0.0.1:{}", server.port());
    server.kill();
    let manager = builder().lazy().connect(&server.url()).await.expect("it connects later");
    let place_of_it = format!("server={place} ");
    eventually("it is logged", TEST_TIMEOUT, async || {
        let lock = Lock::new(NAME).name(NAME).ttl(LONG_TTL).manager(&manager);
        lock.acquire().await.expect_err("nobody is there");
        count(&lines(&["WARN"], &[&place_of_it]), "lock server lost") == 1
    })
    .await;
    server.restart();
    back(&manager, NAME, &place_of_it).await;
    assert_eq!(lines(&["WARN", "INFO"], &[&place_of_it]).len(), 2, "one line each");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_release_in_the_background_that_fails_is_logged_and_repeated() {
    log::start();
    const NAME: &str = "behind-the-back";
    let server = Server::start();
    let proxy = Proxy::to(server.port());
    let manager = builder().connect(&proxy.url()).await.expect("there");
    let lock = || Lock::new(NAME).name(NAME).ttl(LONG_TTL).manager(&manager);
    let body = async {
        // For longer than an answer may take, and without a connection for the next try.
        let is_release = |call: &Call<'_>| call.names(NAME) && call.names("EVALSHA");
        proxy.on_next_call(is_release, Fault::HoldLastCommand(TIMEOUT));
        Locked::Ok(7)
    };
    assert_eq!(lock().release_in_background().run(body).await, Ok(7));
    assert_eq!(lock().run(async { Locked::Ok(8) }).await, Ok(8), "not busy");
    let logged = lines(&["WARN", "DEBUG"], &[NAME]);
    assert_eq!(count(&logged, "lock is still being released"), 1, "{logged:?}");
    proxy.held_commands_arrive().await;
    crate::keeps_nothing(&server).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_release_in_the_background_that_comes_too_late_is_logged() {
    log::start();
    const NAME: &str = "behind-the-back-late";
    let server = Server::start();
    let manager = builder().connect(&server.url()).await.expect("there");
    let lock = Lock::new(NAME).name(NAME).ttl(LONG_TTL).manager(&manager);
    let body = async {
        server.admin().ask::<()>(&["DEL", NAME]);
        Locked::Ok(7)
    };
    assert_eq!(lock.release_in_background().run(body).await, Ok(7));
    eventually("it is logged", TEST_TIMEOUT, async || {
        count(&lines(&["WARN"], &[NAME]), "lock was taken away before its release") == 1
    })
    .await;
}

/// A return type that cannot carry the loss has it in the log, unless a function recovers from it.
#[tokio::test(start_paused = true)]
async fn a_loss_that_no_return_type_carries_is_logged_unless_it_is_recovered_from() {
    log::start();
    let late = |name: &'static str| {
        let locks = LockManager::isolated_memory();
        Lock::new(name).name(name).ttl(ms(50)).on_lost(OnLost::Error).manager(&locks)
    };
    let body = || async {
        until_lost().await;
        Some(7)
    };
    assert_eq!(late("loss:untold").skip_when_busy().run(body()).await, None);
    let kept = late("loss:kept").skip_when_busy().recovering(|_, value: Option<u32>| value);
    assert_eq!(kept.run(body()).await, Some(7));
    assert_eq!(lines(&["ERROR"], &["loss:untold"]).len(), 1);
    assert_eq!(lines(&["ERROR"], &["loss:kept"]), Vec::<String>::new());
}

/// Its server is too far away.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_ttl_that_cannot_be_renewed_in_time_is_logged_once_and_causes_no_storm() {
    log::start();
    in_time(async {
        let server = Server::start();
        let mut admin = server.admin();
        // Three quarters of the ttl.
        let (proxy, manager) = Proxy::far_away(&server, ms(150)).await;
        works(&manager).await;
        let before = admin.commands();
        let (mut granted, mut locks) = (0, Vec::new());
        for nth in 0..20 {
            let lock = Lock::new(format!("short:{nth}")).ttl(ms(201)).renew().manager(&manager);
            locks.push(tokio::spawn(async move {
                let guard = lock.acquire().await?;
                Ok::<_, LockError>(guard.lost().await)
            }));
        }
        for lock in locks {
            granted += u64::from(lock.await.expect("no panic").is_ok());
        }
        let ran = admin.commands() - before;
        let opened = proxy.accepted();
        assert!(granted > 0 && ran < 20 * 20, "{ran} commands for {granted} leases");
        assert!(opened < 8, "{opened} connections");
        let logged = log::lines(|line| line.starts_with("WARN") && line.contains("ttl=201ms"));
        assert_eq!(logged.len(), 1, "{logged:#?}");
        assert!(logged[0].contains("too short for the round trip"), "{logged:?}");
    })
    .await;
}
