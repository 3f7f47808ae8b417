//! The commands for locks.

use std::time::SystemTime;

use lockmacro_runtime::LockManager;
use lockmacro_runtime::inspect::{HeldLock, QueuedWaiter};
use serde_json::{Value, json};

use crate::show::{document, millis, plain, skipped_json, skipped_lines, table, time};
use crate::{Failure, Report, is_confirmed};

pub async fn list(
    manager: &LockManager,
    pattern: &str,
    all: bool,
    limit: usize,
    json: bool,
) -> Result<Report, Failure> {
    let seen = match all {
        true => manager.inspect_all(pattern, limit).await?,
        false => manager.inspect_locks(pattern, limit).await?,
    };
    let text = if json {
        let locks: Value = seen.items.iter().map(as_json).collect();
        document(
            &json!({ "locks": locks, "skipped": skipped_json(&seen.skipped), "truncated": seen.truncated }),
        )
    } else {
        let row = |lock: &HeldLock| {
            let waiters = lock.waiters.map_or("?".to_owned(), |waiters| waiters.to_string());
            [lock.key.to_string(), holders(lock), time(lock.holder.free_within), waiters]
        };
        let rows: Vec<_> = seen.items.iter().map(row).collect();
        let mut text = match rows.is_empty() {
            true if seen.truncated => String::new(),
            true => "nothing is held\n".to_owned(),
            false => table(["KEY", "HOLDER", "LEFT", "WAITERS"], &rows),
        };
        if seen.truncated {
            text.push_str("… and more: give a pattern, or `--limit`\n");
        }
        text + &skipped_lines(&seen.skipped)
    };
    Ok(Report { text, done: true })
}

pub async fn queue(
    manager: &LockManager,
    key: String,
    limit: usize,
    json: bool,
) -> Result<Report, Failure> {
    let holder = manager.inspect_lock(&*key).await?;
    let queue = manager.inspect_waiters(&*key, limit).await?;
    let text = if json {
        let waiters = queue.items.iter().enumerate().map(|(nth, waiter)| {
            let left = millis(waiter.left);
            let QueuedWaiter { owner, note, callers, .. } = waiter;
            json!({
                "rank": nth,
                "waiter": owner,
                "note": note,
                "callers": callers,
                "left_ms": left,
            })
        });
        let (holder, waiters) = (holder.as_ref().map(as_json), waiters.collect::<Value>());
        document(
            &json!({ "key": key, "lock": holder, "queue": waiters, "truncated": queue.truncated }),
        )
    } else {
        let rows = queue.items.iter().enumerate().map(|(nth, waiter)| {
            let owner = waiter.owner.as_deref().unwrap_or("?");
            let note = waiter.note.as_ref().map_or(String::new(), |note| format!(" ({note})"));
            let callers = waiter.callers.map_or("?".to_owned(), |callers| callers.to_string());
            [nth.to_string(), owner.to_owned() + &note, callers, time(waiter.left)]
        });
        let rows: Vec<[String; 4]> = rows.collect();
        let mut text = match &holder {
            Some(lock) => format!("{}\n", held(lock)),
            None if rows.is_empty() => {
                format!("nothing holds `{}`, and nobody waits\n", plain(&key))
            }
            None => format!("nothing holds `{}`\n", plain(&key)),
        };
        if !rows.is_empty() {
            text.push_str(&table(["RANK", "WAITER", "CALLERS", "KEPT FOR"], &rows));
        }
        if queue.truncated {
            text.push_str("… and more\n");
        }
        text
    };
    Ok(Report { text, done: true })
}

pub async fn release(
    manager: &LockManager,
    key: String,
    yes: bool,
    json: bool,
) -> Result<Report, Failure> {
    let Some(lock) = manager.inspect_lock(&*key).await? else {
        return Ok(outcome(&key, None, false, json));
    };
    if lock.holder.owner.is_none() {
        let key = plain(&key);
        let what = format!("`{key}` is not a lock of lockmacro");
        return Err(format!("{what}: another client wrote it, and it is not released").into());
    }
    let question =
        || format!("{}. Its body is not stopped.\nType the key to take it away", held(&lock));
    if !yes && !is_confirmed(&question(), &key)? {
        return Err("that is not the key: nothing was done".into());
    }
    let taken = manager.force_release(&lock).await?;
    Ok(outcome(&key, Some(&lock), taken, json))
}

fn outcome(key: &str, lock: Option<&HeldLock>, taken: bool, json: bool) -> Report {
    let holders = lock.map_or(0, |lock| lock.sharing.unwrap_or(1));
    let owner = lock.and_then(|lock| lock.holder.owner.as_deref());
    let text = if json {
        let lost = if taken { holders } else { 0 };
        document(&json!({ "key": key, "holder": owner, "released": taken, "holders": lost }))
    } else {
        let (key, owner) = (plain(key), owner.map(plain));
        match owner {
            Some(owner) if taken && holders > 1 => {
                format!(
                    "`{key}` was taken away from {holders} holders, of which {owner} came last\n"
                )
            }
            Some(owner) if taken => format!("`{key}` was taken away from {owner}\n"),
            Some(owner) => format!("`{key}` was gone meanwhile: {owner} does not hold it\n"),
            None => format!("nothing holds `{key}`\n"),
        }
    };
    Report { text, done: taken }
}

/// A sentence about the holder of a lock.
fn held(lock: &HeldLock) -> String {
    let (key, owner) = (plain(lock.key.as_str()), plain(&holders(lock)));
    let left = match lock.holder.free_within {
        None => "without an expiry".to_owned(),
        left => format!("for another {}", time(left)),
    };
    // The holder's process needs no place in the queue for its own callers.
    let waiters = match lock.waiters {
        Some(0) => "nobody waits in other processes".to_owned(),
        Some(1) => "1 waits in the queue".to_owned(),
        Some(waiters) => format!("{waiters} wait in the queue"),
        None => "its queue is broken".to_owned(),
    };
    format!("`{key}` is held by {owner} {left}, and {waiters}")
}

fn holders(lock: &HeldLock) -> String {
    let last = &lock.holder;
    match lock.sharing {
        None => last.to_string(),
        Some(1) => format!("{last}, shared"),
        Some(2) => format!("{last} and 1 other"),
        Some(holders) => format!("{last} and {} others", holders - 1),
    }
}

/// Whole seconds since 1970.
fn seconds(time: SystemTime) -> Option<u64> {
    time.duration_since(SystemTime::UNIX_EPOCH).ok().map(|time| time.as_secs())
}

pub fn as_json(lock: &HeldLock) -> Value {
    json!({
        "key": lock.key.as_str(),
        "holder": lock.holder.owner,
        "note": lock.holder.note,
        "asked": lock.holder.asked.and_then(seconds),
        "since": lock.holder.since.and_then(seconds),
        "left_ms": millis(lock.holder.free_within),
        "sharing": lock.sharing,
        "waiters": lock.waiters,
    })
}
