async fn reserve(order: Order) -> Response {
    let __lock = ::lockmacro_runtime::Lock::many(
            order.lines.iter().map(|line| format!("stock:{}", line.sku)),
        )
        .name(::core::concat!(::core::module_path!(), "::reserve"));
    let (__lock, fences) = match __lock.acquire_fenced().await {
        ::core::result::Result::Ok(__held) => __held,
        ::core::result::Result::Err(__error) => {
            return ::lockmacro_runtime::LockOutcome::from_lock_error(__error);
        }
    };
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
