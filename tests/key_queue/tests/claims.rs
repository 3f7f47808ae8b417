//! The promises of the key queue, in its model.

use lockmacro_key_queue_tests::world::World;

#[test]
fn random_schedules_keep_every_promise() {
    for seed in 0..2_000 {
        let report = World::random(seed).run();
        assert!(report.violations.is_empty(), "seed {seed}: {:?}", report.violations);
    }
}
