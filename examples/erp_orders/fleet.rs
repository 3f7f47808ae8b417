//! The desks: tasks of this process, or processes of their own that meet at a server.

use std::io::{self, Write};
use std::path::Path;
use std::process::Stdio;

use clap::ValueEnum as _;
use lockmacro_runtime::{LockError, LockManager};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::sync::mpsc::{self, Sender};
use tokio::task::JoinSet;

use crate::desk::Desk;
#[cfg(feature = "postgres")]
use crate::fenced_writes::FencedDesk;
use crate::orders::{Batch, PHP, Share, shares};
use crate::php_like::PhpLike;
use crate::record::Record;
use crate::report::{Report, work_through};
use crate::rollback::Mishaps;
use crate::strategies::{self, Busy};
use crate::summary::Summary;
use crate::{Args, StartError, server_url};

/// Line that a process writes when it is connected, and reads when all processes are.
const READY: &str = "ready";

/// Runs every desk as a task with a manager of its own.
pub async fn tasks(
    args: &Args,
    shares: &[Share],
    record: &Record,
    summary: &mut Summary<'_>,
) -> Result<(), StartError> {
    let (reports, mut received) = mpsc::channel(16);
    let mut desks = JoinSet::new();
    for share in shares {
        let desk = open_desk(args, &share.desk, None, record).await?;
        desks.spawn(run_desk(desk, share.clone(), args.passes, reports.clone()));
    }
    drop(reports);
    while let Some(report) = received.recv().await {
        summary.add(report);
    }
    while let Some(end) = desks.join_next().await {
        if let Err(error) = end? {
            summary.add_fault(error.to_string());
        }
    }
    if args.busy == Busy::Defer {
        strategies::finish(&LockManager::current()?).await?;
    }
    Ok(())
}

async fn open_desk(
    args: &Args,
    name: &str,
    url: Option<&str>,
    record: &Record,
) -> Result<Desk, StartError> {
    let installed = LockManager::current().ok().filter(|_| args.busy == Busy::Defer);
    let locks = if let Some(locks) = installed {
        // A job knows no desk, so there is one manager for all of this process.
        locks
    } else {
        let mut manager = LockManager::builder().label(name);
        if let Some(calls) = strategies::calls_url().filter(|_| args.busy == Busy::Defer) {
            manager = manager.job_queue(LockManager::connect(&calls).await?.job_queue());
        }
        match args.no_lock {
            true => manager.isolated_memory(),
            false => manager.connect(url.unwrap_or("memory://")).await?,
        }
    };
    let mishaps = if args.lose { Some(Mishaps::on(url).await?) } else { None };
    if args.busy == Busy::Defer {
        strategies::install(&locks, record)?;
    }
    Ok(Desk::new(name, locks, record.clone(), mishaps, args.busy))
}

async fn run_desk(
    desk: Desk,
    share: Share,
    passes: u8,
    reports: Sender<Report>,
) -> Result<(), LockError> {
    work_through(&desk, &share, passes, &reports).await;
    // The jobs are still to be run.
    if desk.busy == Busy::Defer { Ok(()) } else { desk.close().await }
}

/// Starts every desk as a process, and gathers their reports.
pub async fn processes(
    args: &Args,
    url: &str,
    shares: &[Share],
    record: &Path,
    summary: &mut Summary<'_>,
) -> Result<(), StartError> {
    // An unreachable server is reported once here, and not by every process.
    LockManager::connect(url).await?;
    let mut starting = Vec::new();
    for share in shares {
        starting.push(Process::start(args, &share.desk, record)?);
    }
    for process in &mut starting {
        process.is_ready().await?;
    }
    let (reports, mut received) = mpsc::channel(16);
    let mut running = JoinSet::new();
    for mut process in starting {
        process.go().await?;
        running.spawn(process.forward(reports.clone()));
    }
    drop(reports);
    while let Some(report) = received.recv().await {
        summary.add(report);
    }
    while let Some(end) = running.join_next().await {
        if let Err(error) = end? {
            summary.add_fault(error.to_string());
        }
    }
    Ok(())
}

/// A desk in another process. It is killed when this is dropped before it ended.
struct Process {
    name: String,
    child: Child,
    orders: ChildStdin,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Process {
    fn start(args: &Args, name: &str, record: &Path) -> Result<Self, StartError> {
        let mut command = Command::new(std::env::current_exe()?);
        command.args(["--only", name]).arg("--record").arg(record);
        command.args(["--desks", &args.desks.to_string(), "--passes", &args.passes.to_string()]);
        command.args(args.no_lock.then_some("--no-lock"));
        command.args(args.php_like.then_some("--php-like"));
        command.args(args.lose.then_some("--lose"));
        let busy = args.busy.to_possible_value().filter(|_| !args.lose);
        command.args(busy.iter().flat_map(|busy| ["--busy", busy.get_name()]));
        command.arg("--").arg(&args.file);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).kill_on_drop(true);
        let mut child = command.spawn()?;
        let (Some(orders), Some(output)) = (child.stdin.take(), child.stdout.take()) else {
            return Err(format!("{name} has no input and output").into());
        };
        let lines = BufReader::new(output).lines();
        Ok(Self { name: name.to_owned(), child, orders, lines })
    }

    async fn is_ready(&mut self) -> Result<(), StartError> {
        match self.lines.next_line().await? {
            Some(line) if line == READY => Ok(()),
            _ => Err(format!("{} did not start", self.name).into()),
        }
    }

    async fn go(&mut self) -> Result<(), StartError> {
        Ok(self.orders.write_all(format!("{READY}\n").as_bytes()).await?)
    }

    async fn forward(mut self, reports: Sender<Report>) -> Result<(), StartError> {
        while let Some(line) = self.lines.next_line().await? {
            let report = Report::from_line(&line)
                .ok_or_else(|| format!("{} says what is no report: {line}", self.name))?;
            reports.send(report).await?;
        }
        let status = self.child.wait().await?;
        if status.success() {
            Ok(())
        } else {
            Err(format!("{} ended with {status}", self.name).into())
        }
    }
}

/// The other side, in such a process.
pub async fn be_a_desk(args: &Args, name: &str, record: &Path) -> Result<bool, StartError> {
    let url = server_url().ok_or("a desk by itself needs REDIS_URL or DATABASE_URL")?;
    let batch = Batch::read(&args.file)?;
    let mut shares = shares(&batch.requests, args.desks, args.php_like);
    shares.retain(|share| share.desk == name);
    let share = shares.pop().ok_or_else(|| format!("there is no desk {name}"))?;
    let record = Record::open(record)?;

    let passes = args.passes;
    let (reports, mut received) = mpsc::channel(16);
    let work = match args.database_of_orders() {
        _ if name == PHP => {
            let client = PhpLike::connect(name, &url, record).await?;
            start_together().await?;
            tokio::spawn(async move {
                work_through(&client, &share, passes, &reports).await;
                Ok(())
            })
        }
        #[cfg(feature = "postgres")]
        Some(database) => {
            let desk = FencedDesk::open(name, &database, &record).await?;
            start_together().await?;
            tokio::spawn(async move {
                work_through(&desk, &share, passes, &reports).await;
                desk.close().await
            })
        }
        _ => {
            let desk = open_desk(args, name, Some(&url), &record).await?;
            start_together().await?;
            tokio::spawn(run_desk(desk, share, passes, reports))
        }
    };
    while let Some(report) = received.recv().await {
        writeln!(io::stdout(), "{}", report.to_line()?)?;
    }
    work.await??;
    if args.busy == Busy::Defer && name != PHP {
        strategies::finish(&LockManager::current()?).await?;
    }
    Ok(true)
}

/// Waits until every process is connected, so that they do get into each other's way.
async fn start_together() -> Result<(), StartError> {
    writeln!(io::stdout(), "{READY}")?;
    let mut input = BufReader::new(tokio::io::stdin()).lines();
    match input.next_line().await? {
        Some(line) if line == READY => Ok(()),
        _ => Err("the process that started this one is gone".into()),
    }
}
