//! Schedules drawn at random.

use fastrand::Rng;

use super::server::{MS, S};
use super::world::{Event, Mode, Setup, Sleep, World};

fn pick<T: Copy, const N: usize>(rng: &mut Rng, of: [T; N]) -> T {
    of[rng.usize(0..N)]
}

fn chance(rng: &mut Rng, of_1000: u64) -> bool {
    rng.u64(0..1_000) < of_1000
}

impl World {
    /// The schedule of a seed.
    pub fn random(seed: u64) -> Self {
        let mut drawn = Rng::with_seed(!seed);
        let rng = &mut drawn;
        let mode = pick(rng, [Mode::Calm, Mode::Sleepy, Mode::Faulty, Mode::Faulty]);
        let (processes, trip) = (rng.usize(1..=3), pick(rng, [60, 300, 1_000, 5_000]));
        let mut world = Self::empty(seed, mode, processes, trip);
        world.polls = chance(rng, 150);
        let start = world.now;
        let span = pick(rng, [2 * MS, 50 * MS, 500 * MS, 4 * S]);
        let trouble = if mode == Mode::Faulty { rng.u64(1..=10) * S } else { 0 };
        world.trouble_ends = start + trouble;
        world.end = start + trouble + 400 * S;
        let fenced = pick(rng, [0, 300, 700, 1_000]);
        let ttls = [50 * MS, 200 * MS, S, 3 * S, 8 * S, 60 * S];
        let same_ttl = chance(rng, 750).then(|| pick(rng, ttls));
        let bodies = rng.u64(0..=3);
        let asleep = match mode {
            Mode::Calm => 0,
            Mode::Sleepy => pick(rng, [50, 200, 600]),
            Mode::Faulty => pick(rng, [0, 80, 300]),
        };
        for _ in 0..pick(rng, [3, 8, 20, 60]) {
            let ttl = same_ttl.unwrap_or_else(|| pick(rng, ttls));
            let body = match bodies {
                0 => rng.u64(0..=20),
                1 => rng.u64(1..2 * MS),
                2 => rng.u64(100..60 * MS),
                _ if chance(rng, 100) => rng.u64(MS..3 * S),
                _ => rng.u64(1..3 * MS),
            };
            let sleeps = chance(rng, asleep);
            let setup = Setup {
                process: rng.usize(0..processes),
                wait: match rng.u64(0..10) {
                    0 | 1 => None,
                    2 => Some(rng.u64(1..3_000) * MS),
                    _ => Some(100_000 * S),
                },
                ttl,
                fenced: chance(rng, fenced),
                renews: chance(rng, 700),
                min_hold: chance(rng, 20),
                body: if mode == Mode::Calm { body.min(ttl / 4) } else { body },
                sleep: match sleeps {
                    false => Sleep::Never,
                    true if chance(rng, 300) => Sleep::Forgotten,
                    true => Sleep::Late(rng.u64(20 * MS..4 * S)),
                },
                rounds: if chance(rng, 300) { rng.u32(2..=6) } else { 1 },
                at: rng.u64(0..=span),
            };
            // Those that are too slow to be served are polled in time in the end: by then less than
            // half of a lease is left, or others were offered the lock.
            let is_too_slow = match setup.sleep {
                Sleep::Never => false,
                Sleep::Late(late) => late + 20 * trip > (ttl * 4 / 10).min(1_500 * MS),
                Sleep::Forgotten => true,
            };
            let id = world.add(setup);
            if chance(rng, if mode == Mode::Calm { 40 } else { 120 }) {
                let later = pick(rng, [MS, 300 * MS, 3 * S]);
                world.at(start + rng.u64(0..=span + later), Event::Drop(id));
            }
            if is_too_slow {
                world.at(start + span + trouble + rng.u64(5..=40) * S, Event::Settle(id));
            }
            if sleeps {
                // Polled now and then for another reason.
                for _ in 0..3 {
                    world.at(start + rng.u64(0..=span + 5 * S), Event::Poll(id));
                }
            }
        }
        if mode != Mode::Calm {
            world.plan_refusals(rng, span);
        }
        if mode == Mode::Faulty {
            world.plan_trouble(rng, trouble);
        }
        world
    }

    fn plan_refusals(&mut self, rng: &mut Rng, span: u64) {
        let processes = self.processes.len();
        let mut plan = |event: fn(usize) -> Event| {
            if chance(rng, 150) {
                self.at(self.now + rng.u64(0..=span + S), event(rng.usize(0..processes)));
            }
        };
        plan(Event::Shutdown);
        plan(Event::NoFences);
    }

    fn plan_trouble(&mut self, rng: &mut Rng, trouble: u64) {
        let (start, processes) = (self.now, self.processes.len());
        for _ in 0..rng.u64(0..=3) {
            let (nth, long) = (rng.usize(0..processes), rng.u64(MS..6 * S));
            self.at(start + rng.u64(0..=trouble), Event::Freeze(nth, long));
        }
        if chance(rng, 250) {
            let nth = rng.usize(0..processes);
            self.at(start + rng.u64(0..=trouble), Event::Kill(nth));
        }
        if chance(rng, 200) {
            self.at(start + rng.u64(0..=trouble), Event::ServerReplaced);
        }
        if chance(rng, 250) {
            let long = rng.u64(10 * MS..1_500 * MS);
            self.at(start + rng.u64(0..=trouble), Event::Pause(long));
        }
        if chance(rng, 250) {
            let long = rng.u64(100..2_000) * MS;
            self.at(start + rng.u64(0..=trouble), Event::ForeignSet(long));
        }
    }
}
