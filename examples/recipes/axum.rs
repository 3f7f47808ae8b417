//! A web handler: 423 Locked with `Retry-After` while another request is at the same order, and
//! 503 when the lock server is down: the feature `axum` makes responses of errors.
//!
//! `cargo run -p lockmacro-recipes --example axum`, then twice at once:
//! `curl -i -X POST localhost:3000/orders/42/audit`

use axum::{Router, extract::Path, routing::post};
use lockmacro_runtime::{LockError, LockManager, distributed_lock};
use tokio::{net::TcpListener, time::Duration, time::sleep};

#[distributed_lock(key = "order:<id>", ttl = "300s", message = "order <id> is being processed")]
async fn audit(Path(id): Path<u64>) -> Result<String, LockError> {
    sleep(Duration::from_millis(500)).await; // the work
    Ok(format!("order {id} is audited"))
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let locks = LockManager::connect("memory://").await?; // or "redis://…"
    locks.install()?;
    let listener = TcpListener::bind("127.0.0.1:3000").await?;
    let router = Router::new().route("/orders/{id}/audit", post(audit));
    Ok(axum::serve(listener, router).await?)
}

#[tokio::test]
async fn the_second_request_is_told_when_to_come_again() {
    use axum::http::{StatusCode, header::RETRY_AFTER};
    use axum::response::IntoResponse as _;

    let order = || audit(Path(42));
    let (one, other) =
        LockManager::isolated_memory().scope(async { tokio::join!(order(), order()) }).await;
    assert_eq!(one.into_response().status(), StatusCode::OK);
    let refused = other.into_response();
    assert_eq!(refused.status(), StatusCode::LOCKED);
    assert!(refused.headers().contains_key(RETRY_AFTER));
}
