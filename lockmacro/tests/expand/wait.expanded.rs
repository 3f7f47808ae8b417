async fn refresh(site: &Site) -> Response {
    let __lock = ::lockmacro_runtime::Lock::new("import")
        .wait(patience(site))
        .fenced()
        .name(::core::concat!(::core::module_path!(), "::refresh"));
    let __acquired = __lock.acquire().await;
    let __lock = match { __acquired } {
        ::core::result::Result::Ok(__held) => __held,
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
    let ::core::option::Option::Some(fence) = __lock.fence() else {
        ::core::unreachable!("the lock is fenced")
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
