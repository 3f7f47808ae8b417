//! `on_busy = defer("30s")` as a user writes it.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use lockmacro_runtime::distributed_lock;
use serde::{Deserialize, Serialize};

use super::*;

static DONE: LazyLock<Mutex<BTreeMap<u64, Vec<String>>>> = LazyLock::new(Mutex::default);

fn done(id: u64) -> Vec<String> {
    DONE.lock().unwrap().get(&id).cloned().unwrap_or_default()
}

#[derive(Debug, Clone, Serialize, Deserialize)]
struct Note {
    text: String,
    lines: Vec<u32>,
}

#[distributed_lock(key = "audit:<id>", ttl = "10s", on_busy = defer("20ms"), manager = locks())]
async fn audit(id: u64, mut note: Note) -> Result<usize, LockError> {
    note.text.push('!');
    DONE.lock().unwrap().entry(id).or_default().push(note.text);
    Ok(note.lines.len())
}

/// A function that says nothing tells its caller nothing.
#[distributed_lock(
    key = "report:<id>", on_busy = defer("20ms"), name = "reports", manager = locks(),
)]
async fn report(id: u64) {
    DONE.lock().unwrap().entry(id).or_default().push("reported".to_owned());
}

#[distributed_lock(
    key = "count:<id>", ttl = "10s", on_busy = defer("20ms", attempts = 2), manager = locks(),
)]
async fn count_up(id: u64) -> Result<Option<u32>, LockError> {
    DONE.lock().unwrap().entry(id).or_default().push("counted".to_owned());
    Ok(Some(1))
}

#[distributed_lock(key = "export:<id>", ttl = "10s", on_busy = defer("20ms"), manager = locks())]
fn export(id: u64) -> Result<(), LockError> {
    DONE.lock().unwrap().entry(id).or_default().push("exported".to_owned());
    Ok(())
}

#[distributed_lock(key = "nothing", ttl = "10s", on_busy = defer("20ms"), manager = locks())]
async fn without_arguments() -> Result<(), LockError> {
    DONE.lock().unwrap().entry(0).or_default().push("done".to_owned());
    Ok(())
}

#[distributed_lock(
    key = "index:<id>", on_busy = defer("20ms", latest, at_most = "40ms"), manager = locks(),
)]
async fn index(id: u64, text: String) {
    DONE.lock().unwrap().entry(id).or_default().push(text);
}

/// The manager of the test that runs: its backends are tested one after the other.
static LOCKS: Mutex<Option<LockManager>> = Mutex::new(None);
static TURN: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());

fn locks() -> LockManager {
    LOCKS.lock().unwrap().clone().expect("a test runs")
}

fn next_id() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

#[on(memory, redis, postgres, both_runtimes)]
async fn a_busy_call_returns_when_it_is_due_and_is_run_later(backend: &Backend) {
    let _turn = TURN.lock().await;
    let manager = manager(backend).await;
    *LOCKS.lock().unwrap() = Some(manager.clone());
    let id = next_id();
    let note = Note { text: "checked".to_owned(), lines: vec![1, 2, 3] };

    // Nothing is stored while the lock is free.
    assert_eq!(audit(id, note.clone()).await.unwrap(), 3);
    assert_eq!(count(&manager, audit::deferred().name(), JobState::Waiting).await, 0);

    let held = hold(&manager, &format!("audit:{id}")).await;
    match audit(id, note).await {
        Err(LockError::Deferred { key, due, .. }) => {
            assert_eq!(key.to_string(), format!("audit:{id}"));
            assert_eq!(due, SHORT_DELAY);
        }
        other => panic!("{other:?}"),
    }
    assert_eq!(done(id), ["checked!"]);
    // The lock is held for some tries more.
    let working = tokio::spawn(Worker::new(&manager).register(audit::deferred()).run());
    let deferrer = manager.deferrer();
    eventually("it was busy again", TEST_TIMEOUT, async || {
        let name = audit::deferred().name().into();
        let page = deferrer.list(name, JobState::Waiting, 0, 1).await.unwrap();
        page.jobs.first().is_some_and(|job| job.busy > 0 && job.error.is_some())
    })
    .await;
    assert_eq!(done(id), ["checked!"]);
    held.release().await.unwrap();
    eventually("it is done", TEST_TIMEOUT, async || done(id) == ["checked!", "checked!"]).await;
    nothing_is_left(&manager, audit::deferred().name()).await;
    assert!(audit::deferred().name().ends_with("attribute::audit"), "{:?}", audit::deferred());
    ends_on(backend, &manager, working).await;
}

#[on(memory, redis, postgres, both_runtimes)]
async fn the_latest_of_busy_calls_is_run_later(backend: &Backend) {
    let _turn = TURN.lock().await;
    let manager = manager(backend).await;
    *LOCKS.lock().unwrap() = Some(manager.clone());
    let id = next_id();
    let held = hold(&manager, &format!("index:{id}")).await;
    for text in ["one", "two", "three"] {
        index(id, text.to_owned()).await;
    }
    held.release().await.unwrap();
    let working = tokio::spawn(Worker::new(&manager).register(index::deferred()).run());
    nothing_is_left(&manager, index::deferred().name()).await;
    assert_eq!(done(id), ["three"]);
    ends_on(backend, &manager, working).await;
}

#[on(memory, redis, postgres, both_runtimes)]
async fn every_shape_of_function_is_run_later(backend: &Backend) {
    let _turn = TURN.lock().await;
    let manager = manager(backend).await;
    *LOCKS.lock().unwrap() = Some(manager.clone());
    let id = next_id();
    let keys = ["report:", "count:", "export:"].map(|key| format!("{key}{id}"));
    let mut held = Vec::new();
    for key in keys.iter().map(String::as_str).chain(["nothing"]) {
        held.push(hold(&manager, key).await);
    }
    report(id).await;
    assert_eq!(count_up(id).await.unwrap(), None);
    assert!(matches!(without_arguments().await, Err(LockError::Deferred { .. })));
    let exported = lockmacro_tests::on_a_plain_thread(move || export(id)).await;
    assert!(matches!(exported, Err(LockError::Deferred { .. })));
    assert_eq!(done(id), Vec::<String>::new());
    for guard in held {
        guard.release().await.unwrap();
    }
    let names = [
        report::deferred().name().to_owned(),
        count_up::deferred().name().to_owned(),
        export::deferred().name().to_owned(),
        without_arguments::deferred().name().to_owned(),
    ];
    assert_eq!(names[0], "reports");
    let before = done(0).len();
    let worker = Worker::new(&manager)
        .register(report::deferred())
        .register(count_up::deferred())
        .register(export::deferred())
        .register(without_arguments::deferred());
    let working = tokio::spawn(worker.run());
    eventually("all are done", TEST_TIMEOUT, async || done(id).len() == 3).await;
    eventually("so is this one", TEST_TIMEOUT, async || done(0).len() == before + 1).await;
    for name in &names {
        nothing_is_left(&manager, name).await;
    }
    ends_on(backend, &manager, working).await;
}
