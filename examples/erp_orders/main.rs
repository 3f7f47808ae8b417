//! Auditing an order and assigning it to a warehouse must not run at once on the same order.
//!
//! ```text
//! cargo run --example erp_orders                              # no server: tasks of one process
//! REDIS_URL=redis://127.0.0.1 cargo run --example erp_orders  # a worker process for each desk
//! REDIS_URL=… cargo run --example erp_orders -- --php-like    # and a foreign client
//! DATABASE_URL=postgres://postgres@localhost/postgres \
//!     cargo run --example erp_orders --features postgres      # locks and orders in PostgreSQL
//! cargo run --example erp_orders -- --busy wait               # busy orders are waited for
//! cargo run --example erp_orders -- --busy defer              # … or done later by a worker
//! CALLS_URL=redis://127.0.0.1 REDIS_URL=redlock://… … --busy defer   # … stored elsewhere
//! cargo run --example erp_orders -- --lose                    # locks get lost: see the rollback
//! cargo run --example erp_orders -- --reports                 # shared locks and permits
//! cargo run --example erp_orders -- --no-lock                 # see the check fail
//! ```
//!
//! A batch of requests goes through several desks. The same order is given to several of them on
//! purpose. The second desk finds the order busy, and the other desks go on. Read `desk.rs` first:
//! it has the locked functions. `rollback.rs` has one that undoes what it did when its lock is
//! lost. `fenced_writes.rs` has one that writes an order, in a transaction that nobody can commit
//! late. At the end a record that the bodies wrote themselves is checked.
//!
//! Exit code: 0 all is well, 1 a check or a request failed, 2 the run could not start.

mod desk;
#[cfg(feature = "postgres")]
mod fenced_writes;
mod fleet;
mod orders;
mod php_like;
mod record;
mod report;
mod reports;
mod rollback;
mod strategies;
mod summary;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;

use crate::orders::{Batch, shares};
use crate::record::Record;
use crate::strategies::Busy;
use crate::summary::Summary;

/// An error before the work begins.
type StartError = Box<dyn std::error::Error + Send + Sync>;

/// Audits the orders of a batch and assigns them to warehouses, at several desks at once.
///
/// With REDIS_URL set, every desk is a process that meets the others at that server. With
/// DATABASE_URL, the locks are in that PostgreSQL database, and the orders are written to it.
#[derive(Debug, Clone, Parser)]
struct Args {
    /// A CSV file of order_no,customer,sku,quantity,request,warehouse [default: the sample]
    #[arg(default_value = concat!(env!("CARGO_MANIFEST_DIR"), "/data/orders.csv"), hide_default_value = true)]
    file: PathBuf,
    /// How many desks work at once
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u8).range(1..=64))]
    desks: u8,
    /// How often a desk goes through what was busy, all in all
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u8).range(1..))]
    passes: u8,
    /// How a desk handles a busy order
    #[arg(long, value_enum, default_value_t = Busy::Report)]
    busy: Busy,
    /// Instead of a batch: reports of one order beside each other, audits alone, and at most three
    /// prints at a time
    #[arg(long, conflicts_with_all = ["no_lock", "php_like", "lose", "busy"])]
    reports: bool,
    /// Give every desk a lock store of its own, so that no lock excludes anything: the check fails
    #[arg(long)]
    no_lock: bool,
    /// Add a client that knows nothing of lockmacro and locks the same keys (needs REDIS_URL)
    #[arg(long)]
    php_like: bool,
    /// Book assigned goods out of stock, and have the lock of some orders get lost half-way: these
    /// bookings are rolled back
    #[arg(long, conflicts_with_all = ["no_lock", "busy"])]
    lose: bool,
    /// The one desk that this process is, when another one has started it
    #[arg(long, hide = true, requires = "record")]
    only: Option<String>,
    /// Where the bodies write down what they do
    #[arg(long, hide = true)]
    record: Option<PathBuf>,
}

impl Args {
    /// The database that the desks write orders to, when there is one. Only those do so that report
    /// busy orders.
    fn database_of_orders(&self) -> Option<String> {
        database_url().filter(|_| self.busy == Busy::Report && !self.no_lock)
    }
}

#[tokio::main]
async fn main() -> ExitCode {
    let args = Args::parse();
    let result = match (&args.only, &args.record) {
        (Some(desk), Some(record)) => fleet::be_a_desk(&args, desk, record).await,
        _ if args.reports => reports::run(server_url().as_deref(), args.desks).await,
        _ => run(&args).await,
    };
    match result {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(1),
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::from(2)
        }
    }
}

/// The server to use for locks, when there is one.
fn server_url() -> Option<String> {
    if let Some(url) = database_url() {
        // The schema of the locks is made if it is missing.
        let and = if url.contains('?') { '&' } else { '?' };
        return Some(format!("{url}{and}install=1"));
    }
    std::env::var("REDIS_URL").ok().filter(|url| !url.is_empty() && url != "memory://")
}

/// The PostgreSQL database for locks and orders, when there is one.
fn database_url() -> Option<String> {
    std::env::var("DATABASE_URL").ok().filter(|url| url.starts_with("postgres"))
}

/// Runs the whole batch, and returns whether all is well.
async fn run(args: &Args) -> Result<bool, StartError> {
    let url = server_url();
    if cfg!(not(feature = "postgres")) && database_url().is_some() {
        return Err("DATABASE_URL needs the feature: cargo run … --features postgres".into());
    }
    if args.php_like && url.is_none() {
        return Err(
            "--php-like locks keys on a server: set REDIS_URL, as in redis://127.0.0.1".into()
        );
    }
    let several = database_url().is_some()
        || url.as_deref().is_some_and(|url| {
            ["-cluster://", "-sentinel://", "redlock://", "redlocks://"]
                .iter()
                .any(|kind| url.contains(kind))
        });
    if several && (args.php_like || args.lose) {
        return Err(
            "--php-like and --lose send commands of their own: set REDIS_URL to one Redis server"
                .into(),
        );
    }
    let quorum = url.as_deref().is_some_and(|url| url.starts_with("redlock"));
    if args.busy == Busy::Defer && quorum && strategies::calls_url().is_none() {
        return Err("a Redlock keeps no jobs: set CALLS_URL to one Redis server that does".into());
    }
    let batch = Batch::read(&args.file)?;
    let shares = shares(&batch.requests, args.desks, args.php_like);
    let file = tempfile::NamedTempFile::new()?;

    let mut summary = Summary::new(&batch, &shares, args.lose);
    match url {
        Some(url) => fleet::processes(args, &url, &shares, file.path(), &mut summary).await?,
        None => fleet::tasks(args, &shares, &Record::open(file.path())?, &mut summary).await?,
    }
    #[cfg(feature = "postgres")]
    if let (Some(database), Some(request)) = (args.database_of_orders(), batch.requests.first()) {
        let record = Record::open(file.path())?;
        if !fenced_writes::late_writer(&database, request, &record).await? {
            summary.add_fault("a late writer was not refused".to_owned());
        }
    }
    summary.check(&record::read(file.path())?);
    Ok(summary.print())
}
