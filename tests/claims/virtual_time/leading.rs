//! How long a term is, and what comes between two of them.

use std::cell::RefCell;

use lockmacro_runtime::{Lock, LockError, LockManager};
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

#[tokio::test(start_paused = true)]
async fn a_lock_that_several_hold_elects_no_leader() {
    let locks = LockManager::isolated_memory();
    let role = || Lock::new("role").manager(&locks);
    for (lock, named) in [(role().shared(), "shared"), (role().permits(2), "permits")] {
        let refused = lock.lead(async |_| panic!("two would lead")).await;
        let Err(LockError::InvalidSetting { setting, .. }) = refused else { panic!("{refused:?}") };
        assert_eq!(setting, named);
    }
}

#[tokio::test(start_paused = true)]
async fn a_campaign_inside_of_a_body_that_holds_the_lock_is_refused() {
    let locks = LockManager::isolated_memory();
    let role = || Lock::new("role").manager(&locks);
    let inner = RefCell::new(None);
    let outer = role().lead(async |_| {
        *inner.borrow_mut() = Some(role().lead(async |_| panic!("two lead")).await);
        sleep(3_600 * SECOND).await;
    });
    timeout(60 * SECOND, outer).await.expect_err("it leads");
    let inside_of_lead = inner.into_inner().expect("it has returned");
    let inside_of_run = role().run(role().lead(async |_| panic!("two would lead"))).await;
    for refused in [inside_of_lead, inside_of_run] {
        assert!(
            matches!(refused, Err(LockError::InvalidSetting { setting: "lead", .. })),
            "{refused:?}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_body_that_panics_ends_its_term_and_not_the_campaign() {
    let locks = LockManager::isolated_memory();
    let terms = RefCell::new(Vec::new());
    let start = Instant::now();
    let lead = Lock::new("role").manager(&locks).lead(async |_| {
        terms.borrow_mut().push(start.elapsed());
        assert!(terms.borrow().len() > 2, "the first terms panic");
        sleep(3_600 * SECOND).await;
    });
    timeout(60 * SECOND, lead).await.expect_err("it leads");
    let terms = terms.into_inner();
    assert_eq!(terms.len(), 3, "{terms:?}");
    assert!(terms.windows(2).all(|two| two[1] - two[0] >= SECOND / 2), "{terms:?}");
}
