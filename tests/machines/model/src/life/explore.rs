//! Every short sequence of events in the life of a lock.

use std::collections::HashSet;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::rc::Rc;
use std::time::Duration;

use super::world::{Budget, Setup, Step, World};

const S: Duration = Duration::from_secs(1);

struct Path(Step, Option<Rc<Path>>);

/// What a search has found.
#[derive(Debug, Default)]
pub struct Explored {
    /// Number of states.
    pub states: usize,
    /// What is wrong, and the steps to it.
    pub failure: Option<(String, Vec<String>)>,
}

/// The locks that differ for the life of one: granted or handed off, renewed or not, for a while or
/// for ever, and passed on to a shorter or a longer one.
fn setups() -> Vec<Setup> {
    let base = Setup {
        ttl: 3 * S,
        granted: 3 * S,
        renews: None,
        next: (S, None),
        has_several_nodes: false,
        stays: false,
    };
    let mut setups = vec![Setup { has_several_nodes: true, ..base }, Setup { stays: true, ..base }];
    for granted in [3 * S, S] {
        for renews in [None, Some(4 * S), Some(Duration::MAX)] {
            for next in [(S, None), (10 * S, Some(Duration::MAX))] {
                setups.push(Setup { granted, renews, next, ..base });
            }
        }
    }
    setups
}

/// Searches every sequence of at most `steps` events, in which at most `all` things happen that
/// need not happen.
pub fn explore(all: u8, steps: usize) -> Explored {
    let budget = Budget {
        all,
        lags: 1,
        unanswered: 1,
        changes: 1,
        steals: 1,
        extensions: 1,
        checks: 1,
        calls: 1,
    };
    let mut explored = Explored::default();
    for setup in setups() {
        let failure = explore_one(setup, budget, steps, &mut explored.states);
        if let Err((what, path)) = failure {
            let back = std::iter::successors(path, |path| path.1.clone());
            let mut steps: Vec<_> = back.map(|path| format!("{:?}", path.0)).collect();
            steps.push(format!("{setup:?}"));
            steps.reverse();
            explored.failure = Some((what, steps));
            break;
        }
    }
    explored
}

fn explore_one(
    setup: Setup,
    budget: Budget,
    steps: usize,
    states: &mut usize,
) -> Result<(), (String, Option<Rc<Path>>)> {
    let first = World::new(setup, budget);
    first.check().map_err(|what| (what, None))?;
    let mut seen = HashSet::from([hash(&first)]);
    let mut front: Vec<(World, Option<Rc<Path>>)> = vec![(first, None)];
    for _ in 0..steps {
        let mut next_front = Vec::new();
        for (world, path) in front {
            *states += 1;
            for step in world.steps() {
                let mut next = world.clone();
                let taken = next.take(step);
                let path = Some(Rc::new(Path(step, path.clone())));
                taken.map_err(|what| (what, path.clone()))?;
                if seen.insert(hash(&next)) {
                    next_front.push((next, path));
                }
            }
        }
        front = next_front;
    }
    Ok(())
}

fn hash(world: &World) -> u64 {
    let mut hasher = DefaultHasher::new();
    world.key().hash(&mut hasher);
    hasher.finish()
}
