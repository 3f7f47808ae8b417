async fn transfer(from: u64, to: u64, cents: i64) -> Result<(), BankError> {
    let (__lock, debit, credit) = match ::lockmacro_runtime::Lock::many([
            ::lockmacro_runtime::LockKey::template("account:<from>")
                .literal("account:")
                .value(&from),
            ::lockmacro_runtime::LockKey::template("account:<to>")
                .literal("account:")
                .value(&to),
        ])
        .ttl(::core::time::Duration::from_secs(10))
        .wait(::core::time::Duration::from_secs(5))
        .name(::core::concat!(::core::module_path!(), "::transfer"))
        .acquire_fenced()
        .await
    {
        ::core::result::Result::Ok((__lock, __fences)) => {
            (__lock, __fences[0], __fences[1])
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
                        (),
                        BankError,
                    > as ::lockmacro_runtime::LockOutcome>::outcome();
                }
                withdraw(from, cents, debit).await?;
                deposit(to, cents, credit).await
            }
        })
        .await
}
async fn close(id: u64, tenant: Tenant) -> Result<(), BankError> {
    let __lock = ::lockmacro_runtime::Lock::many([
            <::lockmacro_runtime::LockKey as ::core::convert::From<_>>::from("bank"),
            <::lockmacro_runtime::LockKey as ::core::convert::From<
                _,
            >>::from(
                ::lockmacro_runtime::LockKey::template("account:<id>")
                    .literal("account:")
                    .value(&id),
            ),
            <::lockmacro_runtime::LockKey as ::core::convert::From<
                _,
            >>::from(tenant_key(&tenant)),
        ])
        .ttl(::core::time::Duration::from_secs(10))
        .name(::core::concat!(::core::module_path!(), "::close"));
    __lock
        .run({
            async move {
                if false {
                    return <Result<
                        (),
                        BankError,
                    > as ::lockmacro_runtime::LockOutcome>::outcome();
                }
                let _ = &tenant;
                remove(id).await
            }
        })
        .await
}
fn count() -> Result<u64, BankError> {
    ::lockmacro_runtime::Lock::many(["books", "till"])
        .name(::core::concat!(::core::module_path!(), "::count"))
        .run_blocking(move || {
            if false {
                return <Result<
                    u64,
                    BankError,
                > as ::lockmacro_runtime::LockOutcome>::outcome();
            }
            till().sum()
        })
}
