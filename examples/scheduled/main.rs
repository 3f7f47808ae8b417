//! One job, deployed on three machines, and each of its runs is done by one of them.
//!
//! ```text
//! cargo run --example scheduled                                # no server: tasks of one process
//! REDIS_URL=redis://127.0.0.1 cargo run --example scheduled    # three processes
//! ```
//!
//! Every instance wakes up at every tick and calls `report`. The first instance acquires the lock of
//! the tick. `on_busy = skip` lets the others do nothing, and `min_hold` keeps the key until the
//! slowest of them has asked. Half-way one instance is killed: the others go on. (A tick whose
//! instance dies in the middle of its work is not done again.) At the end the printed timeline is
//! checked.
//!
//! Exit code: 0 every tick was done once, 1 it was not, 2 the run could not start.

use std::collections::BTreeMap;
use std::error::Error;
use std::process::{ExitCode, Stdio};
use std::time::{Duration, SystemTime};

use clap::Parser;
use lockmacro_runtime::{LockManager, distributed_lock};
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::Command;
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

/// Milliseconds of work, less than the lock is held.
const MADE_UP_FOR: u64 = 10_000;

const INSTANCES: [&str; 3] = ["anna", "bert", "cleo"];

type Failure = Box<dyn Error + Send + Sync>;

/// Runs a job on three instances, each of its ticks on one of them.
#[derive(Debug, Clone, Parser)]
struct Args {
    /// How many ticks
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u64).range(4..))]
    ticks: u64,
    /// How far apart they are, in milliseconds
    #[arg(long, default_value_t = 500, value_parser = clap::value_parser!(u64).range(100..))]
    period: u64,
    /// The one instance that this process is, when another one has started it
    #[arg(long, hide = true)]
    only: Option<String>,
}

/// The job. Ticks are numbered by the clock, so that every instance means the same one.
#[distributed_lock(
    key = "report:<tick>",
    ttl = "30s",
    min_hold = "30s",
    on_busy = skip,
    manager = locks
)]
async fn report(locks: &LockManager, tick: u64) -> Option<u64> {
    // The work.
    sleep(Duration::from_millis(20)).await;
    Some(tick)
}

/// The instance on every machine: tries to do the job at every tick, and reports the ticks that it
/// has done.
async fn instance(args: Args, name: &str, done: impl Fn(&str, u64)) -> Result<(), Failure> {
    let url = redis_url().unwrap_or_else(|| "memory://".to_owned());
    let locks = LockManager::builder().label(name).connect(&url).await?;
    let mut tick = now()? / args.period + 1;
    loop {
        sleep(Duration::from_millis((tick * args.period).saturating_sub(now()?))).await;
        if let Some(tick) = report(&locks, tick).await {
            done(name, tick);
        }
        // A tick that every instance has missed is made up for, while its lock would still show
        // that it was done.
        tick = (tick + 1).max((now()? - MADE_UP_FOR) / args.period);
    }
}

/// The time by the clock, in milliseconds.
fn now() -> Result<u64, Failure> {
    Ok(u64::try_from(SystemTime::now().duration_since(SystemTime::UNIX_EPOCH)?.as_millis())?)
}

/// The server to use, when there is one.
fn redis_url() -> Option<String> {
    std::env::var("REDIS_URL").ok().filter(|url| !url.is_empty() && url != "memory://")
}

/// Runs an instance as a task, or as a process, until it is aborted.
async fn start(args: Args, name: &'static str, done: UnboundedSender<(String, u64)>) {
    let ended = if redis_url().is_some() {
        process(&args, name, &done).await
    } else {
        let say = |name: &str, tick| {
            // No task receives this any more when the run is over.
            let _ = done.send((name.to_owned(), tick));
        };
        instance(args, name, say).await
    };
    if let Err(error) = ended {
        eprintln!("{name}: {error}");
    }
}

async fn process(
    args: &Args,
    name: &str,
    done: &UnboundedSender<(String, u64)>,
) -> Result<(), Failure> {
    let mut child = Command::new(std::env::current_exe()?)
        .args(["--only", name, "--period", &args.period.to_string()])
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        .spawn()?;
    let output = child.stdout.take().ok_or("it has no output")?;
    let mut lines = BufReader::new(output).lines();
    while let Some(line) = lines.next_line().await? {
        done.send((name.to_owned(), line.parse()?))?;
    }
    Err("it ended".into())
}

/// The ticks that no instance has done, of this number of ticks from the first one on.
fn missing(timeline: &BTreeMap<u64, Vec<String>>, ticks: u64) -> Vec<u64> {
    let first = timeline.keys().next().copied().unwrap_or_default();
    (first..first + ticks).filter(|tick| !timeline.contains_key(tick)).collect()
}

/// Runs all instances, kills one half-way, and returns whether every tick was done once.
async fn run(args: &Args) -> Result<bool, Failure> {
    if let Some(url) = redis_url() {
        // An unreachable server is reported once here, and not by every instance.
        LockManager::connect(&url).await?;
    }
    let (done, mut heard) = unbounded_channel();
    let mut running = JoinSet::new();
    let mut handles = Vec::new();
    for name in INSTANCES {
        handles.push(running.spawn(start(args.clone(), name, done.clone())));
    }
    let mut timeline: BTreeMap<u64, Vec<String>> = BTreeMap::new();
    let mut killed = None;
    println!("tick  {}", INSTANCES.join("  "));
    // An instance may take longer for its tick than another one for the next tick.
    let enough = args.ticks as usize * 2;
    while !missing(&timeline, args.ticks).is_empty() && timeline.len() < enough {
        // A run without progress fails.
        let patience = Duration::from_millis(args.period * 4) + Duration::from_secs(5);
        let Ok(Some((name, tick))) = timeout(patience, heard.recv()).await else { break };
        let instances = timeline.entry(tick).or_default();
        instances.push(name.clone());
        let marks = INSTANCES.map(|instance| match (instance == name, Some(instance) == killed) {
            (true, _) => " ## ",
            (_, true) => "    ",
            _ => " .  ",
        });
        println!("{:>4}  {}", tick % 10_000, marks.join("  ").trim_end());
        // Not when the instance may have begun with the next tick.
        let is_early = now()? < tick * args.period + args.period / 2;
        if killed.is_none() && is_early && timeline.len() as u64 >= args.ticks / 2 {
            let nth = INSTANCES.iter().position(|instance| *instance == name).unwrap_or_default();
            handles[nth].abort();
            killed = Some(INSTANCES[nth]);
            println!("      {name} is killed");
        }
    }
    running.shutdown().await;
    let missing = missing(&timeline, args.ticks);
    let twice: Vec<_> = timeline.iter().filter(|(_, instances)| instances.len() > 1).collect();
    println!("{} ticks, {} missing, {} done twice", args.ticks, missing.len(), twice.len());
    let well = missing.is_empty() && twice.is_empty();
    println!("{}", if well { "ok" } else { "NOT OK" });
    Ok(well)
}

#[tokio::main]
async fn main() -> ExitCode {
    let args = Args::parse();
    let result = match args.only.clone() {
        Some(name) => instance(args, &name, |_, tick| println!("{tick}")).await.map(|()| true),
        None => run(&args).await,
    };
    match result {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(1),
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::from(2)
        }
    }
}
