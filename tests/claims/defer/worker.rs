//! One process that runs jobs in `defer::workers_die`: `<url> <record> <lease ms>`.
//!
//! It notes in the record, behind its own number, when a call begins and is done, and what the
//! queue says of its end: `settled`, `failed` when it is due again after an error, `lost` when the
//! call was not its own any more, or `taken-away` when its lease was not over by then. The process
//! works until it is killed or its standard input ends.

use std::collections::HashMap;
use std::error::Error;
use std::fmt;
use std::fs::{File, OpenOptions};
use std::io::{Read as _, Write as _};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, Instant};

use lockmacro_runtime::defer::{
    Job, JobFuture, JobQueue, JobState, NewJob, Page, Settled, StopWaiting, Stored, TakeOptions,
    Worker,
};
use lockmacro_runtime::{LockError, LockManager, distributed_lock};
use tokio::sync::Notify;

#[derive(Debug)]
struct Record(File);

impl Record {
    fn note(&self, word: &str, number: &str) {
        // One write, so that lines stay whole.
        let line = format!("{} {word} {number}\n", std::process::id());
        (&self.0).write_all(line.as_bytes()).expect("the record can be written");
    }
}

/// The locks' own queue, and a note of what it says.
#[derive(Debug)]
struct Noting {
    queue: Arc<dyn JobQueue>,
    record: Arc<Record>,
    /// Until when each call is known to be this process's.
    kept: Mutex<HashMap<(String, u64), Instant>>,
}

impl Noting {
    fn note_loss(&self, job: &Job) {
        let kept = self.kept.lock().expect("nobody panics");
        let until = kept.get(&(job.id.clone(), job.claim));
        let is_over = until.is_none_or(|until| Instant::now() > *until);
        self.record.note(if is_over { "lost" } else { "taken-away" }, &job.arguments);
    }
}

impl JobQueue for Noting {
    fn put(&self, job: NewJob) -> JobFuture<'_, Stored> {
        self.queue.put(job)
    }

    fn take<'a>(&'a self, order: TakeOptions, enough: StopWaiting<'a>) -> JobFuture<'a, Vec<Job>> {
        self.queue.take(order, enough)
    }

    fn keep(&self, job: Job, lease: Duration) -> JobFuture<'_, bool> {
        Box::pin(async move {
            let asked = Instant::now();
            let kept = self.queue.keep(job.clone(), lease).await;
            match kept {
                Ok(true) => {
                    let its = (job.id, job.claim);
                    self.kept.lock().expect("nobody panics").insert(its, asked + lease);
                }
                Ok(false) => self.note_loss(&job),
                Err(_) => {}
            }
            kept
        })
    }

    fn settle(&self, job: Job, how: Settled) -> JobFuture<'_, bool> {
        Box::pin(async move {
            let end = if matches!(how, Settled::Again { .. }) { "failed" } else { "settled" };
            let settled = self.queue.settle(job.clone(), how).await;
            match settled {
                Ok(true) => self.record.note(end, &job.arguments),
                Ok(false) => self.note_loss(&job),
                Err(_) => {}
            }
            settled
        })
    }

    fn list(
        &self,
        function: Arc<str>,
        state: JobState,
        first: usize,
        most: usize,
    ) -> JobFuture<'_, Page> {
        self.queue.list(function, state, first, most)
    }

    fn retry(&self, function: Arc<str>, id: String) -> JobFuture<'_, bool> {
        self.queue.retry(function, id)
    }

    fn remove(&self, function: Arc<str>, id: String) -> JobFuture<'_, bool> {
        self.queue.remove(function, id)
    }
}

static RECORD: OnceLock<Arc<Record>> = OnceLock::new();
static LEASE: OnceLock<Duration> = OnceLock::new();

async fn body(number: u64) {
    let note = |word| RECORD.get().map(|record| record.note(word, &format!("[{number}]")));
    note("begun");
    // Some for longer than the lease.
    let lease = LEASE.get().copied().unwrap_or_default();
    tokio::time::sleep(if number % 25 == 3 { lease * 5 / 4 } else { lease / 40 }).await;
    note("done");
}

/// The locks of a worker that is killed are held for longer than its calls are its own.
#[distributed_lock(
    key = "order:<number>",
    ttl = "4s",
    on_busy = defer("20ms", attempts = 1_000), name = "good"
)]
async fn good(number: u64) -> Result<(), LockError> {
    body(number).await;
    Ok(())
}

#[derive(Debug)]
struct OutOfStock(String);

impl fmt::Display for OutOfStock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl From<LockError> for OutOfStock {
    fn from(error: LockError) -> Self {
        OutOfStock(error.to_string())
    }
}

#[distributed_lock(
    key = "order:<number>",
    ttl = "4s",
    on_busy = defer("20ms", attempts = 2), name = "bad"
)]
async fn bad(number: u64) -> Result<(), OutOfStock> {
    body(number).await;
    Err(OutOfStock("out of stock".to_owned()))
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [url, record, lease] = arguments.as_slice() else {
        return Err(format!("not an order: {arguments:?}").into());
    };
    let lease = *LEASE.get_or_init(|| Duration::from_millis(lease.parse().unwrap_or_default()));
    let record = Record(OpenOptions::new().append(true).open(record)?);
    let record = RECORD.get_or_init(|| Arc::new(record));
    let patient = || LockManager::builder().timeout(Duration::from_secs(40));
    let queue = patient().connect(url).await?.job_queue();
    let queue = Noting { queue, record: Arc::clone(record), kept: Mutex::default() };
    let locks = patient().job_queue(Arc::new(queue)).connect(url).await?;
    locks.install()?;
    let ended = Arc::new(Notify::new());
    let end = Arc::clone(&ended);
    std::thread::spawn(move || {
        // An error is an end as well.
        let _ = std::io::stdin().read_to_end(&mut Vec::new());
        end.notify_one();
    });
    let worker = Worker::new(&locks)
        .register(good_deferred())
        .register(bad_deferred())
        .lease(lease)
        .concurrency(4);
    worker.run_until(ended.notified()).await?;
    Ok(locks.shutdown(Duration::from_secs(5)).await?)
}
