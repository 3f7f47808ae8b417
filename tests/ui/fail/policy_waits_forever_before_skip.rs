use lockmacro_runtime::{LockPolicy, distributed_lock};

mod orders {
    pub const AUDITS: super::LockPolicy = super::LockPolicy::new().wait_forever();
}

#[distributed_lock(key = "order:<id>", policy = orders::AUDITS, on_busy = skip)]
async fn audit(id: u64) {}

fn main() {}
