async fn book(id: u64) -> Result<(), BookingError> {
    ::lockmacro_runtime::Lock::new(
            ::lockmacro_runtime::LockKey::template("account:<id>")
                .literal("account:")
                .value(&id),
        )
        .ttl(::core::time::Duration::from_secs(10))
        .wait(::core::time::Duration::from_millis(1500))
        .name("book")
        .run(async move {
            if false {
                return ::lockmacro_runtime::__macro_v0_1_0::outcome::<
                    Result<(), BookingError>,
                >();
            }
            book_now(id).await
        })
        .await
}
fn import() -> Result<Report, ImportError> {
    ::lockmacro_runtime::Lock::new("import")
        .wait_forever()
        .name("import")
        .run_blocking(move || {
            if false {
                return ::lockmacro_runtime::__macro_v0_1_0::outcome::<
                    Result<Report, ImportError>,
                >();
            }
            import_now()
        })
}
async fn refresh(site: &Site) -> Result<Report, ImportError> {
    let lock = ::lockmacro_runtime::Lock::new("import")
        .wait(patience(site))
        .name("refresh");
    match lock.acquire_fenced().await {
        ::core::result::Result::Ok((lock, fence)) => {
            lock.run(async move {
                    if false {
                        return ::lockmacro_runtime::__macro_v0_1_0::outcome::<
                            Result<Report, ImportError>,
                        >();
                    }
                    site.refresh(fence).await
                })
                .await
        }
        ::core::result::Result::Err(busy) if busy.is_busy() => tomorrow(site).await,
        ::core::result::Result::Err(error) => {
            ::lockmacro_runtime::LockOutcome::from_lock_error(error)
        }
    }
}
