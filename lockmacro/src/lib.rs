//! The attribute of lockmacro: a function's body runs under a
//! lock that every process of a fleet respects.
//!
//! Depend on `lockmacro-runtime`, which has the attribute as `lockmacro_runtime::distributed_lock`.
//! This crate only parses, checks and prints; what happens is in the functions that it calls.
#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod args;
mod boxed;
mod check;
mod defer;
mod duration;
mod expand;
mod item;
mod key;
mod policy;
mod returns;
mod template;

use proc_macro::TokenStream;

/// Runs the body of a function under a distributed lock.
///
/// ```
/// use lockmacro_runtime::{LockError, LockManager, distributed_lock};
///
/// #[distributed_lock(key = "order:<id>", ttl = "300s")]
/// async fn audit_order(id: u64) -> Result<String, LockError> {
///     Ok(format!("order {id} is audited"))
/// }
///
/// #[tokio::main(flavor = "current_thread")]
/// async fn main() -> Result<(), LockError> {
///     LockManager::connect("memory://").await?.install()?;
///     assert_eq!(audit_order(42).await?, "order 42 is audited");
///     Ok(())
/// }
/// ```
///
/// # Arguments
///
/// | argument | forms | default |
/// |---|---|---|
/// | `key` | `"order:<id>"`, a template · any expression giving `impl Into<LockKey>` · `["account:<from>", "account:<to>"]`, a list of these · `keys(expr)`, where `expr` gives an iterator of keys; see [below](#several-keys) | required |
/// | `ttl` | `"300s"`, `"1m30s"`, `"500ms"`, from 50 ms to 24 h · an expression of type `Duration`: the longest time that the body may hold the lock, unless `renew` | a lease of 30 s, renewed while the body runs |
/// | `renew` | alone: the lease of `ttl` is renewed while the body runs, so that `ttl` is how long after a crash the lock is free again | off when `ttl` is given |
/// | `max_hold` | a duration, as `ttl`: the end of renewal, after which the lock is lost | none: as long as the body runs |
/// | `min_hold` | a duration, at most `ttl`: the key stays at least that long, however short the body is | none: the key goes with the body |
/// | `wait` | a duration of 1 ms to 24 h, as `ttl`: how long to wait in line while somebody else holds the lock · `forever`; see [below](#waiting) | none: the lock is asked for once |
/// | `on_busy` | `error` · `skip` · `fallback(path)`, which calls a function with the same arguments and return type · `defer("30s")`, see [below](#calls-that-are-run-later): what happens when somebody else holds the lock, or still does after the `wait` | `error` |
/// | `on_lost` | `cancel` · `error` · `finish` · the path of a function `fn(Lost, Ret) -> Ret`; see [below](#when-the-lock-is-lost) | `cancel`, and `error` in a function that is not async |
/// | `guard` | a name, which is a `&LockGuard` in the body | none |
/// | `fence` | a name, which is a `Fence` in the body: a number that grows from grant to grant · `[debit, credit]`, a name for each key of a list | none, and no fence is issued |
/// | `message` | a template, shown by the busy error | none |
/// | `manager` | an expression giving `&LockManager`, such as `self.locks` | the installed one |
/// | `crate` | the path of the runtime | `::lockmacro_runtime` |
///
/// The expressions see the function's arguments and `self`, and run before the lock is taken.
///
/// # Templates
///
/// A placeholder is `<expr>`: a name, field, index or method call that starts at an argument or at
/// `self`, whose value is [`Display`](std::fmt::Display). `<<` is a literal `<`. Braces are literal
/// text, as they are cluster hash tags in a Redis key: `"{order:<id>}:audit"`.
///
/// ```
/// # use lockmacro_runtime::{LockError, LockManager, distributed_lock};
/// struct Order { sn: String, lines: Vec<u32> }
/// struct Orders { tenant: String, locks: LockManager }
///
/// impl Orders {
///     #[distributed_lock(
///         key = "<self.tenant>:order:<order.sn.to_lowercase()>:<order.lines[0]>",
///         ttl = "30s",
///         manager = self.locks,
///         message = "order <order.sn> is being assigned"
///     )]
///     async fn assign(&self, order: &Order) -> Result<(), LockError> {
///         Ok(())
///     }
/// }
/// ```
///
/// In a key, different values never give the same text: a value is percent-encoded where it could
/// be taken for structure, placeholders do not touch each other, and a literal does not start with
/// `%` after one. Plain ids stay as they are. In a message values are shown as they are.
///
/// # Waiting
///
/// Who waits gets the lock in the order of asking, handed over by the holder's release. When the
/// `wait` has run out, `on_busy` says what happens; its error is `LockError::TimedOut` then, which
/// is busy too, with the holder and the place in line. Dropping the call leaves the line.
///
/// ```
/// # use lockmacro_runtime::{LockError, distributed_lock};
/// #[distributed_lock(key = "account:<id>", ttl = "10s", wait = "5s")]
/// async fn book(id: u64, cents: i64) -> Result<(), LockError> {
/// #   let _ = cents;
///     Ok(())
/// }
///
/// #[distributed_lock(key = "mailbox:<id>", ttl = "1m", wait = "500ms", on_busy = skip)]
/// async fn tidy_up(id: u64) {}
///
/// #[distributed_lock(key = "import", wait = forever)]
/// fn import() -> Result<(), LockError> {
///     Ok(())
/// }
/// ```
///
/// # Calls that are run later
///
/// With the feature `defer` of the runtime, `on_busy = defer("30s")` stores a busy call with its arguments,
/// and a `defer::Worker` runs the same function later, under the same lock; the caller gets
/// `LockError::Deferred`, or `()`, `None` or `Ok(None)` where that is the return type. Beside the function
/// stands `audit_order::deferred()`, which a worker is given. After the delay can stand `unique` (one
/// waiting call for each key), `attempts = 5` (10 without), and `name = "orders.audit"` (the function's
/// path without). It is for free functions whose arguments are owned, have names, and implement serde's
/// `Serialize` and `Deserialize`; their return type is `()`, an `Option`, or a `Result` whose error implements
/// `Display`.
///
/// # Several keys
///
/// A function with several keys runs under all of them or not at all, in whatever order they are
/// written; a key that two arguments make equal counts once. The lock is lost with any of its keys.
/// Each has a fence of its own: `fence = [debit, credit]` names them in the order of the list, and
/// beside `keys(..)` a single name is a `Vec<Fence>` in the iterator's order.
///
/// ```
/// # use lockmacro_runtime::{Fence, LockError, distributed_lock};
/// # struct Line { sku: String }
/// # struct Order { lines: Vec<Line> }
/// # async fn book(_: u64, _: i64, _: Fence) -> Result<(), LockError> { Ok(()) }
/// # async fn take(_: &Line, _: Fence) -> Result<(), LockError> { Ok(()) }
/// #[distributed_lock(key = ["account:<from>", "account:<to>"], ttl = "10s", wait = "5s", fence = [debit, credit])]
/// async fn transfer(from: u64, to: u64, cents: i64) -> Result<(), LockError> {
///     book(from, -cents, debit).await?;
///     book(to, cents, credit).await
/// }
///
/// #[distributed_lock(key = keys(order.lines.iter().map(|line| format!("stock:{}", line.sku))), fence = fences)]
/// async fn reserve(order: &Order) -> Result<(), LockError> {
///     for (line, fence) in order.lines.iter().zip(fences) {
///         take(line, fence).await?;
///     }
///     Ok(())
/// }
/// ```
///
/// Opposite orders never deadlock: who waits takes the keys in the order of their bytes, holding
/// those before the one that it waits for. At most 128 keys; none at all, and keys of which the body
/// around the call holds some and not all, are errors. `Lock::many` tells more.
///
/// # When the lock is lost
///
/// A lock is lost when the body takes longer than it may be held, when the server cannot be asked
/// in time to renew the lease, or when the key is deleted or overwritten. `on_lost` says what
/// becomes of the body:
///
/// | `on_lost` | the body | the caller gets |
/// |---|---|---|
/// | `cancel` | is dropped at its next await, before the server can grant the lock to somebody else | `LockError::Lost` |
/// | `error` | runs on to its end | `LockError::Lost`, or the body's own error |
/// | `finish` | runs on to its end | the body's value; the loss is logged |
/// | a path | runs on to its end | what the function makes of the `Lost` and the body's value, which it may undo or keep |
///
/// `cancel` stops a body only at an await. Code between two awaits, functions that are not async,
/// and work that was spawned go on: there the body asks `guard.check()?` before each step that
/// counts, or has the resource refuse late writes by the `fence`. Only a fence helps against a
/// process that stood still from a check to its write.
///
/// ```
/// # use lockmacro_runtime::{Fence, LockError, Lost, distributed_lock};
/// # struct Orders;
/// # impl Orders {
/// # async fn reserve(&self, _: u64) -> Result<u32, LockError> { Ok(7) }
/// # async fn write(&self, _: u64, _: u32, _: Fence) -> Result<(), LockError> { Ok(()) }
/// #[distributed_lock(key = "order:<id>", ttl = "10s", renew, max_hold = "10m", guard = lock, fence = fence)]
/// async fn assign(&self, id: u64) -> Result<(), LockError> {
///     let desk = self.reserve(id).await?;
///     lock.check()?;
///     self.write(id, desk, fence).await
/// }
///
/// #[distributed_lock(key = "order:<id>", on_lost = Self::kept_apart)]
/// async fn audit(&self, id: u64) -> Result<u32, LockError> {
///     self.reserve(id).await
/// }
///
/// fn kept_apart(lost: Lost, audited: Result<u32, LockError>) -> Result<u32, LockError> {
///     audited.and(Err(lost.into()))
/// }
/// # }
/// ```
///
/// A call under the same key and manager inside of the body joins the lock: it has the same guard
/// and fence, and only the outer call gives it back. Asking for a `fence` is an error there when the
/// outer call has none. Work that the body spawns is outside, unless it runs in `guard.scope(..)`.
///
/// # Functions
///
/// Async and sync functions, methods and trait implementations, with generics, lifetimes, `where`,
/// `impl Trait` and patterns for arguments, `unsafe fn`, and methods in an `#[async_trait]`
/// implementation. Other attributes, above or below, and docs stay. `return` and `?` mean what they
/// meant. The arguments that the body uses are dropped before the lock is released.
///
/// Refused, because the lock would be gone before the work is done or could not be taken:
/// `const fn`, `extern fn`, functions that return a future, stream or iterator. A boxed future is
/// fine when the whole body is `Box::pin(async move { .. })`.
///
/// # Return types
///
/// | `on_busy` | return type | when busy |
/// |---|---|---|
/// | `error`, `fallback` | `Result<T, E>` with `E: From<LockError>`, or a type that is `LockOutcome` | `Err(LockError::Busy { .. })`, or `TimedOut` after a `wait`, or what the other function gives |
/// | `skip` | `()`, `Option<T>`, `Result<(), E>`, `Result<Option<T>, E>`, or a type that is `SkipOutcome` | `()`, `None`, `Ok(())`, `Ok(None)` |
///
/// # What it expands to
///
/// One call of the public API, with the body's statements as they are:
///
/// ```
/// # async fn audit_order(id: u64) -> Result<u64, lockmacro_runtime::LockError> {
/// ::lockmacro_runtime::Lock::new(::lockmacro_runtime::LockKey::template("order:<id>").literal("order:").value(&id))
///     .ttl(::core::time::Duration::from_secs(300))
///     .name("audit_order")
///     .run(async move {
///         // the body
/// #       Ok(id)
///     })
///     .await
/// # }
/// ```
///
/// Several keys are `Lock::many([..])`. A sync function calls `run_blocking`, and `on_busy = skip` calls `run_or_skip`. Where `guard`,
/// `fence`, a fallback or a function for `on_lost` stands between the lock and the body, it is a
/// `match` on `acquire` or `acquire_fenced`, whose first arm runs the body:
///
/// ```
/// # use lockmacro_runtime::{Fence, LockError};
/// # async fn write(id: u64, fence: Fence) -> Result<(), LockError> { Ok(()) }
/// # async fn assign(id: u64) -> Result<(), LockError> {
/// match ::lockmacro_runtime::Lock::new("order").name("assign").acquire_fenced().await {
///     ::core::result::Result::Ok((lock, fence)) => {
///         let guard = &lock.share();
///         lock.run(async move {
///             // the body
/// #           guard.check()?;
/// #           write(id, fence).await
///         })
///         .await
///     }
///     ::core::result::Result::Err(error) => ::lockmacro_runtime::LockOutcome::from_lock_error(error),
/// }
/// # }
/// ```
///
/// A line that never runs, `if false { return .. }`, tells the compiler the body's type.
#[proc_macro_attribute]
pub fn distributed_lock(args: TokenStream, item: TokenStream) -> TokenStream {
    expand::attribute(args.into(), item.into()).into()
}
