//! The `tracing` events of locks.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::{LazyLock, Mutex, Once};

use lockmacro_runtime::{Lock, LockKey, LockManager, LossCause, OnLost};
use lockmacro_tests::{Server, eventually, in_time};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

use crate::{Locked, SOON, connect, ms, until_lost, within};

/// An event as text, with the text of each field.
#[derive(Clone, Debug)]
struct Logged {
    level: Level,
    fields: BTreeMap<&'static str, String>,
}

static LOG: LazyLock<Mutex<Vec<Logged>>> = LazyLock::new(Mutex::default);

/// Keeps the events that have a key. A renewal is logged on a thread of the manager's own, so this
/// is for the whole process; tests differ by key.
struct ToLog;

impl Visit for Logged {
    fn record_str(&mut self, field: &Field, value: &str) {
        self.fields.insert(field.name(), value.to_owned());
    }

    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.fields.insert(field.name(), format!("{value:?}"));
    }
}

impl Subscriber for ToLog {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target().starts_with("lockmacro_runtime")
    }

    fn event(&self, event: &Event<'_>) {
        let mut logged = Logged { level: *event.metadata().level(), fields: BTreeMap::new() };
        event.record(&mut logged);
        if logged.fields.get("key").is_some_and(|key| key.starts_with("events:")) {
            LOG.lock().expect("the log").push(logged);
        }
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}

fn listen() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| tracing::subscriber::set_global_default(ToLog).expect("nobody else logs"));
}

fn logged(key: &str) -> Vec<Logged> {
    let log = LOG.lock().expect("the log");
    log.iter().filter(|event| event.fields["key"] == key).cloned().collect()
}

fn messages(key: &str) -> Vec<(Level, String)> {
    logged(key).into_iter().map(|event| (event.level, event.fields["message"].clone())).collect()
}

fn event(level: Level, message: &str) -> (Level, String) {
    (level, message.to_owned())
}

fn named(manager: &LockManager, key: &str) -> Lock {
    Lock::new(LockKey::template("events:<id>").literal("events:").value(&key))
        .name("audit_order")
        .manager(manager)
}

#[tokio::test]
async fn acquired_and_busy_locks_are_logged_with_name_and_template() {
    listen();
    let manager = LockManager::isolated_memory();
    let guard = named(&manager, "acquired").acquire().await.expect("free");
    assert!(named(&manager, "acquired").acquire().await.is_err());
    guard.release().await.expect("ours");
    let events = logged("events:acquired");
    let expected = [event(Level::DEBUG, "lock acquired"), event(Level::DEBUG, "lock busy")];
    assert_eq!(messages("events:acquired"), expected);
    for event in &events {
        assert_eq!(event.fields["name"], "audit_order");
        assert_eq!(event.fields["template"], "events:<id>");
        assert!(event.fields.contains_key("waited"), "{event:?}");
    }
    assert!(events[1].fields["error"].contains("is locked by"), "{events:?}");
}

#[tokio::test(start_paused = true)]
async fn a_renewal_is_logged() {
    listen();
    let manager = LockManager::isolated_memory();
    let guard = named(&manager, "renewed").ttl(ms(1_200)).renew().acquire().await.expect("free");
    let renewed = event(Level::TRACE, "lock renewed");
    let logged = async || messages("events:renewed").contains(&renewed);
    eventually("a renewal is logged", SOON, logged).await;
    guard.release().await.expect("ours");
}

#[tokio::test(start_paused = true)]
async fn a_loss_is_reported_once_with_its_cause_under_every_policy() {
    listen();
    let manager = LockManager::isolated_memory();
    for on_lost in [OnLost::Cancel, OnLost::Error, OnLost::Finish] {
        let key = format!("lost-{on_lost:?}");
        let lock = named(&manager, &key).ttl(ms(60)).on_lost(on_lost);
        let body = lock.run(async {
            until_lost().await;
            Locked::Ok(())
        });
        let _ = body.await;
        let key = format!("events:{key}");
        let lost = event(Level::WARN, "lock lost");
        assert_eq!(messages(&key).iter().filter(|event| **event == lost).count(), 1, "{on_lost:?}");
        let logged = logged(&key).pop().expect("logged");
        assert_eq!(logged.fields["cause"], LossCause::Expired.to_string());
    }
}

#[tokio::test(start_paused = true)]
async fn a_lost_guard_is_reported_too() {
    listen();
    let manager = LockManager::isolated_memory();
    for released in [true, false] {
        let key = format!("guard-{released}");
        let guard = named(&manager, &key).ttl(ms(60)).acquire().await.expect("free");
        guard.lost().await;
        if released {
            guard.release().await.expect_err("lost");
        } else {
            drop(guard);
        }
        let lost = event(Level::WARN, "lock lost");
        let logged = async || messages(&format!("events:{key}")).contains(&lost);
        eventually("the loss is logged", SOON, logged).await;
    }
}

#[tokio::test]
async fn a_lock_taken_away_before_its_release_is_reported() {
    listen();
    let server = Server::start();
    let manager = connect(&server.url()).await;
    let value = in_time(named(&manager, "taken").run(async {
        server.admin().ask::<()>(&["DEL", "events:taken"]);
        Locked::Ok(7)
    }));
    assert_eq!(value.await, Ok(7), "nothing had said so while the body ran");
    let late = event(Level::WARN, "lock was taken away before its release");
    assert_eq!(messages("events:taken").last(), Some(&late));
}

#[tokio::test]
async fn a_release_without_an_answer_is_reported() {
    listen();
    let mut server = Server::start();
    let manager = within(ms(1_500), &server.url()).await;
    let value = in_time(named(&manager, "unconfirmed").ttl(SOON).run(async {
        server.kill();
        Locked::Ok(7)
    }));
    assert_eq!(value.await, Ok(7));
    // At WARN, unless the loss of the server was logged meanwhile.
    let noted = |level| event(level, "lock is still being released");
    let logged = messages("events:unconfirmed");
    assert!([Level::WARN, Level::DEBUG].map(noted).iter().any(|noted| logged.contains(noted)));
}

#[tokio::test]
async fn entering_again_is_not_logged() {
    listen();
    let manager = LockManager::isolated_memory();
    let inner = || named(&manager, "inner").run(async { Locked::Ok(7) });
    named(&manager, "inner").run(async { inner().await }).await.expect("free");
    assert_eq!(messages("events:inner"), [event(Level::DEBUG, "lock acquired")]);
}
