//! Keeps the numbers of fences small, so that the states are finite in number: only their order
//! counts, and how many are left in a block.

use crate::message::Message;
use crate::state::State;

/// Shortens the gaps between the numbers that are in use.
pub(crate) fn compress(state: &mut State, block: u64) {
    let mut numbers = Vec::with_capacity(12);
    each(state, |number| numbers.push(*number));
    numbers.sort_unstable();
    numbers.dedup();
    let (mut last, mut short) = (0, 0);
    let mut shortened = Vec::with_capacity(numbers.len());
    for number in numbers {
        // No gap within a block is longer than a block.
        short += (number - last).min(block);
        last = number;
        shortened.push((number, short));
    }
    each(state, |number| {
        if let Ok(at) = shortened.binary_search_by_key(number, |(long, _)| *long) {
            *number = shortened[at].1;
        }
    });
}

fn each(state: &mut State, mut change: impl FnMut(&mut u64)) {
    change(&mut state.server.fence);
    change(&mut state.largest);
    for process in &mut state.processes {
        if let Some((first, last)) = process.phase.fences() {
            change(first);
            change(last);
        }
    }
    for message in &mut state.flying {
        if let Message::Grant { fences: (first, last), .. } = message {
            change(first);
            change(last);
        }
    }
}
