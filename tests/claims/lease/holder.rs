//! A process that holds a lock: what it does is its first argument.
//!
//! * `step <url> <key> <ttl in ms>` – takes a renewed lock, says `held`, and then `step` every
//!   100 ms; when it has lost the lock, `lost` and the cause
//! * `hold <url> <key> <ttl in ms>` – the same with a lock that is not renewed
//! * `write <url> <key> <ttl in ms> <database>` – takes a lock with a fence that is not renewed,
//!   says `held` and the fence, and writes to two resources at each line of its standard input,
//!   whether the lock is held or not; then it says how many of each were written
//! * `clock <url> <key> <ttl in ms>` – takes a renewed lock, and says every 50 ms what time it is,
//!   in seconds since 1970, and whether the lock is held

use std::error::Error;
use std::io::Write as _;
use std::path::Path;
use std::time::{Duration, SystemTime};

use lockmacro_runtime::fence::{Fence, WRITE};
use lockmacro_runtime::{Lock, LockError, LockGuard, LockManager, OnLost};
use lockmacro_tests::AcquireFenced as _;
use tokio::io::{AsyncBufReadExt as _, BufReader};

type Done = Result<(), Box<dyn Error + Send + Sync>>;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Done {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let (["step" | "hold" | "clock", url, key, ttl] | ["write", url, key, ttl, _]) =
        words.as_slice()
    else {
        return Err(format!("not an order: {words:?}").into());
    };
    let manager = LockManager::connect(url).await?;
    let lock = Lock::new(*key).ttl(Duration::from_millis(ttl.parse()?)).manager(&manager);
    let ended = match words.as_slice() {
        ["step", ..] => lock.renew().run(step()).await,
        ["hold", ..] => lock.run(step()).await,
        ["clock", ..] => lock.renew().run(clock()).await,
        [.., database] => {
            let (guard, fence) = lock.on_lost(OnLost::Finish).acquire_fenced().await?;
            guard.run(write(url, database.as_ref(), fence[0])).await?;
            return Ok(());
        }
        [] => unreachable!("an order was found"),
    };
    match ended {
        Err(LockError::Lost(lost)) => say(&format!("lost {:?}", lost.cause())),
        other => say(&format!("{other:?}")),
    }
    Ok(())
}

async fn step() -> Result<(), LockError> {
    say("held");
    loop {
        tokio::time::sleep(Duration::from_millis(100)).await;
        say("step");
    }
}

async fn clock() -> Result<(), LockError> {
    loop {
        let time = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        let held = LockGuard::current().is_some_and(|lock| lock.is_held());
        say(&format!("{} {held}", time.unwrap_or_default().as_secs()));
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

async fn write(url: &str, database: &Path, fence: Fence) -> Done {
    let mut stock = redis::Client::open(url)?.get_connection()?;
    let database = rusqlite::Connection::open(database)?;
    say(&format!("held {fence}"));
    let mut lines = BufReader::new(tokio::io::stdin()).lines();
    while let Some(value) = lines.next_line().await? {
        let mut script = redis::cmd("EVAL");
        script.arg(WRITE).arg(1).arg("stock:7").arg(u64::from(fence)).arg(&value);
        let in_redis: u32 = script.query(&mut stock)?;
        let in_sql = database.execute(
            "UPDATE stock SET value = ?1, fence = ?2 WHERE id = 7 AND fence <= ?2",
            rusqlite::params![value, i64::from(fence)],
        )?;
        say(&format!("{in_redis} {in_sql}"));
    }
    Ok(())
}

/// Says a line at once. A reader that has gone needs no line.
fn say(line: &str) {
    let mut out = std::io::stdout().lock();
    let _ = writeln!(out, "{line}").and_then(|()| out.flush());
}
