//! The commands for locks.

use std::time::SystemTime;

use lockmacro_runtime::inspect::{HeldLock, QueuedWaiter};
use lockmacro_runtime::{Holder, LockError, LockManager};
use serde_json::{Value, json};

use crate::show::{document, millis, plain, skipped_json, skipped_lines, table, time};
use crate::{Failure, Report, is_confirmed};

/// Most holders of a key that are shown.
pub const HOLDERS_MAX: usize = 1_000;

pub async fn list(
    manager: &LockManager,
    pattern: &str,
    all: bool,
    each_holder: bool,
    limit: usize,
    json: bool,
) -> Result<Report, Failure> {
    let seen = if all {
        manager.inspector().all(pattern, limit).await
    } else {
        manager.inspector().locks(pattern, limit).await
    };
    let seen = seen.map_err(|error| match error {
        LockError::AccessDenied { keys: Some(_), .. } if pattern == "*" => {
            format!("{error}; name a pattern of keys that this user may read").into()
        }
        error => Failure::from(error),
    })?;
    let mut locks = Vec::new();
    let mut rows = Vec::new();
    for lock in &seen.items {
        let row = |holder: &Holder, shown| {
            let left = time(holder.free_within);
            [lock.key.to_string(), shown, held_for(holder), left, waiters(lock)]
        };
        let mut seen = as_json(lock);
        if each_holder {
            let (each, truncated) = holders_of(manager, lock).await?;
            seen["holders"] = each.iter().map(holder_as_json).collect();
            seen["holders_truncated"] = truncated.into();
            rows.extend(each.iter().map(|holder| row(holder, shown(holder))));
            if truncated {
                let more = lock.sharing.unwrap_or_default().saturating_sub(each.len());
                rows.push(row(&lock.holder, format!("… and {more} more")));
            }
        } else {
            rows.push(row(&lock.holder, holders(lock)));
        }
        locks.push(seen);
    }
    let text = if json {
        let locks = Value::from(locks);
        document(
            &json!({ "locks": locks, "skipped": skipped_json(&seen.skipped), "truncated": seen.truncated }),
        )
    } else {
        let mut text = match &*rows {
            [] if seen.truncated => String::new(),
            [] => "nothing is held\n".to_owned(),
            rows => table(["KEY", "HOLDER", "SINCE", "LEFT", "WAITERS"], rows),
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
    let holder = manager.inspector().lock(&*key).await?;
    let queue = manager.inspector().waiters(&*key, limit).await?;
    let text = if json {
        let waiters = queue.items.iter().enumerate().map(|(nth, waiter)| {
            let QueuedWaiter { owner, note, callers, left, .. } = waiter;
            let left = millis(*left);
            json!({
                "rank": nth, "waiter": owner, "note": note, "callers": callers, "left_ms": left,
            })
        });
        let waiters: Value = waiters.collect();
        let holder = holder.as_ref().map(as_json);
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
        let nobody = if rows.is_empty() { ", and nobody waits" } else { "" };
        let none = || format!("nothing holds `{}`{nobody}", plain(&key));
        let mut text = holder.as_ref().map_or_else(none, held) + "\n";
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
    let Some(lock) = manager.inspector().lock(&*key).await? else {
        return Ok(outcome(&key, None, false, json));
    };
    if lock.holder.owner.is_none() {
        let key = plain(&key);
        return Err(format!("`{key}` is not a lock of lockmacro, and is not released").into());
    }
    let ends = "Its body is not stopped, but `lockmacro run` ends its command at its next renewal.";
    let question = || format!("{}. {ends}\nType the key to take it away", held(&lock));
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
        let key = plain(key);
        let owner = owner.map(plain);
        match owner {
            Some(owner) if taken && holders > 1 => {
                format!("`{key}` was taken away from {holders} holders; {owner} came last\n")
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
    let key = plain(lock.key.as_str());
    let owner = plain(&holders(lock));
    let left = match lock.holder.free_within {
        None => "without an expiry".to_owned(),
        left => format!("for another {}", time(left)),
    };
    // Its body has ended.
    let by = if lock.holder.is_kept && lock.sharing.is_none() {
        format!("kept by the `min_hold` of {}", plain(&lock.holder.to_string()))
    } else {
        format!("held by {owner}")
    };
    format!("`{key}` is {by} {left}, with {} in its queue", waiters(lock))
}

/// The holder's process needs no place in the queue for its own callers.
fn waiters(lock: &HeldLock) -> String {
    lock.waiters.map_or("?".to_owned(), |waiters| waiters.to_string())
}

fn holders(lock: &HeldLock) -> String {
    let last = shown(&lock.holder);
    let all = match lock.sharing {
        None => return last,
        Some(1) => format!("{last}, shared"),
        Some(2) => format!("{last} and 1 other"),
        Some(holders) => format!("{last} and {} others", holders - 1),
    };
    match lock.holder.permits {
        Some(permits) => format!("{all}, of {permits} permits"),
        None => all,
    }
}

/// A holder, and whether it has released the lock already.
fn shown(holder: &Holder) -> String {
    let kept = if holder.is_kept { ", kept by min_hold" } else { "" };
    format!("{holder}{kept}")
}

/// For how long a lock is held; `<` where only the time of the request is known.
fn held_for(Holder { since, asked, .. }: &Holder) -> String {
    let now = SystemTime::now();
    let ago = |at: SystemTime| time(Some(now.duration_since(at).unwrap_or_default()));
    let asked = || asked.map_or("-".to_owned(), |asked| format!("< {}", ago(asked)));
    since.map_or_else(asked, ago)
}

/// The holders of a lock, the one that asked first at the beginning, and whether there are more.
pub async fn holders_of(
    manager: &LockManager,
    lock: &HeldLock,
) -> Result<(Vec<Holder>, bool), LockError> {
    if lock.sharing.is_none() {
        return Ok((vec![lock.holder.clone()], false));
    }
    let seen = manager.inspector().holders(lock.key.clone(), HOLDERS_MAX).await?;
    let mut holders = seen.items;
    if holders.is_empty() {
        // They have all released it meanwhile.
        holders.push(lock.holder.clone());
    }
    holders.sort_by_key(|holder| (holder.asked.is_none(), holder.asked));
    Ok((holders, seen.truncated))
}

/// Whole seconds since 1970.
fn seconds(time: SystemTime) -> Option<u64> {
    time.duration_since(SystemTime::UNIX_EPOCH).ok().map(|time| time.as_secs())
}

pub fn as_json(lock: &HeldLock) -> Value {
    let mut seen = holder_as_json(&lock.holder);
    seen["key"] = lock.key.as_str().into();
    seen["sharing"] = lock.sharing.into();
    seen["waiters"] = lock.waiters.into();
    seen
}

pub fn holder_as_json(holder: &Holder) -> Value {
    json!({
        "holder": holder.owner,
        "note": holder.note,
        "asked": holder.asked.and_then(seconds),
        "since": holder.since.and_then(seconds),
        "left_ms": millis(holder.free_within),
        "permits": holder.permits,
        "is_kept": holder.is_kept,
    })
}
