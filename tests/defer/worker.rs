//! One process that runs deferred calls in `defer::workers_die`: `<url> <record> <lease ms>`.
//!
//! It notes in the record, behind its own number, when a call begins and is done, and what the queue
//! says of its end: `told`, `lost` when the call was not its own any more, or `taken-away` when its lease
//! was not over by then. The process works until it is killed or its standard input ends.

use std::collections::HashMap;
use std::error::Error;
use std::fs::{File, OpenOptions};
use std::io::{Read as _, Write as _};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use lockmacro_runtime::LockManager;
use lockmacro_runtime::defer::{
    Answer, DeferredFn, Deferrer, Enough, Job, JobState, NewJob, Order, Page, Settled, Stored,
    Worker, argument,
};
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
    queue: Arc<dyn Deferrer>,
    record: Arc<Record>,
    /// Until when each call is known to be this process's.
    kept: Mutex<HashMap<(String, u64), Instant>>,
}

impl Noting {
    fn note_loss(&self, job: &Job) {
        let kept = self.kept.lock().expect("nobody panics");
        let until = kept.get(&(job.id.clone(), job.taken));
        let is_over = until.is_none_or(|until| Instant::now() > *until);
        self.record.note(if is_over { "lost" } else { "taken-away" }, &job.arguments);
    }
}

impl Deferrer for Noting {
    fn put(&self, job: NewJob) -> Answer<'_, Stored> {
        self.queue.put(job)
    }

    fn take<'a>(&'a self, order: Order, enough: Enough<'a>) -> Answer<'a, Vec<Job>> {
        self.queue.take(order, enough)
    }

    fn keep(&self, job: Job, lease: Duration) -> Answer<'_, bool> {
        Box::pin(async move {
            let asked = Instant::now();
            let kept = self.queue.keep(job.clone(), lease).await;
            match kept {
                Ok(true) => {
                    let its = (job.id, job.taken);
                    self.kept.lock().expect("nobody panics").insert(its, asked + lease);
                }
                Ok(false) => self.note_loss(&job),
                Err(_) => {}
            }
            kept
        })
    }

    fn settle(&self, job: Job, how: Settled) -> Answer<'_, bool> {
        Box::pin(async move {
            let told = self.queue.settle(job.clone(), how).await;
            match told {
                Ok(true) => self.record.note("told", &job.arguments),
                Ok(false) => self.note_loss(&job),
                Err(_) => {}
            }
            told
        })
    }

    fn list(
        &self,
        function: Arc<str>,
        state: JobState,
        first: usize,
        most: usize,
    ) -> Answer<'_, Page> {
        self.queue.list(function, state, first, most)
    }

    fn retry(&self, function: Arc<str>, id: String) -> Answer<'_, bool> {
        self.queue.retry(function, id)
    }

    fn remove(&self, function: Arc<str>, id: String) -> Answer<'_, bool> {
        self.queue.remove(function, id)
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [url, record, lease] = arguments.as_slice() else {
        return Err(format!("not an order: {arguments:?}").into());
    };
    let lease = Duration::from_millis(lease.parse()?);
    let patient = || LockManager::builder().timeout(Duration::from_secs(40));
    let record = Arc::new(Record(OpenOptions::new().append(true).open(record)?));
    let queue = patient().connect(url).await?.deferrer();
    let queue = Noting { queue, record: Arc::clone(&record), kept: Mutex::default() };
    let locks = patient().deferrer(Arc::new(queue)).connect(url).await?;
    let function = |name: &'static str, end: Result<(), &'static str>| {
        let record = Arc::clone(&record);
        let called = move |(number,): (u64,)| {
            let record = Arc::clone(&record);
            async move {
                record.note("begun", &format!("[{number}]"));
                // Some for longer than their lease.
                let length = if number % 25 == 3 { lease * 3 / 2 } else { lease / 40 };
                tokio::time::sleep(length).await;
                record.note("done", &format!("[{number}]"));
                end
            }
        };
        DeferredFn::new(name, (argument("number"),), called).delay(Duration::from_millis(20))
    };
    let ended = Arc::new(Notify::new());
    let end = Arc::clone(&ended);
    std::thread::spawn(move || {
        // An error is an end as well.
        let _ = std::io::stdin().read_to_end(&mut Vec::new());
        end.notify_one();
    });
    let worker = Worker::new(&locks)
        .register(function("good", Ok(())).attempts(1_000))
        .register(function("bad", Err("out of stock")).attempts(2))
        .lease(lease)
        .concurrency(4);
    worker.run_until(ended.notified()).await?;
    Ok(locks.shutdown(Duration::from_secs(5)).await?)
}
