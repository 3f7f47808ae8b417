//! The metrics of locks, with the feature `metrics`.

use std::collections::BTreeMap;
use std::future::ready;
use std::sync::{LazyLock, Mutex};

use lockmacro_runtime::{Lock, LockKey, LockManager, OnLost};
use lockmacro_tests::{Server, eventually, in_time};
use metrics_util::debugging::{DebugValue, DebuggingRecorder, Snapshotter};

use crate::{LONG_TTL, Locked, SOON, ms, outlast, served, until_lost, within};

/// The numbers of the whole process, because a renewal is counted on a thread of the manager's own.
/// Tests differ by the name of their locks.
static NUMBERS: LazyLock<Mutex<Numbers>> = LazyLock::new(|| {
    let recorder = DebuggingRecorder::new();
    let snapshotter = recorder.snapshotter();
    recorder.install().expect("nobody else counts");
    Mutex::new(Numbers { snapshotter, seen: BTreeMap::new() })
});

struct Numbers {
    snapshotter: Snapshotter,
    /// By name of the lock and by metric. A snapshot takes what was counted away.
    seen: BTreeMap<(String, String), Number>,
}

/// A counter's or a gauge's value; how often a histogram was given one, and all those added up.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Number {
    value: f64,
    times: usize,
}

impl Numbers {
    fn look(&mut self) {
        for (key, _, _, value) in self.snapshotter.snapshot().into_vec() {
            let mut labels: BTreeMap<&str, &str> =
                key.key().labels().map(|label| (label.key(), label.value())).collect();
            assert!(!labels.values().any(|value| value.contains("secret")), "a key: {labels:?}");
            let name = labels.remove("name").unwrap_or_default().to_owned();
            let template = labels.remove("template").unwrap_or_default();
            let expected = match (key.key().name(), name.as_str()) {
                ("lockmacro_refusals_total" | "lockmacro_unreported_total", _) => "",
                (_, "numbers-prefix") => "shop:numbers:<id>",
                _ => "numbers:<id>",
            };
            assert!(!name.starts_with("numbers") || template == expected, "{template}");
            let others = labels.iter().map(|(label, value)| format!(" {label}={value}"));
            let metric = key.key().name().to_owned() + &others.collect::<String>();
            let seen = self.seen.entry((name, metric)).or_default();
            match value {
                #[expect(clippy::cast_precision_loss, reason = "a few")]
                DebugValue::Counter(more) => seen.value += more as f64,
                // Taken away as well, so it is what was added since.
                DebugValue::Gauge(more) => seen.value += more.into_inner(),
                DebugValue::Histogram(values) => {
                    seen.times += values.len();
                    seen.value += values.iter().map(|value| value.into_inner()).sum::<f64>();
                }
            }
        }
    }
}

/// The number of a metric of the locks called `name`; `None` when there is none.
fn number(name: &str, metric: &str) -> Option<Number> {
    let mut numbers = NUMBERS.lock().expect("the numbers");
    numbers.look();
    numbers.seen.get(&(name.to_owned(), metric.to_owned())).copied()
}

fn value(name: &str, metric: &str) -> f64 {
    number(name, metric).unwrap_or_default().value
}

fn named(manager: &LockManager, name: &'static str) -> Lock {
    LazyLock::force(&NUMBERS);
    let key =
        LockKey::template("numbers:<id>").literal("numbers:").value(&format!("secret-{name}"));
    Lock::new(key).ttl(LONG_TTL).name(name).manager(manager)
}

#[tokio::test]
async fn a_prefix_is_a_part_of_the_template_and_a_note_of_nothing() {
    let manager = LockManager::builder().key_prefix("shop:").isolated_memory();
    let lock = || named(&manager, "numbers-prefix").holder_note("secret-note");
    let guard = lock().acquire().await.expect("free");
    lock().acquire().await.expect_err("held");
    guard.release().await.expect("ours");
    let acquisitions = |outcome| {
        value("numbers-prefix", &format!("lockmacro_acquisitions_total outcome={outcome}"))
    };
    assert_eq!((acquisitions("acquired"), acquisitions("busy")), (1.0, 1.0));
    assert_eq!(value("numbers-prefix", "lockmacro_held"), 0.0);
}

#[tokio::test]
async fn acquisitions_are_counted_by_outcome_and_timed() {
    let mut server = Server::start();
    let manager = within(ms(1_500), &server.url()).await;
    let lock = || named(&manager, "numbers-outcome");
    for _ in 0..3 {
        let body = lock().run(async {
            outlast(ms(20)).await;
            Locked::Ok(())
        });
        body.await.expect("free");
    }
    let guard = lock().acquire().await.expect("free");
    lock().acquire().await.expect_err("held");
    lock().skip_when_busy().run(async {}).await;
    guard.release().await.expect("ours");
    server.kill();
    lock().acquire().await.expect_err("down");

    let name = "numbers-outcome";
    let acquisitions =
        |outcome| value(name, &format!("lockmacro_acquisitions_total outcome={outcome}"));
    assert_eq!(acquisitions("acquired"), 4.0);
    assert_eq!(acquisitions("busy"), 2.0);
    assert_eq!(acquisitions("error"), 1.0);
    let waits = number(name, "lockmacro_wait_seconds").expect("timed");
    assert_eq!(waits.times, 7);
    let holds = number(name, "lockmacro_hold_seconds").expect("timed");
    assert_eq!(holds.times, 4);
    assert!(holds.value >= 0.06 && holds.value < 5.0, "{holds:?}");
}

#[tokio::test]
async fn held_and_waiting_locks_are_gauged_and_return_to_zero() {
    let server = Server::start();
    let manager = within(SOON, &server.url()).await;
    let name = "numbers-gauges";
    let gauges = || (value(name, "lockmacro_held"), value(name, "lockmacro_waiting"));

    let guard = named(&manager, name).acquire().await.expect("free");
    assert_eq!(gauges(), (1.0, 0.0));
    let shared = guard.handle();
    server.pause();
    let other = LockManager::builder().timeout(SOON).lazy().connect(&server.url()).await;
    let waiting = tokio::spawn(named(&other.expect("lazy"), name).acquire());
    eventually("one waits", SOON, async || gauges() == (1.0, 1.0)).await;
    waiting.abort();
    waiting.await.expect_err("aborted");
    assert_eq!(gauges(), (1.0, 0.0), "one that goes does not wait");
    server.resume();
    guard.release().await.expect("ours");
    assert_eq!(gauges(), (0.0, 0.0), "although somebody looks at it still");
    drop(shared);

    let mut admin = server.admin();
    let mut is_free = async || {
        let free = || ready(admin.keys().is_empty());
        eventually("what was dropped is released", SOON, free).await;
    };
    is_free().await;
    drop(named(&manager, name).acquire().await.expect("free"));
    is_free().await;
    let lost = named(&manager, name).ttl(ms(60)).run(std::future::pending::<Locked<()>>());
    in_time(lost).await.expect_err("lost");
    is_free().await;
    let panics = tokio::spawn(named(&manager, name).run(async {
        assert!(LONG_TTL < SOON, "as planned");
        Locked::Ok(())
    }));
    panics.await.expect_err("it panics");
    assert_eq!(gauges(), (0.0, 0.0));
}

#[tokio::test]
async fn losses_are_counted_by_cause() {
    let (server, manager) = served().await;
    let name = "numbers-lost";
    for on_lost in [OnLost::Cancel, OnLost::Error, OnLost::Finish] {
        let lock = named(&manager, name).ttl(ms(60)).on_lost(on_lost);
        let body = lock.run(async {
            until_lost().await;
            Locked::Ok(())
        });
        let _ = body.await;
    }
    let taken = named(&manager, name).ttl(ms(3_000)).renew().run(async {
        server.admin().ask::<()>(&["FLUSHALL"]);
        std::future::pending::<Locked<()>>().await
    });
    in_time(taken).await.expect_err("lost");
    assert_eq!(value(name, "lockmacro_lost_total cause=expired"), 3.0);
    assert_eq!(value(name, "lockmacro_lost_total cause=taken"), 1.0);
    // The body is stopped first, and the renewal is counted on another thread.
    let counted = async || value(name, "lockmacro_renewals_total outcome=taken") == 1.0;
    eventually("the renewal is counted", SOON, counted).await;

    let late = named(&manager, name).run(async {
        server.admin().ask::<()>(&["FLUSHALL"]);
        Locked::Ok(7)
    });
    assert_eq!(late.await, Ok(7));
    assert_eq!(value(name, "lockmacro_released_late_total cause=taken"), 1.0);
    assert_eq!(value(name, "lockmacro_lost_total cause=taken"), 1.0, "not counted twice");
    let guard = named(&manager, name).acquire().await.expect("free");
    server.admin().ask::<()>(&["FLUSHALL"]);
    guard.release().await.expect_err("lost");
    assert_eq!(value(name, "lockmacro_released_late_total cause=taken"), 2.0);
}

#[tokio::test]
async fn renewals_are_counted_by_outcome() {
    let server = Server::start();
    let manager = within(ms(400), &server.url()).await;
    let name = "numbers-renewals";
    let guard = named(&manager, name).ttl(ms(600)).renew().acquire().await.expect("free");
    let renewals = |outcome| value(name, &format!("lockmacro_renewals_total outcome={outcome}"));
    eventually("one is counted", SOON, async || renewals("renewed") >= 1.0).await;
    server.pause();
    eventually("a failure is counted", SOON, async || renewals("error") >= 1.0).await;
    server.resume();
    drop(guard);
}

#[tokio::test]
async fn entering_again_is_not_counted() {
    let manager = LockManager::isolated_memory();
    let name = "numbers-inner";
    let inner = || named(&manager, name).run(async { Locked::Ok(value(name, "lockmacro_held")) });
    let held = named(&manager, name).run(async { inner().await }).await;
    assert_eq!(held, Ok(1.0));
    assert_eq!(value(name, "lockmacro_acquisitions_total outcome=acquired"), 1.0);
    assert_eq!(number(name, "lockmacro_hold_seconds").expect("timed").times, 1);
}
