//! Joins the answers to several requests that are in flight at the same time.

use std::future::poll_fn;
use std::task::Poll;

use crate::protocol::answer::Asked;
use crate::value::error::LockError;

/// Whether all answers say that the lock is held.
pub(crate) async fn held_all<'a>(
    asked: impl Iterator<Item = Asked<'a, Result<bool, LockError>>>,
) -> Result<bool, LockError> {
    let mut held = Ok(true);
    all(asked, |part| match (&held, &part) {
        // One loss is enough, even if another answer is an error.
        (Ok(false), _) | (Err(_), Ok(true)) => {}
        _ => held = part,
    })
    .await;
    held
}

/// Waits for all answers, which come in any order.
pub(crate) async fn all<'a, T>(
    asked: impl Iterator<Item = Asked<'a, T>>,
    mut answered: impl FnMut(T),
) {
    let mut asked: Vec<_> = asked.collect();
    poll_fn(|cx| {
        asked.retain_mut(|asked| match asked.as_mut().poll(cx) {
            Poll::Ready(answer) => {
                answered(answer);
                false
            }
            Poll::Pending => true,
        });
        if asked.is_empty() { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
}
