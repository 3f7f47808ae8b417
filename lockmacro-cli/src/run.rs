//! The command `run`: a program under a lock.

use std::io::{self, ErrorKind, Write};
use std::path::Path;
use std::process::ExitStatus;
use std::time::Duration;

use lockmacro_runtime::{Lock, LockError, LockGuard, LockManager, LossCause};
use serde_json::{Value, json};
use tokio::process::Command;
use tokio::select;
use tokio::time::{Instant, sleep_until, timeout};

use crate::args::Run;
use crate::process::{KILL, Running, Signals, TERM, code};
use crate::show::{document, millis};
use crate::{Failure, complain};

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
/// How long the release of an interrupted request is waited for.
const INTERRUPTED: Duration = Duration::from_millis(500);

/// Runs a command under a lock. Returns the exit code.
pub async fn run(url: &str, options: Run, json: bool) -> Result<u8, Failure> {
    // Before the request, so that no signal leaves a lock behind.
    let mut signals = Signals::new()?;
    let asked = Instant::now();
    let label = options.label.clone().unwrap_or_default();
    let manager = LockManager::builder().label(label).connect(url).await?;
    let acquired = select! {
        acquired = acquire(&manager, &options) => acquired,
        signal = signals.next() => {
            // What is not released by then ends with its lease.
            let _ = manager.shutdown(INTERRUPTED).await;
            return Ok(u8::try_from(128 + signal.as_raw()).unwrap_or(BUSY));
        }
    };
    let waited = asked.elapsed();
    let report = |outcome: &str, more: Value| {
        let mut report = json!({ "key": options.key, "outcome": outcome, "holder": null,
            "fence": null, "waited_ms": millis(Some(waited)), "held_ms": null, "status": null });
        if let (Value::Object(report), Value::Object(more)) = (&mut report, more) {
            report.extend(more);
        }
        report
    };
    let guard = match acquired {
        Ok(guard) => guard,
        Err(error) if error.is_busy() => {
            let holder = json!({ "holder": error.holder().owner });
            say(json.then(|| report("busy", holder)), Some(error.to_string()));
            return Ok(BUSY);
        }
        Err(error) => return Err(error.into()),
    };
    let (began, fence) = (Instant::now(), guard.fence().map(u64::from));
    let [program, arguments @ ..] = &*options.command else { return Err("no command".into()) };
    let mut command = Command::new(program);
    command.args(arguments).env("LOCKMACRO_KEY", &options.key);
    if let Some(fence) = fence {
        command.env("LOCKMACRO_FENCE", fence.to_string());
    }
    let mut command = match Running::start(command) {
        Ok(command) => command,
        Err(error) => {
            complain(&format!("cannot start `{}`: {error}", program.to_string_lossy()));
            guard.release().await?;
            return Ok(if error.kind() == ErrorKind::NotFound { 127 } else { 126 });
        }
    };
    let (status, is_stopped) = watch(&mut command, &guard, options.ttl, &mut signals).await?;
    let (status, held) = (code(status), millis(Some(began.elapsed())));
    let released = guard.release().await;
    let is_lost = is_stopped || matches!(released, Err(LockError::Lost(_)));
    let text = match released {
        Err(error) => Some(error.to_string()),
        Ok(()) if is_stopped => Some("the lease could not be renewed in time".to_owned()),
        Ok(()) => None,
    };
    let end = if is_stopped { "was stopped" } else { "has ended" };
    let text = text.map(|text| format!("{text}; the command {end} with {status}"));
    let ended = json!({ "fence": fence, "held_ms": held, "status": status });
    say(json.then(|| report(if is_lost { "lost" } else { "ended" }, ended)), text);
    Ok(if is_lost { LOST } else { status })
}

async fn acquire(manager: &LockManager, options: &Run) -> Result<LockGuard, LockError> {
    // Set here also where the URL has a default, as the help says.
    let lock = Lock::new(&*options.key).ttl(options.ttl).renew().wait(options.wait);
    let lock = match options.permits {
        Some(permits) => lock.permits(permits),
        None if options.shared => lock.shared(),
        None => lock,
    };
    // Without the arguments, which may be secret.
    let program = options.command.first().and_then(|program| Path::new(program).file_name());
    let note = program.unwrap_or_default().to_string_lossy();
    let (guard, _) = lock.holder_note(note).manager(manager).acquire_fenced().await?;
    // The lease of a lock that was handed off is short until it is renewed for the first time.
    if guard.remaining() < options.ttl / 2 {
        guard.extend(options.ttl).await?;
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
        select! {
            status = command.wait() => {
                if kill_at.is_some() {
                    // What the command has started may go on.
                    command.signal(KILL);
                }
                return Ok((status?, kill_at.is_some()));
            }
            signal = signals.next() => command.signal(signal),
            () = endangered(guard, grace), if kill_at.is_none() => {
                command.signal(TERM);
                kill_at = Some(Instant::now() + left(guard, grace));
            }
            () = sleep_until(kill_at.unwrap_or_else(Instant::now)), if kill_at.is_some() => {
                command.signal(KILL);
                return Ok((command.wait().await?, true));
            }
        }
    }
}

/// Waits until the lock is lost, or the rest of its lease is only the `grace`.
async fn endangered(guard: &LockGuard, grace: Duration) {
    loop {
        let time = guard.remaining().saturating_sub(grace);
        if time.is_zero() {
            return;
        }
        // Both mean that the lease is to be looked at.
        let _ = timeout(time.min(CHECK), guard.lost()).await;
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

/// Writes the document in one line, or else the text.
fn say(report: Option<Value>, text: Option<String>) {
    match (report, text) {
        (Some(report), _) => {
            let line = document(&report).lines().map(str::trim).collect::<Vec<_>>().join(" ");
            // There is no other place to report a failure of this.
            let _ = writeln!(io::stderr(), "{line}");
        }
        (None, Some(text)) => complain(&text),
        (None, None) => {}
    }
}
