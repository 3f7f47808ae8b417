//! Benchmarks of locks.
//!
//! ```text
//! cargo run --release -p lockmacro-benches                # all, on redis-servers of its own
//! cargo run --release -p lockmacro-benches -- floor       # beside the bare commands
//! cargo run --release -p lockmacro-benches -- contention  # one hot key, beside rslock and polling
//! cargo run --release -p lockmacro-benches -- fairness    # a hot key shared by five processes
//! cargo run --release -p lockmacro-benches -- sharing     # shared locks and permits
//! cargo run --release -p lockmacro-benches -- waiters     # 10,000 waiters of one key
//! cargo run --release -p lockmacro-benches -- redlock     # five nodes, and one of them stopped
//! cargo run --release -p lockmacro-benches -- postgres    # locks in PostgreSQL
//! cargo run --release -p lockmacro-benches -- etcd        # locks in etcd, beside its own lock service
//! cargo run --release -p lockmacro-benches -- reuse       # one makes a value for all; leaders
//! cargo run --release -p lockmacro-benches -- deferred    # how late jobs are run
//! cargo run --release -p lockmacro-benches -- leases      # 10,000 leases renewed by one manager
//! cargo run --release -p lockmacro-benches -- instructions # of a free lock, by callgrind
//! cargo run --release -p lockmacro-benches -- build       # what an annotated function costs a build
//! ```

mod bare;
mod build;
mod contention;
mod deferred;
mod etcd;
mod floor;
mod instructions;
mod leases;
mod measure;
mod postgres;
mod redlock;
mod reuse;
mod sharing;
mod waiters;

use std::error::Error;
use std::process::Command;

use clap::{Parser, Subcommand};
use lockmacro_tests::Server;

type Failure = Box<dyn Error + Send + Sync>;

#[derive(Parser)]
struct Args {
    #[command(subcommand)]
    bench: Option<Bench>,
}

#[derive(Subcommand)]
enum Bench {
    /// `Lock::run` beside `SET NX PX` and a compare-and-delete script on one connection
    Floor {
        /// How often everything is measured
        #[arg(long, default_value_t = 15)]
        rounds: u32,
    },
    /// Instructions of a free lock beside the bare commands, counted by callgrind
    Instructions,
    /// The process that is counted
    #[command(hide = true)]
    Counted(instructions::Counted),
    /// One hot key: waiting in line, `rslock` and a poller
    Contention(contention::Args),
    /// How evenly processes share a hot key
    Fairness {
        /// How often everything is measured
        #[arg(long, default_value_t = 7)]
        rounds: u32,
    },
    /// Free shared locks and permits beside the bare commands, and many callers of them at once
    Sharing {
        /// How often everything is measured
        #[arg(long, default_value_t = 7)]
        rounds: u32,
    },
    /// One process that contends, as the orders on its standard input require
    #[command(hide = true)]
    Contender { url: String },
    /// Many waiters of one key, in a process of their own
    Waiters(waiters::Args),
    /// Five nodes, all well and one of them stopped, beside `rslock` and the bare commands
    Redlock {
        /// How often everything is measured
        #[arg(long, default_value_t = 25)]
        rounds: u32,
    },
    /// Locks in PostgreSQL, beside bare statements, advisory locks and a row that is polled
    Postgres {
        /// How often everything is measured
        #[arg(long, default_value_t = 7)]
        rounds: u32,
    },
    /// Locks in etcd, beside its own lock service, Redis and PostgreSQL
    Etcd {
        /// How often everything is measured
        #[arg(long, default_value_t = 7)]
        rounds: u32,
    },
    /// A value that one caller makes for all, beside waiters and a poll; and leaders that follow
    Reuse {
        /// How often everything is measured
        #[arg(long, default_value_t = 25)]
        rounds: u32,
    },
    /// How late an idle worker runs calls that were deferred
    Deferred {
        /// How many calls
        #[arg(long, default_value_t = 500)]
        calls: usize,
    },
    /// Time to build, machine code and LLVM lines of an annotated function
    Build {
        /// How often everything is built
        #[arg(long, default_value_t = 5)]
        rounds: u32,
    },
    /// Many leases, renewed by one manager in memory and by one on a server
    Leases(leases::Args),
    /// One such manager, in a process whose memory is its own
    #[command(hide = true)]
    Manager {
        url: String,
        #[command(flatten)]
        args: leases::Args,
    },
}

#[tokio::main]
async fn main() -> Result<(), Failure> {
    match Args::parse().bench {
        None => {
            for bench in [
                "floor",
                "contention",
                "fairness",
                "sharing",
                "waiters",
                "redlock",
                "postgres",
                "etcd",
                "reuse",
                "deferred",
                "leases",
                "build",
                "instructions",
            ] {
                if bench == "instructions" && !instructions::is_possible() {
                    println!("\n`instructions` is left out: it needs a build of its own.");
                    continue;
                }
                let status = Command::new(std::env::current_exe()?).arg(bench).status()?;
                if !status.success() {
                    return Err(format!("{bench} ended with {status}").into());
                }
            }
            Ok(())
        }
        Some(Bench::Floor { rounds }) => floor::run(&Server::start(), rounds).await,
        Some(Bench::Instructions) => instructions::run(),
        Some(Bench::Counted(counted)) => instructions::work(counted),
        Some(Bench::Contention(args)) => contention::run(&args).await,
        Some(Bench::Fairness { rounds }) => contention::fairness::run(rounds).await,
        Some(Bench::Sharing { rounds }) => sharing::run(rounds).await,
        Some(Bench::Contender { url }) => contention::work(&url).await,
        Some(Bench::Waiters(args)) => {
            let server = Server::start();
            // In a task, as in a service.
            tokio::spawn(waiters::wait(server.url(), args)).await?
        }
        Some(Bench::Redlock { rounds }) => redlock::run(rounds).await,
        Some(Bench::Postgres { rounds }) => postgres::run(rounds).await,
        Some(Bench::Etcd { rounds }) => etcd::run(rounds).await,
        Some(Bench::Reuse { rounds }) => reuse::run(&Server::start(), rounds).await,
        Some(Bench::Deferred { calls }) => deferred::run(&Server::start(), calls).await,
        Some(Bench::Build { rounds }) => build::run(rounds),
        Some(Bench::Leases(args)) => leases::run(&Server::start().url(), &args),
        Some(Bench::Manager { url, args }) => leases::manage(&url, &args).await,
    }
}
