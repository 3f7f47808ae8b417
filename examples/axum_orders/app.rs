//! The service: one locked function, and its handler. With the feature `axum`, a `LockError` is a
//! response: its status, `Retry-After` where a time is known, and the message.

use std::time::Duration;

use axum::extract::{Path, State};
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
) -> Result<Json<Receipt>, LockError> {
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
    async fn audit_order(&self, id: &str) -> Result<Receipt, LockError> {
        sleep(self.audit_takes).await;
        Ok(Receipt { order: id.to_owned(), audited: true })
    }
}
