//! A breadth-first search of all states that a model can reach.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::fmt;
use std::hash::{BuildHasherDefault, Hash, Hasher};
use std::rc::Rc;

/// Something with states, and actions that lead from one to another.
pub trait Model {
    /// A state.
    type State: Clone + Eq + Hash;
    /// What happens.
    type Action: Clone + fmt::Debug;

    /// The first state.
    fn initial(&self) -> Self::State;

    /// What may happen in a state.
    fn actions(&self, state: &Self::State, actions: &mut Vec<Self::Action>);

    /// The state after it.
    fn next(&self, state: &Self::State, action: &Self::Action) -> Self::State;

    /// What must hold in every state; the error says what does not.
    fn check(&self, state: &Self::State) -> Result<(), String>;
}

/// A search that has found nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Searched {
    /// Number of different states.
    pub states: usize,
    /// Number of actions from one to another.
    pub steps: usize,
    /// The largest number of actions to a state.
    pub depth: usize,
    /// Whether all states were searched, and not only those up to the bound.
    pub is_complete: bool,
}

/// A state that must not be, and how it is reached.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refuted {
    /// What does not hold.
    pub why: String,
    /// The shortest way there.
    pub trace: Vec<String>,
}

/// Searches all states within this number of actions.
pub fn search<M: Model>(model: &M, bound: usize) -> Result<Searched, Refuted> {
    let mut search = Search::<M> { seen: HashMap::default(), from: Vec::new() };
    let initial = Rc::new(model.initial());
    search.seen.insert(Rc::clone(&initial), 0);
    search.from.push(None);
    let (mut level, mut depth, mut steps) = (vec![(0, initial)], 0, 0);
    let mut actions = Vec::new();
    while !level.is_empty() && depth <= bound {
        let mut next_level = Vec::new();
        for (number, state) in level {
            if let Err(why) = model.check(&state) {
                return Err(search.refuted(number, why));
            }
            actions.clear();
            if depth < bound {
                model.actions(&state, &mut actions);
            }
            for action in &actions {
                let next = Rc::new(model.next(&state, action));
                let (reached, is_new) = search.reach(&next, number, action);
                steps += 1;
                if is_new {
                    next_level.push((reached, next));
                }
            }
        }
        depth += usize::from(!next_level.is_empty());
        level = next_level;
    }
    Ok(Searched { states: search.from.len(), steps, depth, is_complete: depth < bound })
}

struct Search<M: Model> {
    seen: HashMap<Rc<M::State>, u32, BuildHasherDefault<Fnv>>,
    /// For each state the one before it, and the action between them.
    from: Vec<Option<(u32, M::Action)>>,
}

impl<M: Model> Search<M> {
    fn reach(&mut self, state: &Rc<M::State>, from: u32, action: &M::Action) -> (u32, bool) {
        let number = self.from.len() as u32;
        match self.seen.entry(Rc::clone(state)) {
            Entry::Occupied(seen) => (*seen.get(), false),
            Entry::Vacant(new) => {
                new.insert(number);
                self.from.push(Some((from, action.clone())));
                (number, true)
            }
        }
    }

    fn refuted(&self, number: u32, why: String) -> Refuted {
        let mut trace = Vec::new();
        let mut at = number;
        while let Some((from, action)) = &self.from[at as usize] {
            trace.push(format!("{action:?}"));
            at = *from;
        }
        trace.reverse();
        Refuted { why, trace }
    }
}

impl fmt::Display for Refuted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}, after", self.why)?;
        self.trace.iter().try_for_each(|action| writeln!(f, "  {action}"))
    }
}

/// A cheap hash, as most of the time of a search is spent on it.
#[derive(Clone, Copy)]
struct Fnv(u64);

impl Default for Fnv {
    fn default() -> Fnv {
        Fnv(0xcbf2_9ce4_8422_2325)
    }
}

impl Hasher for Fnv {
    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u8(*byte);
        }
    }

    fn write_u8(&mut self, number: u8) {
        self.write_u64(number.into());
    }

    fn write_u64(&mut self, number: u64) {
        self.0 = (self.0.rotate_left(5) ^ number).wrapping_mul(0x517c_c1b7_2722_0a95);
    }

    fn write_usize(&mut self, number: usize) {
        self.write_u64(number as u64);
    }

    fn write_isize(&mut self, number: isize) {
        self.write_u64(number as u64);
    }

    fn finish(&self) -> u64 {
        // The upper bits are the good ones.
        self.0.rotate_left(26)
    }
}
