//! Functions in a module without a prelude: expansions name everything by its whole path.
#![no_implicit_prelude]

use ::core::option::Option::{self, Some};
use ::core::primitive::{bool, usize};
use ::core::result::Result::{self, Ok};
use ::lockmacro_runtime::{LockError, LockKey, Lost, distributed_lock};
use ::std::string::String;

async fn later(_: String, _: bool) -> Result<usize, LockError> {
    Ok(0)
}

fn undone(_: Lost, value: Result<usize, LockError>) -> Result<usize, LockError> {
    value
}

#[distributed_lock(
    key = if dry_run { "order" } else { "rest" },
    ttl = "30s",
    wait = "5s",
    on_busy = fallback(later),
    on_lost = undone,
    guard = _guard,
    holder_note = "<id>"
)]
pub(crate) async fn audit(id: String, dry_run: bool) -> Result<usize, LockError> {
    Ok(id.len())
}

#[distributed_lock(
    key = ["order:<id>", shared("desk:<id>"), stock],
    fence = [_order, _desk, _stock],
    message = "order <id> is being moved"
)]
pub(crate) async fn transfer(id: String, stock: LockKey) -> Result<usize, LockError> {
    Ok(id.len())
}

#[distributed_lock(key = "order:<id>", on_busy = defer("30s"), release = background)]
pub(crate) async fn book(id: String) -> Result<Option<usize>, LockError> {
    Ok(Some(id.len()))
}

#[distributed_lock(key = "order:<id>", permits = 3, map_err = ::core::convert::identity)]
pub(crate) async fn count(id: String) -> Result<usize, LockError> {
    Ok(id.len())
}

#[distributed_lock(key = "order:<id>", on_busy = skip)]
pub(crate) fn skip(id: String) -> Option<usize> {
    Some(id.len())
}
