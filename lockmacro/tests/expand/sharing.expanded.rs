async fn report(id: u64) -> Result<Report, OrderError> {
    ::lockmacro_runtime::Lock::new(
            ::lockmacro_runtime::LockKey::template("order:<id>")
                .literal("order:")
                .value(&id),
        )
        .shared()
        .ttl(::core::time::Duration::from_secs(10))
        .name(::core::concat!(::core::module_path!(), "::report"))
        .run({
            async move {
                if false {
                    return <Result<
                        Report,
                        OrderError,
                    > as ::lockmacro_runtime::LockOutcome>::outcome();
                }
                read(id).await
            }
        })
        .await
}
fn print(room: u32) -> Result<(), PrintError> {
    ::lockmacro_runtime::Lock::new(
            ::lockmacro_runtime::LockKey::template("printer:<room>")
                .literal("printer:")
                .value(&room),
        )
        .permits(3)
        .wait(::core::time::Duration::from_secs(5))
        .name(::core::concat!(::core::module_path!(), "::print"))
        .run_blocking(move || {
            if false {
                return <Result<
                    (),
                    PrintError,
                > as ::lockmacro_runtime::LockOutcome>::outcome();
            }
            send(room)
        })
}
async fn book(day: Day, id: u64) -> Result<(), BankError> {
    let __lock = ::lockmacro_runtime::Lock::many([
            <::lockmacro_runtime::LockKey as ::core::convert::From<
                _,
            >>::from(
                    ::lockmacro_runtime::LockKey::template("rates:<day>")
                        .literal("rates:")
                        .value(&day),
                )
                .shared(),
            <::lockmacro_runtime::LockKey as ::core::convert::From<_>>::from("desk")
                .permits(desks(day)),
            <::lockmacro_runtime::LockKey as ::core::convert::From<
                _,
            >>::from(
                ::lockmacro_runtime::LockKey::template("account:<id>")
                    .literal("account:")
                    .value(&id),
            ),
        ])
        .name(::core::concat!(::core::module_path!(), "::book"));
    __lock
        .run({
            async move {
                if false {
                    return <Result<
                        (),
                        BankError,
                    > as ::lockmacro_runtime::LockOutcome>::outcome();
                }
                convert(day, id).await
            }
        })
        .await
}
