//! Values beside locks, in the stores that can keep them.

use std::any::Any;
use std::future::ready;
use std::time::Duration;

use crate::protocol::answer::StoreFuture;
use crate::protocol::request::Request;
use crate::reuse::memory;
#[cfg(feature = "postgres")]
use crate::reuse::postgres;
#[cfg(feature = "redis")]
use crate::reuse::redis;
use crate::reuse::value::{KeptText, ValueOf};
use crate::store::handle::Store;
use crate::value::error::LockError;

/// The value that a holder of the key has kept under a name, if its time is not over.
pub(crate) fn kept<'a>(
    store: &'a Store,
    of: ValueOf<'a>,
) -> StoreFuture<'a, Result<Option<KeptText>, LockError>> {
    let kind: &dyn Any = &*store.backend;
    #[cfg(feature = "redis")]
    if let Some(redis) = kind.downcast_ref() {
        return Box::pin(redis::kept(redis, of));
    }
    #[cfg(feature = "postgres")]
    if let Some(postgres) = kind.downcast_ref() {
        return Box::pin(postgres::kept(postgres, of));
    }
    if let Some(memory) = kind.downcast_ref() {
        return Box::pin(async move { Ok(memory::kept(memory, of)) });
    }
    let instead = "keeps no values: use one Redis server, a cluster or PostgreSQL";
    let others = || LockError::invalid("reuse", format!("this store {instead}"));
    Box::pin(ready(Err(store.backend.refusal("reuse", instead).unwrap_or_else(others))))
}

/// Keeps a value of a key for so long under a name, in place of the one before, if the request's
/// token holds the key. An empty one removes that before. Returns whether it holds it.
pub(crate) fn keep<'a>(
    store: &'a Store,
    request: &'a Request,
    of: ValueOf<'a>,
    value: &'a str,
    time: Duration,
) -> StoreFuture<'a, Result<bool, LockError>> {
    let kind: &dyn Any = &*store.backend;
    #[cfg(feature = "redis")]
    if let Some(redis) = kind.downcast_ref() {
        return Box::pin(redis::keep(redis, request, of, value, time));
    }
    #[cfg(feature = "postgres")]
    if let Some(postgres) = kind.downcast_ref() {
        return Box::pin(postgres::keep(postgres, request, of, value, time));
    }
    let memory = kind.downcast_ref();
    Box::pin(async move {
        Ok(memory.is_some_and(|memory| memory::keep(memory, request, of, value, time)))
    })
}
