//! The fence in a write's own transaction, with a real PostgreSQL server.

#[path = "../recipes/fenced_postgres.rs"]
mod recipe;

use lockmacro_runtime::LockManager;
use lockmacro_tests::times::IN_TIME;
use lockmacro_tests::{Postgres, eventually};
use recipe::{RAISE, TABLES, count, grant, sell};

#[tokio::test]
async fn a_late_writer_is_refused_and_changes_nothing() {
    let server = Postgres::start().await;
    let mut db = server.connect().await;
    db.batch_execute(TABLES).await.unwrap();
    let locks = LockManager::isolated_memory();
    let (paused, next) = (grant(&locks).await.unwrap(), grant(&locks).await.unwrap());
    // The first holder may write for as long as nobody else has.
    assert!(sell(&mut db, 1, paused).await.unwrap());
    assert!(count(&db, 90, next).await.unwrap());
    assert!(sell(&mut db, 5, next).await.unwrap());
    assert!(!count(&db, 100, paused).await.unwrap());
    assert!(!sell(&mut db, 50, paused).await.unwrap());
    let row = db.query_one("SELECT amount FROM stock", &[]).await.unwrap();
    assert_eq!(row.get::<_, i64>(0), 85);
}

/// A check before the transaction would let both write.
#[tokio::test]
async fn a_late_writer_waits_for_a_write_in_flight_and_is_refused() {
    let server = Postgres::start().await;
    let (mut newer, mut late) = (server.connect().await, server.connect().await);
    newer.batch_execute(&TABLES.replace(" TEMP ", " ")).await.unwrap();
    let locks = LockManager::isolated_memory();
    let (paused, next) = (grant(&locks).await.unwrap(), grant(&locks).await.unwrap());
    let write = newer.transaction().await.unwrap();
    assert_eq!(write.execute(RAISE, &[&i64::from(next)]).await.unwrap(), 1);

    let late = tokio::spawn(async move { sell(&mut late, 50, paused).await });
    let observer = server.connect().await;
    eventually("the late one waits", IN_TIME, || async {
        let waits = "SELECT FROM pg_stat_activity WHERE wait_event_type = 'Lock'";
        observer.query(waits, &[]).await.is_ok_and(|rows| rows.len() == 1)
    })
    .await;
    write.commit().await.unwrap();
    assert!(!late.await.unwrap().unwrap(), "the late one has written");
}
