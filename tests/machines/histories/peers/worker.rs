//! A worker with lockmacro, for the comparison with its peers, until its input ends: `<url> <key>
//! <history> <name> <ttl in ms>`.

use std::error::Error;
use std::io::Read as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::Duration;

use lockmacro_histories::{Entry, Function, Kind, Recorder, now};
use lockmacro_runtime::{Lock, LockError, LockManager};
use lockmacro_tests::AcquireFenced as _;

const STEPS: u32 = 3;
const STEP: Duration = Duration::from_millis(20);

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [url, key, history, name, ttl] = arguments.as_slice() else {
        return Err(format!("not an order: {arguments:?}").into());
    };
    let ttl = Duration::from_millis(ttl.parse()?);
    let history = Recorder::open(history.as_ref())?;
    let entry = |kind, function| Entry::new(kind, function, key, name, now());
    let note = |kind, function| history.write(entry(kind, function));
    let ended = Arc::new(AtomicBool::new(false));
    let ends = Arc::clone(&ended);
    std::thread::spawn(move || {
        // An error is an end as well.
        let _ = std::io::stdin().read_to_end(&mut Vec::new());
        ends.store(true, SeqCst);
    });
    let manager = LockManager::builder().label(name).connect(url).await?;
    while !ended.load(SeqCst) {
        note(Kind::Invoke, Function::Acquire);
        let lock = Lock::new(key).ttl(ttl).manager(&manager).wait_forever();
        let (guard, fence) = match lock.acquire_fenced().await {
            Ok((guard, fences)) => (guard, fences[0]),
            Err(error) => {
                history.write(entry(Kind::Info, Function::Acquire).error(error));
                tokio::time::sleep(Duration::from_millis(50)).await;
                continue;
            }
        };
        let granted = entry(Kind::Ok, Function::Acquire).fence(fence.into());
        let until = granted.time + guard.remaining().as_nanos() as u64;
        history.write(granted.until(until));
        let body = async {
            for _ in 0..STEPS {
                tokio::time::sleep(STEP).await;
                history.write(entry(Kind::Ok, Function::Use).fence(fence.into()));
            }
            note(Kind::Invoke, Function::Release);
            Ok::<_, LockError>(())
        };
        match guard.run(body).await {
            Ok(()) => note(Kind::Ok, Function::Release),
            Err(error) => history.write(entry(Kind::Info, Function::Release).error(error)),
        }
    }
    manager.shutdown(Duration::from_secs(5)).await?;
    Ok(())
}
