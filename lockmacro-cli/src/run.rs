//! The command `run`: a program under a lock.

use std::io::{self, ErrorKind, Write};
use std::path::Path;
use std::process::ExitStatus;
use std::time::Duration;

use lockmacro_runtime::{Lock, LockError, LockGuard, LockManager, LossCause};
use serde_json::{Value, json};
use tokio::process::Command;
use tokio::select;
use tokio::time::{Instant, sleep};

use crate::args::Run;
use crate::process::{KILL, Running, Signal, Signals, TERM, code, die_of, fatal};
use crate::show::{document, millis};
use crate::{FAILED, Failure, check, complain, explain};

/// Exit code when somebody else holds the lock: EX_TEMPFAIL of `sysexits.h`, as the caller may try
/// again.
const BUSY: u8 = 75;
/// Exit code when the lock was lost: the next one, to which shells give no meaning.
const LOST: u8 = 76;
/// Longest time between SIGTERM and SIGKILL.
const GRACE_MAX: Duration = Duration::from_secs(10);
/// Longest time between two looks at the lease: timers stop while the machine sleeps, and the lease
/// does not.
const CHECK: Duration = Duration::from_secs(1);
/// The time until a lease that was handed off is extended once more.
const AGAIN: Duration = Duration::from_millis(100);
/// How long the releases are waited for of what was acquired, or asked for, and dropped.
const INTERRUPTED: Duration = Duration::from_millis(500);

/// Runs a command under a lock, and says how that has ended. Returns the exit code.
pub async fn run(url: &str, key: String, options: Run, json: bool) -> Result<u8, Failure> {
    let mut report = json!({ "key": key, "outcome": "failed", "error": null, "holder": null,
        "fence": null, "waited_ms": null, "held_ms": null, "status": null });
    // Before the request, so that no signal leaves a lock behind.
    let mut signals = Signals::new()?;
    let label = options.label.clone().unwrap_or_default();
    let ended = async {
        check(lock(&key, &options)).await?;
        let connected = select! {
            connected = LockManager::builder().label(label).connect(url) => connected,
            signal = signals.next() => return Ok(interrupted(signal, &mut report)),
        };
        let manager = connected?;
        let ended = under_lock(&manager, &key, &options, &mut signals, &mut report).await;
        // A lock that is not released by then ends with its lease.
        let _ = manager.shutdown(INTERRUPTED).await;
        ended
    };
    let ended: Result<Ended, Failure> = ended.await;
    let Ended { code, by } = ended.unwrap_or_else(|error| {
        let (text, code) = explain(&*error);
        report["error"] = text.into();
        code.into()
    });
    if json {
        let line = document(&report).lines().map(str::trim).collect::<Vec<_>>().join(" ");
        // The command may have left a line without its end.
        let before = if report["held_ms"].is_null() { "" } else { "\n" };
        // There is no other place to report a failure of this.
        let _ = writeln!(io::stderr(), "{before}{line}");
    } else if let Some(error) = report["error"].as_str() {
        complain(error);
    }
    if let Some(by) = by {
        die_of(by);
    }
    Ok(code)
}

/// How the tool ends.
struct Ended {
    code: u8,
    /// The signal that has ended the command or the wait.
    by: Option<Signal>,
}

impl From<u8> for Ended {
    fn from(code: u8) -> Self {
        Self { code, by: None }
    }
}

fn interrupted(by: Signal, report: &mut Value) -> Ended {
    report["outcome"] = "interrupted".into();
    Ended { code: u8::try_from(128 + by.as_raw()).unwrap_or(FAILED), by: Some(by) }
}

/// Fills in the report.
async fn under_lock(
    manager: &LockManager,
    key: &str,
    options: &Run,
    signals: &mut Signals,
    report: &mut Value,
) -> Result<Ended, Failure> {
    let asked = Instant::now();
    let acquired = select! {
        acquired = acquire(manager, key, options) => acquired,
        signal = signals.next() => return Ok(interrupted(signal, report)),
    };
    report["waited_ms"] = millis(Some(asked.elapsed())).into();
    if let Some(busy) = acquired.as_ref().err().filter(|error| error.is_busy()) {
        report["outcome"] = "busy".into();
        report["holder"] = busy.holder().owner.clone().into();
        report["error"] = busy.to_string().into();
        return Ok(BUSY.into());
    }
    let guard = acquired?;
    let began = Instant::now();
    let [program, arguments @ ..] = &*options.command else { return Err("no command".into()) };
    let fence = guard.fence().ok_or("no fence")?;
    report["fence"] = u64::from(fence).into();
    let mut command = Command::new(program);
    command.args(arguments).env("LOCKMACRO_KEY", key);
    command.env("LOCKMACRO_FENCE", fence.to_string());
    let mut command = match Running::start(command, signals) {
        Ok(command) => command,
        Err(error) => {
            let program = program.to_string_lossy();
            report["error"] = format!("cannot start `{program}`: {error}").into();
            return Ok(if error.kind() == ErrorKind::NotFound { 127 } else { 126 }.into());
        }
    };
    let (status, is_stopped) = watch(&mut command, &guard, options.ttl, signals).await?;
    let by = fatal(&status);
    let status = code(status);
    report["status"] = status.into();
    report["held_ms"] = millis(Some(began.elapsed())).into();
    let released = guard.release().await;
    let is_lost = is_stopped || matches!(released, Err(LockError::Lost(_)));
    report["outcome"] = if is_lost { "lost" } else { "ended" }.into();
    let text = released.err().map(|error| error.to_string());
    let text = text.or(is_stopped.then(|| "the lease could not be renewed in time".to_owned()));
    let end = if is_stopped { "was stopped" } else { "has ended" };
    report["error"] = text.map(|text| format!("{text}; the command {end} with {status}")).into();
    Ok(if is_lost { LOST.into() } else { Ended { code: status, by } })
}

fn lock(key: &str, run: &Run) -> Lock {
    // Set here also where the URL has a default, as the help says.
    let lock = Lock::new(key).ttl(run.ttl).renew().wait(run.wait);
    let lock = match run.permits {
        Some(permits) => lock.permits(permits),
        None if run.shared => lock.shared(),
        None => lock,
    };
    // Without the arguments, which may be secret.
    let program = run.command.first().and_then(|program| Path::new(program).file_name());
    lock.holder_note(program.unwrap_or_default().to_string_lossy())
}

async fn acquire(locks: &LockManager, key: &str, run: &Run) -> Result<LockGuard, LockError> {
    let guard = lock(key, run).fenced().manager(locks).acquire().await?;
    // The lease of a lock that was handed off is short until it is renewed for the first time.
    while guard.remaining() < run.ttl / 2 {
        let Err(error) = guard.extend(run.ttl).await else { break };
        if guard.check().is_err() {
            return Err(error);
        }
        sleep(AGAIN).await;
    }
    Ok(guard)
}

/// Waits for the end of the command, and passes signals to it. Returns whether the command was
/// stopped because of its lock.
async fn watch(
    command: &mut Running,
    guard: &LockGuard,
    ttl: Duration,
    signals: &mut Signals,
) -> io::Result<(ExitStatus, bool)> {
    let grace = (ttl / 4).min(GRACE_MAX);
    let mut kill_at = None;
    loop {
        // Before a signal is passed on: it may let a command go on that was stopped for long.
        let now = Instant::now();
        let left = left(guard, grace);
        if kill_at.is_none() && guard.remaining() <= grace {
            command.signal(TERM);
            kill_at = Some(now + left);
        }
        if kill_at.is_some_and(|at| now >= at || left.is_zero()) {
            command.signal(KILL);
            return Ok((command.wait().await?, true));
        }
        let next = kill_at.map_or(guard.remaining().saturating_sub(grace), |at| at - now);
        select! {
            status = command.wait() => {
                if kill_at.is_some() || status.is_err() {
                    // Processes that the command has started may go on.
                    command.signal(KILL);
                }
                return Ok((status?, kill_at.is_some()));
            }
            signal = signals.next() => command.signal(signal),
            _ = guard.lost(), if kill_at.is_none() => {}
            () = sleep(next.min(CHECK)) => {}
        }
    }
}

/// The time until SIGKILL: to the end of the lease, before the server grants the lock to somebody
/// else. A lock that was taken away may have another holder already, and no such end.
fn left(guard: &LockGuard, grace: Duration) -> Duration {
    match guard.check() {
        Ok(()) => guard.remaining().min(grace),
        Err(LockError::Lost(lost)) if lost.cause() == LossCause::Taken => grace,
        Err(_) => Duration::ZERO,
    }
}
