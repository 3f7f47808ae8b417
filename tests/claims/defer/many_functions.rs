//! Workers that know many functions.

use lockmacro_runtime::defer::NewJob;
use lockmacro_tests::{Cluster, Fault, Proxy, Server};

use super::*;

async fn store(locks: &LockManager, function: &str, number: u64, delay: Duration) {
    let (id, arguments) = (format!("id{number}"), format!("[{number}]"));
    let mut job = NewJob::new(function, id, arguments, name("key"));
    job.delay = delay;
    locks.job_queue().put(job).await.expect("stored");
}

#[tokio::test]
async fn a_node_that_hangs_holds_up_no_function_of_another_node() {
    let cluster = Cluster::start(3, 0).await;
    // Ten seconds for each answer.
    let locks = patient().connect(&cluster.url()).await.expect("it is there");
    let calls = Calls::default();
    let here = "here".to_owned();
    let owner = cluster.owner(&format!("lm1:jobs:{here}"));
    let hangs = (owner + 1) % 3;
    let there = (0..).map(|nth| format!("there-{nth}"));
    let there = there.filter(|name| cluster.owner(&format!("lm1:jobs:{name}")) == hangs);
    let mut both = worker(&locks, &noting(&here, &calls));
    for name in there.take(4) {
        both = both.register(noting(&name, &calls));
    }
    let working = tokio::spawn(both.run());
    store(&locks, &here, 0, Duration::ZERO).await;
    calls.reach(1).await;
    cluster.server(hangs).pause();
    // One now, and one after the worker has looked for the calls of all functions again.
    for (number, delay) in [(1, Duration::ZERO), (2, Duration::from_millis(2_500))] {
        store(&locks, &here, number, delay).await;
        eventually("it is run", Duration::from_secs(9), async || calls.all().len() as u64 > number)
            .await;
    }
    cluster.server(hangs).resume();
    nothing_is_left(&locks, &here).await;
    assert_eq!(calls.all(), [0, 1, 2], "each once");
    ends(&locks, working).await;
}

/// The answer for the other function, from when the worker had no room, is outdated by then.
#[tokio::test]
async fn a_worker_that_was_full_begins_with_what_became_due_meanwhile() {
    const TICK: Duration = Duration::from_secs(2);
    let server = Server::start();
    let (locks, calls) = (connect(&server).await, Calls::default());
    let gate = Arc::new(tokio::sync::Semaphore::new(0));
    let opens = Arc::clone(&gate);
    let full = DeferredFn::new("full", (argument("number"),), move |(_,): (u64,)| {
        let opens = Arc::clone(&opens);
        async move { drop(opens.acquire().await.map(|permit| permit.forget())) }
    });
    let both = worker(&locks, &noting("other", &calls)).register(full).concurrency(1);
    let working = tokio::spawn(both.run());
    // A machine in need gets some chances.
    for round in 0..4 {
        store(&locks, "full", round, Duration::ZERO).await;
        let runs = async || count(&locks, "full", JobState::Running).await == 1;
        eventually("it is full", TEST_TIMEOUT, runs).await;
        // Nobody tells it of another call any more: it asked long ago, and does not ask again.
        let hears = || server.admin().ask::<u64>(&["EXISTS", "lm1:wi:{lm1:jobs:other}"]) == 1;
        let heard = std::cell::Cell::new(Instant::now());
        eventually("it hears no more", TEST_TIMEOUT, async || {
            if hears() {
                heard.set(Instant::now());
            }
            heard.get().elapsed() > TICK / 8
        })
        .await;
        store(&locks, "other", round, Duration::ZERO).await;
        gate.add_permits(1);
        let start = Instant::now();
        calls.reach(round as usize + 1).await;
        let late = start.elapsed();
        if late < TICK * 3 / 4 {
            break;
        }
        assert!(round < 3, "each time it begins as late as {late:?}");
    }
    for name in ["full", "other"] {
        nothing_is_left(&locks, name).await;
    }
    ends(&locks, working).await;
}

#[tokio::test]
async fn many_functions_are_asked_for_at_once_and_not_one_after_another() {
    const FUNCTIONS: u32 = 40;
    const WAY: Duration = Duration::from_millis(100);
    let server = Server::start();
    let proxy = Proxy::to(server.port());
    let (near, far) = (connect(&server).await, patient().connect(&proxy.url()).await.unwrap());
    let calls = Calls::default();
    let many = || {
        (0..FUNCTIONS).fold(Worker::new(&far), |worker, nth| {
            worker.register(noting(&format!("f{nth}"), &calls))
        })
    };
    proxy.delay(WAY);
    // A machine in need gets some chances. A worker that asks for one after another has none.
    let one_after_another = WAY * FUNCTIONS;
    let mut number = 0;
    loop {
        assert!(number < 5, "it is {one_after_another:?} late each time");
        store(&near, "f0", number, Duration::ZERO).await;
        let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
        let start = Instant::now();
        let working = tokio::spawn(many().run_until(async {
            let _ = stopped.await;
        }));
        number += 1;
        calls.reach(number as usize).await;
        let late = start.elapsed();
        drop(stop);
        working.await.unwrap().unwrap();
        if late < one_after_another {
            break;
        }
    }
    proxy.delay(Duration::ZERO);
    far.shutdown(TEST_TIMEOUT).await.unwrap();
}

#[tokio::test]
async fn a_call_whose_reply_came_too_late_is_left_to_another_worker() {
    let server = Server::start();
    let proxy = Proxy::to(server.port());
    let (far, near) = (patient().connect(&proxy.url()).await.unwrap(), connect(&server).await);
    let (late, calls) = (Calls::default(), Calls::default());
    // The server knows the scripts.
    store(&near, "f", 0, Duration::ZERO).await;
    let first = start(&far, &noting("f", &late));
    late.reach(1).await;
    ends(&far, first).await;

    let far = patient().connect(&proxy.url()).await.unwrap();
    store(&near, "f", 1, Duration::ZERO).await;
    let short = Duration::from_millis(200);
    // Longer than the lease, which no earlier request names, and shorter than the timeout.
    proxy.on_next("200", Fault::DelayReply(Duration::from_secs(2)));
    let first = tokio::spawn(worker(&far, &noting("f", &late)).lease(short).run());
    eventually("it is taken", TEST_TIMEOUT, async || {
        proxy.orders_are_done() && count(&near, "f", JobState::Running).await == 1
    })
    .await;
    let second = start(&near, &noting("f", &calls));
    nothing_is_left(&near, "f").await;
    far.shutdown(TEST_TIMEOUT).await.unwrap();
    ends(&near, first).await;
    second.await.unwrap().unwrap();
    // The other one is in time, unless the machine is in need.
    assert_eq!([late.all(), calls.all()].concat(), [0, 1], "each once");
}
