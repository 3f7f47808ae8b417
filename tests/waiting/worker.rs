//! One of the waiting processes of `waiting::fleet`: `<url> <record> <name> <tasks> <ttl
//! in ms>`.
//!
//! Its tasks run bodies under three keys, one after the other, until its standard input ends. Every
//! body notes in the record when it enters and leaves. It says `ready` when it is connected, a line
//! for each error, and `done` with the number of bodies.

use std::error::Error;
use std::fs::{File, OpenOptions};
use std::io::{Read as _, Write as _};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::SeqCst};
use std::time::Duration;

use lockmacro_runtime::{Fence, Lock, LockError, LockManager};
use tokio::task::JoinSet;

const KEYS: usize = 3;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [url, record, name, tasks, ttl] = arguments.as_slice() else {
        return Err(format!("not an order: {arguments:?}").into());
    };
    let ttl = Duration::from_millis(ttl.parse()?);
    let manager = LockManager::builder().label(name).timeout(Duration::from_secs(5));
    let work = Arc::new(Work {
        manager: manager.connect(url).await?,
        record: OpenOptions::new().append(true).open(record)?,
        name: name.clone(),
        ttl,
        ended: AtomicBool::new(false),
        bodies: AtomicU32::new(0),
    });
    let until_the_end = Arc::clone(&work);
    std::thread::spawn(move || {
        // An error is an end as well.
        let _ = std::io::stdin().read_to_end(&mut Vec::new());
        until_the_end.ended.store(true, SeqCst);
    });
    say("ready");
    let mut running = JoinSet::new();
    for task in 0..tasks.parse()? {
        running.spawn(Arc::clone(&work).run(task));
    }
    while let Some(ended) = running.join_next().await {
        ended?;
    }
    work.manager.shutdown(Duration::from_secs(5)).await?;
    say(&format!("done {}", work.bodies.load(SeqCst)));
    Ok(())
}

struct Work {
    manager: LockManager,
    record: File,
    name: String,
    ttl: Duration,
    ended: AtomicBool,
    bodies: AtomicU32,
}

impl Work {
    async fn run(self: Arc<Self>, task: usize) {
        for turn in 0.. {
            if self.ended.load(SeqCst) {
                return;
            }
            let key = format!("order:{}", (task + turn) % KEYS);
            let body = format!("{}/{task}/{turn}", self.name);
            if let Err(error) = self.one(&key, &body).await {
                say(&format!("error {body}: {error:?}"));
            }
        }
    }

    async fn one(&self, key: &str, body: &str) -> Result<(), LockError> {
        let lock = Lock::new(key).ttl(self.ttl).manager(&self.manager).wait_forever();
        let (guard, fence) = lock.acquire_fenced().await?;
        let body = async {
            let _presence = self.enter(key, body, fence);
            tokio::time::sleep(Duration::from_millis(u64::from(fence) % 3)).await;
            Ok(())
        };
        guard.run(body).await
    }

    fn enter(&self, key: &str, body: &str, fence: Fence) -> Presence<'_> {
        self.bodies.fetch_add(1, SeqCst);
        self.note(&format!("enter\t{key}\t{body}\t{fence}\n"));
        Presence { work: self, event: format!("leave\t{key}\t{body}\t{fence}\n") }
    }

    fn note(&self, line: &str) {
        // One write for one line: that is what makes a line whole. One that is missing is noticed.
        let _ = (&self.record).write_all(line.as_bytes());
    }
}

/// A body that is inside. It leaves also when it is cancelled.
struct Presence<'a> {
    work: &'a Work,
    event: String,
}

impl Drop for Presence<'_> {
    fn drop(&mut self) {
        self.work.note(&self.event);
    }
}

/// Says a line at once. A reader that has gone needs no line.
fn say(line: &str) {
    let mut out = std::io::stdout().lock();
    let _ = writeln!(out, "{line}").and_then(|()| out.flush());
}
