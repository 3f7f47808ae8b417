pub async fn audit_order(id: u64, note: String) -> Result<Receipt, OrderError> {
    match ::lockmacro_runtime::Lock::new(
            ::lockmacro_runtime::LockKey::template("order:<id>")
                .literal("order:")
                .value(&id),
        )
        .ttl(::core::time::Duration::from_secs(300))
        .name("audit_order")
        .acquire()
        .await
    {
        ::core::result::Result::Ok(lock) => {
            lock.run(async move {
                    if false {
                        return ::lockmacro_runtime::__macro_v0_1_0::outcome::<
                            Result<Receipt, OrderError>,
                        >();
                    }
                    audit(id, note).await
                })
                .await
        }
        ::core::result::Result::Err(busy) if busy.is_busy() => {
            ::lockmacro_runtime::LockOutcome::from_lock_error(
                audit_order::deferred().later(busy, (id, note)).await,
            )
        }
        ::core::result::Result::Err(error) => {
            ::lockmacro_runtime::LockOutcome::from_lock_error(error)
        }
    }
}
/// The deferred calls of [`audit_order`](fn@audit_order), for a worker.
#[allow(non_camel_case_types)]
pub enum audit_order {}
impl audit_order {
    /// The deferred calls of [`audit_order`](fn@audit_order), for a worker.
    pub fn deferred() -> ::lockmacro_runtime::defer::DeferredFn<(u64, String)> {
        ::lockmacro_runtime::defer::DeferredFn::new(
                ::core::concat!(::core::module_path!(), "::", "audit_order"),
                (
                    ::lockmacro_runtime::defer::argument("id"),
                    ::lockmacro_runtime::defer::argument("note"),
                ),
                |(id, note)| audit_order(id, note),
            )
            .delay(::core::time::Duration::from_secs(30))
    }
}
fn report(day: String) {
    let lock = ::lockmacro_runtime::Lock::new(
            ::lockmacro_runtime::LockKey::template("report:<day>")
                .literal("report:")
                .value(&day),
        )
        .ttl(::core::time::Duration::from_secs(600))
        .name("report")
        .manager(&locks());
    match lock.acquire_blocking() {
        ::core::result::Result::Ok(lock) => {
            lock.run_blocking_or_skip(move || {
                if false {
                    return ::lockmacro_runtime::__macro_v0_1_0::outcome::<()>();
                }
                print(day)
            })
        }
        ::core::result::Result::Err(busy) if busy.is_busy() => {
            ::lockmacro_runtime::SkipOutcome::refused(
                "report",
                report::deferred().manager(&locks()).later_blocking(busy, (day,)),
            )
        }
        ::core::result::Result::Err(error) => {
            ::lockmacro_runtime::SkipOutcome::refused("report", error)
        }
    }
}
/// The deferred calls of [`report`](fn@report), for a worker.
#[allow(non_camel_case_types)]
enum report {}
impl report {
    /// The deferred calls of [`report`](fn@report), for a worker.
    fn deferred() -> ::lockmacro_runtime::defer::DeferredFn<(String,)> {
        ::lockmacro_runtime::defer::DeferredFn::blocking(
                "reports",
                (::lockmacro_runtime::defer::argument("day"),),
                |(day,)| report(day),
            )
            .delay(::core::time::Duration::from_secs(300))
            .unique()
            .attempts(3)
    }
}
