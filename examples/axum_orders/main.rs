//! A web service whose handlers call a locked function: 423 Locked with `Retry-After` while another
//! request is at the same order.
//!
//! ```text
//! cargo run --example axum_orders                   # or with REDIS_URL=redis://127.0.0.1
//! curl -i -X POST localhost:3000/orders/42/audit &  # takes 5 seconds
//! curl -i -X POST localhost:3000/orders/42/audit    # 423 Locked
//! ```

mod app;

use std::process::ExitCode;
use std::time::Duration;

use lockmacro_runtime::LockManager;
use tokio::net::TcpListener;

use crate::app::{Shop, router};

#[tokio::main]
async fn main() -> ExitCode {
    match serve().await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

async fn serve() -> Result<(), Box<dyn std::error::Error>> {
    let url = std::env::var("REDIS_URL").unwrap_or_else(|_| "memory://".to_owned());
    let address = std::env::var("LISTEN").unwrap_or_else(|_| "127.0.0.1:3000".to_owned());
    let locks = LockManager::connect(&url).await?;
    let shop = Shop { locks: locks.clone(), audit_takes: Duration::from_secs(5) };

    let listener = TcpListener::bind(&address).await?;
    eprintln!("listening on http://{}", listener.local_addr()?);
    axum::serve(listener, router(shop))
        .with_graceful_shutdown(async {
            // Without the signal there is no end to wait for; ^C then ends the process as ever.
            if tokio::signal::ctrl_c().await.is_err() {
                std::future::pending().await
            }
        })
        .await?;
    // The locks of cancelled requests are released before the process ends.
    locks.shutdown(Duration::from_secs(5)).await?;
    Ok(())
}
