//! How long a term is, and what comes between two of them.

use std::cell::RefCell;

use lockmacro_runtime::{Lock, LockManager};
use tokio::time::{Instant, sleep, timeout};

use crate::SECOND;

#[tokio::test(start_paused = true)]
async fn a_term_is_longer_than_its_ttl() {
    let locks = LockManager::isolated_memory();
    let terms = RefCell::new(0);
    let lead = Lock::new("role").ttl(10 * SECOND).manager(&locks).lead(async |_| {
        *terms.borrow_mut() += 1;
        sleep(3_600 * SECOND).await;
    });
    timeout(3_000 * SECOND, lead).await.expect_err("it leads");
    assert_eq!(*terms.borrow(), 1);
}

#[tokio::test(start_paused = true)]
async fn terms_that_return_at_once_have_pauses_between_them() {
    let locks = LockManager::isolated_memory();
    let terms = RefCell::new(Vec::new());
    let start = Instant::now();
    let lead = Lock::new("role").manager(&locks).lead(async |_| {
        terms.borrow_mut().push(start.elapsed());
    });
    timeout(60 * SECOND, lead).await.expect_err("it leads");
    let terms = terms.into_inner();
    assert!(terms.windows(2).all(|two| two[1] - two[0] >= SECOND / 2), "{terms:?}");
    assert!((30..=120).contains(&terms.len()), "{terms:?}");
}
