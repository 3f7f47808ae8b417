//! Many calls that are due at once.

use std::collections::HashSet;

use lockmacro_tests::Server;

use super::*;

const CALLS: u64 = 50_000;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fifty_thousand_calls_that_are_due_at_once_are_all_run() {
    let server = Server::start();
    let (locks, calls) = (connect(&server).await, Calls::default());
    let function = noting("f", &calls);
    // As they would be stored, in large steps.
    let mut admin = server.admin();
    for first in (0..CALLS).step_by(5_000) {
        let (mut jobs, mut due) = (vec!["HSET".to_owned(), "lm1:jobs:f".to_owned()], Vec::new());
        for number in first..first + 5_000 {
            jobs.extend([format!("id{number}"), format!("[{number}]")]);
            due.extend(["1".to_owned(), format!("id{number}")]);
        }
        let words: Vec<_> = jobs.iter().map(String::as_str).collect();
        admin.ask::<()>(&words);
        let words =
            ["ZADD", "lm1:wd:{lm1:jobs:f}"].into_iter().chain(due.iter().map(String::as_str));
        admin.ask::<()>(&words.collect::<Vec<_>>());
    }
    admin.forget_calls();
    let working = tokio::spawn(worker(&locks, &function).concurrency(256).run());
    eventually("all were run", Duration::from_secs(300), async || {
        calls.0.lock().unwrap().len() >= CALLS as usize
    })
    .await;
    nothing_is_left(&locks, "f").await;
    let all = calls.all();
    assert_eq!(all.len() as u64, CALLS, "each once");
    assert_eq!(all.into_iter().collect::<HashSet<_>>().len() as u64, CALLS);
    let stats: String = admin.ask(&["INFO", "errorstats"]);
    let of_scripts = stats.lines().filter(|line| line.starts_with("errorstat_"));
    let other: Vec<_> = of_scripts.filter(|line| !line.contains("NOSCRIPT")).collect();
    assert!(other.is_empty(), "{other:?}");
    ends(&locks, working).await;
}
