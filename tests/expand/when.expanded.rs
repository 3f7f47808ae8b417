async fn audit(id: u64, dry_run: bool) -> Result<Receipt, OrderError> {
    let __lock = if !dry_run {
        ::core::option::Option::Some(
            ::lockmacro_runtime::Lock::new(
                    ::lockmacro_runtime::LockKey::template("order:<id>")
                        .literal("order:")
                        .value(&id),
                )
                .ttl(::core::time::Duration::from_secs(300))
                .name(::core::concat!(::core::module_path!(), "::audit")),
        )
    } else {
        ::core::option::Option::None
    };
    let __body = {
        async move {
            if false {
                return <Result<
                    Receipt,
                    OrderError,
                > as ::lockmacro_runtime::LockOutcome>::outcome();
            }
            run(id).await
        }
    };
    match __lock {
        ::core::option::Option::Some(__lock) => __lock.run(__body).await,
        ::core::option::Option::None => __body.await,
    }
}
async fn assign(order: Order) -> Result<(), OrderError> {
    let __lock = if order
        == (Order {
            urgent: true,
            ..Order::default()
        })
    {
        let __lock = ::lockmacro_runtime::Lock::new(number(&order).await)
            .name(::core::concat!(::core::module_path!(), "::assign"));
        let __acquired = __lock.acquire().await;
        match { __acquired } {
            ::core::result::Result::Ok(__held) => ::core::option::Option::Some(__held),
            ::core::result::Result::Err(__error) if __error.is_busy() => {
                return {
                    let __later: fn(_) -> _ = later;
                    __later(order).await
                };
            }
            ::core::result::Result::Err(__error) => {
                return ::lockmacro_runtime::LockOutcome::from_lock_error(__error);
            }
        }
    } else {
        ::core::option::Option::None
    };
    let lock = __lock.as_ref().map(|__lock| __lock.share());
    let lock = lock.as_ref();
    let __body = {
        async move {
            if false {
                return <Result<
                    (),
                    OrderError,
                > as ::lockmacro_runtime::LockOutcome>::outcome();
            }
            let _ = &order;
            if let Some(lock) = lock {
                lock.check()?;
            }
            store(order).await
        }
    };
    match __lock {
        ::core::option::Option::Some(__lock) => __lock.run(__body).await,
        ::core::option::Option::None => __body.await,
    }
}
fn report(day: Day) {
    let __lock = if day.is_holiday() {
        ::core::option::Option::Some(
            ::lockmacro_runtime::Lock::new(
                    ::lockmacro_runtime::LockKey::template("report:<day>")
                        .literal("report:")
                        .value(&day),
                )
                .name(::core::concat!(::core::module_path!(), "::report")),
        )
    } else {
        ::core::option::Option::None
    };
    let __body = ::lockmacro_runtime::__same_version_as_lockmacro_0_1_0::once(move || {
        if false {
            return <() as ::lockmacro_runtime::SkipOutcome>::outcome();
        }
        let _ = &day;
        print(day)
    });
    match __lock {
        ::core::option::Option::Some(__lock) => __lock.run_blocking_or_skip(__body),
        ::core::option::Option::None => __body(),
    }
}
