//! Values of other programs in the keys of the queue.

use lockmacro_runtime::defer::{Job, NewJob, Settled, TakeOptions, When};
use lockmacro_tests::Server;

use super::*;

#[tokio::test]
async fn what_is_no_call_is_removed_and_the_others_are_run() {
    let server = Server::start();
    let (locks, calls) = (connect(&server).await, Calls::default());
    let function = noting("f", &calls);
    put(&locks, &function, 1).await;
    let mut admin = server.admin();
    // Without arguments, without a number of attempts, with arguments that are none.
    admin.ask::<()>(&["ZADD", "lm1:wd:{lm1:jobs:f}", "1", "stray"]);
    admin.ask::<()>(&["HSET", "lm1:jobs:f", "odd", "[2]", "odd#n", "many", "odd#k", "k"]);
    admin.ask::<()>(&["ZADD", "lm1:wd:{lm1:jobs:f}", "2", "odd"]);
    let most = "9223372036854775807";
    let big = ["big", "[3]", "big#n", most, "big#t", "-1", "big#k", "k"];
    admin.ask::<()>(&[&["HSET", "lm1:jobs:f"], &big[..]].concat());
    admin.ask::<()>(&["ZADD", "lm1:wd:{lm1:jobs:f}", "2", "big"]);
    admin.ask::<()>(&["HSET", "lm1:jobs:f", "bad", "\u{1}{", "bad#k", "k"]);
    admin.ask::<()>(&["ZADD", "lm1:wd:{lm1:jobs:f}", "3", "bad"]);
    admin.ask::<()>(&["ZADD", "lm1:wi:{lm1:jobs:f}", "99999999999999", "no number"]);
    let working = start(&locks, &function);
    calls.reach(3).await;
    // Another worker may be able to read what is none here.
    let is_left = async || {
        let job = first(&locks, "f", JobState::Waiting).await;
        job.is_some_and(|job| job.id == "bad" && job.busy > 0)
    };
    eventually("it is left to others", TEST_TIMEOUT, is_left).await;
    eventually("it is removed between two tries", TEST_TIMEOUT, async || {
        locks.job_queue().remove("f".into(), "bad".to_owned()).await.unwrap()
    })
    .await;
    let none_waits = async || count(&locks, "f", JobState::Waiting).await == 0;
    eventually("no more waits", TEST_TIMEOUT, none_waits).await;
    assert!(!admin.ask::<bool>(&["ZSCORE", "lm1:wd:{lm1:jobs:f}", "stray"]));
    ends(&locks, working).await;
}

/// Writes a call by hand. The id is written as Lua writes texts.
fn write(server: &Server, id: &str, arguments: &str, place: &str, at: &str) {
    let script = format!(
        "redis.call('HSET', 'lm1:jobs:f', '{id}', ARGV[1], '{id}#k', 'k') \
         return redis.call('ZADD', 'lm1:w{place}:{{lm1:jobs:f}}', ARGV[2], '{id}')"
    );
    server.admin().ask::<()>(&["EVAL", &script, "0", arguments, at]);
}

#[tokio::test]
async fn an_id_that_is_no_text_is_removed_and_any_text_is_an_id() {
    let server = Server::start();
    let (locks, calls) = (connect(&server).await, Calls::default());
    // Cut short, out of place, longer than need be, half of a pair, too large, and one in the midst
    // of text.
    let no_text = [
        r"\255",
        r"\226\130",
        r"\128a",
        r"\192\128",
        r"\224\128\128",
        r"\237\160\128",
        r"\244\144\128\128",
        r"a\226\130\172\255b",
        r"\226\195\164\130\172",
    ];
    for (nth, id) in no_text.iter().enumerate() {
        assert!(String::from_utf8(bytes_of(id)).is_err(), "{id}");
        // Those of dead workers go back first.
        write(&server, id, "[0]", if nth % 2 == 0 { "d" } else { "r" }, "1");
    }
    let text = [
        "\u{7f}",
        "ä",
        "\u{7ff}\u{800}",
        "€",
        "\u{d7ff}\u{e000}",
        "\u{ffff}\u{10000}",
        "😀",
        "\u{10ffff}é",
    ];
    for id in text {
        write(&server, id, "[1]", "d", "2");
    }
    let working = start(&locks, &noting("f", &calls));
    calls.reach(text.len()).await;
    nothing_is_left(&locks, "f").await;
    assert_eq!(calls.all(), [1; 8], "only those with an id");
    assert_eq!(server.admin().ask::<usize>(&["HLEN", "lm1:jobs:f"]), 0, "nothing is left of any");
    ends(&locks, working).await;
}

/// The bytes that Lua reads in a text with `\ddd`.
fn bytes_of(text: &str) -> Vec<u8> {
    let mut parts = text.split('\\');
    let mut bytes = parts.next().unwrap().as_bytes().to_vec();
    for part in parts {
        bytes.push(part[..3].parse().unwrap());
        bytes.extend(part[3..].bytes());
    }
    bytes
}

#[tokio::test]
async fn a_call_that_is_due_at_no_time_at_all_is_listed_and_can_be_removed() {
    let server = Server::start();
    let locks = connect(&server).await;
    let job_queue = locks.job_queue();
    for (id, at) in [("never", "inf"), ("ever", "-inf"), ("late", "1e300")] {
        write(&server, id, "[0]", "d", at);
    }
    let page = job_queue.list("f".into(), JobState::Waiting, 0, 10).await.unwrap();
    let listed: Vec<_> =
        page.jobs.iter().map(|job| (&*job.id, matches!(job.when, When::In(_)))).collect();
    assert_eq!((page.total, listed), (3, vec![("ever", false), ("late", true), ("never", true)]));
    for id in ["never", "ever", "late"] {
        remove(&locks, "f", id.to_owned()).await;
    }
}

#[tokio::test]
async fn a_key_beside_the_queue_that_is_of_another_type_stops_no_worker() {
    let server = Server::start();
    let (locks, calls) = (connect(&server).await, Calls::default());
    let function = noting("f", &calls);
    let mut admin = server.admin();
    let keys = ["lm1:wo:{lm1:jobs:f}", "lm1:wu:{lm1:jobs:f}", "lm1:wi:{lm1:jobs:f}"];
    let working = start(&locks, &function);
    for (nth, key) in keys.into_iter().enumerate() {
        admin.ask::<()>(&["DEL", key]);
        admin.ask::<()>(&["SET", key, "text"]);
        let error = busy_deferred(&locks, &function.clone().unique()).await;
        // It is stored, or the caller gets an error that names the obstacle.
        let is_clear = matches!(error, LockError::KeyNotALock { .. } | LockError::Deferred { .. });
        assert!(is_clear, "{key}: {error:?}");
        admin.ask::<()>(&["DEL", key]);
        put(&locks, &function, 100 + nth as u64).await;
        let is_run = async || calls.all().contains(&(100 + nth as u64));
        eventually("workers go on", TEST_TIMEOUT, is_run).await;
    }
    ends(&locks, working).await;
}

/// The changes of a script stay when the script fails later.
#[tokio::test]
async fn a_key_beside_the_queue_that_is_of_another_type_loses_no_call() {
    let server = Server::start();
    let locks = connect(&server).await;
    let (mut admin, job_queue) = (server.admin(), locks.job_queue());
    let function = noting("f", &Calls::default()).delay(Duration::ZERO);
    let order = || TakeOptions::new(["f"], 2, LONG_TTL);
    let take = async || {
        let soon = Box::pin(tokio::time::sleep(SHORT_DELAY * 5));
        job_queue.take(order(), soon).await
    };
    for number in 0..4 {
        put(&locks, &function, number).await;
    }
    let mut taken = take().await.expect("they are due");
    for kind in ["d", "r", "x", "u", "i", "o"] {
        let key = format!("lm1:w{kind}:{{lm1:jobs:f}}");
        // It may not be there.
        admin.ask::<()>(&["EVAL", "redis.pcall('RENAME', KEYS[1], 'kept')", "1", &key]);
        admin.ask::<()>(&["SET", &key, "text"]);
        let job = taken.pop().expect("one");
        let dead = Settled::Dead { error: "out of stock".into() };
        for how in [dead, Settled::Returned, Settled::Done] {
            let settled = job_queue.settle(job.clone(), how).await;
            assert!(matches!(settled, Err(LockError::KeyNotALock { .. })), "{key}: {settled:?}");
        }
        let more = take().await;
        assert!(matches!(more, Err(LockError::KeyNotALock { .. })), "{key}: {more:?}");
        admin.ask::<()>(&["DEL", &key]);
        admin.ask::<()>(&["EVAL", "redis.pcall('RENAME', 'kept', KEYS[1])", "1", &key]);
        assert!(job_queue.settle(job, Settled::Returned).await.unwrap(), "{key}");
        let total = count(&locks, "f", JobState::Waiting).await
            + count(&locks, "f", JobState::Running).await;
        assert_eq!((total, count(&locks, "f", JobState::Dead).await), (4, 0), "{key}");
        taken.extend(take().await.expect("they are due"));
    }
}

#[tokio::test]
async fn a_queue_that_is_of_another_type_is_asked_now_and_then_and_holds_up_no_other() {
    let server = Server::start();
    let (locks, calls) = (connect(&server).await, Calls::default());
    let (function, broken) = (noting("f", &calls), noting("broken", &calls));
    let mut admin = server.admin();
    admin.ask::<()>(&["SET", "lm1:wd:{lm1:jobs:broken}", "text"]);
    let both = worker(&locks, &function).register(broken.clone());
    let start = Instant::now();
    let working = tokio::spawn(both.run());
    let mut number = 0;
    // The server may count a script that fails twice.
    while admin.refused("WRONGTYPE") < 5 {
        assert!(start.elapsed() < LONG_TTL, "it is not asked any more");
        number += 1;
        put(&locks, &function, number).await;
        calls.reach(number as usize).await;
        tokio::time::sleep(SHORT_DELAY).await;
    }
    // A second apart, however slow the machine is.
    let passed = start.elapsed();
    assert!(passed > Duration::from_millis(1_500), "asked for a third time after {passed:?}");
    let error = busy_deferred(&locks, &broken).await;
    assert!(matches!(error, LockError::KeyNotALock { .. }), "{error:?}");
    admin.ask::<()>(&["DEL", "lm1:wd:{lm1:jobs:broken}"]);
    put(&locks, &broken, 0).await;
    eventually("it is well again", TEST_TIMEOUT, async || calls.all().contains(&0)).await;
    for name in ["f", "broken"] {
        nothing_is_left(&locks, name).await;
    }
    ends(&locks, working).await;
}

async fn busy_deferred(locks: &LockManager, function: &DeferredFn<(u64,)>) -> LockError {
    let held = hold(locks, "k").await;
    let deferred = defer(locks, function, "k", (1,)).await;
    held.release().await.unwrap();
    deferred
}

#[tokio::test]
async fn dead_jobs_whose_id_is_no_text_can_be_removed() {
    let server = Server::start();
    let locks = connect(&server).await;
    for id in [r"\255", r"a\226\130", "text"] {
        write(&server, id, "[1]", "x", "1");
    }
    let job_queue = locks.job_queue();
    let page = job_queue.list("f".into(), JobState::Dead, 0, 9).await.unwrap();
    assert_eq!((page.total, page.jobs.len()), (3, 3), "they are shown as far as they are text");
    assert_eq!(job_queue.remove_dead("f".into(), 9).await, Ok(3));
    nothing_is_left(&locks, "f").await;
    assert!(!server.admin().ask::<bool>(&["EXISTS", "lm1:jobs:f"]), "nothing is left of them");
}

#[on(memory, redis, postgres, both_runtimes)]
async fn numbers_without_an_end_are_as_good_as_large_ones(backend: &Backend) {
    let (locks, calls, name) = (manager(backend).await, Calls::default(), name("far"));
    let (job_queue, of) = (locks.job_queue(), Arc::<str>::from(&*name));
    let call = |id: &str, delay| {
        let mut job = NewJob::new(Arc::clone(&of), id, "[1]", "order:1");
        job.delay = delay;
        job
    };
    for (nth, delay) in [Duration::MAX, Duration::MAX / 2, Duration::ZERO].into_iter().enumerate() {
        job_queue.put(call(&format!("id{nth}"), delay)).await.unwrap();
    }
    let page = job_queue.list(Arc::clone(&of), JobState::Waiting, usize::MAX, usize::MAX).await;
    assert_eq!(page.map(|page| (page.total, page.jobs.len())), Ok((3, 0)));
    let order = TakeOptions::new([Arc::clone(&of)], usize::MAX, Duration::MAX);
    let taken = job_queue.take(order, Box::pin(pending())).await.unwrap();
    let [job] = taken.try_into().expect("one is due");
    assert!(job_queue.keep(Job::clone(&job), Duration::MAX).await.unwrap());
    let again = Settled::Again { delay: Duration::MAX, error: "no".into() };
    assert!(job_queue.settle(job, again).await.unwrap());
    // A worker waits for them, and works.
    let function = noting(&name, &calls);
    let working = start(&locks, &function);
    put(&locks, &function, 7).await;
    calls.reach(1).await;
    for nth in 0..3 {
        assert!(job_queue.remove(Arc::clone(&of), format!("id{nth}")).await.unwrap());
    }
    nothing_is_left(&locks, &name).await;
    ends_on(backend, &locks, working).await;
}
