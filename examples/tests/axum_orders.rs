//! The web service, called by a real HTTP client.

#[path = "../axum_orders/app.rs"]
mod app;

use std::time::Duration;

use lockmacro_runtime::{Lock, LockManager};
use lockmacro_tests::Server;
use reqwest::{Client, Response, StatusCode};
use tokio::net::TcpListener;

use app::{Shop, router};

/// Serves on a free port, and returns the address.
async fn serve(locks: LockManager, audit_takes: Duration) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let app = router(Shop { locks, audit_takes });
    tokio::spawn(async move { axum::serve(listener, app).await });
    format!("http://{address}")
}

async fn audit(address: &str, order: &str) -> Response {
    // No proxy: the environment may name one, and this is our own machine.
    let client = Client::builder().no_proxy().build().unwrap();
    client.post(format!("{address}/orders/{order}/audit")).send().await.unwrap()
}

fn retry_after(response: &Response) -> Option<u64> {
    response.headers().get("retry-after")?.to_str().ok()?.parse().ok()
}

#[tokio::test]
async fn two_requests_for_one_order_are_one_ok_and_one_locked_then_it_is_free() {
    let address = serve(LockManager::isolated_memory(), Duration::from_millis(500)).await;
    assert_eq!(audit(&address, "41").await.status(), StatusCode::OK);

    // The second request is refused while the first one is at work.
    let (one, other) = (audit(&address, "42"), audit(&address, "42"));
    tokio::pin!(one, other);
    let (first, second) = tokio::select! {
        first = &mut one => (first, other.await),
        first = &mut other => (first, one.await),
    };
    assert_eq!(first.status(), StatusCode::LOCKED);
    // The audit of another order took half a second, and not the ttl of 300.
    assert!(matches!(retry_after(&first), Some(1..=5)), "{:?}", first.headers());
    assert_eq!(
        first.text().await.unwrap(),
        "order 42 is being processed: within 300 seconds only one request is allowed"
    );
    assert_eq!(second.status(), StatusCode::OK);
    assert_eq!(second.text().await.unwrap(), r#"{"order":"42","audited":true}"#);

    assert_eq!(audit(&address, "42").await.status(), StatusCode::OK);
}

#[tokio::test]
async fn an_order_that_another_process_holds_is_locked_until_it_is_released() {
    let server = Server::start();
    let ours = LockManager::connect(&server.url()).await.unwrap();
    let theirs = LockManager::connect(&server.url()).await.unwrap();
    let address = serve(ours, Duration::ZERO).await;
    let lock = Lock::new("order:订单7").ttl(Duration::from_secs(30)).manager(&theirs);
    let held = lock.acquire().await.unwrap();

    let locked = audit(&address, "订单7").await;
    assert_eq!(locked.status(), StatusCode::LOCKED);
    assert!(matches!(retry_after(&locked), Some(1..=30)), "{:?}", locked.headers());
    assert_eq!(audit(&address, "8").await.status(), StatusCode::OK);

    held.release().await.unwrap();
    assert_eq!(audit(&address, "订单7").await.status(), StatusCode::OK);
}

#[tokio::test]
async fn a_foreign_lock_without_expiry_is_asked_for_again_as_any_other() {
    let server = Server::start();
    let address = serve(LockManager::connect(&server.url()).await.unwrap(), Duration::ZERO).await;
    server.admin().ask::<()>(&["SET", "order:42", "by hand"]);
    let locked = audit(&address, "42").await;
    assert_eq!((locked.status(), retry_after(&locked)), (StatusCode::LOCKED, Some(5)));
}

#[tokio::test]
async fn a_server_that_is_down_is_not_a_busy_order() {
    let mut server = Server::start();
    let locks = LockManager::builder().timeout(Duration::from_millis(200));
    let address = serve(locks.connect(&server.url()).await.unwrap(), Duration::ZERO).await;
    server.kill();
    let down = audit(&address, "42").await;
    assert_eq!((down.status(), retry_after(&down)), (StatusCode::SERVICE_UNAVAILABLE, None));
    let text = down.text().await.unwrap();
    assert!(text.contains("try again later") && !text.contains("refused"), "{text}");
}

#[tokio::test]
async fn nodes_without_a_majority_are_no_busy_order() {
    let mut nodes: Vec<_> = (0..3).map(|_| Server::start()).collect();
    let places: Vec<_> = nodes.iter().map(|node| format!("127.0.0.1:{}", node.port())).collect();
    let url = format!("redlock://{}?durable", places.join(","));
    let address = serve(LockManager::connect(&url).await.unwrap(), Duration::ZERO).await;
    nodes[..2].iter_mut().for_each(Server::kill);
    assert_eq!(audit(&address, "42").await.status(), StatusCode::SERVICE_UNAVAILABLE);
}

#[tokio::test]
async fn an_order_number_that_is_no_key_is_a_bad_request() {
    let address = serve(LockManager::isolated_memory(), Duration::ZERO).await;
    let response = audit(&address, &"9".repeat(2_000)).await;
    assert_eq!(response.status(), StatusCode::BAD_REQUEST);
}
