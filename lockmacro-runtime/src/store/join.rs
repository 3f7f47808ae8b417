//! Joins the answers to several requests that are in flight at the same time.

use futures_util::future::join_all;

use crate::protocol::answer::StoreFuture;
use crate::value::error::LockError;

/// Whether all answers say that the lock is held.
pub(crate) async fn held_all<'a>(
    asked: impl Iterator<Item = StoreFuture<'a, Result<bool, LockError>>>,
) -> Result<bool, LockError> {
    let parts = join_all(asked).await;
    // One loss is enough, even if another answer is an error.
    if parts.contains(&Ok(false)) {
        Ok(false)
    } else {
        parts.into_iter().find(Result::is_err).unwrap_or(Ok(true))
    }
}
