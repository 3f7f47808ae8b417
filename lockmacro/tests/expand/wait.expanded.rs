async fn book(id: u64) -> Result<(), BookingError> {
    ::lockmacro_runtime::Lock::new(
            ::lockmacro_runtime::LockKey::template("account:<id>")
                .literal("account:")
                .value(&id),
        )
        .ttl(::core::time::Duration::from_secs(10))
        .wait(::core::time::Duration::from_millis(1500))
        .name(::core::concat!(::core::module_path!(), "::book"))
        .run({
            async move {
                if false {
                    return <Result<
                        (),
                        BookingError,
                    > as ::lockmacro_runtime::LockOutcome>::outcome();
                }
                book_now(id).await
            }
        })
        .await
}
fn import() -> Result<Report, ImportError> {
    ::lockmacro_runtime::Lock::new("import")
        .wait_forever()
        .name(::core::concat!(::core::module_path!(), "::import"))
        .run_blocking(move || {
            if false {
                return <Result<
                    Report,
                    ImportError,
                > as ::lockmacro_runtime::LockOutcome>::outcome();
            }
            import_now()
        })
}
async fn refresh(site: &Site) -> Result<Report, ImportError> {
    let __lock = ::lockmacro_runtime::Lock::new("import")
        .wait(patience(site))
        .name(::core::concat!(::core::module_path!(), "::refresh"));
    let __acquired = __lock.acquire_fenced().await;
    let (__lock, fence) = match { __acquired } {
        ::core::result::Result::Ok((__lock, __fences)) => (__lock, __fences[0]),
        ::core::result::Result::Err(__error) if __error.is_busy() => {
            return {
                let __later: fn(_) -> _ = tomorrow;
                __later(site).await
            };
        }
        ::core::result::Result::Err(__error) => {
            return ::lockmacro_runtime::LockOutcome::from_lock_error(__error);
        }
    };
    __lock
        .run({
            async move {
                if false {
                    return <Result<
                        Report,
                        ImportError,
                    > as ::lockmacro_runtime::LockOutcome>::outcome();
                }
                site.refresh(fence).await
            }
        })
        .await
}
