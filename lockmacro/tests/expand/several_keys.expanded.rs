async fn transfer(from: u64, to: u64, cents: i64) -> Response {
    let __keys = ::lockmacro_runtime::Lock::many([
            ::lockmacro_runtime::LockKey::template("account:<from>")
                .literal("account:")
                .value(&from),
            ::lockmacro_runtime::LockKey::template("account:<to>")
                .literal("account:")
                .value(&to),
        ])
        .fenced()
        .name(::core::concat!(::core::module_path!(), "::transfer"));
    let __lock = match __keys.acquire().await {
        ::core::result::Result::Ok(__held) => __held,
        ::core::result::Result::Err(__error) => {
            return ::lockmacro_runtime::LockOutcome::from_lock_error(__error);
        }
    };
    let (debit, credit) = {
        let __fences = __keys.fences(&__lock);
        (__fences[0], __fences[1])
    };
    __lock
        .run({
            async move {
                if false {
                    return <Response as ::lockmacro_runtime::LockOutcome>::outcome();
                }
                withdraw(from, cents, debit).await?;
                deposit(to, cents, credit).await
            }
        })
        .await
}
fn count() -> Response {
    ::lockmacro_runtime::Lock::many(["books", "till"])
        .name(::core::concat!(::core::module_path!(), "::count"))
        .run_blocking(move || {
            if false {
                return <Response as ::lockmacro_runtime::LockOutcome>::outcome();
            }
            till().sum()
        })
}
