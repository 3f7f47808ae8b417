//! The suite that judges stores.

use lockmacro_runtime::testing::conformance;

use super::*;

#[tokio::test]
async fn a_single_node_keeps_all_promises_of_a_store() {
    let etcd = Etcd::start().await;
    conformance::run(|| store(&etcd)).await;
}

#[tokio::test]
async fn three_nodes_keep_all_promises_of_a_store() {
    let etcd = Etcd::cluster().await;
    conformance::run(|| store(&etcd)).await;
}
