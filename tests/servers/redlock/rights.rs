//! The rights that docs/reference/servers.md names for the nodes.

use lockmacro_runtime::{Lock, LockManager};
use lockmacro_tests::{Admin, Server};

use crate::{IN_TIME, KEY, LONG_TTL, Nodes, connected, lock, ms};

const ACCESS: &str = include_str!("../../../docs/reference/servers.md");

fn denied(nodes: &Nodes) -> usize {
    let log = |mut admin: Admin| admin.ask::<Vec<redis::Value>>(&["ACL", "LOG"]).len();
    nodes.0.iter().map(Server::admin).map(log).sum()
}

#[tokio::test]
async fn the_rights_it_names_are_enough() {
    let nodes = Nodes::start(3);
    let line = ACCESS.lines().find(|line| line.starts_with("ACL SETUSER"));
    assert!(ACCESS.contains("`+info`"));
    let rights: Vec<_> = line.expect("the page has it").split_whitespace().collect();
    let rights = [&rights[..], &["+info"]].concat();
    nodes.0.iter().for_each(|node| node.admin().ask::<()>(&rights));
    let urls = nodes.0.iter().map(|node| node.url_as("shop", "password")).collect();
    let builder = LockManager::builder().durable().timeout(IN_TIME * 4).node_timeout(IN_TIME);
    let manager = connected(builder, urls).await;
    let guard = lock(&manager).fenced().acquire().await.expect("free");
    guard.extend(LONG_TTL).await.expect("ours");
    let error = lock(&manager).wait(ms(50)).acquire().await.expect_err("held");
    assert!(error.is_busy(), "{error}");
    guard.release().await.expect("ours");
    let kept = Lock::new(KEY).ttl(LONG_TTL).min_hold(ms(50)).manager(&manager);
    kept.acquire().await.expect("free").release().await.expect("ours");
    let several = Lock::many([KEY, "order:43"]).ttl(LONG_TTL).wait(IN_TIME).manager(&manager);
    several.acquire().await.expect("free in the end").release().await.expect("ours");
    assert_eq!(denied(&nodes), 0);
}
