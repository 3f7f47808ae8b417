//! What locks that are waited for, and those that are held, cost the server: transactions that it
//! commits, one for each statement.

use std::time::Duration;

use futures::future::try_join_all;
use futures::stream::{self, StreamExt, TryStreamExt};
use lockmacro_runtime::{Lock, LockError, LockGuard, LockManager};
use lockmacro_tests::Postgres;
use tokio::time::sleep;
use tokio_postgres::Client;

use super::row;
use crate::Failure;

const WAITERS: u32 = 100;
const LEASES: u32 = 10_000;
const TTL: Duration = Duration::from_secs(10);
/// How long the server and its waiters are watched, and its leases.
const WATCHED: Duration = Duration::from_secs(10);
const RENEWED: Duration = Duration::from_secs(20);
/// A connection that has become idle reports its last commits after ten seconds.
const REPORTED: Duration = Duration::from_millis(10_500);

pub async fn run(server: &Postgres) -> Result<(), Failure> {
    let client = server.connect().await;
    sleep(REPORTED).await;
    let idle = commits(&client, WATCHED).await?;
    println!("\n| | statements a second |\n|:--|---:|");
    println!("| an idle server, taken off below | {idle:.1} |");
    let waiting = waiting(server, &client).await? - idle;
    println!("| {WAITERS} waiters of one key in one process | {waiting:.1} |");
    leases(server, &client, idle).await
}

/// Commits a second, while this time passes.
async fn commits(client: &Client, time: Duration) -> Result<f64, Failure> {
    let count = "SELECT xact_commit FROM pg_stat_database WHERE datname = current_database()";
    let before: i64 = row(client, count).await?.get(0);
    sleep(time).await;
    let after: i64 = row(client, count).await?.get(0);
    Ok((after - before) as f64 / time.as_secs_f64())
}

/// Commits a second, while many callers of one process wait for a key.
async fn waiting(server: &Postgres, client: &Client) -> Result<f64, Failure> {
    // The holder is like one of another process, as it has another manager.
    let (locks, other) =
        (LockManager::connect(&server.url()).await?, LockManager::connect(&server.url()).await?);
    let lock = || Lock::new("bench:awaited").ttl(10 * TTL).wait_forever();
    let holder = lock().manager(&other).acquire().await?;
    let waiters = (0..WAITERS)
        .map(|_| tokio::spawn(lock().manager(&locks).run(async { Ok::<_, LockError>(()) })));
    let waiters: Vec<_> = waiters.collect();
    sleep(REPORTED).await;
    let commits = commits(client, WATCHED).await?;
    holder.release().await?;
    try_join_all(waiters).await?.into_iter().collect::<Result<(), _>>()?;
    other.shutdown(TTL).await?;
    locks.shutdown(TTL).await?;
    Ok(commits)
}

/// Many leases that one manager renews. Fails when one is missed.
async fn leases(server: &Postgres, client: &Client, idle: f64) -> Result<(), Failure> {
    // With tables of its own, whose rows are counted.
    let url = server.url_of("postgres", "install=1&schema=leases");
    let locks = LockManager::connect(&url).await?;
    let locked = (0..LEASES)
        .map(|nth| Lock::new(format!("bench:{nth}")).ttl(TTL).renew().manager(&locks).acquire());
    let guards: Vec<_> = stream::iter(locked).buffer_unordered(256).try_collect().await?;
    sleep(REPORTED).await;
    let before = updates(client).await?;
    let commits = commits(client, RENEWED).await? - idle;
    let after = updates(client).await?;
    let missed = stream::iter(guards).map(LockGuard::release).buffer_unordered(256);
    let missed = missed.filter(|end| std::future::ready(end.is_err())).count().await;
    locks.shutdown(TTL).await?;

    let (all, hot) = ((after[0] - before[0]) as f64, (after[1] - before[1]) as f64);
    println!("| {LEASES} leases of {TTL:?}, renewed by one manager | {commits:.1} |");
    println!("\n| the rows of these leases | |\n|:--|---:|");
    println!("| updates a second | {:.0} |", all / RENEWED.as_secs_f64());
    println!("| heap-only (HOT) | {:.2} % |", 100.0 * hot / all);
    println!("| dead rows at the end | {} |", after[2]);
    (missed == 0).then_some(()).ok_or_else(|| format!("{missed} leases were missed").into())
}

/// Updates of the leases' rows, those of them that wrote to no index, and dead rows.
async fn updates(client: &Client) -> Result<[i64; 3], Failure> {
    let counts = "SELECT n_tup_upd, n_tup_hot_upd, n_dead_tup FROM pg_stat_user_tables
        WHERE schemaname = 'leases' AND relname = 'lease'";
    let row = row(client, counts).await?;
    Ok([0, 1, 2].map(|nth| row.get(nth)))
}
