//! Calls with large arguments.

use lockmacro_runtime::defer::{NewJob, Settled, TakeOptions};
use lockmacro_tests::{Proxy, Server};

use super::*;

const MIB: usize = 1024 * 1024;
/// Bytes that a network of 100 Mbit passes.
const BANDWIDTH: usize = 12_000_000;

/// A call whose arguments have this many bytes, due at once.
fn large(function: &str, id: &str, bytes: usize) -> NewJob {
    let arguments = format!("[\"{}\"]", "x".repeat(bytes - 4));
    NewJob::new(function, id, arguments, name("key"))
}

/// A function that takes note of how long its argument is.
fn measuring(name: &str, calls: &Calls) -> DeferredFn<(String,)> {
    let calls = calls.clone();
    DeferredFn::new(name, (argument("text"),), move |(text,): (String,)| {
        calls.add(text.len() as u64);
        async { Ok::<(), LockError>(()) }
    })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_large_calls_are_run_over_a_network_of_little_bandwidth() {
    let (server, calls) = (Server::start(), Calls::default());
    let near = connect(&server).await;
    for nth in 0..16 {
        near.job_queue().put(large("f", &nth.to_string(), MIB)).await.unwrap();
    }
    let proxy = Proxy::to(server.port());
    proxy.bandwidth(BANDWIDTH);
    let far = LockManager::connect(&proxy.url()).await.unwrap();
    let working = start(&far, &measuring("f", &calls));
    calls.reach(16).await;
    nothing_is_left(&near, "f").await;
    ends(&far, working).await;
}

#[on(memory, redis, postgres, both_runtimes)]
async fn many_large_calls_are_run(backend: &Backend) {
    let (locks, calls, name) = (manager(backend).await, Calls::default(), name("large"));
    for nth in 0..16 {
        locks.job_queue().put(large(&name, &nth.to_string(), MIB)).await.unwrap();
    }
    let working = start(&locks, &measuring(&name, &calls));
    calls.reach(16).await;
    assert!(calls.all().iter().all(|length| *length == MIB as u64 - 4), "whole");
    nothing_is_left(&locks, &name).await;
    ends_on(backend, &locks, working).await;
}

#[on(memory, redis, postgres, both_runtimes)]
async fn arguments_over_the_limit_are_refused_with_size_and_limit(backend: &Backend) {
    let calls = Calls::default();
    let (usual, limited) = (patient(), patient().max_job_size(8));
    for (builder, limit) in [(usual, MIB), (limited, 8)] {
        let (locks, name, key) = (backend.manager_from(builder).await, name("limit"), name("key"));
        let function = measuring(&name, &calls);
        let held = hold(&locks, &key).await;
        // A list of one text: four bytes of it are not the text's.
        let later =
            async |bytes: usize| defer(&locks, &function, &key, ("x".repeat(bytes - 4),)).await;
        let refused = later(limit + 1).await;
        assert!(
            matches!(refused, LockError::InvalidSetting { setting: "max_job_size", .. }),
            "{refused:?}"
        );
        let text = refused.to_string();
        assert!(text.contains(&format!(" {} bytes", limit + 1)), "{text}");
        assert!(text.contains(&format!("the limit is {limit}")), "{text}");
        assert_eq!(count(&locks, &name, JobState::Waiting).await, 0, "nothing is stored");
        let stored = later(limit).await;
        let LockError::Deferred { id, .. } = stored else { panic!("not stored: {stored:?}") };
        remove(&locks, &name, id).await;
        held.release().await.unwrap();
    }
    forget(backend).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_that_no_network_carries_is_a_dead_job_and_others_are_run() {
    let (server, calls) = (Server::start(), Calls::default());
    let near = patient().max_job_size(16 * MIB).connect(&server.url()).await.unwrap();
    let mut fatal = large("f", "fatal", 16 * MIB);
    fatal.attempts = 1;
    near.job_queue().put(fatal).await.unwrap();
    let proxy = Proxy::to(server.port());
    proxy.bandwidth(BANDWIDTH / 4);
    let far = LockManager::builder().timeout(Duration::from_secs(1));
    let far = far.connect(&proxy.url()).await.unwrap();
    let function = measuring("f", &calls);
    let working = tokio::spawn(worker(&far, &function).lease(Duration::from_secs(2)).run());
    let is_dead = async || count(&near, "f", JobState::Dead).await == 1;
    eventually("it is given up", TEST_TIMEOUT * 2, is_dead).await;
    let dead = first(&near, "f", JobState::Dead).await.expect("it is kept");
    let expected = "2 runs have ended without a report: \
                    look for workers that crash or block, then retry the job";
    assert_eq!(dead.error.as_deref(), Some(expected));
    near.job_queue().put(large("f", "small", 5)).await.unwrap();
    calls.reach(1).await;
    assert_eq!(calls.all(), [1], "the other one has reached nobody");
    ends(&far, working).await;
}

#[on(redis, postgres, both_runtimes)]
async fn calls_are_taken_and_listed_in_parts_that_are_not_too_large(backend: &Backend) {
    let (locks, name) = (manager(backend).await, name("parts"));
    let job_queue = locks.job_queue();
    for (id, bytes) in [("a", 100_000), ("b", 100_000), ("c", 100_000), ("d", MIB), ("e", 10)] {
        job_queue.put(large(&name, id, bytes)).await.unwrap();
    }
    let list = async |first| {
        let page =
            job_queue.list(name.as_str().into(), JobState::Waiting, first, 10).await.unwrap();
        assert_eq!(page.total, 5);
        page.jobs.into_iter().map(|job| job.id).collect::<String>()
    };
    assert_eq!([list(0).await, list(2).await, list(3).await, list(4).await], ["ab", "c", "d", "e"]);
    let mut taken = Vec::new();
    while taken.len() < 4 {
        let order = TakeOptions::new([name.as_str()], 16, LONG_TTL);
        let jobs = job_queue.take(order, Box::pin(pending())).await.unwrap();
        taken.push(jobs.iter().map(|job| &*job.id).collect::<String>());
        for job in jobs {
            assert!(job_queue.settle(job, Settled::Done).await.unwrap());
        }
    }
    assert_eq!(taken, ["ab", "c", "d", "e"]);
    nothing_is_left(&locks, &name).await;
    forget(backend).await;
}

/// A worker that nobody heard of may come to an end all the same.
#[on(memory, redis, postgres, both_runtimes)]
async fn a_late_end_of_a_call_that_was_given_up_counts(backend: &Backend) {
    let (locks, name) = (manager(backend).await, name("late"));
    let (job_queue, function) = (locks.job_queue(), Arc::<str>::from(&*name));
    let mut once = large(&name, "id", 5);
    once.attempts = 0;
    job_queue.put(once).await.unwrap();
    let order = TakeOptions::new([Arc::clone(&function)], 1, SHORT_DELAY);
    let job = job_queue.take(order.clone(), Box::pin(pending())).await.unwrap().remove(0);
    // Another worker asks, and is not given it.
    let enough = eventually("given up", TEST_TIMEOUT, async || {
        count(&locks, &name, JobState::Dead).await == 1
    });
    assert!(job_queue.take(order, Box::pin(enough)).await.unwrap().is_empty());
    assert!(job_queue.settle(job, Settled::Done).await.unwrap());
    nothing_is_left(&locks, &name).await;
    forget(backend).await;
}
