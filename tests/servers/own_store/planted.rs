//! Each mistake that is planted into a store is found by the claim that is its own.

use std::time::Instant;

use futures::future::join_all;
use lockmacro_runtime::testing::conformance;

use crate::table::Table;

/// A mistake of a store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mistake {
    /// `DEL key`, without a comparison.
    ReleaseByAnybody,
    /// The comparison is of the process, and not of the acquisition.
    ReleaseByLabel,
    FencesOfAClient,
    /// The counter is a part of the entry, and goes with it.
    FencesOfALease,
    NoFences,
    /// `SET key token PX ttl`, without a comparison.
    RenewalAcquires,
    RenewalShortens,
    /// It looks, and writes nothing.
    RenewalDoesNothing,
    RepeatIsRefused,
    RepeatShortens,
    /// No ttl at all.
    EndlessLeases,
    HalfOfTheTtl,
    /// The ttl is rounded down to a unit that `limits` does not tell.
    WholeSeconds,
    KeepIsIgnored,
    KeepForTheLease,
    /// The key is written before its token is.
    HalfWritten,
    /// A lock of the client's own is taken, and not released by a future that is dropped.
    LockedByAnyCall,
    /// A read, and a write after it.
    TwoSteps,
    KeysWithoutCase,
    AcquireWaits,
}

/// The mistakes, each with the claim that finds it.
const PLANTED: [(Mistake, &str); 20] = [
    (Mistake::ReleaseByAnybody, "a_release_by_another_token_is_refused"),
    (Mistake::ReleaseByLabel, "a_repeated_release_frees_nobody_else"),
    (Mistake::FencesOfAClient, "fences_grow_between_clients"),
    (Mistake::FencesOfALease, "fences_grow_over_expiry"),
    (Mistake::NoFences, "every_fenced_grant_has_a_fence"),
    (Mistake::RenewalAcquires, "a_free_key_is_not_renewed"),
    (Mistake::RenewalShortens, "a_renewal_never_shortens"),
    (Mistake::RenewalDoesNothing, "a_renewal_restarts_the_ttl"),
    (Mistake::RepeatIsRefused, "a_repeated_acquire_is_granted"),
    (Mistake::RepeatShortens, "a_repeated_acquire_never_shortens"),
    (Mistake::EndlessLeases, "a_lease_ends_without_its_holder"),
    (Mistake::HalfOfTheTtl, "a_lease_lasts_for_its_ttl"),
    (Mistake::WholeSeconds, "a_ttl_is_not_rounded_down"),
    (Mistake::KeepIsIgnored, "a_kept_key_is_held_by_nobody"),
    (Mistake::KeepForTheLease, "a_kept_key_ends"),
    (Mistake::HalfWritten, "a_dropped_acquire_leaves_nothing_else"),
    (Mistake::LockedByAnyCall, "a_dropped_renewal_leaves_the_lock"),
    (Mistake::TwoSteps, "one_of_many_is_granted"),
    (Mistake::KeysWithoutCase, "keys_are_compared_byte_by_byte"),
    (Mistake::AcquireWaits, "a_refusal_comes_at_once"),
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_planted_mistake_is_found_by_the_claim_that_is_its_own() {
    let judged = PLANTED.map(|(mistake, own)| async move {
        let table = Table::with(mistake);
        let start = Instant::now();
        let failures = conformance::check(|| async { table.clone() }).await;
        println!("\n{mistake:?}, after {:.1?}:", start.elapsed());
        for failure in &failures {
            println!("  {failure}");
        }
        (mistake, own, failures)
    });
    for (mistake, own, failures) in join_all(judged).await {
        let found: Vec<_> = failures.iter().map(|failure| failure.claim).collect();
        assert!(found.contains(&own), "{mistake:?}: {found:?}");
    }
}
