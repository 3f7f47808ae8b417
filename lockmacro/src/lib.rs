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
mod duration;
mod expand;
mod item;
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
/// | `key` | `"order:<id>"`, a template · any expression giving `impl Into<LockKey>` | required |
/// | `ttl` | `"300s"`, `"1m30s"`, `"500ms"`, from 50 ms to 24 h · an expression of type `Duration` | required: the longest time that the body may hold the lock |
/// | `on_busy` | `error` · `skip` · `fallback(path)`, which calls a function with the same arguments and return type | `error` |
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
/// | `error`, `fallback` | `Result<T, E>` with `E: From<LockError>`, or a type that is `LockOutcome` | `Err(LockError::Busy { .. })`, or what the other function gives |
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
/// A sync function calls `run_blocking`, `on_busy = skip` calls `run_or_skip`, and
/// `on_busy = fallback(path)` matches on `acquire`. A line that never runs, `if false { return .. }`,
/// tells the compiler the body's type.
#[proc_macro_attribute]
pub fn distributed_lock(args: TokenStream, item: TokenStream) -> TokenStream {
    expand::attribute(args.into(), item.into()).into()
}
