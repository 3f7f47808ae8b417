//! The rights that docs/reference/servers.md names for a cluster.

use lockmacro_runtime::{LockError, LockManager};
use lockmacro_tests::Cluster;

use crate::{FAILOVER_TTL, Locked, lock, queue_reaches};

const ACCESS: &str = include_str!("../../../docs/reference/servers.md");
const KEY: &str = "order:42";

/// The words of the page that give a user its rights: those for one server, but with the
/// cluster's in the place of those for waiting.
fn rights() -> Vec<&'static str> {
    let line = ACCESS.lines().find(|line| line.starts_with("ACL SETUSER"));
    let grant = line.expect("the page has it").split_whitespace();
    let waiting = ["+subscribe", "+publish", "+pubsub|numsub"];
    let (_, more) = ACCESS.split_once("`+cluster|slots").expect("the page has it");
    let (more, _) = more.split_once('`').expect("the code ends");
    let mut words: Vec<_> = grant.filter(|word| !waiting.contains(word)).collect();
    words.push("+cluster|slots");
    words.extend(more.split_whitespace());
    words
}

fn on_all_nodes(cluster: &Cluster, words: &[&str]) {
    (0..cluster.size()).for_each(|nth| cluster.admin(nth).ask::<()>(words));
}

/// Takes a lock, hands it off, and takes another one while its slot moves.
async fn use_all(cluster: &Cluster, url: &str) -> Result<(), LockError> {
    let (one, other) = (LockManager::connect(url).await?, LockManager::connect(url).await?);
    let guard = lock(&one, KEY).acquire().await?;
    let waiting = tokio::spawn(lock(&other, KEY).wait(FAILOVER_TTL).run(async { Locked::Ok(()) }));
    queue_reaches(cluster, KEY, 1).await;
    guard.release().await?;
    waiting.await.expect("no panic")
}

#[tokio::test]
async fn the_rights_it_names_are_enough() {
    let cluster = Cluster::start(2, 0).await;
    on_all_nodes(&cluster, &rights());
    let url = cluster.url().replace("://", "://shop:password@");
    assert_eq!(use_all(&cluster, &url).await, Ok(()));
    let moving = cluster.begin_to_move(KEY, 1 - cluster.owner(KEY));
    let manager = LockManager::connect(&url).await.expect("there");
    lock(&manager, KEY).acquire().await.expect("free").release().await.expect("still held");
    moving.end();
    for nth in 0..cluster.size() {
        let denied: Vec<redis::Value> = cluster.admin(nth).ask(&["ACL", "LOG"]);
        assert_eq!(denied, [], "something was denied");
    }

    for (right, needed) in [
        ("-cluster|slots", true),
        ("-ssubscribe", false),
        ("-spublish", false),
        ("-pubsub|shardnumsub", false),
    ] {
        on_all_nodes(&cluster, &rights());
        on_all_nodes(&cluster, &["ACL", "SETUSER", "shop", right]);
        let result = use_all(&cluster, &url).await;
        let denied = matches!(result, Err(LockError::AccessDenied { .. }));
        assert_eq!((denied, result.is_ok()), (needed, !needed), "{right}: {result:?}");
    }
}

#[tokio::test]
async fn a_password_holds_for_every_node() {
    let cluster = Cluster::start(2, 0).await;
    on_all_nodes(&cluster, &["ACL", "SETUSER", "default", "resetpass", ">secret"]);
    let error = LockManager::connect(&cluster.url()).await.expect_err("no password");
    assert!(matches!(error, LockError::Authentication { .. }), "{error:?}");
    let url = cluster.url().replace("://", "://:wrong@");
    let error = LockManager::connect(&url).await.expect_err("a wrong password");
    assert!(matches!(error, LockError::Authentication { .. }), "{error:?}");
    assert!(!format!("{error:?} {error}").contains("wrong@"));
    let url = cluster.url().replace("://", "://:secret@");
    let manager = LockManager::connect(&url).await.expect("there");
    for nth in 0..10 {
        lock(&manager, &format!("order:{nth}")).run(async { Locked::Ok(()) }).await.expect("free");
    }
    assert!(!format!("{manager:?}").contains("secret"));
}
