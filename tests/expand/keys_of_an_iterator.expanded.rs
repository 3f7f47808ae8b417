async fn reserve(order: Order) -> Result<(), OrderError> {
    let lock = ::lockmacro_runtime::Lock::many(
            order.lines.iter().map(|line| format!("stock:{}", line.sku)),
        )
        .ttl(::core::time::Duration::from_secs(30))
        .name("reserve");
    match lock.acquire_fenced().await {
        ::core::result::Result::Ok((lock, fences)) => {
            lock.run(async move {
                    if false {
                        return ::lockmacro_runtime::__macro_v0_1_0::outcome::<
                            Result<(), OrderError>,
                        >();
                    }
                    for (line, fence) in order.lines.iter().zip(fences) {
                        take(line, fence).await?;
                    }
                    Ok(())
                })
                .await
        }
        ::core::result::Result::Err(error) => {
            ::lockmacro_runtime::LockOutcome::from_lock_error(error)
        }
    }
}
