//! Any sets of keys, asked for by anybody in any way: two bodies that share a key never overlap,
//! all come to an end, and nothing is left.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use lockmacro_runtime::LockManager;
use lockmacro_tests::Backend;
use proptest::prelude::*;
use tokio::time::timeout;

use crate::{LONG_TTL, Locked, become_free, many, ms};

const KEYS: usize = 6;

/// One caller: which keys, given how often and in which order, and how.
#[derive(Debug, Clone)]
struct Call {
    keys: Vec<usize>,
    waits: bool,
    /// After this many milliseconds it is dropped, wherever it is.
    gone: Option<u64>,
    body: u64,
}

fn call() -> impl Strategy<Value = Call> {
    let keys = proptest::collection::vec(0..KEYS, 1..5);
    let gone = prop_oneof![3 => Just(None), 1 => (0_u64..12).prop_map(Some)];
    (keys, prop::bool::weighted(0.8), gone, 0_u64..4).prop_map(|(keys, waits, gone, body)| Call {
        keys,
        waits,
        gone,
        body,
    })
}

/// The keys whose bodies run: one bit each.
#[derive(Default)]
struct Inside(AtomicU64);

struct Under<'a>(&'a Inside, u64);

impl Inside {
    fn enter(&self, keys: &[usize]) -> Under<'_> {
        let bits = keys.iter().fold(0, |bits, key| bits | 1 << key);
        let before = self.0.fetch_or(bits, Ordering::SeqCst);
        assert_eq!(before & bits, 0, "two bodies share a key");
        Under(self, bits)
    }
}

impl Drop for Under<'_> {
    fn drop(&mut self) {
        self.0.0.fetch_and(!self.1, Ordering::SeqCst);
    }
}

async fn perform(manager: LockManager, names: Vec<String>, call: Call, inside: Arc<Inside>) {
    let keys = call.keys.iter().map(|key| &names[*key]);
    let lock = many(&manager, keys);
    let lock = if call.waits { lock.wait(LONG_TTL) } else { lock };
    let body = async {
        let _under = inside.enter(&call.keys);
        tokio::time::sleep(ms(call.body)).await;
        Locked::Ok(())
    };
    let limit = call.gone.map_or(LONG_TTL / 2, Duration::from_millis);
    match timeout(limit, lock.run(body)).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => assert!(error.is_busy() && !call.waits, "{call:?}: {error}"),
        Err(_) => assert!(call.gone.is_some(), "{call:?} was never served"),
    }
}

async fn never_overlap(backend: &Backend, calls: Vec<Call>) {
    let names: Vec<String> = (0..KEYS).map(|nth| backend.key(&format!("set:{nth}"))).collect();
    let inside = Arc::new(Inside::default());
    let managers = [backend.manager().await, backend.manager().await, backend.manager().await];
    let mut tasks = tokio::task::JoinSet::new();
    let mut used = BTreeSet::new();
    for (nth, call) in calls.into_iter().enumerate() {
        used.extend(call.keys.iter().map(|key| names[*key].clone()));
        let manager = managers[nth % managers.len()].clone();
        tasks.spawn(perform(manager, names.clone(), call, Arc::clone(&inside)));
    }
    while let Some(ended) = tasks.join_next().await {
        ended.expect("no panic");
    }
    become_free(backend, &used.into_iter().collect::<Vec<_>>()).await;
}

fn on(backend: impl Future<Output = Backend>, cases: u32) {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .expect("a runtime");
    let backend = runtime.block_on(backend);
    let config = ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(cases) };
    proptest!(config, |(calls in proptest::collection::vec(call(), 2..14))| {
        runtime.block_on(never_overlap(&backend, calls));
    });
    runtime.block_on(backend.keeps_nothing());
}

#[test]
fn sets_that_share_a_key_never_overlap_in_memory() {
    on(async { Backend::memory() }, 200);
}

#[test]
fn sets_that_share_a_key_never_overlap_on_a_server() {
    on(async { Backend::redis() }, 100);
}

#[test]
fn sets_that_share_a_key_never_overlap_in_slots() {
    on(Backend::slots(), 60);
}
