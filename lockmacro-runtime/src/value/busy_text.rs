//! The text of a busy error: the holder, and when to ask again.

use std::time::Duration;

use crate::value::holder::Holder;
use crate::value::key::LockKey;

/// Whole seconds for `Retry-After`, rounded up, so that no caller comes too early.
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
    let text = format!("`{}` is locked by {holder}", key.shown());
    match (holder.free_within, &holder.owner) {
        (Some(left), _) => format!("{text}: try again in {seconds}s, its lease ends in {left:.1?}"),
        (None, Some(_)) => format!("{text} without an expiry: try again in {seconds}s"),
        (None, None) => {
            let several = "several clients, each at some of the lock servers";
            format!("{text} without an expiry, or by {several}: try again in {seconds}s")
        }
    }
}

pub(crate) fn timed_out(
    key: &LockKey,
    holder: &Holder,
    retry_after: Duration,
    rank: u32,
    message: Option<&str>,
) -> String {
    if message.is_some() {
        return busy(key, holder, retry_after, message);
    }
    let seconds = whole_seconds(retry_after);
    let held_by = holder.owner.as_ref().map(|_| format!(", which {holder} holds"));
    let held_by = held_by.unwrap_or_default();
    // 0 for the first waiter, and where the rank is not known.
    let queue = if rank > 0 { format!(", {rank} ahead in the queue") } else { String::new() };
    let key = key.shown();
    format!("timed out waiting for `{key}`{held_by}{queue}: try again in {seconds}s")
}
