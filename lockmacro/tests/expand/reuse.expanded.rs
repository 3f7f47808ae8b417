pub async fn refresh(tenant: &str, provider: &Provider) -> Result<Token, Refused> {
    ::lockmacro_runtime::Lock::new(
            ::lockmacro_runtime::LockKey::template("oauth:<tenant>")
                .literal("oauth:")
                .value(&tenant),
        )
        .name(::core::concat!(::core::module_path!(), "::refresh"))
        .reuse(::core::time::Duration::from_secs(50))
        .run({
            async move {
                if false {
                    return <Result<
                        Token,
                        Refused,
                    > as ::lockmacro_runtime::LockOutcome>::outcome();
                }
                provider.refresh(tenant).await
            }
        })
        .await
}
async fn report(day: String) -> Result<Report, LockError> {
    ::lockmacro_runtime::Lock::new(
            ::lockmacro_runtime::LockKey::template("report:<day>")
                .literal("report:")
                .value(&day),
        )
        .ttl(::core::time::Duration::from_secs(60))
        .wait_forever()
        .name(::core::concat!(::core::module_path!(), "::report"))
        .reuse(::core::time::Duration::ZERO)
        .run({
            async move {
                if false {
                    return <Result<
                        Report,
                        LockError,
                    > as ::lockmacro_runtime::LockOutcome>::outcome();
                }
                let _ = &day;
                make(day).await
            }
        })
        .await
}
async fn pay(request: Request) -> Result<Receipt, Refused> {
    ::lockmacro_runtime::Lock::new(
            ::lockmacro_runtime::LockKey::template("payment:<request.id>")
                .literal("payment:")
                .value(&request.id),
        )
        .name(::core::concat!(::core::module_path!(), "::pay"))
        .reuse(DAY)
        .same(
            ::lockmacro_runtime::LockKey::template("<request.amount> <request.currency>")
                .value(&request.amount)
                .literal(" ")
                .value(&request.currency),
        )
        .map_err(
            ::lockmacro_runtime::__private::map::<
                Result<Receipt, Refused>,
                _,
            >(Refused::locked),
        )
        .run({
            async move {
                if false {
                    return ::lockmacro_runtime::__private::outcome::<
                        Result<Receipt, Refused>,
                    >();
                }
                let _ = &request;
                book(request).await
            }
        })
        .await
}
