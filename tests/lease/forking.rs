//! A process that forks while it holds locks: `<url>`. It ends well when both processes have found
//! what is to be.

use std::error::Error;
use std::process::exit;

use fork::{Fork, fork, waitpid};
use lockmacro_runtime::{Lock, LockError, LockGuard, LockManager};
use tokio::runtime::Builder;

type Done = Result<(), Box<dyn Error + Send + Sync>>;

fn main() -> Done {
    let url = std::env::args().nth(1).ok_or("no server")?;
    let runtime = Builder::new_current_thread().enable_all().build()?;
    let manager = runtime.block_on(LockManager::connect(&url))?;
    // Neither needs the manager's thread, so a copy of a lock that is dropped would start one.
    let ours = runtime.block_on(lock(&manager, "ours").acquire())?;
    let other = runtime.block_on(lock(&manager, "other").acquire())?;
    match fork()? {
        Fork::Child => {
            let done = child(&url, &manager, [ours, other]);
            if let Err(error) = &done {
                eprintln!("the child: {error}");
            }
            exit(i32::from(done.is_err()));
        }
        Fork::Parent(child) => {
            let status = waitpid(child)?;
            if status != 0 {
                return Err(format!("the child ended with {status}").into());
            }
            ours.check()?;
            runtime.block_on(ours.release())?;
            runtime.block_on(other.release())?;
            println!("well");
            Ok(())
        }
    }
}

fn lock(manager: &LockManager, key: &str) -> Lock {
    Lock::new(key).ttl(std::time::Duration::from_secs(60)).manager(manager)
}

fn child(url: &str, manager: &LockManager, copies: [LockGuard; 2]) -> Done {
    drop(copies);
    let runtime = Builder::new_current_thread().enable_all().build()?;
    for refused in [
        runtime.block_on(lock(manager, "free").acquire()),
        lock(manager, "free").acquire_blocking(),
    ] {
        match refused {
            Err(error @ LockError::InvalidSetting { .. }) if error.to_string().contains("fork") => {
            }
            other => return Err(format!("the parent's manager: {other:?}").into()),
        }
    }
    // One of its own finds that the parent's locks are still held.
    let own = runtime.block_on(LockManager::connect(url))?;
    lock(&own, "free").acquire_blocking()?.release_blocking()?;
    for key in ["ours", "other"] {
        match lock(&own, key).acquire_blocking() {
            Err(LockError::Busy { .. }) => {}
            other => return Err(format!("the parent's lock: {other:?}").into()),
        }
    }
    Ok(())
}
