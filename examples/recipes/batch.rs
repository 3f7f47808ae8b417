//! A batch: the orders that are busy are reported, and the others are done.
//!
//! `cargo run -p lockmacro-recipes --example batch`

use lockmacro_runtime::{Lock, LockError, LockManager, distributed_lock};

#[distributed_lock(key = "order:<id>", ttl = "300s", message = "order <id> is being processed")]
async fn audit(id: u64) -> Result<u64, LockError> {
    Ok(id)
}

/// What became of a batch: the orders that were done, and the messages for the others.
#[derive(Debug, Default)]
struct Report {
    done: Vec<u64>,
    busy: Vec<String>,
}

/// Ends at the first error that is not about one order, such as a server that is down.
async fn audit_all(ids: &[u64]) -> Result<Report, LockError> {
    let mut report = Report::default();
    for id in ids {
        match audit(*id).await {
            Ok(id) => report.done.push(id),
            Err(error) if error.is_busy() => {
                report.busy.push(error.message().unwrap_or_default().to_owned());
            }
            Err(error) => return Err(error),
        }
    }
    Ok(report)
}

#[tokio::main]
async fn main() -> Result<(), LockError> {
    LockManager::connect("memory://").await?.install()?; // or "redis://…"
    let held = Lock::new("order:2").acquire().await?;
    let report = audit_all(&[1, 2, 3]).await?;
    println!("{report:?}");
    assert_eq!(report.done, [1, 3]);
    assert_eq!(report.busy, ["order 2 is being processed"]);
    held.release().await
}

#[test]
fn a_busy_order_is_reported_and_the_rest_go_on() {
    assert_eq!(main(), Ok(()));
}
