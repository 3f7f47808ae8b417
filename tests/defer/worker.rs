//! One process that runs deferred calls in `defer::worker_dies`: `<url> <record>`.
//!
//! A call notes in the record when it begins and when it is done. The process says `ready` when it is
//! connected, and works until it is killed or its standard input ends.

use std::error::Error;
use std::fs::OpenOptions;
use std::io::{Read as _, Write as _};
use std::sync::Arc;
use std::time::Duration;

use lockmacro_runtime::LockManager;
use lockmacro_runtime::defer::{DeferredFn, Worker, argument};
use tokio::sync::Notify;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [url, record] = arguments.as_slice() else {
        return Err(format!("not an order: {arguments:?}").into());
    };
    let locks = LockManager::connect(url).await?;
    let record = Arc::new(OpenOptions::new().append(true).open(record)?);
    let note = move |word: &str, number: u64| {
        // One write, so that lines stay whole.
        (&*record).write_all(format!("{word} {number}\n").as_bytes()).map_err(|e| e.to_string())
    };
    let function = DeferredFn::new("noted", (argument("number"),), move |(number,): (u64,)| {
        let note = note.clone();
        async move {
            note("begun", number)?;
            tokio::time::sleep(Duration::from_millis(10)).await;
            note("done", number)
        }
    });
    let ended = Arc::new(Notify::new());
    let end = Arc::clone(&ended);
    std::thread::spawn(move || {
        // An error is an end as well.
        let _ = std::io::stdin().read_to_end(&mut Vec::new());
        end.notify_one();
    });
    println!("ready");
    std::io::stdout().flush()?;
    let worker = Worker::new(&locks)
        .register(function.delay(Duration::from_millis(20)).attempts(1_000))
        .concurrency(4);
    worker.run_until(ended.notified()).await?;
    Ok(locks.shutdown(Duration::from_secs(5)).await?)
}
