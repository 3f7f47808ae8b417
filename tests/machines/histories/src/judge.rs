//! Judges a history by the times for which locks were held, and by fences.

use std::collections::{BTreeMap, HashMap};

use crate::contradiction::{Contradiction, Rule, Verdict};
use crate::history::History;
use crate::holding::{Grant, Holding, grants};

/// Judges a history. The error says why it is none: an operation ends that never began.
pub fn judge(history: &History) -> Result<Verdict, String> {
    let grants = grants(&history.entries)?;
    let mut keys: BTreeMap<&str, Vec<&Grant>> = BTreeMap::new();
    for grant in &grants {
        keys.entry(&grant.key).or_default().push(grant);
    }
    let mut contradictions = Vec::new();
    for grants in keys.values() {
        overlaps(grants, &mut contradictions);
        fences(grants, &mut contradictions);
    }
    contradictions.sort_by_key(|found| found.second.told);
    let (operations, keys) = (history.entries.len(), keys.len());
    Ok(Verdict { entries: operations, keys, grants: grants.len(), contradictions })
}

/// Each holding against the one before it that lasts longest.
fn overlaps(grants: &[&Grant], found: &mut Vec<Contradiction>) {
    let held = grants.iter().filter_map(|grant| Some((grant.holding?, *grant)));
    let mut held: Vec<_> = held.collect();
    held.sort_by_key(|(holding, _)| (holding.from, holding.to));
    let mut longest: Option<(Holding, &Grant)> = None;
    for (holding, grant) in held {
        if let Some((_, first)) = longest.filter(|(longest, _)| longest.overlaps(holding)) {
            found.push(Contradiction::new(Rule::Overlap, first, grant));
        }
        if longest.is_none_or(|(longest, _)| longest.to < holding.to) {
            longest = Some((holding, grant));
        }
    }
}

fn fences(grants: &[&Grant], found: &mut Vec<Contradiction>) {
    let fenced = grants.iter().filter_map(|grant| Some((grant.fence?, *grant)));
    let fenced: Vec<(u64, &Grant)> = fenced.collect();
    let mut seen: HashMap<u64, &Grant> = HashMap::new();
    for (fence, grant) in &fenced {
        if let Some(first) = seen.insert(*fence, grant) {
            found.push(Contradiction::new(Rule::SameFence, first, grant));
        }
    }
    // The earlier grant was told before the later one was asked for.
    falls(&fenced, |grant| Some(grant.told), |grant| Some(grant.asked), found);
    // The earlier holding was over before the later one began, though both had asked by then.
    falls(&fenced, |grant| Some(grant.holding?.to), |grant| Some(grant.holding?.from), found);
}

/// Grants whose fence is below that of a grant that had ended, by `end`, before they began, by
/// `begin`.
fn falls(
    fenced: &[(u64, &Grant)],
    end: impl Fn(&Grant) -> Option<u64>,
    begin: impl Fn(&Grant) -> Option<u64>,
    found: &mut Vec<Contradiction>,
) {
    let sorted = |time: &dyn Fn(&Grant) -> Option<u64>| {
        let timed = fenced.iter().filter_map(|(fence, grant)| Some((time(grant)?, *fence, *grant)));
        let mut timed: Vec<_> = timed.collect();
        timed.sort_by_key(|(at, ..)| *at);
        timed
    };
    let mut before = sorted(&end).into_iter().peekable();
    let mut largest: Option<(u64, &Grant)> = None;
    for (at, fence, grant) in sorted(&begin) {
        while let Some((_, earlier_fence, earlier)) = before.next_if(|(ended, ..)| *ended < at) {
            if largest.is_none_or(|(largest, _)| largest < earlier_fence) {
                largest = Some((earlier_fence, earlier));
            }
        }
        if let Some((_, earlier)) = largest.filter(|(largest, _)| *largest > fence) {
            let fall = Contradiction::new(Rule::FenceFell, earlier, grant);
            if !found.contains(&fall) {
                found.push(fall);
            }
        }
    }
}
