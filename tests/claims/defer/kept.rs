//! How long calls are kept that nobody runs.

use lockmacro_runtime::defer::{Keep, NewJob, Settled};
use lockmacro_tests::Server;

use super::*;

#[tokio::test]
async fn listing_calls_keeps_all_of_their_keys_equally_long() {
    let server = Server::start();
    let locks = connect(&server).await;
    let job_queue = locks.job_queue();
    let call = |id: &str, delay| {
        let mut job = NewJob::new("f", id, "[1]", name("key"));
        (job.delay, job.keep) = (delay, Keep::First);
        job
    };
    let taken = async |id| {
        job_queue.put(call(id, Duration::ZERO)).await.unwrap();
        take(&locks, "f", LONG_TTL).await
    };
    // One of each.
    let job = taken("dead").await;
    assert_eq!(job_queue.settle(job, Settled::Dead { error: "no".into() }).await, Ok(true));
    taken("running").await;
    let waiting = call("waiting", LONG_TTL);
    job_queue.put(waiting.clone()).await.unwrap();

    let mut admin = server.admin();
    let keys = ["lm1:jobs:f"].into_iter().map(str::to_owned);
    let sides = ["d", "r", "x", "u"].map(|kind| format!("lm1:w{kind}:{{lm1:jobs:f}}"));
    let keys: Vec<_> = keys.chain(sides).collect();
    for what in ["listed", "counted", "stored again", "removed in vain"] {
        // Nearly a month later.
        for key in &keys {
            assert!(admin.ask::<bool>(&["EXPIRE", key, "3600"]), "{key}");
        }
        match what {
            "listed" => assert_eq!(count(&locks, "f", JobState::Dead).await, 1),
            "counted" => {
                let page = job_queue.list("f".into(), JobState::Running, 0, 0).await.unwrap();
                assert_eq!(page.total, 1);
            }
            "stored again" => {
                job_queue.put(waiting.clone()).await.unwrap();
            }
            _ => assert!(!job_queue.remove("f".into(), "running".to_owned()).await.unwrap()),
        }
        for key in &keys {
            let left: i64 = admin.ask(&["TTL", key]);
            assert!(left > 24 * 60 * 60, "{what}: {key} is kept for {left} s");
        }
    }
}
