//! Instructions of a free lock beside those of the two bare commands, as callgrind counts them. No
//! load on the machine changes them.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;
use std::{fs, io, thread};

use clap::ValueEnum;
use futures::future::try_join_all;
use lockmacro_runtime::{Lock, LockError, LockManager};
use lockmacro_tests::Server;
use tokio::runtime::Builder;

use crate::Failure;
use crate::bare::Bare;

const TTL: Duration = Duration::from_secs(300);
const TOKEN: &str = "bare/0123456789abcdef0123456789abcdef";
const REPEAT: &str = "RUSTFLAGS=--cfg=rustix_use_libc cargo run --release \
                      --target-dir target/instructions -p lockmacro-benches -- instructions";
/// Tasks, and the pairs of each in the shorter and in the longer run.
const RUNS: [(usize, [usize; 2]); 2] = [(1, [200, 1_200]), (256, [4, 24])];

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Kind {
    Bare,
    Run,
    Background,
}

const KINDS: [(Kind, &str, &str); 3] = [
    (Kind::Bare, "bare", "bare commands"),
    (Kind::Run, "run", "`Lock::run`, ttl"),
    (Kind::Background, "background", "`Lock::run`, released in the background"),
];

/// The work that is counted, in a process of its own.
#[derive(Debug, Clone, clap::Args)]
pub struct Counted {
    url: String,
    kind: Kind,
    tasks: usize,
    pairs: usize,
}

/// Whether this program was built so that valgrind can run it.
pub fn is_possible() -> bool {
    cfg!(rustix_use_libc)
}

pub fn run() -> Result<(), Failure> {
    if !is_possible() {
        // The clocks are else read by a call that valgrind does not know.
        return Err(format!("this bench needs a build of its own:\n{REPEAT}").into());
    }
    let server = Server::start();
    let directory = tempfile::tempdir()?;
    println!("| tasks | | instructions a pair | × |\n|---:|:--|---:|---:|");
    for (tasks, pairs) in RUNS {
        let mut bare = None;
        for (_, kind, name) in KINDS {
            let of = |pairs| count(&server, directory.path(), kind, tasks, pairs);
            // What begins and ends the process is in both.
            let more = of(pairs[1])?.saturating_sub(of(pairs[0])?);
            let each = more as f64 / ((pairs[1] - pairs[0]) * tasks) as f64;
            let ratio = each / *bare.get_or_insert(each);
            println!("| {tasks} | {name} | {each:.0} | {ratio:.2} |");
        }
    }
    Ok(())
}

/// The instructions of a process that makes this number of pairs in each of its tasks.
fn count(
    server: &Server,
    directory: &Path,
    kind: &str,
    tasks: usize,
    pairs: usize,
) -> Result<u64, Failure> {
    let out = directory.join("callgrind");
    let mut child = Command::new("valgrind");
    child.arg("--tool=callgrind").arg(format!("--callgrind-out-file={}", out.display()));
    child.arg(std::env::current_exe()?).args(["counted", &server.url(), kind]);
    child.args([tasks, pairs].map(|number| number.to_string()));
    let done = child.stdout(Stdio::null()).output().map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => "valgrind is needed: apt-get install valgrind".to_owned(),
        _ => error.to_string(),
    })?;
    if !done.status.success() {
        return Err(String::from_utf8_lossy(&done.stderr).into());
    }
    let text = fs::read_to_string(out)?;
    let total = text.lines().find_map(|line| line.strip_prefix("totals: "));
    Ok(total.ok_or("callgrind has printed no total")?.trim().parse()?)
}

/// The counted process.
pub fn work(counted: Counted) -> Result<(), Failure> {
    // A runtime of one thread, so that no worker looks for work.
    let worker = thread::spawn(move || {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(async { tokio::spawn(pairs(counted)).await? })
    });
    worker.join().map_err(|_| "the counted thread has panicked")?
}

async fn pairs(Counted { url, kind, tasks, pairs }: Counted) -> Result<(), Failure> {
    let bare = Bare::connect(&url).await?;
    let locks = LockManager::connect(&url).await?;
    try_join_all((0..tasks).map(|nth| {
        let (mut bare, locks, key) = (bare.clone(), locks.clone(), format!("bench:{nth}"));
        tokio::spawn(async move {
            for _ in 0..pairs {
                let lock = Lock::new(&*key).ttl(TTL).manager(&locks);
                match kind {
                    Kind::Bare => {
                        bare.set(&key, TOKEN, TTL).await?;
                        bare.release(&key, TOKEN).await?;
                    }
                    Kind::Run => lock.run(async { Ok::<_, LockError>(()) }).await?,
                    Kind::Background => {
                        lock.release_in_background().run(async { Ok::<_, LockError>(()) }).await?;
                    }
                }
            }
            Ok::<_, Failure>(())
        })
    }))
    .await?
    .into_iter()
    .collect::<Result<(), _>>()?;
    Ok(locks.shutdown(TTL).await?)
}
