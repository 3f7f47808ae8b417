//! How far ahead a server's clock is, and how fast it runs.

use std::time::{Duration, SystemTime};

use tokio::time::sleep;

use crate::inspect::found::ServerFacts;
use crate::store::remote::error::RemoteError;
use crate::sys::time::{Moment, wall_clock};

/// How long a clock is watched.
const WATCHED: Duration = Duration::from_secs(1);
/// A rate that may be wrong by more than this is not told.
const DOUBT_MAX: f64 = 0.002;
/// How often a clock is read for one reading: the fastest answer counts.
const READ: u32 = 8;

/// The facts about a server's clock, and nothing else: asks for the time, and once more a second
/// later. Nothing is known if there is no answer, and no rate where the round trips take too long.
pub(crate) async fn clock_facts<F>(ask: impl Fn() -> F) -> ServerFacts
where
    F: Future<Output = Result<Duration, RemoteError>>,
{
    let readings = async {
        let first = ClockSample::by(&ask).await?;
        sleep(WATCHED).await;
        Some((first, ClockSample::by(&ask).await?))
    };
    readings.await.map(|(first, last)| between(first, last)).unwrap_or_default()
}

fn between(first: ClockSample, last: ClockSample) -> ServerFacts {
    let watched = last.at.since(first.at).as_secs_f64();
    let doubt = (first.round_trip + last.round_trip).as_secs_f64() / 2.0 / watched;
    let counted = last.shown.as_secs_f64() - first.shown.as_secs_f64();
    ServerFacts {
        round_trip: first.round_trip.min(last.round_trip),
        clock_ahead: Some(last.shown.as_secs_f64() - last.here.as_secs_f64()),
        clock_rate: (doubt <= DOUBT_MAX).then_some(counted / watched),
        ..ServerFacts::default()
    }
}

/// The time that a clock has shown in the middle of a round trip.
#[derive(Clone, Copy)]
struct ClockSample {
    at: Moment,
    round_trip: Duration,
    /// Since 1970.
    shown: Duration,
    here: Duration,
}

impl ClockSample {
    async fn by<F>(ask: impl Fn() -> F) -> Option<Self>
    where
        F: Future<Output = Result<Duration, RemoteError>>,
    {
        let mut best: Option<Self> = None;
        for _ in 0..READ {
            let sent = Moment::now();
            let here = wall_clock();
            let shown = ask().await.ok()?;
            let round_trip = sent.elapsed();
            let here = here.duration_since(SystemTime::UNIX_EPOCH).ok()? + round_trip / 2;
            if best.is_none_or(|best| round_trip < best.round_trip) {
                best = Some(Self { at: sent.after(round_trip / 2), round_trip, shown, here });
            }
        }
        best
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reading(at_ms: u64, round_trip_ms: u64, shown_ms: u64) -> ClockSample {
        let [at, round_trip, shown] = [at_ms, round_trip_ms, shown_ms].map(Duration::from_millis);
        ClockSample { at: Moment::at(at), round_trip, shown, here: at }
    }

    #[test]
    fn a_clock_that_runs_fast_and_is_ahead_is_noticed() {
        let facts = between(reading(0, 1, 5_000), reading(2_000, 0, 7_020));
        assert_eq!(facts.round_trip, Duration::ZERO);
        let rate = facts.clock_rate.unwrap();
        let ahead = facts.clock_ahead.unwrap();
        assert!((rate - 1.01).abs() < 1e-6 && (ahead - 5.02).abs() < 1e-6, "{rate} {ahead}");
    }

    #[test]
    fn slow_answers_tell_no_rate() {
        let facts = between(reading(0, 3, 0), reading(1_000, 2, 1_000));
        assert_eq!(facts.clock_rate, None);
    }
}
