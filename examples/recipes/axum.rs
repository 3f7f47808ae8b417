//! A web handler: 423 Locked with `Retry-After` while another request is at the same order.
//!
//! `cargo run -p lockmacro-recipes --example axum`, then twice at once:
//! `curl -i -X POST localhost:3000/orders/42/audit`

use axum::response::{IntoResponse, Response};
use axum::{Router, routing::post};
use axum::{extract::Path, http::StatusCode, http::header::RETRY_AFTER};
use lockmacro_runtime::{LockError, LockManager, distributed_lock};
use tokio::{net::TcpListener, time::Duration, time::sleep};

struct OrderError(LockError);

impl From<LockError> for OrderError {
    fn from(error: LockError) -> Self {
        Self(error)
    }
}

impl IntoResponse for OrderError {
    fn into_response(self) -> Response {
        let status = match &self.0 {
            error if error.is_busy() => StatusCode::LOCKED,
            error if error.is_unavailable() => StatusCode::SERVICE_UNAVAILABLE,
            _ => StatusCode::INTERNAL_SERVER_ERROR,
        };
        let retry_after = self.0.retry_after_secs().map(|secs| [(RETRY_AFTER, secs.to_string())]);
        let message = self.0.message().unwrap_or_default().to_owned();
        (status, retry_after, message).into_response()
    }
}

#[distributed_lock(key = "order:<id>", ttl = "300s", message = "order <id> is being processed")]
async fn audit(Path(id): Path<u64>) -> Result<String, OrderError> {
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
    let order = || audit(Path(42));
    let (one, other) = LockManager::memory().scope(async { tokio::join!(order(), order()) }).await;
    assert_eq!(one.into_response().status(), StatusCode::OK);
    let refused = other.into_response();
    assert_eq!(refused.status(), StatusCode::LOCKED);
    assert!(refused.headers().contains_key(RETRY_AFTER));
}
