//! A server that has just been started and is still reading its data.

use lockmacro_runtime::__private::Unavailability;
use lockmacro_runtime::LockManager;
use lockmacro_tests::Server;

use crate::{LONG_TTL, becomes_free, keeps_nothing, manager, reason, refusal, within, works};

/// A server that answers `LOADING` for some seconds, with a manager that knew it before.
async fn loading() -> (Server, LockManager, LockManager) {
    let mut server = Server::start();
    let hasty = manager(&server.url()).await;
    let patient = within(LONG_TTL, &server.url()).await;
    works(&hasty).await;
    works(&patient).await;
    keeps_nothing(&server).await;
    let mut admin = server.admin();
    // Uncompressed, so that the server looks up often while it reads.
    admin.configure("rdbcompression", "no");
    for n in 0..1_200 {
        // They end before the test does, so that the server is empty again.
        admin.ask::<()>(&["SET", &format!("ballast:{n}"), &"x".repeat(200), "PX", "60000"]);
    }
    admin.ask::<()>(&["SAVE"]);
    server.kill();
    let slow = ["--key-load-delay", "3000", "--loading-process-events-interval-bytes", "1024"];
    server.restart_with(&slow);
    (server, hasty, patient)
}

#[tokio::test]
async fn a_loading_server_is_waited_for_and_named() {
    let (server, hasty, patient) = loading().await;
    assert_eq!(reason(refusal(&hasty).await), Unavailability::Loading);
    // A caller that has the time gets the lock when the server is ready.
    works(&patient).await;
    works(&hasty).await;
    becomes_free(&server).await;
}
