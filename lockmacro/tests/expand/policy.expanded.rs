async fn audit(id: u64) -> Response {
    ::lockmacro_runtime::Lock::new("audits")
        .policy({
            const __POLICY: ::lockmacro_runtime::LockPolicy = ::lockmacro_runtime::__private::checked(
                orders::AUDITS,
                ::lockmacro_runtime::LockPolicy::new(),
                "error",
            );
            __POLICY
        })
        .name(::core::concat!(::core::module_path!(), "::audit"))
        .run({
            async move {
                if false {
                    return <Response as ::lockmacro_runtime::LockOutcome>::outcome();
                }
                run(id).await
            }
        })
        .await
}
impl Orders {
    async fn assign(&self, id: u64) {
        let __lock = match ::lockmacro_runtime::Lock::new("audits")
            .wait(::core::time::Duration::ZERO)
            .policy(const {
                ::lockmacro_runtime::__private::checked(
                    Self::POLICY,
                    ::lockmacro_runtime::LockPolicy::new()
                        .ttl(::core::time::Duration::MAX)
                        .min_hold(::core::time::Duration::from_secs(5)),
                    "skip",
                )
            })
            .ttl(self.ttl)
            .min_hold(::core::time::Duration::from_secs(5))
            .on_lost(::lockmacro_runtime::OnLost::Cancel)
            .name(::core::concat!(::core::module_path!(), "::assign"))
            .skip_when_busy()
            .acquire()
            .await
        {
            ::core::result::Result::Ok(__held) => __held,
            ::core::result::Result::Err(__error) => {
                return ::lockmacro_runtime::SkipOutcome::refused(
                    ::core::concat!(::core::module_path!(), "::assign"),
                    __error,
                );
            }
        };
        let lock = __lock.handle();
        let lock = &lock;
        __lock
            .run({
                async move {
                    if false {
                        return <() as ::lockmacro_runtime::SkipOutcome>::outcome();
                    }
                    self.run(id, lock).await
                }
            })
            .await
    }
}
