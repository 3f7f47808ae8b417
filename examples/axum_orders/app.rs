//! The service: one locked function, its handler, and how its errors are answered.

use std::time::Duration;

use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::http::header::RETRY_AFTER;
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use axum::{Json, Router};
use lockmacro_runtime::{LockError, LockManager, distributed_lock};
use serde::Serialize;
use tokio::time::sleep;

/// The state that all handlers share.
#[derive(Debug, Clone)]
pub struct Shop {
    pub locks: LockManager,
    /// The time of an audit. The audit itself is left out.
    pub audit_takes: Duration,
}

pub fn router(shop: Shop) -> Router {
    Router::new().route("/orders/{id}/audit", post(audit)).with_state(shop)
}

async fn audit(
    State(shop): State<Shop>,
    Path(id): Path<String>,
) -> Result<Json<Receipt>, OrderError> {
    shop.audit_order(&id).await.map(Json)
}

#[derive(Debug, Serialize)]
pub struct Receipt {
    order: String,
    audited: bool,
}

impl Shop {
    /// A client that hangs up drops this future, which releases the lock.
    #[distributed_lock(
        key = "order:<id>",
        ttl = "300s",
        message = "order <id> is being processed: within 300 seconds only one request is allowed",
        manager = self.locks
    )]
    async fn audit_order(&self, id: &str) -> Result<Receipt, OrderError> {
        sleep(self.audit_takes).await;
        Ok(Receipt { order: id.to_owned(), audited: true })
    }
}

/// The errors of a handler; a real one has more.
#[derive(Debug, thiserror::Error)]
pub enum OrderError {
    #[error(transparent)]
    Lock(#[from] LockError),
}

#[derive(Debug, Serialize)]
struct Fault {
    error: String,
}

impl IntoResponse for OrderError {
    fn into_response(self) -> Response {
        let OrderError::Lock(error) = self;
        let status = match error {
            _ if error.is_busy() => StatusCode::LOCKED,
            LockError::Unavailable { .. } => StatusCode::SERVICE_UNAVAILABLE,
            // The caller's fault: an empty order number, or one too long for a key.
            LockError::InvalidKey { .. } => StatusCode::BAD_REQUEST,
            _ => StatusCode::INTERNAL_SERVER_ERROR,
        };
        let retry_after = error.retry_after_secs().map(|secs| [(RETRY_AFTER, secs.to_string())]);
        let fault = if status.is_client_error() {
            // Without the holder, which belongs in our log as well.
            error.message().map_or_else(|| error.to_string(), str::to_owned)
        } else {
            // The faults of our servers belong in our log, not in the answer.
            eprintln!("error: {error}");
            "the order could not be processed, try again later".to_owned()
        };
        (status, retry_after, Json(Fault { error: fault })).into_response()
    }
}
