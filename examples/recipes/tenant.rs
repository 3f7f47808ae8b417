//! Many tenants on one server: the tenant in the key, or a prefix for all keys of a service.
//!
//! `cargo run -p lockmacro-recipes --example tenant`

use lockmacro_runtime::{Lock, LockError, LockManager, distributed_lock};

struct Shop {
    tenant: String,
    locks: LockManager,
}

impl Shop {
    /// Ids are unique within a tenant only. A `:` in a tenant's name is encoded, so no tenant gets
    /// into the keys of another one.
    #[distributed_lock(key = "<self.tenant>:order:<id>", ttl = "30s", manager = self.locks)]
    async fn audit(&self, id: u64) -> Result<String, LockError> {
        Ok(format!("{} {id}", self.tenant))
    }
}

#[tokio::main]
async fn main() -> Result<(), LockError> {
    // All keys of this service begin with `shop:`, and those of its jobs, too.
    let locks = LockManager::builder().key_prefix("shop:").connect("memory://").await?;
    let shop = |tenant: &str| Shop { tenant: tenant.to_owned(), locks: locks.clone() };
    let (red, blue) = (shop("red"), shop("blue"));

    let held = Lock::new("red:order:42").manager(&locks).acquire().await?;
    assert_eq!(held.key().as_str(), "shop:red:order:42");
    assert!(red.audit(42).await.is_err_and(|error| error.is_busy()));
    assert_eq!(blue.audit(42).await?, "blue 42");
    held.release().await
}

#[test]
fn tenants_do_not_exclude_each_other() {
    assert_eq!(main(), Ok(()));
}
