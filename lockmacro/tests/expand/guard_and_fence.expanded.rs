async fn audit(id: u64) -> Result<Receipt, OrderError> {
    let (__lock, fence) = match ::lockmacro_runtime::Lock::new("audits")
        .name(::core::concat!(::core::module_path!(), "::audit"))
        .acquire_fenced()
        .await
    {
        ::core::result::Result::Ok((__lock, __fences)) => (__lock, __fences[0]),
        ::core::result::Result::Err(__error) => {
            return ::lockmacro_runtime::LockOutcome::from_lock_error(__error);
        }
    };
    let lease = __lock.handle();
    let lease = &lease;
    let _ = &fence;
    __lock
        .run({
            async move {
                if false {
                    return <Result<
                        Receipt,
                        OrderError,
                    > as ::lockmacro_runtime::LockOutcome>::outcome();
                }
                let receipt = compute(id, lease).await?;
                store(id, receipt, fence).await
            }
        })
        .await
}
