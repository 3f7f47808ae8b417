//! A suite that tells whether a store of your own keeps the promises of [`LockStore`].
//!
//! [`run`] checks 42 claims, most of them side by side and each on keys of its own. It panics with
//! those that the store fails: the name of each claim, what was expected, and what came. It takes
//! six to ten times the store's shortest ttl, and at least 3 s. A claim that has no verdict after 15
//! times the shortest ttl and 10 s more has failed.
//!
//! ```
//! # mod my {
//! #   use std::collections::HashMap;
//! #   use std::sync::{Arc, Mutex};
//! #   use std::time::{Duration, Instant};
//! #   use lockmacro_runtime::store::{AcquireRequest, HeldKey, LockStore, Outcome, StoreError};
//! #   #[derive(Debug, Default, Clone)]
//! #   pub struct Table(Arc<Mutex<HashMap<String, (String, Instant)>>>);
//! #   impl LockStore for Table {
//! #     async fn acquire(&self, ask: AcquireRequest<'_>) -> Result<Outcome, StoreError> {
//! #         let mut keys = self.0.lock().unwrap();
//! #         let now = Instant::now();
//! #         let mut end = now + ask.ttl();
//! #         match keys.get(ask.key()).filter(|(_, end)| *end > now) {
//! #             Some((by, end)) if by != ask.token() => {
//! #                 return Ok(Outcome::Held { by: Some(by.clone()), left: Some(*end - now) });
//! #             }
//! #             Some((_, until)) => end = end.max(*until),
//! #             None => {}
//! #         }
//! #         keys.insert(ask.key().to_owned(), (ask.token().to_owned(), end));
//! #         Ok(Outcome::granted())
//! #     }
//! #     async fn renew(&self, held: HeldKey<'_>, ttl: Duration) -> Result<bool, StoreError> {
//! #         let mut keys = self.0.lock().unwrap();
//! #         let now = Instant::now();
//! #         let ours = keys.get_mut(held.key()).filter(|(by, end)| by == held.token() && *end > now);
//! #         Ok(ours.map(|(_, end)| *end = (*end).max(now + ttl)).is_some())
//! #     }
//! #     async fn release(&self, held: HeldKey<'_>, keep: Duration) -> Result<bool, StoreError> {
//! #         let mut keys = self.0.lock().unwrap();
//! #         let now = Instant::now();
//! #         let ours = keys.get_mut(held.key()).filter(|(by, end)| by == held.token() && *end > now);
//! #         Ok(ours.map(|entry| *entry = (held.kept(), now + keep)).is_some())
//! #     }
//! #   }
//! # }
//! use lockmacro_runtime::testing::conformance;
//!
//! # use my::Table;
//! # #[tokio::main] async fn main() {
//! // In a test with `#[tokio::test(flavor = "multi_thread")]`, where callers race on threads.
//! let table = Table::default();
//! conformance::run(|| async { table.clone() }).await;
//! # }
//! ```
//!
//! The suite asks through several clients, as several processes would, so it calls `connect` 15
//! times. Each call has to return a client of the same store.

use std::any::type_name;
use std::fmt;
use std::future::ready;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::future::BoxFuture;
use futures_util::stream::FuturesOrdered;
use tokio::time::timeout;

use crate::store::LockStore;
use crate::testing::conformance::case::{Case, CaseResult, Fault, Suite};

mod awaits;
// For the tests of the suite.
#[doc(hidden)]
pub mod builtin;
mod case;
mod delays;
mod dropping;
mod fences;
mod granting;
mod managers;
mod releasing;
mod renewing;

/// Longest time for one claim, in shortest ttls, and beyond those. Most take four of them. One that a
/// slow store keeps only with a longer ttl takes up to 15.
const LONGEST_TTLS: u32 = 15;
const LONGEST: Duration = Duration::from_secs(10);
/// Longest time for a claim that drops calls, which waits for no lease.
const LONGEST_DROPPING: Duration = Duration::from_secs(9);

/// A claim that a store has failed.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Failure {
    /// The name of the claim.
    pub claim: &'static str,
    /// What goes wrong with a store that fails it.
    pub why: &'static str,
    /// What a correct store does.
    pub expected: String,
    /// What this store did.
    pub came: String,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { claim, why, expected, came } = self;
        write!(f, "{claim}: {why}\n    expected: {expected}\n    came:     {came}")
    }
}

/// Judges the store to which `connect` makes a client, a further one with each call.
///
/// # Panics
/// When the store breaks a promise. The message names each claim that has failed.
pub async fn run<S: LockStore, F: Future<Output = S>>(connect: impl Fn() -> F) {
    let failures = check(connect).await;
    let listed: Vec<_> = failures.iter().map(Failure::to_string).collect();
    let number = match failures.len() {
        1 => "1 claim".to_owned(),
        several => format!("{several} claims"),
    };
    assert!(failures.is_empty(), "{} fails {number}:\n{}", type_name::<S>(), listed.join("\n"));
}

/// Judges a store as [`run`] does, and returns the claims that it has failed.
pub async fn check<S: LockStore, F: Future<Output = S>>(connect: impl Fn() -> F) -> Vec<Failure> {
    let suite = Suite::new(connect).await;
    let mut claims = claims(&suite);
    if suite.has_fences() {
        claims.extend(claims_of_fences(&suite));
    }
    let longest = LONGEST + LONGEST_TTLS * suite.shortest_ttl();
    let mut failures = judge(claims, longest).await;
    // On their own, as a call that is held up may hold up others of the same client.
    failures.extend(judge(claims_of_delays(&suite), longest).await);
    // Afterwards, as a store that does not bear them may stop to answer at all.
    failures.extend(judge(claims_of_drops(&suite), LONGEST_DROPPING).await);
    failures
}

/// The claims that fail. They run side by side. Each is woken for itself alone, so that those which
/// count the awaits of a call count no others.
async fn judge(claims: Vec<NamedCase<'_>>, longest: Duration) -> Vec<Failure> {
    let judged = claims.into_iter().map(|(claim, why, verdict)| async move {
        let verdict = timeout(longest, verdict).await.unwrap_or_else(|_| {
            Err(Fault::new(format!("an end within {longest:?}"), "none".to_owned()))
        });
        verdict.err().map(|Fault { expected, came }| Failure { claim, why, expected, came })
    });
    judged.collect::<FuturesOrdered<_>>().filter_map(ready).collect().await
}

type NamedCase<'a> = (&'static str, &'static str, BoxFuture<'a, CaseResult>);

macro_rules! claims {
    ($suite:ident: $($room:ident::$claim:ident $why:literal)+) => {
        vec![$((
            stringify!($claim),
            $why,
            Box::pin(async move {
                let case = Case::new($suite, stringify!($claim));
                $room::$claim(&case).await
            }) as BoxFuture<'_, CaseResult>,
        )),+]
    };
}

fn claims<S: LockStore>(suite: &Suite<S>) -> Vec<NamedCase<'_>> {
    claims! { suite:
        granting::a_free_key_is_granted "nobody could ever lock"
        granting::a_held_key_is_refused "two holders would run at once"
        granting::one_of_many_is_granted
            "callers that ask at the same moment would hold the key together"
        granting::one_of_many_is_granted_an_expired_key
            "two callers would both take over the key of a process that was killed"
        granting::one_of_many_is_granted_a_released_key
            "two waiters of one key would both be the next holder"
        granting::a_refusal_tells_the_truth
            "others would be shown a wrong holder, or would ask again too late"
        granting::a_refusal_comes_at_once
            "a call that waits for the key would count as unanswered"
        granting::a_repeated_acquire_is_granted
            "a caller whose answer was lost would be kept out by its own token"
        granting::a_repeated_acquire_restarts_the_ttl
            "the engine counts on the ttl from its last request on"
        granting::a_repeated_acquire_never_shortens
            "a copy of a request that arrives late would end the lease before its holder knows"
        granting::keys_are_compared_byte_by_byte
            "two different keys would exclude each other, or one key would be two"
        granting::a_lease_lasts_for_its_ttl
            "the key would be granted to others while its holder counts on it"
        granting::a_lease_ends_without_its_holder
            "the key of a process that was killed would be locked for ever"
        granting::a_ttl_is_not_rounded_down
            "the lease would end earlier than `limits` says"
        granting::the_longest_ttl_is_granted
            "a lock with a long ttl would end while its holder counts on it"
        renewing::a_renewal_restarts_the_ttl "a body that is longer than its ttl would lose its lock"
        renewing::a_renewal_never_shortens
            "a copy of a renewal that arrives late would end the lease before its holder knows"
        renewing::a_renewal_by_another_token_is_refused
            "a holder that has lost its lock would count on the lock of another one"
        renewing::a_free_key_is_not_renewed
            "a holder would not learn that its lock was lost, and the key would be locked again"
        renewing::an_expired_key_is_not_renewed
            "a holder would not learn that its lease was over, and others may have been in between"
        releasing::a_released_key_is_free "every lock would last for its ttl"
        releasing::a_release_by_another_token_is_refused
            "a late release would free the lock of the next holder"
        releasing::a_repeated_release_frees_nobody_else
            "a copy of a release that arrives late would free the lock of the next holder"
        releasing::an_expired_key_is_not_released
            "a caller would be told that its lock was held to the end"
        releasing::a_released_key_is_not_renewed
            "a renewal that was in flight would lock the key for a holder that is gone"
        releasing::a_kept_key_is_held_by_nobody "`min_hold` would not keep others out"
        releasing::a_kept_key_ends "`min_hold` would keep others out for too long"
        releasing::a_closed_store_still_releases
            "locks that end after a shutdown would last for their ttl"
        managers::managers_exclude_each_other "bodies of two processes would run at once"
        managers::a_manager_renews "a body that is longer than its ttl would lose its lock"
        managers::a_dropped_waiter_leaves_nothing
            "a caller that has stopped waiting would lock the key later"
    }
}

fn claims_of_delays<S: LockStore>(suite: &Suite<S>) -> Vec<NamedCase<'_>> {
    claims! { suite:
        delays::an_acquire_that_is_held_up_harms_nobody
            "a slow caller would take the key from the one who has got it meanwhile"
        delays::a_renewal_that_is_held_up_harms_nobody
            "a slow holder would take the key back from the next one"
        delays::a_release_that_is_held_up_harms_nobody
            "a slow holder would free the key of the next one"
    }
}

fn claims_of_drops<S: LockStore>(suite: &Suite<S>) -> Vec<NamedCase<'_>> {
    claims! { suite:
        dropping::a_dropped_acquire_leaves_nothing_else
            "a caller that is dropped would leave a key that nobody can release"
        dropping::a_dropped_renewal_leaves_the_lock
            "a renewal that was cut off would end the lock, or stop all further calls"
        dropping::a_dropped_release_can_be_repeated
            "a release that was cut off would leave the key locked"
    }
}

fn claims_of_fences<S: LockStore>(suite: &Suite<S>) -> Vec<NamedCase<'_>> {
    claims! { suite:
        fences::every_fenced_grant_has_a_fence "`limits` says that the store has fences"
        fences::fences_grow "a resource could not tell a late writer from the present holder"
        fences::fences_grow_between_clients
            "the holder of another process would be refused by the resource, or a late one let in"
        fences::fences_grow_over_expiry
            "a holder that was paused for longer than its lease would still be let in"
        fences::a_repeated_acquire_has_no_smaller_fence
            "a caller whose answer was lost would be refused by the resource"
    }
}
