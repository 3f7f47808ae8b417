impl Orders {
    pub async fn audit<T: Display>(&mut self, ids: &[Id<T>]) -> Result<impl Iter, Error>
    where
        T: Send,
    {
        match erp::lock::__macro_v0_1_0::Lock::new(
                erp::lock::__macro_v0_1_0::LockKey::template(
                        "<self.tenant>:order:<ids[0].sn>",
                    )
                    .value(&self.tenant)
                    .literal(":order:")
                    .value(&ids[0].sn),
            )
            .ttl(self.lease)
            .name("audit")
            .manager(&self.locks)
            .acquire()
            .await
        {
            ::core::result::Result::Ok(lock) => {
                lock.run(async move {
                        if false {
                            return erp::lock::__macro_v0_1_0::outcome::<
                                Result<_, Error>,
                            >();
                        }
                        self.run(ids).await
                    })
                    .await
            }
            ::core::result::Result::Err(busy) if busy.is_busy() => {
                Self::later(self, ids).await
            }
            ::core::result::Result::Err(error) => {
                erp::lock::__macro_v0_1_0::LockOutcome::from_lock_error(error)
            }
        }
    }
}
