async fn assign(id: u64, mut warehouse: String) -> Response {
    let __acquired = ::lockmacro_runtime::Lock::new("stock")
        .name(::core::concat!(::core::module_path!(), "::assign"))
        .acquire()
        .await;
    let __lock = match { __acquired } {
        ::core::result::Result::Ok(__held) => __held,
        ::core::result::Result::Err(__error) if __error.is_busy() => {
            return {
                let __later: fn(u64, String) -> _ = queue::later;
                __later(id, warehouse).await
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
                let _ = &warehouse;
                warehouse.push('!');
                store(id, warehouse).await
            }
        })
        .await
}
fn assign_now(id: u64) -> Response {
    let __lock = match ::lockmacro_runtime::Lock::new("stock")
        .name(::core::concat!(::core::module_path!(), "::assign_now"))
        .acquire_blocking()
    {
        ::core::result::Result::Ok(__held) => __held,
        ::core::result::Result::Err(__error) if __error.is_busy() => {
            return {
                let __later: fn(u64) -> _ = queue::later;
                __later(id)
            };
        }
        ::core::result::Result::Err(__error) => {
            return ::lockmacro_runtime::LockOutcome::from_lock_error(__error);
        }
    };
    __lock
        .run_blocking(move || {
            if false {
                return <Response as ::lockmacro_runtime::LockOutcome>::outcome();
            }
            store(id)
        })
}
