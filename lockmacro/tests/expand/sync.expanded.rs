pub(crate) fn audit<'a>(order: &'a Order) -> Result<&'a str, OrderError> {
    ::lockmacro_runtime::Lock::new(
            ::lockmacro_runtime::LockKey::template("{order:<order.id>}:audit")
                .literal("{order:")
                .value(&order.id)
                .literal("}:audit"),
        )
        .ttl(::core::time::Duration::from_millis(1500))
        .name(::core::concat!(::core::module_path!(), "::audit"))
        .run_blocking(move || {
            if false {
                return <Result<
                    &'a str,
                    OrderError,
                > as ::lockmacro_runtime::LockOutcome>::outcome();
            }
            order.name()
        })
}
