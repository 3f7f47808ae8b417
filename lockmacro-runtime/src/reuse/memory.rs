//! Values beside locks in memory.

use std::sync::Arc;
use std::time::Duration;

use crate::protocol::request::Request;
use crate::reuse::value::{KeptText, ValueOf};
use crate::store::memory::Memory;
use crate::sys::time::Moment;

/// Number of values below which expired ones are not removed.
const SWEEP_FROM: usize = 64;

pub(crate) fn kept(memory: &Memory, of: ValueOf<'_>) -> Option<KeptText> {
    let slot = (of.key.as_str().to_owned(), of.name.to_owned());
    let now = Moment::now();
    let table = memory.values.in_memory.lock();
    let kept = table.values.get(&slot).filter(|(_, ends)| *ends > now);
    kept.map(|(text, ends)| KeptText { text: Arc::clone(text), left: ends.since(now) })
}

pub(crate) fn keep(
    memory: &Memory,
    request: &Request,
    of: ValueOf<'_>,
    value: &str,
    time: Duration,
) -> bool {
    // Before the look at the holder: the next one's value must not come in between.
    let mut table = memory.values.in_memory.lock();
    let now = Moment::now();
    if !memory.is_held(of.key.as_str(), &request.token.secret, now) {
        return false;
    }
    let slot = (of.key.as_str().to_owned(), of.name.to_owned());
    if value.is_empty() {
        table.values.remove(&slot);
    } else {
        table.values.insert(slot, (value.into(), now.after(time)));
    }
    if table.values.len() >= table.sweep_at.max(SWEEP_FROM) {
        table.values.retain(|_, (_, ends)| *ends > now);
        table.sweep_at = table.values.len() * 2;
    }
    true
}
