//! A server that is stopped for a while: its connections stay open, and nothing is answered.

use lockmacro_runtime::{Lock, LockError, LossCause, UnavailableReason};
use lockmacro_tests::times::{LONG_TTL, ms};
use lockmacro_tests::{Postgres, eventually, until_lost, within};

use crate::{Locked, TIMEOUT, is_waited_for, lock, manager, reason, refusal};

#[tokio::test]
async fn a_stopped_server_is_no_lock_that_somebody_holds_and_all_goes_on_after_it() {
    let server = Postgres::start().await;
    let (ours, theirs) = (within(TIMEOUT, &server.url()).await, manager(&server.url()).await);
    let client = server.connect().await;
    let guard = lock(&theirs, "stopped").acquire().await.expect("free");
    let held = lock(&theirs, "stopped: held").acquire().await.expect("free");
    let waiting = tokio::spawn(lock(&ours, "stopped").wait(LONG_TTL).run(async { Locked::Ok(7) }));
    is_waited_for(&client, "stopped").await;
    // Longer than the stop, or not at all.
    let short = Lock::new("stopped: short").ttl(ms(1_000)).renew().manager(&ours);
    let short = tokio::spawn(short.run(async {
        until_lost().await;
        Locked::Ok(())
    }));
    eventually("it is held", LONG_TTL, || async {
        crate::holder(&client, "stopped: short").await.is_some()
    })
    .await;
    server.pause();
    for key in ["stopped: held", "stopped: free"] {
        let error = refusal(&ours, key).await;
        assert_eq!(reason(&error), UnavailableReason::Timeout, "{error}");
    }
    match short.await.expect("no panic") {
        Err(LockError::Lost(lost)) => assert_eq!(lost.cause(), LossCause::NotRenewed),
        other => panic!("not lost: {other:?}"),
    }
    assert!(guard.is_held() && !waiting.is_finished());
    server.resume();
    assert!(lock(&theirs, "stopped: free").acquire().await.is_ok(), "it goes on");
    guard.release().await.expect("still held");
    held.release().await.expect("still held");
    assert_eq!(waiting.await.expect("no panic"), Ok(7));
    let again = || async { lock(&ours, "stopped").run(async { Locked::Ok(8) }).await == Ok(8) };
    eventually("it works again", LONG_TTL, again).await;
    server.keeps_nothing("stopped").await;
}
