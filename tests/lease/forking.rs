//! A process that forks while it holds a lock: `<url> <ttl in ms>`. It ends well when both
//! processes have found what is to be.

use std::error::Error;
use std::time::Duration;

use fork::{Fork, fork, waitpid};
use lockmacro_runtime::{Lock, LockError, LockGuard, LockManager};
use tokio::runtime::Builder;

type Done = Result<(), Box<dyn Error + Send + Sync>>;

fn main() -> Done {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [url, ttl] = arguments.as_slice() else { return Err("not an order".into()) };
    let ttl = Duration::from_millis(ttl.parse()?);
    let manager =
        Builder::new_current_thread().enable_all().build()?.block_on(LockManager::connect(url))?;
    let ours = lock(&manager, "parent", ttl).acquire_blocking()?;
    match fork()? {
        Fork::Child => {
            let done = child(&manager, ours, ttl);
            if let Err(error) = &done {
                eprintln!("the child: {error}");
            }
            std::process::exit(i32::from(done.is_err()));
        }
        Fork::Parent(child) => {
            let status = waitpid(child)?;
            if status != 0 {
                return Err(format!("the child ended with {status}").into());
            }
            ours.check()?;
            ours.release_blocking()?;
            lock(&manager, "parent", ttl).acquire_blocking()?.release_blocking()?;
            println!("well");
            Ok(())
        }
    }
}

fn lock(manager: &LockManager, key: &str, ttl: Duration) -> Lock {
    Lock::new(key).ttl(ttl).renew().manager(manager)
}

fn child(manager: &LockManager, copy: LockGuard, ttl: Duration) -> Done {
    // A thread and connections of its own.
    let own = lock(manager, "child", ttl).acquire_blocking()?;
    std::thread::sleep(ttl * 2);
    own.check()?;
    own.release_blocking()?;
    drop(lock(manager, "child", ttl).acquire_blocking()?);
    lock(manager, "child", ttl).wait(ttl * 10).acquire_blocking()?.release_blocking()?;
    // What it has of the parent's lock is a copy, which releases nothing.
    drop(copy);
    for _ in 0..3 {
        match lock(manager, "parent", ttl).acquire_blocking() {
            Err(LockError::Busy { .. }) => std::thread::sleep(ttl / 2),
            other => return Err(format!("the parent's lock: {other:?}").into()),
        }
    }
    // Also where its own runtime asks.
    let runtime = Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let guard = lock(manager, "child", ttl).acquire().await?;
        guard.release().await
    })?;
    Ok(())
}
