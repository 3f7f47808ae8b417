//! Renewal ends with the lock, however that ends.

use std::future::ready;
use std::panic::AssertUnwindSafe;
use std::time::Duration;

use futures::FutureExt;
use lockmacro_runtime::LockManager;
use lockmacro_tests::{Admin, Fault, Proxy, Server, eventually, in_time, on_a_plain_thread};

use crate::{LONG_TTL, Locked, SOON, connect, ms, outlast, renewed, served, warm_up, within};

/// It outlasts two seconds in which a loaded machine renews nothing.
const TTL: Duration = Duration::from_secs(3);

/// No script runs any more for longer than a renewal would take to come, and nothing is left.
async fn is_quiet(server: &Server, how: &str) {
    let mut admin = server.admin();
    let free = || ready(admin.keys().is_empty());
    eventually("the key is released", SOON, free).await;
    admin.forget_calls();
    // A renewal would come after a third of the ttl.
    outlast(TTL / 2).await;
    let calls: Vec<_> =
        admin.calls().into_iter().filter(|(name, _)| name.starts_with("eval")).collect();
    assert_eq!(calls, [], "after a {how}");
}

/// Waits until the server has carried out a renewal: nothing else calls a script here.
async fn renewal(admin: &mut Admin) {
    admin.forget_calls();
    let renewed = || ready(admin.calls().iter().any(|(name, _)| name == "evalsha"));
    eventually("it is renewed", SOON, renewed).await;
}

/// A manager that waits for an answer as long as a loaded machine needs, and sends nothing twice.
async fn patient(server: &Server) -> LockManager {
    let manager = within(LONG_TTL, &server.url()).await;
    warm_up(&manager).await;
    manager
}

#[tokio::test]
async fn nothing_is_renewed_after_a_release_a_drop_or_a_panic() {
    let server = Server::start();
    let manager = patient(&server).await;
    let mut admin = server.admin();
    let lock = || renewed(&manager, "order:42", TTL);

    let guard = lock().acquire().await.expect("free");
    renewal(&mut admin).await;
    guard.release().await.expect("ours");
    is_quiet(&server, "release").await;

    let guard = lock().acquire().await.expect("free");
    renewal(&mut admin).await;
    let shared = guard.handle();
    drop(guard);
    is_quiet(&server, "drop").await;
    assert!(!shared.is_held(), "one that looks at it does not keep it");

    let body = lock().run(async {
        renewal(&mut server.admin()).await;
        assert!(TTL > LONG_TTL, "as planned");
        Locked::Ok(())
    });
    AssertUnwindSafe(body).catch_unwind().await.expect_err("it panics");
    is_quiet(&server, "panic").await;

    let body = lock().run(std::future::pending::<Locked<()>>());
    tokio::select! {
        _ = body => panic!("it ended"),
        () = renewal(&mut admin) => {}
    }
    is_quiet(&server, "cancelled body").await;
}

#[tokio::test]
async fn nothing_is_renewed_after_a_runtime_or_a_manager_has_ended() {
    let server = Server::start();
    let manager = patient(&server).await;
    let mut admin = server.admin();
    for multi in [false, true] {
        let lock = renewed(&manager, "order:42", TTL);
        let (end, ended) = tokio::sync::oneshot::channel::<()>();
        let living = on_a_plain_thread(move || {
            let mut builder = if multi {
                tokio::runtime::Builder::new_multi_thread()
            } else {
                tokio::runtime::Builder::new_current_thread()
            };
            let runtime = builder.enable_all().build().expect("a runtime");
            runtime.spawn(lock.run(std::future::pending::<Locked<()>>()));
            let _ = runtime.block_on(ended);
            runtime.shutdown_background();
        });
        let ending = async {
            let held = || ready(admin.ttl("order:42").is_some());
            eventually("the body begins", SOON, held).await;
            renewal(&mut admin).await;
            end.send(()).expect("the runtime lives");
        };
        tokio::join!(living, ending);
        is_quiet(&server, "runtime's end").await;
    }
    let guard = renewed(&manager, "order:42", TTL).acquire().await.expect("free");
    drop(manager);
    renewal(&mut admin).await;
    guard.check().expect("a guard outlives the last handle of its manager");
    drop(guard);
    is_quiet(&server, "manager's end").await;
}

#[tokio::test]
async fn a_manager_that_is_shut_down_renews_what_is_still_held() {
    let (server, manager) = served().await;
    let guard = renewed(&manager, "order:42", TTL).acquire().await.expect("free");
    manager.shutdown(ms(10)).await.expect_err("it is still held");
    outlast(2 * TTL).await;
    guard.check().expect("renewed");
    guard.release().await.expect("ours");
    is_quiet(&server, "shutdown").await;
}

/// The key is kept by `min_hold`, while a renewal of it waits for an answer that does not come.
#[tokio::test]
async fn a_renewal_in_flight_does_not_lift_what_was_released_and_is_not_sent_again() {
    let server = Server::start();
    let proxy = Proxy::to(server.port());
    let manager = connect(&proxy.url()).await;
    warm_up(&manager).await;
    let job = renewed(&manager, "job", ms(5_000)).min_hold(ms(4_000));
    proxy.on_next("EVALSHA", Fault::LoseReply);
    let done = in_time(job.run(async {
        eventually("a renewal is in flight", SOON, async || proxy.orders_are_done()).await;
        Locked::Ok(())
    }));
    done.await.expect("held");
    let mut admin = server.admin();
    let kept = admin.ttl("job").expect("kept for the rest of min_hold");
    assert!(kept < ms(2_700), "{kept:?}");
    admin.forget_calls();
    // The renewal learns that its connection is gone, and there is a new one to be had: in less
    // time than this.
    proxy.cut();
    outlast(ms(100)).await;
    let calls = admin.calls();
    assert!(!calls.iter().any(|(name, _)| name.starts_with("eval")), "{calls:?}");
    let after = admin.ttl("job");
    assert!(after.is_some_and(|after| after < kept), "{after:?} after {kept:?}");
}
