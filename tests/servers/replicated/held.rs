//! A renewal counts for no longer than replicas know of.

use lockmacro_runtime::LossCause;
use lockmacro_tests::{in_time, with_replicas};

use crate::*;

#[tokio::test]
async fn a_renewal_that_replicas_acknowledge_keeps_the_lock() {
    let servers = with_replicas(1).await;
    let manager = manager(&servers[0], 1).await;
    let ttl = ms(3_000);
    let guard = lock(&manager).ttl(ttl).renew().acquire().await.expect("free");
    let mut replica = servers[1].admin();
    let token = replica.get(KEY).expect("acknowledged");
    let end = |replica: &mut lockmacro_tests::Admin| -> i64 { replica.ask(&["PEXPIRETIME", KEY]) };
    let first = end(&mut replica);
    eventually("the replica has it renewed for longer than the first ttl", FAILOVER, || {
        std::future::ready(end(&mut replica) > first + 3_000)
    })
    .await;
    assert_eq!(guard.check(), Ok(()));
    assert_eq!(replica.get(KEY), Some(token));
    guard.release().await.expect("held");
}

#[tokio::test]
async fn a_lock_is_lost_when_replicas_know_of_no_renewal() {
    let servers = with_replicas(1).await;
    let manager = patient(&servers[0], 1, ms(750)).await;
    let guard = lock(&manager).ttl(ms(3_000)).renew().acquire().await.expect("free");
    servers[1].pause();
    let lost = in_time(guard.lost()).await;
    assert_eq!(lost.cause(), LossCause::NotRenewed);
    // The primary would have kept it.
    assert!(servers[0].admin().get(KEY).is_some());
    drop(guard);
    keeps_nothing(&servers[0]).await;
}

#[tokio::test]
async fn an_extension_counts_when_replicas_acknowledge_it() {
    let servers = with_replicas(1).await;
    let manager = patient(&servers[0], 1, ms(1_000)).await;
    let guard = lock(&manager).acquire().await.expect("free");
    guard.extend(FAILOVER_TTL * 2).await.expect("acknowledged");
    assert!(guard.remaining() > FAILOVER_TTL);
    servers[1].pause();
    assert_eq!(short(guard.extend(FAILOVER_TTL * 4).await), (0, 1));
    let left = servers[0].admin().ttl(KEY).expect("held");
    assert!(left > FAILOVER_TTL * 3, "the primary counts on");
    assert!(guard.is_held() && guard.remaining() < FAILOVER_TTL * 2);
    // Nothing is lengthened by this one, and no replica knows of the end that it relies on.
    assert_eq!(short(guard.extend(FAILOVER_TTL * 3).await), (0, 1));
    servers[0].admin().ask::<i64>(&["CLIENT", "KILL", "TYPE", "normal"]);
    assert_eq!(short(guard.extend(FAILOVER_TTL * 3).await), (0, 1));
    assert!(guard.remaining() < FAILOVER_TTL * 2);
    servers[1].resume();
    guard.extend(FAILOVER_TTL * 3).await.expect("acknowledged");
    assert!(guard.remaining() > FAILOVER_TTL * 2);
    guard.release().await.expect("held");
}
