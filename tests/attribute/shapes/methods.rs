//! Methods, trait implementations and `#[async_trait]`.

use std::pin::Pin;

use async_trait::async_trait;
use futures::future::BoxFuture;
use lockmacro_runtime::{LockError, LockManager, distributed_lock};

use crate::{assert_locked, held, held_blocking};

struct Orders {
    locks: LockManager,
    tenant: &'static str,
    audited: Vec<u64>,
}

impl Orders {
    fn new() -> Self {
        Self { locks: LockManager::isolated_memory(), tenant: "acme", audited: Vec::new() }
    }

    #[distributed_lock(key = "<self.tenant>:<id>", ttl = "30s", manager = self.locks)]
    async fn by_ref(&self, id: u64) -> Result<bool, LockError> {
        Ok(held(&self.locks, "acme:42").await)
    }

    #[distributed_lock(key = "<self.tenant>:<id>", ttl = "30s", manager = &self.locks)]
    async fn by_mut(&mut self, id: u64) -> Result<&[u64], LockError> {
        if held(&self.locks, "acme:42").await {
            self.audited.push(id);
        }
        Ok(&self.audited)
    }

    #[distributed_lock(key = "<self.tenant>:<id>", ttl = "30s", manager = self.locks)]
    async fn by_value(mut self, id: u64) -> Result<Self, LockError> {
        if held(&self.locks, "acme:42").await {
            self.audited.push(id);
        }
        Ok(self)
    }

    #[distributed_lock(key = "<self.tenant>:<id>", ttl = "30s", manager = self.locks)]
    async fn by_box(self: Box<Self>, id: u64) -> Result<(bool, Box<Self>), LockError> {
        Ok((held(&self.locks, "acme:42").await, self))
    }

    #[distributed_lock(key = "<Self::scope(self)>:<id>", ttl = "30s", manager = self.locks)]
    #[cfg(any())]
    async fn not_compiled(&self, id: u64) -> Result<bool, LockError> {}

    #[distributed_lock(key = "<self.tenant>:<id>", ttl = "30s", manager = self.locks)]
    fn blocking_by_ref(&self, id: u64) -> Result<bool, LockError> {
        Ok(held_blocking(&self.locks, "acme:42"))
    }

    #[distributed_lock(key = "<self.tenant>:<id>", ttl = "30s", manager = self.locks)]
    fn blocking_by_mut(&mut self, id: u64) -> Result<&mut Vec<u64>, LockError> {
        if held_blocking(&self.locks, "acme:42") {
            self.audited.push(id);
        }
        Ok(&mut self.audited)
    }

    #[distributed_lock(key = "<self.tenant>:<id>", ttl = "30s", manager = self.locks)]
    fn blocking_by_value(self, id: u64) -> Result<(bool, Self), LockError> {
        Ok((held_blocking(&self.locks, "acme:42"), self))
    }
}

#[tokio::test]
async fn receivers() {
    let mut orders = Orders::new();
    let locks = orders.locks.clone();
    assert_locked!(&locks, "acme:42", orders.by_ref(42).await.unwrap());
    assert_locked!(&locks, "acme:42", orders.by_mut(42).await.unwrap() == [42]);
    let orders = orders.by_value(42).await.unwrap();
    assert_locked!(&locks, "acme:42", orders.audited == [42, 42]);
    assert_locked!(&locks, "acme:42", Box::new(orders).by_box(42).await.unwrap().0);
}

#[test]
fn blocking_receivers() {
    let mut orders = Orders::new();
    let locks = orders.locks.clone();
    assert_locked!(blocking, &locks, "acme:42", orders.blocking_by_ref(42).unwrap());
    assert_locked!(blocking, &locks, "acme:42", *orders.blocking_by_mut(42).unwrap() == [42]);
    assert_locked!(blocking, &locks, "acme:42", orders.blocking_by_value(42).unwrap().0);
}

trait Audit {
    async fn audit(&self, id: u64) -> Result<bool, LockError>;

    fn manager(&self) -> &LockManager;

    #[distributed_lock(key = "default:<id>", ttl = "30s", manager = self.manager())]
    async fn audit_by_default(&self, id: u64) -> Result<bool, LockError> {
        Ok(held(self.manager(), "default:42").await)
    }
}

impl Audit for Orders {
    #[distributed_lock(key = "<self.tenant>:<id>", ttl = "30s", manager = self.locks)]
    async fn audit(&self, id: u64) -> Result<bool, LockError> {
        Ok(held(&self.locks, "acme:42").await)
    }

    fn manager(&self) -> &LockManager {
        &self.locks
    }
}

#[tokio::test]
async fn trait_implementations_and_defaults() {
    let orders = Orders::new();
    assert_locked!(&orders.locks, "acme:42", Audit::audit(&orders, 42).await.unwrap());
    assert_locked!(&orders.locks, "default:42", orders.audit_by_default(42).await.unwrap());
}

#[async_trait]
trait Auditor {
    async fn audit(&self, order: u64, lines: &[u32]) -> Result<bool, LockError>;
    async fn audit_mut<'a>(&'a mut self, id: u64) -> Result<&'a [u64], LockError>;
    async fn audit_path(
        self: Box<Self>,
        path: (u64, u64),
    ) -> Result<Box<dyn ToString + Send>, LockError>;
    async fn nothing(&self);
    async fn assign(&mut self, id: u64) -> Result<bool, LockError>;
}

#[async_trait]
impl Auditor for Orders {
    #[distributed_lock(key = "<self.tenant>:<id>:<lines[0]>", ttl = "30s", manager = self.locks)]
    async fn audit(&self, id: u64, lines: &[u32]) -> Result<bool, LockError> {
        if lines.is_empty() || id == 0 {
            return Ok(false);
        }
        Ok(held(&self.locks, "acme:42:1").await)
    }

    /// With attributes on both sides.
    #[tracing::instrument(skip_all)]
    #[distributed_lock(key = "<self.tenant>:<id>", ttl = "30s", manager = self.locks)]
    #[tracing::instrument(skip_all)]
    async fn audit_mut<'a>(&'a mut self, mut id: u64) -> Result<&'a [u64], LockError> {
        if held(&self.locks, "acme:42").await {
            id += 1;
            self.audited.push(id);
        }
        Ok(&self.audited)
    }

    #[distributed_lock(key = "<self.tenant>:<path.0>", ttl = "30s", manager = self.locks)]
    async fn audit_path(
        self: Box<Self>,
        path: (u64, u64),
    ) -> Result<Box<dyn ToString + Send>, LockError> {
        let (id, line) = path;
        let held = held(&self.locks, &format!("acme:{id}")).await;
        Ok(Box::new(format!("{held} {line}")))
    }

    #[distributed_lock(key = "nothing", ttl = "30s", manager = self.locks, on_busy = skip)]
    async fn nothing(&self) {
        assert!(held(&self.locks, "nothing").await);
    }

    #[distributed_lock(
        key = "<id>", ttl = "30s", manager = self.locks, on_busy = fallback(Self::assign_later),
    )]
    async fn assign(&mut self, id: u64) -> Result<bool, LockError> {
        self.audited.push(id);
        Ok(held(&self.locks, "42").await)
    }
}

#[async_trait]
trait Counter {
    async fn count(&self, id: u64, shelf: (u64, u64)) -> Result<u64, LockError>;
}

/// The compiler would warn of the arguments, and warnings are errors in this suite.
#[async_trait]
impl Counter for Orders {
    #[distributed_lock(
        key = "order:<id>:<shelf.0>", message = "<id>", manager = self.locks
    )]
    async fn count(&self, id: u64, shelf: (u64, u64)) -> Result<u64, LockError> {
        Ok(7)
    }
}

impl Orders {
    async fn assign_later(&mut self, id: u64) -> Result<bool, LockError> {
        self.audited.push(id + 100);
        Ok(false)
    }
}

#[tokio::test]
async fn async_trait_implementations() {
    let mut orders = Orders::new();
    let locks = orders.locks.clone();
    assert_locked!(&locks, "acme:42:1", Auditor::audit(&orders, 42, &[1]).await.unwrap());
    assert_locked!(&locks, "acme:42", orders.audit_mut(42).await.unwrap() == [43]);
    orders.nothing().await;
    assert_eq!(orders.count(42, (1, 2)).await, Ok(7));
    assert_locked!(&locks, "42", orders.assign(42).await.unwrap());
    let guard = crate::probe(&locks, "42").acquire().await.unwrap();
    assert!(!orders.assign(42).await.unwrap());
    guard.release().await.unwrap();
    assert_eq!(orders.audited, [43, 42, 142]);
    let orders: Box<dyn Auditor + Send> = Box::new(orders);
    let text = tokio::spawn(orders.audit_path((42, 7))).await.unwrap().unwrap().to_string();
    assert_locked!(&locks, "acme:42", text == "true 7");
}

impl Orders {
    #[distributed_lock(key = "<self.tenant>:<id>", ttl = "30s", manager = self.locks)]
    fn boxed(&self, id: u64) -> BoxFuture<'_, Result<bool, LockError>> {
        Box::pin(async move { Ok(held(&self.locks, "acme:42").await) })
    }

    #[distributed_lock(key = "<self.tenant>:<id>", ttl = "30s", manager = self.locks)]
    fn pinned<'a>(
        &'a self,
        id: u64,
    ) -> Pin<Box<dyn Future<Output = Result<bool, LockError>> + Send + 'a>> {
        Box::pin(async move { Ok(held(&self.locks, "acme:42").await) })
    }
}

#[tokio::test]
async fn futures_boxed_by_hand() {
    let orders = Orders::new();
    let future = orders.boxed(42);
    assert!(!held(&orders.locks, "acme:42").await, "locked before the future is polled");
    assert_locked!(&orders.locks, "acme:42", future.await.unwrap());
    assert_locked!(&orders.locks, "acme:42", orders.pinned(42).await.unwrap());
}
