async fn report(id: u64) -> Response {
    ::lockmacro_runtime::Lock::new("orders")
        .shared()
        .name(::core::concat!(::core::module_path!(), "::report"))
        .run({
            async move {
                if false {
                    return <Response as ::lockmacro_runtime::LockOutcome>::outcome();
                }
                read(id).await
            }
        })
        .await
}
fn print(room: u32) -> Response {
    ::lockmacro_runtime::Lock::new("printer")
        .permits(3)
        .name(::core::concat!(::core::module_path!(), "::print"))
        .run_blocking(move || {
            if false {
                return <Response as ::lockmacro_runtime::LockOutcome>::outcome();
            }
            send(room)
        })
}
async fn book(day: Day, id: Id) -> Response {
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
            <::lockmacro_runtime::LockKey as ::core::convert::From<_>>::from(bank(&id)),
        ])
        .name(::core::concat!(::core::module_path!(), "::book"));
    __lock
        .run({
            async move {
                if false {
                    return <Response as ::lockmacro_runtime::LockOutcome>::outcome();
                }
                let _ = &id;
                convert(day, id).await
            }
        })
        .await
}
