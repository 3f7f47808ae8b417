//! `on_busy = defer("30s")` as a user writes it.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use lockmacro_runtime::defer::{Keep, NewJob, Settled};
use lockmacro_runtime::distributed_lock;
use lockmacro_tests::times::ms;
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

/// The managers of two shops.
static SHOPS: LazyLock<[LockManager; 2]> =
    LazyLock::new(|| [(); 2].map(|()| LockManager::isolated_memory()));

#[distributed_lock(
    key = "shop:<shop>",
    on_busy = defer("20ms"),
    name = "shops",
    manager = if shop.len() == 1 { &SHOPS[0] } else { &SHOPS[1] },
)]
async fn count_shop(shop: String) {
    drop(shop);
}

#[tokio::test]
async fn a_call_that_is_stored_by_hand_is_kept_in_the_manager_of_the_attribute() {
    for (shop, stored) in [("a", [1, 0]), ("ab", [1, 1])] {
        count_shop_deferred().enqueue(shop, (shop.to_owned(),)).await.expect("it is stored");
        for (manager, jobs) in SHOPS.iter().zip(stored) {
            assert_eq!(count(manager, "shops", JobState::Waiting).await, jobs, "{shop}");
        }
    }
    let other = LockManager::isolated_memory();
    let set = count_shop_deferred().manager(&other);
    set.enqueue("c", ("c".to_owned(),)).await.expect("it is stored");
    assert_eq!(count(&other, "shops", JobState::Waiting).await, 1, "the one that was set");
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

#[distributed_lock(
    key = "price:<id>", wait = "60s", on_busy = defer("20ms", latest), manager = locks(),
)]
async fn set_price(id: u64, price: String) -> Result<(), LockError> {
    DONE.lock().unwrap().entry(id).or_default().push(price);
    Ok(())
}

#[distributed_lock(
    key = "size:<id>", ttl = "10s", on_busy = defer("20ms", latest), manager = locks(),
)]
fn set_size(id: u64, size: String) -> Result<(), LockError> {
    DONE.lock().unwrap().entry(id).or_default().push(size);
    Ok(())
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

/// A worker would run the first one with the arguments of the second.
#[tokio::test]
async fn a_second_function_of_one_path_stores_no_call() {
    async fn remove_orders() -> lockmacro_runtime::defer::DeferredFn<(u64,)> {
        #[distributed_lock(key = "remove:<id>", on_busy = defer("20ms"), manager = locks())]
        async fn remove(id: u64) -> Result<(), LockError> {
            panic!("order {id} was removed")
        }
        remove_deferred()
    }
    async fn remove_note(id: u64) -> Result<(), LockError> {
        #[distributed_lock(key = "remove:<id>", on_busy = defer("20ms"), manager = locks())]
        async fn remove(id: u64) -> Result<(), LockError> {
            panic!("note {id} was removed")
        }
        remove(id).await
    }
    let _turn = TURN.lock().await;
    let manager = LockManager::isolated_memory();
    *LOCKS.lock().unwrap() = Some(manager.clone());
    let working = start(&manager, &remove_orders().await);
    tokio::task::yield_now().await;
    let id = next_id();
    let held = hold(&manager, &format!("remove:{id}")).await;
    let refused = remove_note(id).await;
    assert!(
        matches!(refused, Err(LockError::InvalidSetting { setting: "name", .. })),
        "{refused:?}"
    );
    held.release().await.expect("still held");
    ends(&manager, working).await;
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
    assert_eq!(count(&manager, audit_deferred().name(), JobState::Waiting).await, 0);

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
    let working = tokio::spawn(Worker::new(&manager).register(audit_deferred()).run());
    let job_queue = manager.job_queue();
    eventually("it was busy again", TEST_TIMEOUT, async || {
        let name = audit_deferred().name().into();
        let page = job_queue.list(name, JobState::Waiting, 0, 1).await.unwrap();
        page.jobs.first().is_some_and(|job| job.busy > 0 && job.error.is_some())
    })
    .await;
    assert_eq!(done(id), ["checked!"]);
    held.release().await.unwrap();
    eventually("it is done", TEST_TIMEOUT, async || done(id) == ["checked!", "checked!"]).await;
    nothing_is_left(&manager, audit_deferred().name()).await;
    assert!(audit_deferred().name().ends_with("attribute::audit"), "{:?}", audit_deferred());
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
    let working = tokio::spawn(Worker::new(&manager).register(index_deferred()).run());
    nothing_is_left(&manager, index_deferred().name()).await;
    assert_eq!(done(id), ["three"]);
    ends_on(backend, &manager, working).await;
}

#[on(memory, redis, cluster, postgres, both_runtimes)]
async fn a_call_that_gets_the_lock_is_not_followed_by_an_earlier_one(backend: &Backend) {
    let _turn = TURN.lock().await;
    let manager = backend.manager_from(patient().key_prefix("shop:")).await;
    *LOCKS.lock().unwrap() = Some(manager.clone());
    let id = next_id();
    for blocking in [false, true] {
        let set = async move |text: &str| {
            let text = text.to_owned();
            if blocking {
                let _deferred =
                    lockmacro_tests::on_a_plain_thread(move || set_size(id, text)).await;
            } else {
                index(id, text).await;
            }
        };
        let (key, name) = match blocking {
            true => (format!("size:{id}"), set_size_deferred().name().to_owned()),
            false => (format!("index:{id}"), index_deferred().name().to_owned()),
        };
        let stored_as = format!("shop:{name}");
        let held = hold(&manager, &key).await;
        set("one").await;
        assert_eq!(count(&manager, &stored_as, JobState::Waiting).await, 1);
        held.release().await.unwrap();
        apart().await;
        set("two").await;
        assert_eq!(count(&manager, &stored_as, JobState::Waiting).await, 0, "{stored_as}");
    }
    assert_eq!(done(id), ["two", "two"]);
    manager.shutdown(TEST_TIMEOUT).await.unwrap();
    forget(backend).await;
}

/// The worker has taken it, and waits for the lock that the newer one has.
#[on(memory, redis, postgres, both_runtimes)]
async fn a_call_that_a_worker_has_taken_does_not_run_after_a_newer_one(backend: &Backend) {
    let _turn = TURN.lock().await;
    let manager = manager(backend).await;
    *LOCKS.lock().unwrap() = Some(manager.clone());
    let (id, name) = (next_id(), set_price_deferred().name().to_owned());
    let key = format!("price:{id}");
    let put = async |call: &str| put_price(&manager, id, call).await;
    put("older").await;
    apart().await;
    let held = hold(&manager, &key).await;
    let working = tokio::spawn(Worker::new(&manager).register(set_price_deferred()).run());
    let is_taken = async || count(&manager, &name, JobState::Running).await == 1;
    eventually("a worker has it", TEST_TIMEOUT, is_taken).await;
    set_price_deferred().manager(&manager).supersede(&held).await.unwrap();
    // A click while the newer one runs: it comes last.
    put("newest").await;
    set_price_deferred().manager(&manager).supersede(&held).await.unwrap();
    held.release().await.unwrap();
    nothing_is_left(&manager, &name).await;
    assert_eq!(done(id), ["newest"]);
    ends_on(backend, &manager, working).await;
}

/// A failed call would come last: its worker reports the failure when a newer one has the lock.
#[on(memory, redis, postgres)]
async fn a_call_that_has_failed_does_not_run_after_a_newer_one_of_a_worker(backend: &Backend) {
    let _turn = TURN.lock().await;
    let manager = manager(backend).await;
    *LOCKS.lock().unwrap() = Some(manager.clone());
    let (id, name) = (next_id(), set_price_deferred().name().to_owned());
    put_price(&manager, id, "older").await;
    let older = take(&manager, &name, LONG_TTL).await;
    tokio::time::sleep(ms(5)).await;
    put_price(&manager, id, "newer").await;
    let working = tokio::spawn(Worker::new(&manager).register(set_price_deferred()).run());
    eventually("the newer one runs", TEST_TIMEOUT, async || done(id) == ["newer"]).await;
    let again = Settled::Again { delay: Duration::ZERO, error: "no".into() };
    let _late = manager.job_queue().settle(older, again).await.unwrap();
    nothing_is_left(&manager, &name).await;
    assert_eq!(done(id), ["newer"]);
    ends_on(backend, &manager, working).await;
}

/// Stores a call of `set_price` that is due at once.
async fn put_price(manager: &LockManager, id: u64, call: &str) {
    let arguments = format!(r#"[{id},"{call}"]"#);
    let name = set_price_deferred().name().to_owned();
    let mut job = NewJob::new(name, format!("{call}-{id}"), arguments, format!("price:{id}"));
    job.keep = Keep::Latest { at_most: None };
    manager.job_queue().put(job).await.unwrap();
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
        report_deferred().name().to_owned(),
        count_up_deferred().name().to_owned(),
        export_deferred().name().to_owned(),
        without_arguments_deferred().name().to_owned(),
    ];
    assert_eq!(names[0], "reports");
    let before = done(0).len();
    let worker = Worker::new(&manager)
        .register(report_deferred())
        .register(count_up_deferred())
        .register(export_deferred())
        .register(without_arguments_deferred());
    let working = tokio::spawn(worker.run());
    eventually("all are done", TEST_TIMEOUT, async || done(id).len() == 3).await;
    eventually("so is this one", TEST_TIMEOUT, async || done(0).len() == before + 1).await;
    for name in &names {
        nothing_is_left(&manager, name).await;
    }
    ends_on(backend, &manager, working).await;
}
