async fn add_to_cart(id: u64, sku: &str) -> Result<Cart, ShopError> {
    ::lockmacro_runtime::Lock::new(
            ::lockmacro_runtime::LockKey::template("cart:<id>")
                .literal("cart:")
                .value(&id),
        )
        .ttl(::core::time::Duration::from_secs(10))
        .wait(::core::time::Duration::from_secs(5))
        .release_in_background()
        .name(::core::concat!(::core::module_path!(), "::add_to_cart"))
        .run({
            async move {
                if false {
                    return <Result<
                        Cart,
                        ShopError,
                    > as ::lockmacro_runtime::LockOutcome>::outcome();
                }
                add(id, sku).await
            }
        })
        .await
}
fn report(order: &Order) -> Option<Report> {
    let __lock = match ::lockmacro_runtime::Lock::new("report")
        .wait(::core::time::Duration::ZERO)
        .release_in_background()
        .name(::core::concat!(::core::module_path!(), "::report"))
        .skip_when_busy()
        .acquire_blocking()
    {
        ::core::result::Result::Ok(__held) => __held,
        ::core::result::Result::Err(__error) => {
            return ::lockmacro_runtime::SkipOutcome::refused(
                ::core::concat!(::core::module_path!(), "::report"),
                __error,
            );
        }
    };
    let lock = __lock.handle();
    let lock = &lock;
    __lock
        .run_blocking(move || {
            if false {
                return <Option<Report> as ::lockmacro_runtime::SkipOutcome>::outcome();
            }
            order.report_under(lock)
        })
}
