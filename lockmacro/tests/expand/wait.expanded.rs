async fn refresh(site: &Site) -> Response {
    let __lock = ::lockmacro_runtime::Lock::new("import")
        .wait(patience(site))
        .name(::core::concat!(::core::module_path!(), "::refresh"));
    let __acquired = __lock.acquire_fenced().await;
    let (__lock, fence) = match { __acquired } {
        ::core::result::Result::Ok((__lock, __fences)) => (__lock, __fences[0]),
        ::core::result::Result::Err(__error) if __error.is_busy() => {
            return {
                let __later: fn(_) -> _ = tomorrow;
                __later(site).await
            };
        }
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
                site.refresh(fence).await
            }
        })
        .await
}
