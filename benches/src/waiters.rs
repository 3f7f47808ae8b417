//! Many waiters of one key, which another process holds: their costs for their process, and for the
//! server.

use std::time::{Duration, Instant};

use futures::future::try_join_all;
use lockmacro_runtime::{Lock, LockError, LockManager};
use lockmacro_tests::Admin;
use tokio::time::sleep;

use crate::Failure;
use crate::measure::{cpu, resident, server_cpu};

const KEY: &str = "bench:crowd";
/// Number of waiters before the memory is counted.
const GROUP: usize = 100;
/// Time in which all waiters reach the line of their process.
const SETTLED: Duration = Duration::from_millis(500);
/// How long the waiters are watched, in which their process repeats its request at least twice.
const WATCHED: Duration = Duration::from_secs(5);

#[derive(Debug, Clone, clap::Args)]
pub struct Args {
    /// Number of waiters
    #[arg(long, default_value_t = 10_000)]
    waiters: usize,
}

/// Runs the waiters in a process of their own, so that its memory is theirs.
pub async fn wait(url: String, args: Args) -> Result<(), Failure> {
    // The holder is like one of another process, as it has another manager.
    let (locks, other) = (LockManager::connect(&url).await?, LockManager::connect(&url).await?);
    let mut admin = Admin::connect(&url);
    let lock = || Lock::new(KEY).ttl(Duration::from_secs(300)).wait_forever().manager(&locks);
    let run = || lock().run(async { Ok::<_, LockError>(()) });
    let holder = lock().manager(&other).acquire().await?;
    let mut tasks = Vec::with_capacity(args.waiters);
    let (mut client, mut server) = (0, 0);
    for number in 1..=args.waiters {
        tasks.push(tokio::spawn(run()));
        if number == GROUP {
            // The first waiters warm up, and are not counted.
            sleep(SETTLED).await;
            (client, server) = (resident()?, used_memory(&mut admin)?);
        }
    }
    sleep(SETTLED).await;
    admin.forget_calls();
    let (spent, server_spent) = (cpu(), server_cpu(&mut admin));
    sleep(WATCHED).await;
    let (spent, server_spent) = (cpu() - spent, server_cpu(&mut admin) - server_spent);
    let asked = admin.calls().into_iter().filter(|(name, _)| name.starts_with("eval"));
    let asked: u64 = asked.map(|(_, calls)| calls).sum();
    let client = resident()?.saturating_sub(client);
    let server = used_memory(&mut admin)?.saturating_sub(server);

    let start = Instant::now();
    holder.release().await?;
    try_join_all(tasks).await?.into_iter().collect::<Result<(), _>>()?;
    let rate = args.waiters as f64 / start.elapsed().as_secs_f64();
    let core = |spent: Duration| 100.0 * spent.as_secs_f64() / WATCHED.as_secs_f64();
    let each = |bytes: u64| bytes / args.waiters.saturating_sub(GROUP).max(1) as u64;
    println!("\n{} wait for one key in one process\n", args.waiters);
    println!("{:10}{:>14}{:>20}", "", "bytes each", "core while waiting");
    println!("{:10}{:14}{:19.1}%", "client", each(client), core(spent));
    println!("{:10}{:14}{:19.1}%", "server", each(server), core(server_spent));
    println!("\nRequests a second: {:.1}.", asked as f64 / WATCHED.as_secs_f64());
    println!(
        "The caller's own future, that of Lock::run, is {} of the client's.",
        size_of_val(&run())
    );
    println!("Served at {rate:.0} a second when their turn came.");
    Ok(())
}

fn used_memory(admin: &mut Admin) -> Result<u64, Failure> {
    let text: String = admin.ask(&["INFO", "memory"]);
    let used = text.lines().find_map(|line| line.strip_prefix("used_memory:"));
    Ok(used.ok_or("the server reports no used_memory")?.parse()?)
}
