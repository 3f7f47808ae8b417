//! Every metric has its sentence in the exporter's text, and the dashboard and the alerts name
//! nothing that is not there.

use std::collections::BTreeSet;
use std::future::{pending, ready};
use std::io::{ErrorKind, Write as _};
use std::path::Path;
use std::process::Command;

use lockmacro_runtime::defer::{DeferredFn, Worker, argument};
use lockmacro_runtime::{LockError, LockManager};
use lockmacro_tests::times::{SOON, ms};
use lockmacro_tests::{Admin, Server, eventually, within};

use crate::{EXPORTER, lock, value};

/// The metrics that a file names.
fn named_in(file: &str) -> BTreeSet<String> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(file);
    let text = std::fs::read_to_string(path).expect(file);
    let words = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    words.filter(|word| word.starts_with("lockmacro_")).map(str::to_owned).collect()
}

/// Locks of a Redis server: renewed, lost, released late, and refused by a server that is down.
async fn on_a_server() {
    let mut server = Server::start();
    let locks = within(ms(400), &server.url()).await;
    let address = format!("127.0.0.1:{}", server.port());
    let lost = || value("lockmacro_server_down", &[("server", &address)]);
    let renewed = lock(&locks, "k", "renewed").ttl(ms(600)).renew().acquire().await;
    let renewals = async || value("lockmacro_renewals_total", &[("name", "renewed")]) >= 1.0;
    eventually("it is renewed", SOON, renewals).await;
    renewed.expect("free").release().await.expect("ours");
    let losing = lock(&locks, "k", "lost").ttl(ms(300)).run(pending::<Result<(), LockError>>());
    let error = losing.await.expect_err("it is not renewed");
    assert!(matches!(error, LockError::Lost(_)), "{error:?}");
    let late = lock(&locks, "k", "late").run(async {
        server.admin().ask::<()>(&["FLUSHALL"]);
        Ok::<_, LockError>(())
    });
    late.await.expect("it is told in the log");
    let error = lock(&locks, "", "empty").acquire().await.expect_err("no key");
    assert!(matches!(error, LockError::InvalidKey { .. }), "{error:?}");

    server.kill();
    let is_lost = async || {
        lock(&locks, "k", "unreported").skip_when_busy().run(async {}).await;
        lost() == 1.0
    };
    eventually("it is lost", SOON, is_lost).await;
    server.restart();
    let is_back = async || {
        let _ = lock(&locks, "k", "again").acquire().await;
        lost() == 0.0
    };
    eventually("it is back", SOON, is_back).await;
    let refusals =
        |name, reason| value("lockmacro_refusals_total", &[("name", name), ("reason", reason)]);
    assert!(refusals("unreported", "unavailable") >= 1.0);
    assert_eq!(refusals("empty", "invalid_key"), 1.0);
}

/// Jobs: one that is done, and one that fails until it is given up.
async fn deferred() {
    let locks = LockManager::isolated_memory();
    let function = |name: &'static str, fails: bool| {
        let of = (argument("id"),);
        let call = move |(_,): (u64,)| async move { if fails { Err("no") } else { Ok(()) } };
        DeferredFn::new(name, of, call).delay(ms(10)).attempts(2).manager(&locks)
    };
    let guard = lock(&locks, "k", "holder").acquire().await.expect("free");
    for (name, fails) in [("done", false), ("given-up", true)] {
        let busy = lock(&locks, "k", name).acquire().await.expect_err("held");
        let stored = function(name, fails).defer(busy, (42,)).await;
        assert!(matches!(stored, LockError::Deferred { .. }), "{stored:?}");
    }
    guard.release().await.expect("ours");
    let worker = Worker::new(&locks).register(function("done", false));
    let working = tokio::spawn(worker.register(function("given-up", true)).run());
    let calls = |name, event| value("lockmacro_jobs_total", &[("name", name), ("event", event)]);
    let given_up = async || calls("given-up", "dead") == 1.0 && calls("done", "run") == 1.0;
    eventually("both have ended", SOON, given_up).await;
    assert_eq!((calls("given-up", "stored"), calls("given-up", "failed")), (1.0, 1.0));
    assert_eq!((calls("done", "stored"), calls("done", "failed")), (1.0, 0.0));
    locks.shutdown(SOON).await.expect("nothing is held");
    working.await.expect("no panic").expect("it was stopped");
}

/// A call that is not the worker's any more when its body ends.
#[tokio::test]
async fn a_call_that_went_to_another_worker_is_late() {
    let server = Server::start();
    let locks = within(SOON, &server.url()).await;
    let guard = lock(&locks, "k", "its-holder").acquire().await.expect("free");
    let busy = lock(&locks, "k", "late").acquire().await.expect_err("held");
    let url = server.url();
    let function = DeferredFn::new("late", (argument("id"),), move |(_,): (u64,)| {
        // As if another worker had run it meanwhile.
        Admin::connect(&url).ask::<()>(&["FLUSHALL"]);
        ready(Ok::<_, LockError>(()))
    });
    let function = function.delay(ms(10)).manager(&locks);
    let stored = function.clone().defer(busy, (42,)).await;
    assert!(matches!(stored, LockError::Deferred { .. }), "{stored:?}");
    guard.release().await.expect("ours");
    let working = tokio::spawn(Worker::new(&locks).register(function).run());
    let event = |event| value("lockmacro_jobs_total", &[("name", "late"), ("event", event)]);
    eventually("it is late", SOON, async || event("late") == 1.0).await;
    assert_eq!((event("stored"), event("dead")), (1.0, 0.0));
    locks.shutdown(SOON).await.expect("nothing is left");
    working.await.expect("no panic").expect("it was stopped");
}

#[tokio::test]
async fn a_server_is_lost_until_each_manager_that_lost_it_has_it_back_or_is_dropped() {
    let mut server = Server::start();
    let (one, other) = (within(ms(400), &server.url()).await, within(ms(400), &server.url()).await);
    let address = format!("127.0.0.1:{}", server.port());
    let lost = || value("lockmacro_server_down", &[("server", &address)]);
    server.kill();
    let both_lose_it = async || {
        for manager in [&one, &other] {
            // A release that is without an answer keeps its manager until the ttl is over.
            let _ = lock(manager, "k", "losing").ttl(ms(60)).acquire().await;
        }
        lost() == 2.0
    };
    eventually("both lose it", SOON, both_lose_it).await;
    drop(one);
    eventually("one is gone", SOON, async || lost() == 1.0).await;
    drop(other);
    eventually("nobody uses it", SOON, async || lost() == 0.0).await;
}

/// An alert on `increase` does not see a counter that appears at 1.
#[tokio::test]
async fn what_alerts_are_about_is_0_before_its_first_event() {
    let locks = LockManager::isolated_memory();
    let guard = lock(&locks, "k", "calm").acquire().await.expect("free");
    let calm = |(_,): (u64,)| ready(Ok::<_, LockError>(()));
    let calm = DeferredFn::new("calm", (argument("id"),), calm).manager(&locks);
    let _worker = Worker::new(&locks).register(calm);
    let alerts = include_str!("../../../docs/alerts.yml");
    let counters = alerts.split("increase(").skip(1).map(|rest| {
        let end = rest.find(['[', '{']).expect("a range");
        &rest[..end]
    });
    let counters: BTreeSet<_> = counters.collect();
    assert_eq!(counters.len(), 4, "{counters:?}");
    let text = EXPORTER.render();
    for counter in counters {
        let of_calm = text.lines().filter(|line| {
            line.starts_with(&format!("{counter}{{")) && line.contains("name=\"calm\"")
        });
        let of_calm: Vec<_> = of_calm.collect();
        assert!(!of_calm.is_empty(), "{counter} is not there: {text}");
        assert!(of_calm.iter().all(|line| line.ends_with(" 0")), "{of_calm:?}");
    }
    for cause in ["expired", "not_renewed", "taken"] {
        let label = format!("cause=\"{cause}\"");
        let is_there = |line: &str| line.contains("calm") && line.contains(&label);
        assert!(text.lines().any(is_there), "{cause}: {text}");
    }
    guard.release().await.expect("ours");
}

/// By Prometheus itself, which not every machine has.
#[test]
fn the_alerts_fire_and_resolve_as_alerts_yml_here_says() {
    let rules = concat!(env!("CARGO_MANIFEST_DIR"), "/claims/numbers/alerts.yml");
    match Command::new("promtool").args(["test", "rules", rules]).output() {
        Ok(told) => assert!(told.status.success(), "{}", String::from_utf8_lossy(&told.stderr)),
        Err(error) if error.kind() == ErrorKind::NotFound => {
            // Not through the capture of the tests, which would hide it.
            let why = "the alerts were NOT tested: there is no `promtool` (Debian: `prometheus`)";
            writeln!(std::io::stderr(), "{why}").expect("it can be said");
        }
        Err(error) => panic!("promtool: {error}"),
    }
}

#[tokio::test]
async fn the_dashboard_and_the_alerts_name_metrics_that_an_exporter_shows() {
    on_a_server().await;
    deferred().await;
    let locks = LockManager::isolated_memory();
    let _guard = lock(&locks, "k", "held").acquire().await.expect("free");
    lock(&locks, "k", "waits").wait(ms(10)).acquire().await.expect_err("held");

    let text = EXPORTER.render();
    let table = named_in("lockmacro-runtime/src/sys/metrics.rs");
    assert!(table.len() > 10, "{table:?}");
    for name in &table {
        let sentence = format!("# HELP {name} ");
        let has_it = text.lines().any(|line| line.starts_with(&sentence));
        assert!(has_it, "{name} has no sentence in {text}");
    }
    let shown = |name: &str| {
        text.lines().any(|line| line.strip_prefix(name).is_some_and(|rest| rest.starts_with('{')))
    };
    let mut used = BTreeSet::new();
    for file in ["docs/grafana.json", "docs/alerts.yml"] {
        let names = named_in(file);
        let unknown: Vec<_> = names.iter().filter(|name| !shown(name)).collect();
        assert!(!names.is_empty() && unknown.is_empty(), "{file}: {unknown:?}");
        used.extend(names);
    }
    let of = |name: &String| used.iter().any(|used| used.starts_with(name.as_str()));
    let unused: Vec<_> = table.iter().filter(|name| !of(name)).collect();
    assert_eq!(unused, ["lockmacro_refusals_total"; 0], "on no panel, and in no alert");
}
