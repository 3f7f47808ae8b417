//! A process that forks while it holds a lock: `<url> <ttl in ms>`. It ends well when both
//! processes have found what is to be.

use std::error::Error;
use std::time::{Duration, Instant};

use fork::{Fork, fork, waitpid};
use lockmacro_runtime::{Lock, LockError, LockGuard, LockManager};
use tokio::runtime::Builder;

/// How long two answers are waited for, after which a connection is given up.
const SILENCE: Duration = Duration::from_secs(1);

type Done = Result<(), Box<dyn Error + Send + Sync>>;

fn main() -> Done {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [url, ttl] = arguments.as_slice() else { return Err("not an order".into()) };
    let ttl = Duration::from_millis(ttl.parse()?);
    // Its connection is in use when it forks.
    let runtime = Builder::new_current_thread().enable_all().build()?;
    let manager = runtime.block_on(LockManager::connect(url))?;
    let ours = lock(&manager, "parent", ttl).acquire_blocking()?;
    // One asks, and the other one is in a cohort that forms until the answer.
    let writer = lock(&manager, "shared", ttl).acquire_blocking()?;
    let shares = || Box::pin(lock(&manager, "shared", ttl).shared().wait_forever().acquire());
    let mut readers = [shares(), shares()];
    runtime.block_on(async {
        for reader in &mut readers {
            assert!(futures::poll!(reader).is_pending(), "a writer holds it");
        }
    });
    match fork()? {
        Fork::Child => {
            // Nobody asks for the parent's callers.
            let [first, second] = readers;
            drop(first);
            std::mem::forget(second);
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
            writer.release_blocking()?;
            runtime.block_on(async {
                for guard in futures::future::try_join_all(readers).await? {
                    guard.release().await?;
                }
                Done::Ok(())
            })?;
            lock(&manager, "shared", ttl).acquire_blocking()?.release_blocking()?;
            runtime.block_on(async {
                lock(&manager, "parent", ttl).acquire().await?.release().await
            })?;
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
    // Connections of its own, also where its own runtime asks: nothing is waited for that the
    // parent's connection would answer.
    let runtime = Builder::new_current_thread().enable_all().build()?;
    let start = Instant::now();
    runtime.block_on(async {
        let guard = lock(manager, "child", ttl).acquire().await?;
        match lock(manager, "child", ttl).acquire().await {
            Err(error @ LockError::Busy { .. })
                if error
                    .owner()
                    .is_some_and(|owner| owner.ends_with(&format!(":{}", std::process::id()))) => {}
            other => return Err(format!("its own lock: {other:?}").into()),
        }
        Done::Ok(guard.release().await?)
    })?;
    if start.elapsed() > SILENCE {
        return Err(format!("it got its first lock after {:?}", start.elapsed()).into());
    }
    // And a thread of its own.
    let own = lock(manager, "child", ttl).acquire_blocking()?;
    std::thread::sleep(ttl * 2);
    own.check()?;
    own.release_blocking()?;
    drop(lock(manager, "child", ttl).acquire_blocking()?);
    lock(manager, "child", ttl).wait(ttl * 10).acquire_blocking()?.release_blocking()?;
    // The child has a copy of the parent's lock, which releases nothing.
    drop(copy);
    for _ in 0..3 {
        match lock(manager, "parent", ttl).acquire_blocking() {
            Err(LockError::Busy { .. }) => std::thread::sleep(ttl / 2),
            other => return Err(format!("the parent's lock: {other:?}").into()),
        }
    }
    Ok(())
}
