//! Many leases, renewed by one manager: the costs for its process, and whether a lease is missed.

use std::fmt::{self, Debug};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use futures::future::ready;
use futures::stream::{self, StreamExt, TryStreamExt};
use lockmacro_runtime::{Lock, LockGuard, LockManager};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

use crate::Failure;
use crate::measure::{cpu, resident};

#[derive(Debug, Clone, clap::Args)]
pub struct Args {
    /// How many locks are held at once
    #[arg(long, default_value_t = 10_000)]
    leases: u32,
    /// Ttl of each lock in seconds; a lock is renewed after a third of it
    #[arg(long, default_value_t = 10)]
    ttl: u64,
    /// How long the locks are held, in seconds
    #[arg(long, default_value_t = 30)]
    hold: u64,
}

/// Measures a manager in memory, where the locks themselves are in the same process, and one on a
/// server.
pub fn run(url: &str, args: &Args) -> Result<(), Failure> {
    let Args { leases, ttl, hold } = args;
    println!("\n{leases} leases of {ttl} s, held for {hold} s and renewed by one manager\n");
    println!(
        "{:10}{:>10}{:>10}{:>10}{:>8}{:>10}{:>10}{:>14}",
        "", "renewals", "failures", "CPU s", "core", "µs each", "B/lease", "leases missed"
    );
    for url in ["memory://", url] {
        let mut manager = Command::new(std::env::current_exe()?);
        manager.args(["manager", url, "--leases", &leases.to_string()]);
        manager.args(["--ttl", &ttl.to_string(), "--hold", &hold.to_string()]);
        let status = manager.status()?;
        if !status.success() {
            return Err(format!("the manager on {url} ended with {status}").into());
        }
    }
    Ok(())
}

/// Runs the manager in a process of its own. Fails when a lease is missed.
pub async fn manage(url: &str, args: &Args) -> Result<(), Failure> {
    let events = Arc::new(EventCounts::default());
    tracing::subscriber::set_global_default(Listener(Arc::clone(&events)))?;
    let locks = LockManager::connect(url).await?;
    let lock = |name: String| {
        Lock::new(name).ttl(Duration::from_secs(args.ttl)).renew().manager(&locks).acquire()
    };
    // Warms up, before anything is counted.
    lock("first".to_owned()).await?.release().await?;

    let before = resident()?;
    let names = (0..args.leases).map(|number| lock(format!("bench:lease:{number}")));
    let guards: Vec<_> = stream::iter(names).buffer_unordered(256).try_collect().await?;
    let (start, cpu_before) = (Instant::now(), cpu());
    let renewed_before = events.renewed.load(Ordering::Relaxed);

    tokio::time::sleep(Duration::from_secs(args.hold)).await;
    let (held, spent) = (start.elapsed().as_secs_f64(), (cpu() - cpu_before).as_secs_f64());
    let renewed = events.renewed.load(Ordering::Relaxed) - renewed_before;
    let bytes = resident()?.saturating_sub(before);
    // A release fails when the lease was lost at any time, or is not on the server.
    let released = stream::iter(guards).map(LockGuard::release).buffer_unordered(256);
    let missed = released.filter(|end| ready(end.is_err())).count().await;
    println!(
        "{:10}{renewed:10}{:10}{spent:10.2}{:7.1}%{:10.1}{:10}{missed:14}",
        if url == "memory://" { "memory" } else { "Redis" },
        events.failed.load(Ordering::Relaxed),
        100.0 * spent / held,
        spent * 1e6 / f64::from(u32::try_from(renewed)?.max(1)),
        bytes / u64::from(args.leases.max(1)),
    );
    if missed > 0 { Err(format!("{missed} leases were missed").into()) } else { Ok(()) }
}

/// Counts of the events that the locks report by `tracing`.
#[derive(Debug, Default)]
struct EventCounts {
    renewed: AtomicU64,
    /// Renewals without an answer, which are tried again.
    failed: AtomicU64,
}

struct Listener(Arc<EventCounts>);

impl Subscriber for Listener {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.is_event() && metadata.target().starts_with("lockmacro_runtime")
    }

    fn event(&self, event: &Event<'_>) {
        let mut message = Message::default();
        event.record(&mut message);
        match message.0.as_str() {
            "lock renewed" => &self.0.renewed,
            "lock not renewed yet" => &self.0.failed,
            _ => return,
        }
        .fetch_add(1, Ordering::Relaxed);
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

#[derive(Default)]
struct Message(String);

impl Visit for Message {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        if field.name() == "message" {
            // Writing to a string does not fail.
            let _ = fmt::write(&mut self.0, format_args!("{value:?}"));
        }
    }
}
