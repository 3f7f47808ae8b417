//! A pooler of transactions between the managers and the server.

use futures::future::join_all;
use lockmacro_runtime::Lock;
use lockmacro_tests::times::{LONG_TTL, POLLED, ms};
use lockmacro_tests::{Pooler, within};
use tokio::time::{Instant, timeout};

use crate::{Room, is_renewed, is_waited_for, lock, manager, shared, works};

#[tokio::test]
async fn locks_renewals_and_releases_work_through_a_pooler_and_waiters_are_served_by_asking() {
    let server = shared().await;
    works(&manager(&server.url()).await, "pooled").await;
    let pooler = Pooler::to(&server, 3).await;
    let (ours, theirs) =
        (within(LONG_TTL, &pooler.url()).await, within(LONG_TTL, &pooler.url()).await);
    let client = server.connect().await;
    let room = Room::default();
    let held = Lock::new("pooled").ttl(ms(9_000)).renew().manager(&ours);
    let (guard, fences) = held.acquire_fenced().await.expect("free");
    room.visit(fences[0]).await;
    is_renewed(&client, "pooled").await;
    let waiting = tokio::spawn(lock(&theirs, "pooled").wait(LONG_TTL).acquire_fenced());
    is_waited_for(&client, "pooled").await;
    let start = Instant::now();
    guard.release().await.expect("still held");
    let (guard, fences) = waiting.await.expect("no panic").expect("its turn");
    assert!(start.elapsed() < POLLED, "{:?}", start.elapsed());
    room.visit(fences[0]).await;
    guard.release().await.expect("still held");
    let calls = join_all((0..24).map(|nth| {
        let manager = if nth % 2 == 0 { &ours } else { &theirs };
        async move {
            let key = format!("pooled: {}", nth % 12);
            let waiting = lock(manager, &key).wait(LONG_TTL).acquire();
            waiting.await.expect("its turn").release().await.expect("still held");
        }
    }));
    timeout(LONG_TTL, calls).await.expect("all are served");
    server.keeps_nothing("pooled").await;
}
