//! A process that forks while it holds locks: `<url>`. It ends well when both processes have found
//! what is to be.

use std::error::Error;
use std::process::exit;
use std::time::Duration;

use fork::{Fork, fork, waitpid};
use futures::FutureExt;
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
    let locks = forks(|copies| child(&url, &manager, copies), [ours, other])?;
    for guard in locks {
        guard.check()?;
        runtime.block_on(guard.release())?;
    }
    // Here the thread runs, and the child has no part in it.
    let blocked = lock(&manager, "ours").acquire_blocking()?;
    let [blocked] = forks(
        |[copy]| match copy.release_blocking() {
            Err(LockError::Unavailable { .. }) => Ok(()),
            other => Err(format!("the parent's lock: {other:?}").into()),
        },
        [blocked],
    )?;
    blocked.release_blocking()?;
    // A child in the body is not inside of the lock.
    runtime
        .block_on(lock(&manager, "body").run(async {
            let refused = lock(&manager, "body").acquire().now_or_never();
            assert!(matches!(refused, Some(Ok(_))), "the body joins its own lock: {refused:?}");
            forks(
                |[]| refuses(lock(&manager, "body").acquire().now_or_never().ok_or("no answer")?),
                [],
            )
            .map(drop)
            .map_err(Failed)
        }))
        .map_err(|Failed(error)| error)?;
    println!("well");
    Ok(())
}

/// The error of a body.
#[derive(Debug)]
struct Failed(Box<dyn Error + Send + Sync>);

impl From<LockError> for Failed {
    fn from(error: LockError) -> Self {
        Self(error.into())
    }
}

/// Forks, and lets the child do this with its copies of the locks. Returns those of the parent.
fn forks<const N: usize>(
    child: impl FnOnce([LockGuard; N]) -> Done,
    locks: [LockGuard; N],
) -> Result<[LockGuard; N], Box<dyn Error + Send + Sync>> {
    match fork()? {
        Fork::Child => {
            let done = child(locks);
            if let Err(error) = &done {
                eprintln!("the child: {error}");
            }
            exit(i32::from(done.is_err()));
        }
        Fork::Parent(child) => match waitpid(child)? {
            0 => Ok(locks),
            status => Err(format!("the child ended with {status}").into()),
        },
    }
}

fn lock(manager: &LockManager, key: &str) -> Lock {
    Lock::new(key).ttl(Duration::from_secs(60)).manager(manager)
}

fn refuses(refused: Result<LockGuard, LockError>) -> Done {
    match refused {
        Err(error @ LockError::InvalidSetting { .. }) if error.to_string().contains("fork") => {
            Ok(())
        }
        other => Err(format!("the parent's manager: {other:?}").into()),
    }
}

fn child(url: &str, manager: &LockManager, copies: [LockGuard; 2]) -> Done {
    drop(copies);
    let runtime = Builder::new_current_thread().enable_all().build()?;
    refuses(runtime.block_on(lock(manager, "free").acquire()))?;
    refuses(lock(manager, "free").acquire_blocking())?;
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
