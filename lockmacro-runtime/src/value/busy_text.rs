//! The words of a busy lock: who holds it, and when to ask again.

use std::time::Duration;

use crate::value::holder::Holder;
use crate::value::key::LockKey;

/// `Retry-After` knows whole seconds only: rounded up, so that nobody comes too early.
pub(crate) fn whole_seconds(time: Duration) -> u64 {
    time.as_secs().saturating_add(u64::from(time.subsec_nanos() > 0))
}

pub(crate) fn busy(
    key: &LockKey,
    holder: &Holder,
    retry_after: Duration,
    message: Option<&str>,
) -> String {
    let seconds = whole_seconds(retry_after);
    if let Some(message) = message {
        return format!("{message} (locked by {holder}: try again in {seconds}s)");
    }
    let told = format!("`{}` is locked by {holder}", key.shown());
    match holder.free_within {
        Some(left) => format!("{told}: try again in {seconds}s, its lease ends in {left:.1?}"),
        None if holder.owner.is_some() => {
            format!("{told} without an expiry: try again in {seconds}s")
        }
        None => {
            let several = "several clients at a part of the lock servers each";
            format!("{told} without an expiry, or by {several}: try again in {seconds}s")
        }
    }
}

pub(crate) fn timed_out(
    key: &LockKey,
    holder: &Holder,
    retry_after: Duration,
    position: u32,
    message: Option<&str>,
) -> String {
    if message.is_some() {
        return busy(key, holder, retry_after, message);
    }
    let seconds = whole_seconds(retry_after);
    let who =
        if holder.owner.is_some() { format!(", which {holder} holds") } else { String::new() };
    let line = match position {
        // There may have been none, and who is first has only the holder before it.
        0 => String::new(),
        _ => format!(", {position} were before in line"),
    };
    let key = key.shown();
    format!("timed out waiting for `{key}`{who}{line}: try again in {seconds}s")
}
