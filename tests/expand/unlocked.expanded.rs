/// Audits an order.
#[inline]
pub(crate) async fn audit<'a>(
    locks: &'a LockManager,
    id: u64,
) -> Result<Receipt, OrderError> {
    ::lockmacro_runtime::Lock::new(
            ::lockmacro_runtime::LockKey::template("order:<id>")
                .literal("order:")
                .value(&id),
        )
        .ttl(::core::time::Duration::from_secs(300))
        .name(::core::concat!(::core::module_path!(), "::audit"))
        .manager(&locks)
        .run({
            async move {
                if false {
                    return <Result<
                        Receipt,
                        OrderError,
                    > as ::lockmacro_runtime::LockOutcome>::outcome();
                }
                run(id).await
            }
        })
        .await
}
/// `audit` without its lock, for callers that hold the lock `order:<id>` already.
///
/// Audits an order.
#[inline]
///
/// # Panics
/// Panics without the lock, in builds with debug assertions.
pub(crate) async fn audit_held<'a>(
    locks: &'a LockManager,
    id: u64,
) -> Result<Receipt, OrderError> {
    let _ = &locks;
    if ::core::cfg!(debug_assertions) {
        if let ::core::option::Option::Some(__key) = ::lockmacro_runtime::__same_version_as_lockmacro_0_1_0::not_held([
            ::lockmacro_runtime::LockKey::template("order:<id>")
                .literal("order:")
                .value(&id),
        ]) {
            ::core::panic!(
                "`audit_held` is for callers that hold the lock `{}`, and this one does not: call `audit`",
                __key
            );
        }
    }
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
    __body.await
}
impl Bank {
    fn transfer(&mut self, from: u64, to: u64, cents: i64) -> Result<(), BankError> {
        let __lock = if cents > 0 {
            ::core::option::Option::Some(
                ::lockmacro_runtime::Lock::many([
                        ::lockmacro_runtime::LockKey::template("account:<from>")
                            .literal("account:")
                            .value(&from),
                        ::lockmacro_runtime::LockKey::template("account:<to>")
                            .literal("account:")
                            .value(&to),
                    ])
                    .name(::core::concat!(::core::module_path!(), "::transfer")),
            )
        } else {
            ::core::option::Option::None
        };
        let __body = ::lockmacro_runtime::__same_version_as_lockmacro_0_1_0::once(move ||
        {
            if false {
                return <Result<
                    (),
                    BankError,
                > as ::lockmacro_runtime::LockOutcome>::outcome();
            }
            self.book(from, -cents)?;
            self.book(to, cents)
        });
        match __lock {
            ::core::option::Option::Some(__lock) => __lock.run_blocking(__body),
            ::core::option::Option::None => __body(),
        }
    }
    /// `transfer` without its lock, for callers that hold all of its keys already.
    ///
    ///
    /// # Panics
    /// Panics without the lock, in builds with debug assertions.
    fn transfer_held(
        &mut self,
        from: u64,
        to: u64,
        cents: i64,
    ) -> Result<(), BankError> {
        if ::core::cfg!(debug_assertions) {
            if cents > 0 {
                if let ::core::option::Option::Some(__key) = ::lockmacro_runtime::__same_version_as_lockmacro_0_1_0::not_held([
                    ::lockmacro_runtime::LockKey::template("account:<from>")
                        .literal("account:")
                        .value(&from),
                    ::lockmacro_runtime::LockKey::template("account:<to>")
                        .literal("account:")
                        .value(&to),
                ]) {
                    ::core::panic!(
                        "`transfer_held` is for callers that hold the lock `{}`, and this one does not: call `transfer`",
                        __key
                    );
                }
            }
        }
        let __body = ::lockmacro_runtime::__same_version_as_lockmacro_0_1_0::once(move ||
        {
            if false {
                return <Result<
                    (),
                    BankError,
                > as ::lockmacro_runtime::LockOutcome>::outcome();
            }
            self.book(from, -cents)?;
            self.book(to, cents)
        });
        __body()
    }
}
