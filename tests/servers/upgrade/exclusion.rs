//! What one version holds, the other one does not get, renew or release.

use lockmacro_runtime::LockError;
use lockmacro_tests::AcquireFenced as _;
use lockmacro_tests::times::LONG_TTL;

use crate::client::Request;
use crate::{free, is_busy, lock, nothing_is_left, released, several, two_versions};

const KEY: &str = "order:42";

#[tokio::test]
async fn a_key_that_one_version_holds_is_busy_for_the_other() {
    let (server, ours, mut earlier) = two_versions().await;
    for (holder, caller) in [(1, 1), (1, 0), (0, 1), (1, 2), (2, 1)] {
        let held = earlier.ask(Request::of(KEY).permits(holder)).expect("free");
        assert!(is_busy(lock(&ours, KEY, caller)).await, "{holder} {caller}");
        assert!(earlier.renew(&held) && earlier.release(&held));

        let held = free(lock(&ours, KEY, holder)).await;
        assert!(earlier.ask(Request::of(KEY).permits(caller)).is_none(), "{holder} {caller}");
        released(held).await;
    }
    nothing_is_left(&server);
}

#[tokio::test]
async fn both_versions_share_a_key_and_count_its_permits_together() {
    let (server, ours, mut earlier) = two_versions().await;
    for limit in [0, 2] {
        let theirs = earlier.ask(Request::of(KEY).permits(limit)).expect("free");
        let guard = free(lock(&ours, KEY, limit)).await;
        let is_full = limit == 2;
        assert_eq!(is_busy(lock(&ours, KEY, limit)).await, is_full);
        match earlier.ask(Request::of(KEY).permits(limit)) {
            Some(third) => assert!(!is_full && earlier.release(&third)),
            None => assert!(is_full),
        }
        // Of the two that are left, either may go first.
        if is_full {
            assert!(earlier.release(&theirs) && is_busy(lock(&ours, KEY, 1)).await);
            released(guard).await;
        } else {
            released(guard).await;
            assert!(is_busy(lock(&ours, KEY, 1)).await && earlier.renew(&theirs));
            assert!(earlier.release(&theirs));
        }
    }
    nothing_is_left(&server);
}

#[tokio::test]
async fn several_keys_are_all_or_nothing_over_both_versions() {
    let (server, ours, mut earlier) = two_versions().await;
    let keys = ["a", "b", "c"].map(str::to_owned);
    let theirs = earlier.ask(Request::of_all(&keys[..2])).expect("free");
    assert!(is_busy(several(&ours, &keys[1..])).await && is_busy(lock(&ours, "a", 1)).await);
    assert!(!is_busy(lock(&ours, "c", 1)).await, "it was not kept");
    assert!(earlier.renew(&theirs) && earlier.release(&theirs));

    let guard = free(several(&ours, &keys[..2])).await;
    assert!(earlier.ask(Request::of_all(&keys[1..])).is_none());
    assert!(earlier.ask(Request::of("a")).is_none());
    let third = earlier.ask(Request::of("c")).expect("it was not kept");
    assert!(earlier.release(&third));
    released(guard).await;
    nothing_is_left(&server);
}

#[tokio::test]
async fn a_lock_is_renewed_and_released_by_its_own_token_only() {
    let (server, ours, mut earlier) = two_versions().await;
    let mut admin = server.admin();
    for limit in [1, 0] {
        // Its key is deleted, and the other version has it then.
        let mut taken_away = || admin.ask::<()>(&["DEL", KEY, &format!("lm1:wh:{{{KEY}}}")]);
        let lost = earlier.ask(Request::of(KEY).permits(limit)).expect("free");
        taken_away();
        let guard = free(lock(&ours, KEY, limit)).await;
        assert!(!earlier.renew(&lost) && !earlier.release(&lost));
        guard.extend(LONG_TTL).await.expect("still held");

        taken_away();
        let held = earlier.ask(Request::of(KEY).permits(limit)).expect("free");
        assert!(matches!(guard.extend(LONG_TTL).await, Err(LockError::Lost { .. })));
        assert!(guard.release().await.is_err());
        assert!(earlier.renew(&held) && earlier.release(&held));
    }
    nothing_is_left(&server);
}

#[tokio::test]
async fn fences_grow_over_both_versions() {
    let (server, ours, mut earlier) = two_versions().await;
    let keys = ["a", "b"].map(str::to_owned);
    let mut last = [0, 0];
    for _ in 0..20 {
        let held = earlier.ask(Request::of_all(&keys).fenced()).expect("free");
        for (last, [first, to]) in last.iter_mut().zip(&held.fences) {
            assert!(*last < *first, "{last} {first}");
            *last = *to;
        }
        assert!(earlier.release(&held));
        let (guard, fences) = several(&ours, &keys).acquire_fenced().await.expect("free");
        for (last, fence) in last.iter_mut().zip(&fences) {
            let fence = u64::from(*fence);
            assert!(*last < fence, "{last} {fence}");
            *last = fence;
        }
        released(guard).await;
    }
    nothing_is_left(&server);
}
