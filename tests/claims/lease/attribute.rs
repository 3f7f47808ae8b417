//! Every argument about a lease, in the attribute of a sync function. Async functions and each
//! argument by itself are tested in `tests/attribute/shapes`.

use std::time::Instant;

use lockmacro_runtime::{Lock, LockError, LockGuard, LockManager, Lost, distributed_lock};
use lockmacro_tests::{Backend, on, on_a_plain_thread};

use crate::{Locked, block_until_lost, ms};

fn roll_back(lost: Lost, written: Locked<Vec<String>>) -> Locked<Vec<String>> {
    let mut written = written?;
    written.push(format!("rolled back, {:?}", lost.cause()));
    Ok(written)
}

#[distributed_lock(
    key = key, ttl = "2s", renew, max_hold = "3500ms", min_hold = "100ms",
    on_lost = roll_back, guard = lock, fence = fence, manager = manager
)]
fn book_blocking(manager: &LockManager, key: &str, is_late: bool) -> Locked<Vec<String>> {
    if is_late {
        block_until_lost();
    }
    let joined = Lock::new(key).manager(manager).acquire_blocking();
    Ok(vec![format!("{} {}", lock.fence() == Some(fence), joined.is_ok())])
}

#[on(memory, redis, postgres)]
async fn sync_functions_have_the_same_arguments(backend: &Backend) {
    let manager = backend.manager().await;
    let (late, in_time) = (backend.key("late"), backend.key("in time"));
    let start = Instant::now();
    let written = on_a_plain_thread(move || {
        assert!(LockGuard::current().is_none());
        let in_time = book_blocking(&manager, &in_time, false)?;
        Ok::<_, LockError>((in_time, book_blocking(&manager, &late, true)?))
    });
    let (in_time, late) = written.await.expect("both end");
    assert_eq!(in_time, ["true true"]);
    assert_eq!(late, ["true false", "rolled back, Expired"]);
    // It is renewed, once.
    assert!(start.elapsed() > ms(3_400), "{:?}", start.elapsed());
    backend.forget_fences();
}
