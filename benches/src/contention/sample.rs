//! One contender in one round: the statistics of its turns.

use std::time::Duration;

use super::cell::{Cell, Shape};
use super::turn::Turn;

/// The commands and the processor time of all processes together.
#[derive(Debug, Clone, Copy)]
pub struct Costs {
    /// Commands that clients have sent.
    pub commands: u64,
    pub client: Duration,
    pub server: Duration,
}

#[derive(Debug, Clone, Copy)]
pub struct Sample {
    pub per_second: f64,
    /// From the end of a body to the beginning of the next one, in microseconds, the median.
    pub gap: f64,
    /// From the request to the beginning of the body, in milliseconds.
    pub wait_half: f64,
    pub wait_99: f64,
    pub wait_max: f64,
    /// The share of callers that got the lock before another caller that had asked earlier.
    pub overtaking: f64,
    /// The share of callers that gave up.
    pub unserved: f64,
    /// Commands sent for one acquisition.
    pub commands: f64,
    /// Microseconds of processor time for one acquisition.
    pub client: f64,
    pub server: f64,
}

impl Sample {
    /// Fails when two bodies overlap.
    pub fn of(cell: &Cell, start: u64, turns: Vec<Turn>, costs: Costs) -> Result<Self, String> {
        let mut bodies: Vec<_> = turns.iter().filter_map(|turn| turn.served).collect();
        bodies.sort_unstable();
        let mut gaps = Vec::new();
        for pair in bodies.windows(2) {
            let gap = pair[1].0.checked_sub(pair[0].1).ok_or("two bodies overlap")?;
            gaps.push(gap as f64 / 1e3);
        }
        gaps.sort_by(f64::total_cmp);

        let given_up = start + cell.shape.limit().as_nanos() as u64;
        let waited = |turn: &Turn| {
            let until = turn.served.map_or(given_up, |(began, _)| began);
            until.saturating_sub(turn.asked) as f64 / 1e6
        };
        let mut waits: Vec<f64> = turns.iter().map(waited).collect();
        waits.sort_by(f64::total_cmp);

        let lasts = cell.shape.lasts();
        let per_second = match cell.shape {
            Shape::Burst | Shape::Line => {
                let asked = turns.iter().map(|turn| turn.asked).min().unwrap_or(start);
                let ended = bodies.last().map_or(given_up, |body| body.1);
                bodies.len() as f64 * 1e9 / (ended - asked) as f64
            }
            Shape::Loop => {
                let until = start + lasts.as_nanos() as u64;
                let in_time = bodies.iter().filter(|body| body.1 <= until).count();
                in_time as f64 / lasts.as_secs_f64()
            }
        };
        let each = |all: f64| all / bodies.len() as f64;
        Ok(Self {
            per_second,
            gap: percentile(&gaps, 50),
            wait_half: percentile(&waits, 50),
            wait_99: percentile(&waits, 99),
            wait_max: percentile(&waits, 100),
            overtaking: each(overtaking(&turns) as f64),
            unserved: (turns.len() - bodies.len()) as f64 / turns.len() as f64,
            commands: each(costs.commands as f64),
            client: each(costs.client.as_secs_f64() * 1e6),
            server: each(costs.server.as_secs_f64() * 1e6),
        })
    }
}

fn percentile(sorted: &[f64], percent: usize) -> f64 {
    let rank = (sorted.len() * percent).div_ceil(100);
    sorted.get(rank.saturating_sub(1)).copied().unwrap_or(f64::NAN)
}

/// Number of callers that got the lock while another caller that had asked earlier was still
/// waiting.
fn overtaking(turns: &[Turn]) -> usize {
    let mut turns: Vec<_> = turns.to_vec();
    // Callers that did not get the lock are last.
    turns.sort_by_key(|turn| turn.served.map_or(u64::MAX, |(began, _)| began));
    let mut earliest = u64::MAX;
    let mut count = 0;
    for turn in turns.iter().rev() {
        if turn.served.is_some_and(|(began, _)| earliest < turn.asked.min(began)) {
            count += 1;
        }
        earliest = earliest.min(turn.asked);
    }
    count
}
