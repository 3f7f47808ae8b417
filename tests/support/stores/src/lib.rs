//! The attribute by which a claim names the stores it holds on.

mod expand;
mod words;

use proc_macro::TokenStream;

/// Makes one test of a claim for each store that is named:
///
/// ```ignore
/// #[on(memory, redis, cluster)]
/// async fn a_dropped_waiter_leaves_no_trace(backend: &Backend) { /* … */ }
/// ```
///
/// The tests are in a module with the claim's name and have the store's name, for instance
/// `dropped::a_dropped_waiter_leaves_no_trace::redis`. A test that hangs fails, and so does one
/// that leaves keys on its servers.
///
/// | store | what the claim is given | runtime |
/// |---|---|---|
/// | `memory` | the store of this process | `current_thread` |
/// | `redis` | a Redis server of the test's own | `multi_thread` |
/// | `slots` | a server that wants the keys of a script in one slot | `current_thread` |
/// | `cluster` | a cluster of one node, shared by the tests of a process | `current_thread` |
/// | `redlock` | three Redis servers of the test's own | `multi_thread` |
///
/// A runtime with several threads has two. `both_runtimes` among the stores makes two tests of
/// `memory` and two of `redis`: one on a `current_thread` runtime, and one on a `multi_thread`
/// runtime, `memory_multi_thread` and `redis_multi_thread`.
#[proc_macro_attribute]
pub fn on(words: TokenStream, claim: TokenStream) -> TokenStream {
    expand::expand(words.into(), claim.into()).into()
}
