//! Each mistake that is planted into a store is found by the claim that is its own.

use std::collections::BTreeSet;
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
    TwentiethSeconds,
    /// A long ttl is shortened, and `limits` does not tell.
    AnHourAtMost,
    KeepIsIgnored,
    KeepForTheLease,
    /// The key is written before its token is.
    HalfWritten,
    /// A lock of the client's own is taken, and not released by a future that is dropped.
    LockedByAnyCall,
    /// A read of a free key, and a write after it.
    TwoSteps,
    /// `INSERT … ON CONFLICT DO NOTHING`, `SELECT ends`, and an `UPDATE` if that is over.
    TakeoverInTwoSteps,
    /// `GET key`, a comparison, and `SET key token PX ttl`.
    RenewalInTwoSteps,
    /// `GET key`, a comparison, and `DEL key`.
    ReleaseInTwoSteps,
    KeysWithoutCase,
    AcquireWaits,
}

/// A mistake, the claims that find it, and those that may find it, by chance or on a busy machine.
/// The first claim is its own. No further claim is broken.
type Planted = (Mistake, &'static [&'static str], &'static [&'static str]);

const PLANTED: [Planted; 25] = [
    (
        Mistake::ReleaseByAnybody,
        &[
            "a_release_by_another_token_is_refused",
            "a_kept_key_is_held_by_nobody",
            "a_release_that_is_held_up_harms_nobody",
            "a_repeated_release_frees_nobody_else",
            "an_expired_key_is_not_released",
        ],
        &["a_dropped_waiter_leaves_nothing"],
    ),
    (
        Mistake::ReleaseByLabel,
        &[
            "a_repeated_release_frees_nobody_else",
            "a_kept_key_is_held_by_nobody",
            "a_release_by_another_token_is_refused",
            "a_release_that_is_held_up_harms_nobody",
            "an_expired_key_is_not_released",
        ],
        &[],
    ),
    (
        Mistake::FencesOfAClient,
        &["fences_grow_between_clients"],
        &["a_repeated_acquire_has_no_smaller_fence"],
    ),
    (Mistake::FencesOfALease, &["fences_grow_over_expiry"], &[]),
    (
        Mistake::NoFences,
        &[
            "every_fenced_grant_has_a_fence",
            "a_repeated_acquire_has_no_smaller_fence",
            "fences_grow",
            "fences_grow_between_clients",
            "fences_grow_over_expiry",
        ],
        &[],
    ),
    (
        Mistake::RenewalAcquires,
        &["a_free_key_is_not_renewed", "a_released_key_is_not_renewed"],
        &[],
    ),
    (Mistake::RenewalShortens, &["a_renewal_never_shortens"], &[]),
    (Mistake::RenewalDoesNothing, &["a_renewal_restarts_the_ttl", "a_manager_renews"], &[]),
    (
        Mistake::RepeatIsRefused,
        &[
            "a_repeated_acquire_is_granted",
            "a_repeated_acquire_has_no_smaller_fence",
            "a_repeated_acquire_never_shortens",
            "a_repeated_acquire_restarts_the_ttl",
        ],
        &[],
    ),
    (Mistake::RepeatShortens, &["a_repeated_acquire_never_shortens"], &[]),
    (
        Mistake::EndlessLeases,
        &[
            "a_lease_ends_without_its_holder",
            "a_kept_key_ends",
            "an_expired_key_is_not_released",
            "an_expired_key_is_not_renewed",
            "fences_grow_over_expiry",
            "one_of_many_is_granted_an_expired_key",
        ],
        &[],
    ),
    (
        Mistake::HalfOfTheTtl,
        &[
            "a_lease_lasts_for_its_ttl",
            "a_refusal_tells_the_truth",
            "a_renewal_never_shortens",
            "a_renewal_restarts_the_ttl",
            "a_repeated_acquire_never_shortens",
            "a_repeated_acquire_restarts_the_ttl",
            "a_ttl_is_not_rounded_down",
            "the_longest_ttl_is_granted",
        ],
        &[],
    ),
    (Mistake::WholeSeconds, &["a_ttl_is_not_rounded_down"], &[]),
    (Mistake::TwentiethSeconds, &["a_ttl_is_not_rounded_down"], &[]),
    (Mistake::AnHourAtMost, &["the_longest_ttl_is_granted"], &[]),
    (Mistake::KeepIsIgnored, &["a_kept_key_is_held_by_nobody"], &[]),
    (Mistake::KeepForTheLease, &["a_kept_key_ends", "a_kept_key_is_held_by_nobody"], &[]),
    (Mistake::HalfWritten, &["a_dropped_acquire_leaves_nothing_else"], &[]),
    (
        Mistake::LockedByAnyCall,
        &[
            "a_dropped_renewal_leaves_the_lock",
            "a_dropped_acquire_leaves_nothing_else",
            "a_dropped_release_can_be_repeated",
        ],
        &[],
    ),
    (
        Mistake::TwoSteps,
        &[
            "one_of_many_is_granted",
            "an_acquire_that_is_held_up_harms_nobody",
            "one_of_many_is_granted_a_released_key",
        ],
        &["managers_exclude_each_other"],
    ),
    (
        Mistake::TakeoverInTwoSteps,
        &["an_acquire_that_is_held_up_harms_nobody", "one_of_many_is_granted_an_expired_key"],
        &[],
    ),
    (
        Mistake::RenewalInTwoSteps,
        &["a_renewal_that_is_held_up_harms_nobody", "a_renewal_never_shortens"],
        &[],
    ),
    (Mistake::ReleaseInTwoSteps, &["a_release_that_is_held_up_harms_nobody"], &[]),
    (Mistake::KeysWithoutCase, &["keys_are_compared_byte_by_byte"], &[]),
    (
        Mistake::AcquireWaits,
        &["a_refusal_comes_at_once"],
        &[
            "a_dropped_renewal_leaves_the_lock",
            "a_held_key_is_refused",
            "a_manager_renews",
            "a_refusal_tells_the_truth",
            "a_release_by_another_token_is_refused",
            "a_release_that_is_held_up_harms_nobody",
            "a_renewal_by_another_token_is_refused",
            "a_renewal_that_is_held_up_harms_nobody",
            "a_repeated_acquire_has_no_smaller_fence",
            "a_repeated_acquire_is_granted",
            "a_repeated_release_frees_nobody_else",
            "an_acquire_that_is_held_up_harms_nobody",
            "keys_are_compared_byte_by_byte",
            "one_of_many_is_granted",
            "one_of_many_is_granted_a_released_key",
            "one_of_many_is_granted_an_expired_key",
            "the_longest_ttl_is_granted",
        ],
    ),
];

// In virtual time: no machine is too slow to see that a lease has ended too early.
#[tokio::test(start_paused = true)]
async fn each_planted_mistake_is_found_by_its_own_claim_and_breaks_no_others_than_these() {
    let judged = PLANTED.map(|(mistake, certain, perhaps)| async move {
        let table = Table::with(mistake);
        let start = Instant::now();
        let failures = conformance::check(|| async { table.clone() }).await;
        println!("\n{mistake:?}, after {:.1?}:", start.elapsed());
        for failure in &failures {
            println!("  {failure}");
        }
        let found: BTreeSet<_> = failures.iter().map(|failure| failure.claim).collect();
        let certain = BTreeSet::from_iter(certain.iter().copied());
        let possible: BTreeSet<_> = perhaps.iter().copied().chain(certain.clone()).collect();
        let is_right = found.is_superset(&certain) && found.is_subset(&possible);
        (!is_right).then(|| format!("{mistake:?}: {found:?}, and not {certain:?}"))
    });
    let wrong: Vec<_> = join_all(judged).await.into_iter().flatten().collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
