//! One hot key: waiting in line, beside `rslock` and a poller.
//!
//! All contenders run on one server, in turn within every round. The ratios are made within a
//! round.

mod cell;
pub mod fairness;
pub mod far;
mod fleet;
mod measured;
mod plot;
mod sample;
mod table;
mod turn;
mod worker;

use std::fs;
use std::path::PathBuf;

use lockmacro_tests::Server;

use self::cell::{Cell, Shape};
use self::far::moved_away;
use self::fleet::Fleet;
use self::measured::Measured;
use self::plot::plot;
use self::table::{Setting, table};
use crate::Failure;
use crate::bare::Bare;
use crate::measure::{Spread, now};

pub use self::worker::work;

/// Pings in one round.
const PINGS: u32 = 300;

#[derive(Debug, Clone, clap::Args)]
pub struct Args {
    /// How often everything is measured
    #[arg(long, default_value_t = 5)]
    rounds: u32,
    /// Where the table and the plot are written
    #[arg(long, default_value = "benches/results")]
    out: PathBuf,
}

pub async fn run(args: &Args) -> Result<(), Failure> {
    let server = Server::start();
    let away = format!("redis://127.0.0.1:{}", moved_away(server.port())?);
    let mut near = Fleet::start(&server, &server.url(), 4)?;
    let mut far = Fleet::start(&server, &away, 4)?;
    // These measurements warm up, and are not counted.
    let first = Cell { shape: Shape::Burst, waiters: 100, processes: 4, hold: 1, far: false };
    for contender in first.contenders() {
        near.measure(&first, *contender)?;
        far.measure(&first, *contender)?;
    }
    let mut measured: Vec<Measured> = Cell::all().into_iter().map(Measured::new).collect();
    let (mut near_trips, mut far_trips) = (Vec::new(), Vec::new());
    for round in 0..args.rounds as usize {
        near_trips.push(round_trip(&server.url()).await?);
        far_trips.push(round_trip(&away).await?);
        for row in &mut measured {
            let fleet = if row.cell.far { &mut far } else { &mut near };
            let contenders = row.cell.contenders();
            for turn in 0..contenders.len() {
                // Each contender is the first in some of the rounds.
                let contender = contenders[(turn + round) % contenders.len()];
                row.add(contender, fleet.measure(&row.cell, contender)?);
            }
        }
        eprintln!("round {} of {}", round + 1, args.rounds);
    }
    let info: String = server.admin().ask(&["INFO", "server"]);
    let version = info.lines().find_map(|line| line.strip_prefix("redis_version:"));
    let setting = Setting {
        rounds: args.rounds,
        redis: version.unwrap_or_default().to_owned(),
        processors: std::thread::available_parallelism()?.get(),
        near: Spread::of(near_trips),
        far: Spread::of(far_trips),
    };
    let table = table(&setting, &measured)?;
    print!("{table}");
    fs::create_dir_all(&args.out)?;
    fs::write(args.out.join("contention.md"), table)?;
    plot(&args.out.join("contention.svg"), &measured)
}

/// The median of a round trip, in microseconds.
async fn round_trip(url: &str) -> Result<f64, Failure> {
    let mut bare = Bare::connect(url).await?;
    let mut times = Vec::new();
    for _ in 0..PINGS {
        let start = now();
        bare.ping().await?;
        times.push((now() - start) as f64 / 1e3);
    }
    Ok(Spread::of(times).median)
}
