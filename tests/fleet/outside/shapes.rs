//! Annotated functions of every shape.

use std::cell::Cell;
use std::error::Error;
use std::fmt::Display;
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};
use std::time::Duration;

use lockmacro_runtime::{LockError, LockManager, distributed_lock};

use crate::{held, held_now};

type Locked<T> = Result<T, LockError>;

pub struct Order {
    pub id: u64,
    pub lines: Vec<Line>,
}

pub struct Line {
    pub sn: String,
}

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

#[distributed_lock(key = format!("report:{day}"), ttl = "60s")]
pub async fn report(day: &str) -> Locked<()> {
    assert!(held(&format!("report:{day}")).await);
    Ok(())
}

const TTL: Duration = Duration::from_secs(60);

#[distributed_lock(key = "ttl:<id>", ttl = TTL)]
pub async fn with_ttl(id: u64) -> Locked<()> {
    assert!(held(&format!("ttl:{id}")).await);
    Ok(())
}

#[distributed_lock(key = "order:<order.id>", ttl = "60s")]
pub async fn by_field(order: &Order) -> Locked<u64> {
    assert!(held("order:7").await);
    Ok(order.id)
}

#[distributed_lock(key = "serial:<lines[0].sn>", ttl = "60s")]
pub async fn by_index(lines: &[Line]) -> Locked<()> {
    assert!(held(&format!("serial:{}", lines[0].sn)).await);
    Ok(())
}

#[distributed_lock(key = "user:<name.to_lowercase()>", ttl = "60s")]
pub async fn by_method(name: &str) -> Locked<()> {
    assert!(held("user:ada").await, "{name}");
    Ok(())
}

#[distributed_lock(key = "{order:<id>}:audit", ttl = "60s")]
pub async fn hash_tag(id: u64) -> Locked<()> {
    assert!(held("{order:8}:audit").await, "{id}");
    Ok(())
}

pub struct Desk {
    pub tenant: String,
    pub served: u32,
    pub locks: LockManager,
}

impl Desk {
    #[distributed_lock(key = "desk:<self.tenant>", ttl = "60s")]
    pub async fn look(&self) -> Locked<u32> {
        assert!(held("desk:acme").await);
        Ok(self.served)
    }

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

    #[distributed_lock(key = "gone:<self.tenant>", ttl = "60s")]
    pub async fn close(self) -> Locked<String> {
        assert!(held("gone:acme").await);
        Ok(self.tenant)
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

#[distributed_lock(key = "first:<name>", ttl = "60s")]
pub async fn first<'a>(name: &str, items: &'a [u32]) -> Locked<&'a u32> {
    assert!(held(&format!("first:{name}")).await);
    Ok(&items[0])
}

#[distributed_lock(key = "shown:<value>", ttl = "60s")]
pub async fn shown(value: impl Display) -> Locked<()> {
    assert!(held(&format!("shown:{value}")).await);
    Ok(())
}

pub struct Wrapped(pub u64);

#[distributed_lock(key = "wrapped:<id>", ttl = "60s")]
pub async fn pattern(Wrapped(id): Wrapped) -> Locked<u64> {
    assert!(held("wrapped:4").await);
    Ok(id)
}

pub struct Plain(pub &'static str);

pub trait Work {
    fn work(&self) -> impl Future<Output = Locked<()>> + Send;
}

impl Work for Plain {
    #[distributed_lock(key = "worker:<self.0>", ttl = "60s")]
    async fn work(&self) -> Locked<()> {
        assert!(held("worker:w").await);
        Ok(())
    }
}

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

#[distributed_lock(key = "early:<id>", ttl = "60s")]
pub async fn early(id: u64) -> Locked<&'static str> {
    if held(&format!("early:{id}")).await {
        return Ok("early");
    }
    Ok("late")
}

#[distributed_lock(key = "parse:<text>", ttl = "60s")]
pub async fn parse(text: &str) -> Result<u32, Box<dyn Error + Send + Sync>> {
    assert!(held("parse:x").await);
    let number = text.parse()?;
    Ok(number)
}

pub fn countdown(n: u32) -> Pin<Box<dyn Future<Output = Locked<u32>> + Send>> {
    #[distributed_lock(key = "count:<n>", ttl = "60s")]
    async fn step(n: u32) -> Locked<u32> {
        assert!(held(&format!("count:{n}")).await);
        if n == 0 { Ok(0) } else { Ok(countdown(n - 1).await? + 1) }
    }
    Box::pin(step(n))
}

#[distributed_lock(key = "cell", ttl = "60s")]
pub async fn cell(value: Cell<u32>) -> Locked<u32> {
    value.set(value.get() + 1);
    assert!(held("cell").await);
    Ok(value.get())
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
