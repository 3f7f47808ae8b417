impl Orders {
    async fn assign(&self, id: u64) -> Response {
        ::lockmacro_runtime::Lock::new("stock")
            .name(::core::concat!(::core::module_path!(), "::assign"))
            .recovering(
                ::lockmacro_runtime::__private::recover::<Response>(Self::rollback),
            )
            .run({
                async move {
                    if false {
                        return <Response as ::lockmacro_runtime::LockOutcome>::outcome();
                    }
                    self.store(id).await
                }
            })
            .await
    }
    fn assign_now(&self, id: u64) -> Response {
        ::lockmacro_runtime::Lock::new("stock")
            .name(::core::concat!(::core::module_path!(), "::assign_now"))
            .recovering(
                ::lockmacro_runtime::__private::recover::<Response>(Self::rollback),
            )
            .run_blocking(move || {
                if false {
                    return <Response as ::lockmacro_runtime::LockOutcome>::outcome();
                }
                self.store_now(id)
            })
    }
}
