//! A process that ends while it holds a lock: `<end> <url> <key>`, where the end is one of those of
//! `main` below. It says `held` before.

use std::error::Error;
use std::process;
use std::time::Duration;

use lockmacro_runtime::{Lock, LockError, LockManager};
use tokio::sync::Notify;

type Done = Result<(), Box<dyn Error + Send + Sync>>;

/// The body holds the lock.
static HELD: Notify = Notify::const_new();

fn main() -> Done {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [end, url, key] = &arguments[..] else { return Err("an end, a URL and a key".into()) };
    let runtime = tokio::runtime::Runtime::new()?;
    let ended = runtime.block_on(ends(end, url, key));
    if end == "background" {
        runtime.shutdown_background();
    }
    ended
}

async fn ends(end: &str, url: &str, key: &str) -> Done {
    let locks = LockManager::connect(url).await?;
    locks.install()?;
    let lock = Lock::new(key.to_owned()).ttl(Duration::from_secs(60));
    let shutdown = || async { locks.shutdown(Duration::from_secs(30)).await };
    let body = async {
        println!("held");
        HELD.notify_one();
        std::future::pending::<Result<(), LockError>>().await
    };
    match end {
        "returns" => lock.run(async { Ok::<_, LockError>(()) }).await?,
        "select" | "select, shutdown" => {
            tokio::select! {
                ended = lock.run(body) => ended?,
                () = HELD.notified() => {}
            }
        }
        "panic" => lock.run(panics()).await?,
        "task panics, shutdown" => {
            let ended = tokio::spawn(lock.run(panics())).await;
            assert!(ended.is_err_and(|error| error.is_panic()));
        }
        _ => {
            let task = tokio::spawn(lock.run(body));
            HELD.notified().await;
            match end {
                "exit" => process::exit(0),
                "abort" => process::abort(),
                "killed" => std::future::pending().await,
                "task, shutdown" => {
                    task.abort();
                    let _ = task.await;
                }
                "task" | "background" => {}
                other => return Err(format!("no end: {other}").into()),
            }
        }
    }
    if end.ends_with("shutdown") {
        shutdown().await?;
    }
    Ok(())
}

async fn panics() -> Result<(), LockError> {
    panic!("the body panics")
}
