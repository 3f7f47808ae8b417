use lockmacro_runtime::{LockError, distributed_lock};

struct Orders;

impl Orders {
    const TABLE: &str = "orders";

    #[distributed_lock(key = "<Self::TABEL>:<id>", ttl = "300s")]
    async fn audit(id: u64) -> Result<u64, LockError> {
        Ok(id)
    }
}

fn main() {
    let _ = (Orders::TABLE, Orders::audit);
}
