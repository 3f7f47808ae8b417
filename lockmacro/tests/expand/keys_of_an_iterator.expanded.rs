async fn reserve(order: Order) -> Response {
    let __keys = ::lockmacro_runtime::Lock::many(
            order.lines.iter().map(|line| format!("stock:{}", line.sku)),
        )
        .fenced()
        .name(::core::concat!(::core::module_path!(), "::reserve"));
    let __lock = match __keys.acquire().await {
        ::core::result::Result::Ok(__held) => __held,
        ::core::result::Result::Err(__error) => {
            return ::lockmacro_runtime::LockOutcome::from_lock_error(__error);
        }
    };
    let fences = __keys.fences(&__lock);
    __lock
        .run({
            async move {
                if false {
                    return <Response as ::lockmacro_runtime::LockOutcome>::outcome();
                }
                let _ = &order;
                take(order.lines, fences).await
            }
        })
        .await
}
