//! One of the waiting processes of `waiting::fleet`: `<url> <history> <name> <tasks> <ttl in ms>`.
//!
//! Its tasks run bodies under three keys, one after the other, until its standard input ends, and
//! note in the history what they ask, are told and do. The process says `ready` when it is
//! connected, a line for each error, and `done` with the number of bodies.

use std::error::Error;
use std::io::{Read as _, Write as _};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::SeqCst};
use std::time::Duration;

use lockmacro_histories::{Entry, Function, Kind, Recorder, now};
use lockmacro_runtime::{Fence, Lock, LockError, LockGuard, LockManager};
use lockmacro_tests::AcquireFenced as _;
use tokio::task::JoinSet;

const KEYS: usize = 3;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [url, history, name, tasks, ttl] = arguments.as_slice() else {
        return Err(format!("not an order: {arguments:?}").into());
    };
    let ttl = Duration::from_millis(ttl.parse()?);
    let manager = LockManager::builder().label(name).timeout(Duration::from_secs(5));
    let work = Arc::new(Work {
        manager: manager.connect(url).await?,
        history: Recorder::open(history.as_ref())?,
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
    history: Recorder,
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
            let body = Body { key: &key, task: format!("{}/{task}", self.name) };
            if let Err(error) = self.one(&body).await {
                say(&format!("error {}/{turn}: {error:?}", body.task));
            }
        }
    }

    async fn one(&self, body: &Body<'_>) -> Result<(), LockError> {
        let lock = Lock::new(body.key).ttl(self.ttl).manager(&self.manager).wait_forever();
        self.note(body.entry(Kind::Invoke, Function::Acquire));
        let (guard, fence) = match lock.acquire_fenced().await {
            Ok((guard, fences)) => (guard, fences[0]),
            Err(error) => {
                // Whether it was granted meanwhile is not known.
                self.note(body.entry(Kind::Info, Function::Acquire).error(&error));
                return Err(error);
            }
        };
        self.note(body.granted(&guard, fence));
        let result = guard
            .run(async {
                self.bodies.fetch_add(1, SeqCst);
                tokio::time::sleep(Duration::from_millis(u64::from(fence) % 3)).await;
                // The body works until its end, so it must hold the lock until then.
                self.note(body.entry(Kind::Ok, Function::Use));
                self.note(body.entry(Kind::Invoke, Function::Release));
                Ok(())
            })
            .await;
        match &result {
            Ok(()) => self.note(body.entry(Kind::Ok, Function::Release)),
            Err(error) => self.note(body.entry(Kind::Info, Function::Release).error(error)),
        }
        result
    }

    fn note(&self, entry: Entry) {
        self.history.write(entry);
    }
}

/// What a task does once under a key.
struct Body<'a> {
    key: &'a str,
    task: String,
}

impl Body<'_> {
    fn entry(&self, kind: Kind, function: Function) -> Entry {
        Entry::new(kind, function, self.key, &self.task, now())
    }

    fn granted(&self, guard: &LockGuard, fence: Fence) -> Entry {
        let granted = self.entry(Kind::Ok, Function::Acquire).fence(fence.into());
        let left = guard.remaining().as_nanos() as u64;
        let until = granted.time + left;
        granted.until(until)
    }
}

/// Says a line at once. A reader that has gone needs no line.
fn say(line: &str) {
    let mut out = std::io::stdout().lock();
    let _ = writeln!(out, "{line}").and_then(|()| out.flush());
}
