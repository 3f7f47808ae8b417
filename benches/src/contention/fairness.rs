//! How evenly a hot key is shared: by four processes with many callers each, and a fifth process
//! with one caller.

use std::time::Duration;

use lockmacro_tests::Server;

use super::cell::{Contender, Order, Shape};
use super::fleet::Fleet;
use super::turn::Turn;
use super::{moved_away, round_trip};
use crate::Failure;
use crate::measure::{Spread, now};

/// Processes with many callers.
const CROWDS: usize = 4;
/// Callers of each of these processes.
const CALLERS: u32 = 25;
/// Time in which an order reaches every process.
const NOTICE: u64 = 10_000_000;
/// The bounds of a turn, and the time in which a pass is taken up.
const TURN_MIN: f64 = 20.0;
const TURN_MAX: f64 = 100.0;
const TAKE_UP: f64 = 50.0;

/// One run: the acquisitions of each crowd, and the waits of the single caller.
struct Shares {
    /// The most acquisitions of a process, divided by the fewest.
    most: f64,
    /// Milliseconds.
    single_99: f64,
    single_max: f64,
}

pub async fn run(rounds: u32) -> Result<(), Failure> {
    let server = Server::start();
    let away = format!("redis://127.0.0.1:{}", moved_away(server.port())?);
    println!("100 callers in four processes share a key with one caller in a fifth, for 1.5 s;");
    println!("{rounds} rounds, medians with quartiles\n");
    println!(
        "{:>8}{:>7}  {:22}{:24}{:24}{:>10}",
        "server",
        "body",
        "most / fewest",
        "single wait p99, ms",
        "single wait max, ms",
        "bound, ms"
    );
    for (place, url) in [("near", server.url()), ("1 ms off", away)] {
        let mut fleet = Fleet::start(&server, &url, CROWDS as u32 + 1)?;
        let trip = round_trip(&url).await? / 1e3;
        for hold in [0, 1] {
            let mut shares = Vec::new();
            for round in 0..=rounds {
                let key = format!("bench:fair:{place}:{hold}:{round}").replace(' ', "-");
                let run = one(&mut fleet, hold, key)?;
                // The first round only warms up.
                shares.extend((round > 0).then_some(run));
            }
            let spread = |of: fn(&Shares) -> f64| Spread::of(shares.iter().map(of)).to_string();
            let turn = (10.0 * trip).clamp(TURN_MIN, TURN_MAX);
            let bound = CROWDS as f64 * (turn + hold as f64 + TAKE_UP + trip);
            println!(
                "{place:>8}{hold:>4} ms  {:22}{:24}{:24}{bound:10.0}",
                spread(|shares| shares.most),
                spread(|shares| shares.single_99),
                spread(|shares| shares.single_max),
            );
        }
    }
    Ok(())
}

fn one(fleet: &mut Fleet, hold: u64, key: String) -> Result<Shares, Failure> {
    let (contender, shape, start) = (Contender::Lockmacro, Shape::Loop, now() + NOTICE);
    let order = |tasks| Order { contender, shape, tasks, hold, start, key: key.clone() };
    let mut orders = vec![order(CALLERS); CROWDS];
    orders.push(order(1));
    let turns = fleet.contend(&orders)?;
    let (single, crowds) = turns.split_last().ok_or("no process")?;
    let served = |turns: &Vec<Turn>| turns.iter().filter(|turn| turn.served.is_some()).count();
    let counts: Vec<f64> = crowds.iter().map(|turns| served(turns) as f64).collect();
    let (fewest, most) = counts
        .iter()
        .fold((f64::MAX, 0.0_f64), |(fewest, most), count| (fewest.min(*count), most.max(*count)));
    let limit = start + shape.limit().as_nanos() as u64;
    let waited = |turn: &Turn| {
        let until = turn.served.map_or(limit, |(began, _)| began);
        Duration::from_nanos(until.saturating_sub(turn.asked)).as_secs_f64() * 1e3
    };
    let mut waits: Vec<f64> = single.iter().map(waited).collect();
    waits.sort_by(f64::total_cmp);
    let at = |share: usize| {
        let rank = (waits.len() * share).div_ceil(100).saturating_sub(1);
        waits.get(rank).copied().unwrap_or(f64::NAN)
    };
    Ok(Shares { most: most / fewest, single_99: at(99), single_max: at(100) })
}
