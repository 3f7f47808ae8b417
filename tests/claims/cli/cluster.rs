//! Locks on the primaries of a cluster.

use lockmacro_tests::Cluster;

use super::*;

#[tokio::test]
async fn the_locks_of_every_primary_are_shown() {
    let cluster = Cluster::start(3, 0).await;
    let locks = LockManager::builder().label("desk").connect(&cluster.url()).await.unwrap();
    let mut held = Vec::new();
    for nth in 0..30 {
        held.push(hold(&locks, &format!("order:{nth}")).await);
    }
    let said = tool_at(&cluster.url(), &["--json", "locks"]).await.json();
    assert_eq!(said["locks"].as_array().unwrap().len(), 30);
    let words = ["release", "order:7", "--force", "--yes"];
    assert_eq!(tool_at(&cluster.url(), &words).await.code, Some(0));
    assert!(locks.inspector().lock("order:7").await.unwrap().is_none());
    // One node alone does not have them all.
    let one = format!("redis://127.0.0.1:{}", cluster.url().rsplit(':').next().unwrap());
    let part = LockManager::connect(&one).await.unwrap().inspector().locks("*", 100).await.unwrap();
    assert!((1..29).contains(&part.items.len()), "{}", part.items.len());
}
