//! One process of a fleet: what it does is its first argument.
//!
//! * `count <url> <key> <history> <file> <times>` – increments the number in a file under the
//!   lock
//! * `foreign <url> <key> <history> <file> <times>` – the same with `SET NX EX` and
//!   compare-and-delete alone
//!
//! It ends with an error when it starves. All processes write to the same file of the history.

use std::error::Error;
use std::path::Path;
use std::time::{Duration, Instant};

use lockmacro_histories::{Function, Kind, Recorder};
use lockmacro_runtime::{Lock, LockError, LockManager};

type Done = Result<(), Box<dyn Error>>;

/// A process that has not come to its turn by now never will.
const STARVED: Duration = Duration::from_secs(60);

#[tokio::main(flavor = "current_thread")]
async fn main() -> Done {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let [order, url, key, history, file, times] = words.as_slice() else {
        return Err(format!("not an order: {words:?}").into());
    };
    let process = format!("{order}-{}", std::process::id());
    let noted = Noted { key: (*key).to_owned(), process, file: Recorder::open(history.as_ref())? };
    match *order {
        "count" => count(url, &noted, file.as_ref(), times.parse()?).await,
        "foreign" => foreign(url, &noted, file.as_ref(), times.parse()?),
        _ => Err(format!("not an order: {words:?}").into()),
    }
}

/// What this process does with its key, in the history.
struct Noted {
    key: String,
    process: String,
    file: Recorder,
}

impl Noted {
    fn note(&self, kind: Kind, function: Function) {
        self.file.note(kind, function, &self.key, &self.process);
    }
}

async fn count(url: &str, noted: &Noted, file: &Path, times: u32) -> Done {
    // A hundred processes connect at once: that may take its time.
    let manager = LockManager::builder().timeout(Duration::from_secs(20)).connect(url).await?;
    let mut pauses = Pauses::new();
    for _ in 0..times {
        loop {
            let lock = Lock::new(&noted.key).ttl(Duration::from_secs(20)).name("count");
            noted.note(Kind::Invoke, Function::Acquire);
            let body = async {
                noted.note(Kind::Ok, Function::Acquire);
                let number = read(file)?;
                tokio::time::sleep(Duration::from_millis(1)).await;
                std::fs::write(file, (number + 1).to_string())?;
                noted.note(Kind::Ok, Function::Use);
                noted.note(Kind::Invoke, Function::Release);
                Ok::<_, Box<dyn Error>>(())
            };
            match lock.manager(&manager).run(body).await {
                Ok(()) => break noted.note(Kind::Ok, Function::Release),
                Err(error) if is_busy(&*error) => {
                    noted.note(Kind::Fail, Function::Acquire);
                    tokio::time::sleep(pauses.next()?).await;
                }
                Err(error) => return Err(error),
            }
        }
    }
    manager.shutdown(Duration::from_secs(5)).await?;
    Ok(())
}

fn is_busy(error: &(dyn Error + 'static)) -> bool {
    error.downcast_ref::<LockError>().is_some_and(LockError::is_busy)
}

fn foreign(url: &str, noted: &Noted, file: &Path, times: u32) -> Done {
    const COMPARE_AND_DELETE: &str = "if redis.call('get', KEYS[1]) == ARGV[1] then \
        return redis.call('del', KEYS[1]) else return 0 end";
    let mut connection = redis::Client::open(url)?.get_connection()?;
    let mut pauses = Pauses::new();
    for turn in 0..times {
        let value = format!("foreign-{}-{turn}", std::process::id());
        let mut set = redis::cmd("SET");
        set.arg(&noted.key).arg(&value).arg("NX").arg("EX").arg(20);
        noted.note(Kind::Invoke, Function::Acquire);
        while set.query::<Option<String>>(&mut connection)?.is_none() {
            std::thread::sleep(pauses.next()?);
        }
        noted.note(Kind::Ok, Function::Acquire);
        let number = read(file)?;
        std::thread::sleep(Duration::from_millis(1));
        std::fs::write(file, (number + 1).to_string())?;
        let mut release = redis::cmd("EVAL");
        release.arg(COMPARE_AND_DELETE).arg(1).arg(&noted.key).arg(&value);
        noted.note(Kind::Invoke, Function::Release);
        if release.query::<i64>(&mut connection)? != 1 {
            return Err("somebody took the lock of a foreign client".into());
        }
        noted.note(Kind::Ok, Function::Release);
    }
    Ok(())
}

fn read(file: &Path) -> Result<u64, Box<dyn Error>> {
    Ok(std::fs::read_to_string(file)?.trim().parse()?)
}

/// Pauses of 2 to 40 ms that differ from process to process.
struct Pauses {
    start: Instant,
    state: u64,
}

impl Pauses {
    fn new() -> Pauses {
        Pauses { start: Instant::now(), state: u64::from(std::process::id()) }
    }

    fn next(&mut self) -> Result<Duration, Box<dyn Error>> {
        if self.start.elapsed() > STARVED {
            return Err("starved".into());
        }
        // The generator of Knuth's MMIX; its upper bits are the good ones.
        self.state = self.state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        Ok(Duration::from_micros(2_000 + (self.state >> 33) % 38_000))
    }
}
