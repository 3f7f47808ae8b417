//! The promises of the key queue, in its model.

use lockmacro_key_queue_tests::explore::{Budget, Kind, explore};
use lockmacro_key_queue_tests::order::{List, Order, deadlocks, is_consistent, lists};
use lockmacro_key_queue_tests::world::World;

#[test]
fn random_schedules_keep_every_promise() {
    for seed in 0..2_000 {
        let report = World::random(seed).run();
        assert!(report.violations.is_empty(), "seed {seed}: {:?}", report.violations);
    }
}

#[test]
fn no_interleaving_of_two_callers_loses_a_wake_up() {
    let kinds =
        [(true, false), (true, true), (false, false)].map(|(waits, fenced)| Kind { waits, fenced });
    let budget = Budget { polls: 1, closes: 1, ..Budget::default() };
    for one in kinds {
        for two in kinds {
            let explored = explore(&[one, two], budget, 1_000_000);
            assert!(explored.failure.is_none(), "{:?}", explored.failure);
        }
    }
}

#[test]
fn only_the_order_of_bytes_never_deadlocks() {
    let all = lists();
    let pairs = || all.iter().flat_map(|one| all.iter().map(|two| [one.clone(), two.clone()]));
    let any = |order| pairs().any(|of: [List; 2]| deadlocks(&of, order));
    assert!(!any(Order::Bytes) && !any(Order::PermitsLastOrRefused));
    assert!(any(Order::SharedLast) && any(Order::PermitsLast) && any(Order::Listed));
    assert!(!pairs().any(|of| is_consistent(&of) && deadlocks(&of, Order::PermitsLast)));
}
