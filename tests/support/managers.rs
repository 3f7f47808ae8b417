//! Managers of a test's own, with a timeout that suits it.

use std::time::Duration;

use lockmacro_runtime::LockManager;

use crate::{Proxy, Server};

/// A manager that waits for the server at `url` for so long.
pub async fn within(timeout: Duration, url: &str) -> LockManager {
    LockManager::builder().timeout(timeout).connect(url).await.expect("the server is there")
}

/// A server, a network in front of it, and a manager on the network.
pub async fn through(timeout: Duration) -> (Server, Proxy, LockManager) {
    let server = Server::start();
    let proxy = Proxy::to(server.port());
    let manager = within(timeout, &proxy.url()).await;
    (server, proxy, manager)
}
