//! The stores of this crate, and one that is written with the public trait alone, keep what the suite
//! asks for.

use std::time::{Duration, Instant};

use lockmacro_runtime::store::StoreLimits;
use lockmacro_runtime::testing::conformance::{self, builtin::Builtin};
use lockmacro_tests::{Postgres, Server};

use crate::table::Table;

/// Longest time for a store with a ttl of a second.
const LONGEST: Duration = Duration::from_secs(30);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_table_with_the_public_trait_alone_keeps_all_promises() {
    let start = Instant::now();
    let table = Table::default();
    conformance::run(|| async { table.clone() }).await;
    println!("a table of one's own: {:.1?}", start.elapsed());
    assert!(start.elapsed() < LONGEST);
}

/// Each claim has as much more time as its leases take.
#[tokio::test]
async fn a_store_with_a_long_shortest_ttl_keeps_all_promises() {
    let limits = StoreLimits::default().fences().shortest_ttl(Duration::from_secs(5));
    let table = Table::limited(limits);
    conformance::run(|| async { table.clone() }).await;
}

#[tokio::test]
async fn memory_keeps_all_promises_through_the_same_door() {
    through_the_same_door("memory://").await;
}

#[tokio::test]
async fn redis_keeps_all_promises_through_the_same_door() {
    let server = Server::start();
    through_the_same_door(&server.url()).await;
}

#[tokio::test]
async fn postgres_keeps_all_promises_through_the_same_door() {
    let server = Postgres::start().await;
    through_the_same_door(&server.url()).await;
}

async fn through_the_same_door(url: &str) {
    let start = Instant::now();
    conformance::run(|| async { Builtin::at(url).expect("a url") }).await;
    println!("{url}: {:.1?}", start.elapsed());
    assert!(start.elapsed() < LONGEST);
}
