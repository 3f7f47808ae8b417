impl Orders {
    pub async fn audit<T: Display>(&mut self, ids: &[Id<T>]) -> Result<impl Iter, Error>
    where
        T: Send,
    {
        let __acquired = erp::lock::__private::Lock::new(
                erp::lock::__private::LockKey::template(
                        "<self.tenant>:order:<ids[0].sn>",
                    )
                    .value(&self.tenant)
                    .literal(":order:")
                    .value(&ids[0].sn),
            )
            .ttl(self.lease)
            .name(::core::concat!(::core::module_path!(), "::audit"))
            .manager(&self.locks)
            .acquire()
            .await;
        let __lock = match { __acquired } {
            ::core::result::Result::Ok(__held) => __held,
            ::core::result::Result::Err(__error) if __error.is_busy() => {
                return {
                    let __later: fn(_, _) -> _ = Self::later;
                    __later(self, ids).await
                };
            }
            ::core::result::Result::Err(__error) => {
                return erp::lock::__private::LockOutcome::from_lock_error(__error);
            }
        };
        __lock
            .run({
                async move {
                    if false {
                        return <Result<
                            _,
                            Error,
                        > as erp::lock::__private::LockOutcome>::outcome();
                    }
                    self.run(ids).await
                }
            })
            .await
    }
}
