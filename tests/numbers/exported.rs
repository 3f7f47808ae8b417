//! Every metric has its sentence in the exporter's text, and the dashboard and the alerts name
//! nothing that is not there.

use std::collections::BTreeSet;
use std::future::pending;
use std::path::Path;

use lockmacro_runtime::defer::{DeferredFn, Worker, argument};
use lockmacro_runtime::{LockError, LockManager};
use lockmacro_tests::times::{SOON, ms};
use lockmacro_tests::{Server, eventually, within};

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
    let up = || value("lockmacro_server_up", &[("server", &address)]);
    assert_eq!(up(), 1.0);
    let renewed = lock(&locks, "k", "renewed").ttl(ms(600)).renew().acquire().await;
    let renewals = async || value("lockmacro_renewals_total", &[("name", "renewed")]) >= 1.0;
    eventually("it is renewed", SOON, renewals).await;
    renewed.expect("free").release().await.expect("ours");
    let lost = lock(&locks, "k", "lost").ttl(ms(60)).run(pending::<Result<(), LockError>>());
    lost.await.expect_err("lost");
    let late = lock(&locks, "k", "late").run(async {
        server.admin().ask::<()>(&["FLUSHALL"]);
        Ok::<_, LockError>(())
    });
    late.await.expect("it is told in the log");
    let error = lock(&locks, "", "empty").acquire().await.expect_err("no key");
    assert!(matches!(error, LockError::InvalidKey { .. }), "{error:?}");

    server.kill();
    let is_down = async || {
        lock(&locks, "k", "unreported").skip_when_busy().run(async {}).await;
        up() == 0.0
    };
    eventually("it is down", SOON, is_down).await;
    server.restart();
    let is_up = async || {
        let _ = lock(&locks, "k", "again").acquire().await;
        up() == 1.0
    };
    eventually("it is up again", SOON, is_up).await;
    let refusals =
        |name, reason| value("lockmacro_refusals_total", &[("name", name), ("reason", reason)]);
    assert!(refusals("unreported", "unavailable") >= 1.0);
    assert_eq!(refusals("empty", "invalid_key"), 1.0);
}

/// Deferred calls: one that is done, and one that fails until it is given up.
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
    let calls =
        |name, event| value("lockmacro_deferred_calls_total", &[("name", name), ("event", event)]);
    let given_up = async || calls("given-up", "dead") == 1.0 && calls("done", "run") == 1.0;
    eventually("both have ended", SOON, given_up).await;
    assert_eq!((calls("given-up", "stored"), calls("given-up", "failed")), (1.0, 1.0));
    assert_eq!((calls("done", "stored"), calls("done", "failed")), (1.0, 0.0));
    locks.shutdown(SOON).await.expect("nothing is held");
    working.await.expect("no panic").expect("it was stopped");
}

#[tokio::test]
async fn the_dashboard_and_the_alerts_name_metrics_that_an_exporter_shows() {
    on_a_server().await;
    deferred().await;
    let locks = LockManager::isolated_memory();
    let _guard = lock(&locks, "k", "held").acquire().await.expect("free");
    lock(&locks, "k", "waits").wait(ms(10)).acquire().await.expect_err("held");

    let text = EXPORTER.render();
    let table = named_in("lockmacro-runtime/src/value/metrics.rs");
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
