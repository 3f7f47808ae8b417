async fn audit(id: u64) -> Result<Receipt, OrderError> {
    let __lock = match ::lockmacro_runtime::Lock::new("audits")
        .fenced()
        .name(::core::concat!(::core::module_path!(), "::audit"))
        .acquire()
        .await
    {
        ::core::result::Result::Ok(__held) => __held,
        ::core::result::Result::Err(__error) => {
            return ::lockmacro_runtime::LockOutcome::from_lock_error(__error);
        }
    };
    let ::core::option::Option::Some(fence) = __lock.fence() else {
        ::core::unreachable!("the lock is fenced")
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
