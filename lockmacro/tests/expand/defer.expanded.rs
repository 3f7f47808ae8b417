pub async fn audit_order(id: u64, note: String) -> Response {
    let __acquired = ::lockmacro_runtime::Lock::new("audits")
        .name(::core::concat!(::core::module_path!(), "::audit_order"))
        .acquire()
        .await;
    let __lock = match { __acquired } {
        ::core::result::Result::Ok(__held) => __held,
        ::core::result::Result::Err(__error) if __error.is_busy() => {
            return ::lockmacro_runtime::LockOutcome::from_lock_error(
                audit_order_deferred().defer(__error, (id, note)).await,
            );
        }
        ::core::result::Result::Err(__error) => {
            return ::lockmacro_runtime::LockOutcome::from_lock_error(__error);
        }
    };
    __lock
        .run({
            async move {
                if false {
                    return <Response as ::lockmacro_runtime::LockOutcome>::outcome();
                }
                let _ = &note;
                audit(id, note).await
            }
        })
        .await
}
/// The jobs of [`audit_order`](fn@audit_order), for a worker.
pub fn audit_order_deferred() -> ::lockmacro_runtime::defer::DeferredFn<(u64, String)> {
    ::lockmacro_runtime::defer::DeferredFn::new(
            ::core::concat!(::core::module_path!(), "::audit_order"),
            (
                ::lockmacro_runtime::defer::argument("id"),
                ::lockmacro_runtime::defer::argument("note"),
            ),
            |(id, note)| audit_order(id, note),
        )
        .delay(::core::time::Duration::from_secs(30))
}
fn report(day: String) {
    let __lock = ::lockmacro_runtime::Lock::new(
            ::lockmacro_runtime::LockKey::template("report:<day>")
                .literal("report:")
                .value(&day),
        )
        .name("reports")
        .manager(&locks());
    let __lock = match __lock.acquire_blocking() {
        ::core::result::Result::Ok(__held) => __held,
        ::core::result::Result::Err(__error) if __error.is_busy() => {
            return ::lockmacro_runtime::SkipOutcome::refused(
                "reports",
                report_deferred().manager(&locks()).defer_blocking(__error, (day,)),
            );
        }
        ::core::result::Result::Err(__error) => {
            return ::lockmacro_runtime::SkipOutcome::refused("reports", __error);
        }
    };
    __lock
        .skip_when_busy()
        .run_blocking(move || {
            if false {
                return <() as ::lockmacro_runtime::SkipOutcome>::outcome();
            }
            let _ = &day;
            print(day)
        })
}
/// The jobs of [`report`](fn@report), for a worker.
fn report_deferred() -> ::lockmacro_runtime::defer::DeferredFn<(String,)> {
    ::lockmacro_runtime::defer::DeferredFn::blocking(
            "reports",
            (::lockmacro_runtime::defer::argument("day"),),
            |(day,)| report(day),
        )
        .delay(::core::time::Duration::from_secs(300))
        .unique()
        .attempts(3)
        .manager_by(|(day,)| {
            let __chosen: &::lockmacro_runtime::LockManager = &locks();
            (::core::clone::Clone::clone(__chosen), (day,))
        })
}
async fn index_shop(shop: u64) -> Response {
    let __acquired = ::lockmacro_runtime::Lock::new(
            ::lockmacro_runtime::LockKey::template("index:<shop>")
                .literal("index:")
                .value(&shop),
        )
        .name(::core::concat!(::core::module_path!(), "::index_shop"))
        .acquire()
        .await;
    let __lock = match { __acquired } {
        ::core::result::Result::Ok(__held) => __held,
        ::core::result::Result::Err(__error) if __error.is_busy() => {
            return ::lockmacro_runtime::LockOutcome::from_lock_error(
                index_shop_deferred().defer(__error, (shop,)).await,
            );
        }
        ::core::result::Result::Err(__error) => {
            return ::lockmacro_runtime::LockOutcome::from_lock_error(__error);
        }
    };
    let __superseded = index_shop_deferred().supersede(&__lock).await;
    if let ::core::result::Result::Err(__error) = __superseded {
        return ::lockmacro_runtime::LockOutcome::from_lock_error(__error);
    }
    __lock
        .run({
            async move {
                if false {
                    return <Response as ::lockmacro_runtime::LockOutcome>::outcome();
                }
                index(shop).await
            }
        })
        .await
}
/// The jobs of [`index_shop`](fn@index_shop), for a worker.
fn index_shop_deferred() -> ::lockmacro_runtime::defer::DeferredFn<(u64,)> {
    ::lockmacro_runtime::defer::DeferredFn::new(
            ::core::concat!(::core::module_path!(), "::index_shop"),
            (::lockmacro_runtime::defer::argument("shop"),),
            |(shop,)| index_shop(shop),
        )
        .delay(::core::time::Duration::from_secs(5))
        .latest()
}
async fn search_shop(shop: u64) -> Response {
    let __acquired = ::lockmacro_runtime::Lock::new(
            ::lockmacro_runtime::LockKey::template("search:<shop>")
                .literal("search:")
                .value(&shop),
        )
        .name(::core::concat!(::core::module_path!(), "::search_shop"))
        .acquire()
        .await;
    let __lock = match { __acquired } {
        ::core::result::Result::Ok(__held) => __held,
        ::core::result::Result::Err(__error) if __error.is_busy() => {
            return ::lockmacro_runtime::LockOutcome::from_lock_error(
                search_shop_deferred().defer(__error, (shop,)).await,
            );
        }
        ::core::result::Result::Err(__error) => {
            return ::lockmacro_runtime::LockOutcome::from_lock_error(__error);
        }
    };
    let __superseded = search_shop_deferred().supersede(&__lock).await;
    if let ::core::result::Result::Err(__error) = __superseded {
        return ::lockmacro_runtime::LockOutcome::from_lock_error(__error);
    }
    __lock
        .run({
            async move {
                if false {
                    return <Response as ::lockmacro_runtime::LockOutcome>::outcome();
                }
                index(shop).await
            }
        })
        .await
}
/// The jobs of [`search_shop`](fn@search_shop), for a worker.
fn search_shop_deferred() -> ::lockmacro_runtime::defer::DeferredFn<(u64,)> {
    ::lockmacro_runtime::defer::DeferredFn::new(
            ::core::concat!(::core::module_path!(), "::search_shop"),
            (::lockmacro_runtime::defer::argument("shop"),),
            |(shop,)| search_shop(shop),
        )
        .delay(DELAY)
        .latest()
        .at_most(::core::time::Duration::from_secs(60))
        .attempts(3)
}
