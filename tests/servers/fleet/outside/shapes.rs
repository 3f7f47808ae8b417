//! Annotated functions: one for each way in which an expansion reaches the runtime. All shapes of
//! functions are in `tests/attribute/shapes`.

use std::fmt::Display;
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};

use lockmacro_runtime::{LockError, LockManager, distributed_lock};

use crate::{held, held_now};

type Locked<T> = Result<T, LockError>;

/// Documented, and with another attribute on each side.
#[inline]
#[distributed_lock(key = "order:<id>", ttl = "60s")]
#[must_use]
pub async fn audit(id: u64) -> Locked<u64> {
    assert!(held("order:1").await);
    Ok(id)
}

#[lockmacro::distributed_lock(key = "nightly-report", ttl = "1m")]
pub async fn nightly() -> Locked<()> {
    assert!(held("nightly-report").await);
    Ok(())
}

pub struct Desk {
    pub tenant: String,
    pub served: u32,
    pub locks: LockManager,
}

impl Desk {
    #[distributed_lock(key = "desk:<self.tenant>", ttl = "60s")]
    pub async fn serve(&mut self) -> Locked<u32> {
        assert!(held("desk:acme").await);
        self.served += 1;
        Ok(self.served)
    }

    #[distributed_lock(key = "own:<self.tenant>", ttl = "60s", manager = self.locks)]
    pub async fn own_manager(&self) -> Locked<()> {
        assert!(held("own:acme").await);
        Ok(())
    }
}

#[distributed_lock(key = "generic:<id>", ttl = "60s")]
pub async fn generic<T>(id: T) -> Locked<T>
where
    T: Display,
{
    assert!(held(&format!("generic:{id}")).await);
    Ok(id)
}

pub struct Plain(pub &'static str);

#[async_trait::async_trait]
pub trait BoxedWork {
    async fn work(&self) -> Locked<()>;
}

#[async_trait::async_trait]
impl BoxedWork for Plain {
    #[distributed_lock(key = "boxed:<self.0>", ttl = "60s")]
    async fn work(&self) -> Locked<()> {
        assert!(held("boxed:w").await);
        Ok(())
    }
}

#[distributed_lock(key = "sync:<id>", ttl = "60s")]
pub fn sync(id: u64) -> Locked<u64> {
    assert!(held_now("sync:1"));
    Ok(id)
}

/// # Safety
/// Always.
#[distributed_lock(key = "unsafe:<id>", ttl = "60s")]
pub async unsafe fn unchecked(id: u64) -> Locked<u64> {
    assert!(held("unsafe:1").await);
    Ok(id)
}

mod renamed {
    pub use lockmacro_runtime as locks;
}

#[distributed_lock(key = "path:<id>", ttl = "60s", crate = renamed::locks)]
pub async fn path(id: u64) -> Locked<()> {
    assert!(held(&format!("path:{id}")).await);
    Ok(())
}

#[distributed_lock(key = "busy:<id>", ttl = "60s", message = "<id> is being audited")]
pub async fn message(id: u64) -> Locked<u64> {
    Ok(id)
}

pub static SKIPPED: AtomicU32 = AtomicU32::new(0);

#[distributed_lock(key = "busy:<id>", ttl = "60s", on_busy = skip)]
pub async fn skip_unit(id: u64) {
    SKIPPED.fetch_add(1, SeqCst);
}

#[distributed_lock(key = "busy:<id>", ttl = "60s", on_busy = skip)]
pub async fn skip_option(id: u64) -> Option<u64> {
    Some(id)
}

#[distributed_lock(key = "busy:<id>", ttl = "60s", on_busy = fallback(later))]
pub async fn fallback(id: u64, name: &str) -> Locked<String> {
    Ok(format!("now {id} {name}"))
}

async fn later(id: u64, name: &str) -> Locked<String> {
    Ok(format!("later {id} {name}"))
}

#[distributed_lock(key = "busy:<id>", ttl = "60s", on_busy = fallback(none))]
pub fn sync_fallback(id: i64) -> Locked<i64> {
    Ok(id)
}

fn none(id: i64) -> Locked<i64> {
    Ok(-id)
}
