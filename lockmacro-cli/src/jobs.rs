//! The commands for jobs.

use std::sync::Arc;
use std::time::Duration;

use lockmacro_runtime::defer::{JobInfo, JobState, When};
use lockmacro_runtime::{LockError, LockManager};
use serde_json::{Value, json};

use crate::args::{Amend, Jobs, STATES};
use crate::show::{document, plain, skipped_json, skipped_lines, table, time};
use crate::{Failure, Report, is_confirmed};

/// Largest number of functions in the overview.
const FUNCTIONS: usize = 1_000;
/// Largest number of dead jobs that one request retries or removes.
const AT_ONCE: usize = 1_000;

pub async fn run(manager: &LockManager, jobs: Jobs, json: bool) -> Result<Report, Failure> {
    match (&jobs.amend, &jobs.function) {
        (Some(jobs), _) => amend(manager, jobs, json).await,
        (None, Some(function)) => list(manager, Arc::from(&**function), &jobs, json).await,
        (None, None) => overview(manager, json).await,
    }
}

async fn overview(manager: &LockManager, json: bool) -> Result<Report, Failure> {
    let seen = manager.inspector().job_functions(FUNCTIONS).await?;
    let mut functions = Vec::new();
    let mut broken = Vec::new();
    for function in seen.items {
        match counts(manager, &function).await {
            Ok(counts) => functions.push((function, counts)),
            Err(LockError::KeyNotALock { .. }) => broken.push(function),
            Err(error) => return Err(error.into()),
        }
    }
    let text = if json {
        let functions = functions.iter().map(|(function, [waiting, running, dead])| {
            json!({ "function": function, "waiting": waiting, "running": running, "dead": dead })
        });
        let functions = functions.collect::<Value>();
        let skipped = skipped_json(&seen.skipped);
        document(&json!({
            "functions": functions, "broken": broken, "skipped": skipped, "truncated": seen.truncated,
        }))
    } else {
        let row = |(function, counts): &(String, [usize; 3])| {
            let [waiting, running, dead] = counts.map(|count| count.to_string());
            [function.clone(), waiting, running, dead]
        };
        let rows: Vec<_> = functions.iter().map(row).collect();
        let mut text = if rows.is_empty() {
            "nothing is deferred\n".to_owned()
        } else {
            table(["FUNCTION", "WAITING", "RUNNING", "DEAD"], &rows)
        };
        if seen.truncated {
            text.push_str("… and more\n");
        }
        for function in broken {
            text += &format!("! {}: a key of its jobs has another type\n", plain(&function));
        }
        text + &skipped_lines(&seen.skipped)
    };
    Ok(Report { text, done: true })
}

async fn counts(manager: &LockManager, function: &str) -> Result<[usize; 3], LockError> {
    let mut counts = [0; 3];
    for (count, state) in counts.iter_mut().zip(STATES) {
        *count = manager.job_queue().list(function.into(), state, 0, 0).await?.total;
    }
    Ok(counts)
}

async fn list(
    manager: &LockManager,
    function: Arc<str>,
    jobs: &Jobs,
    json: bool,
) -> Result<Report, Failure> {
    let [waiting, running, dead] = counts(manager, &function).await?;
    let Jobs { state, first, limit, .. } = *jobs;
    let page = manager.job_queue().list(Arc::clone(&function), state, first, limit).await?;
    let end = first.saturating_add(page.jobs.len());
    let truncated = end < page.total && !page.jobs.is_empty();
    let done = waiting + running + dead > 0;
    let text = if json {
        let jobs: Value = page.jobs.iter().map(as_json).collect();
        document(&json!({
            "function": &*function, "waiting": waiting, "running": running, "dead": dead,
            "state": state.to_string(), "first": first, "jobs": jobs, "truncated": truncated,
        }))
    } else if !done {
        format!("`{}` has no jobs\n", plain(&function))
    } else {
        let mut text =
            format!("{}: {waiting} waiting, {running} running, {dead} dead\n", plain(&function));
        if !page.jobs.is_empty() {
            let rows: Vec<_> = page.jobs.iter().map(|job| row(job, state)).collect();
            let when = match state {
                JobState::Waiting => "DUE",
                JobState::Running => "KEPT FOR",
                _ => "SINCE",
            };
            text += &table(["ID", "KEY", "TRIED", "BUSY", when, "ARGUMENTS", "LAST ERROR"], &rows);
        }
        if truncated {
            text += &format!("… {state} of {}: go on with `--first {end}`\n", page.total);
        }
        text
    };
    Ok(Report { text, done })
}

fn row(job: &JobInfo, state: JobState) -> [String; 7] {
    let when = match job.when {
        When::In(Duration::ZERO) => "now".to_owned(),
        When::In(left) if state == JobState::Running => time(Some(left)),
        When::In(left) => format!("in {}", time(Some(left))),
        When::Ago(age) => format!("{} ago", time(Some(age))),
    };
    let error = job.error.clone().unwrap_or_else(|| "-".to_owned());
    let id = job.id.clone();
    let key = job.key.clone();
    let arguments = job.arguments.clone();
    let tried = job.attempts.to_string();
    let busy = job.busy.to_string();
    [id, key, tried, busy, when, arguments, error]
}

fn as_json(job: &JobInfo) -> Value {
    // Text that is no JSON is shown as a string.
    let arguments = serde_json::from_str(&job.arguments);
    let arguments = arguments.unwrap_or_else(|_| Value::String(job.arguments.clone()));
    let in_ms = match job.when {
        When::In(left) => left.as_millis() as i128,
        When::Ago(age) => -(age.as_millis() as i128),
    };
    let in_ms = i64::try_from(in_ms).unwrap_or(i64::MAX);
    json!({
        "id": job.id, "key": job.key, "attempts": job.attempts, "busy": job.busy,
        "in_ms": in_ms, "arguments": arguments, "error": job.error,
    })
}

async fn amend(manager: &LockManager, amend: &Amend, json: bool) -> Result<Report, Failure> {
    let (jobs, done, what) = match amend {
        Amend::Retry(jobs) => (jobs, "retried", "tried again"),
        Amend::Remove(jobs) => (jobs, "removed", "removed for good"),
    };
    let job_queue = manager.job_queue();
    let function = Arc::<str>::from(&*jobs.function);
    let name = plain(&function);
    if jobs.all_dead {
        // As many dead jobs as there are at the start.
        let [_, _, dead] = counts(manager, &function).await?;
        let question =
            || format!("{dead} dead jobs of `{name}` are {what}.\nType the function's name");
        if dead > 0 && !jobs.yes && !is_confirmed(&question(), &function)? {
            return Err("that is not the function: nothing was done".into());
        }
        let mut count = 0;
        while count < dead {
            let function = Arc::clone(&function);
            let limit = AT_ONCE.min(dead - count);
            let amended = match amend {
                Amend::Retry(_) => job_queue.retry_dead(function, limit).await?,
                Amend::Remove(_) => job_queue.remove_dead(function, limit).await?,
            };
            if amended == 0 {
                break;
            }
            count += amended;
        }
        let noun = if count == 1 { "dead job" } else { "dead jobs" };
        let text = if json {
            document(&json!({ "function": &*function, done: count }))
        } else {
            format!("{done}: {count} {noun} of {name}\n")
        };
        return Ok(Report { text, done: true });
    }
    let mut amended = Vec::new();
    let mut missing = Vec::new();
    for id in &jobs.ids {
        let function = Arc::clone(&function);
        let found = match amend {
            Amend::Retry(_) => job_queue.retry(function, id.clone()).await?,
            Amend::Remove(_) => job_queue.remove(function, id.clone()).await?,
        };
        if found { &mut amended } else { &mut missing }.push(id.as_str());
    }
    let text = if json {
        document(&json!({ "function": jobs.function, done: amended, "missing": missing }))
    } else {
        let lines = amended.iter().map(|id| format!("{done}: {}\n", plain(id)));
        let missed = missing.iter().map(|id| format!("neither waiting nor dead: {}\n", plain(id)));
        lines.chain(missed).collect()
    };
    Ok(Report { text, done: missing.is_empty() })
}
