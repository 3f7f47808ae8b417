//! How renewals gather into statements.

use std::time::Duration;

use futures::future::join_all;
use lockmacro_runtime::Lock;
use lockmacro_tests::times::{LONG_TTL, TEST_TIMEOUT};
use lockmacro_tests::{Postgres, eventually};
use tokio::time::Instant;

use crate::manager;

/// The rows that a statement has changed have the number of its transaction.
#[tokio::test]
async fn leases_that_are_due_about_the_same_time_are_renewed_by_few_statements() {
    const LEASES: i64 = 50;
    let server = Postgres::start().await;
    let (ours, client) = (manager(&server.url()).await, server.connect().await);
    let lock = |nth| {
        let lock = Lock::new(format!("gathers: {nth}")).ttl(Duration::from_secs(10));
        lock.renew().manager(&ours).acquire()
    };
    let guards = join_all((0..LEASES).map(lock)).await;
    let statements = async || {
        let all = "SELECT count(DISTINCT xmin::text), min(extract(epoch FROM ends))::float8
            FROM lm1.lease";
        let row = client.query_one(all, &[]).await.expect("an answer");
        (row.get::<_, i64>(0), row.get::<_, f64>(1))
    };
    let (granted, first) = statements().await;
    assert_eq!(granted, LEASES, "each by a statement of its own");
    eventually("all are renewed", TEST_TIMEOUT, || async { statements().await.1 > first + 2.0 })
        .await;
    let (renewed, _) = statements().await;
    assert!(renewed < LEASES / 5, "{renewed} statements");
    for guard in guards {
        guard.expect("free").release().await.expect("still held");
    }
}

#[tokio::test]
async fn an_extension_waits_for_no_other_renewals() {
    let server = crate::shared().await;
    let ours = manager(&server.url()).await;
    let guard = crate::lock(&ours, "prompt").acquire().await.expect("free");
    let start = Instant::now();
    // Each would wait for 250 ms.
    for _ in 0..40 {
        guard.extend(LONG_TTL).await.expect("still held");
    }
    assert!(start.elapsed() < Duration::from_secs(5), "{:?}", start.elapsed());
    guard.release().await.expect("still held");
}
