//! The judge against one that compares each two grants, on random histories.

use lockmacro_histories::{Entry, Function, Grant, History, Kind, Rule, grants, judge};
use proptest::option;
use proptest::prelude::*;

/// What one process does under one key: the times are from the one before.
#[derive(Debug, Clone)]
struct Turn {
    key: bool,
    pauses: [u64; 4],
    fence: Option<u64>,
    lease: Option<u64>,
    uses: bool,
    ends: u8,
}

prop_compose! {
    fn turn()(
        key in any::<bool>(),
        pauses in prop::array::uniform4(0_u64..30),
        fence in option::of(0_u64..40),
        lease in option::of(0_u64..60),
        uses in any::<bool>(),
        ends in 0_u8..6,
    ) -> Turn {
        Turn { key, pauses, fence, lease, uses, ends }
    }
}

fn history(processes: &[Vec<Turn>]) -> History {
    let mut entries = Vec::new();
    for (nth, turns) in processes.iter().enumerate() {
        let (process, mut at) = (format!("p{nth}/0"), 0);
        for turn in turns {
            let key = if turn.key { "x" } else { "y" };
            let entry = |kind, function, at| Entry::new(kind, function, key, &process, at);
            entries.push(entry(Kind::Invoke, Function::Acquire, at));
            at += turn.pauses[0];
            if turn.ends == 0 {
                entries.push(entry(Kind::Info, Function::Acquire, at));
                continue;
            }
            let granted = entry(Kind::Ok, Function::Acquire, at);
            // A lease may be over before the client knows of it.
            let until = turn.lease.map(|lease| (at + lease).saturating_sub(10));
            entries.push(Entry { fence: turn.fence, until, ..granted });
            at += turn.pauses[1];
            if turn.uses {
                entries.push(entry(Kind::Ok, Function::Use, at));
            }
            at += turn.pauses[2];
            match turn.ends {
                1 => entries.push(entry(Kind::Info, Function::Release, at)),
                2 => {
                    entries.push(Entry::new(Kind::Info, Function::Kill, "", &format!("p{nth}"), at))
                }
                3 => {}
                _ => entries.push(entry(Kind::Invoke, Function::Release, at)),
            }
            at += turn.pauses[3];
        }
    }
    History::new(entries)
}

/// Whether two grants contradict each other by a rule, whichever of them is the first.
fn contradict(rule: Rule, a: &Grant, b: &Grant) -> bool {
    let one_way = |first: &Grant, second: &Grant| match rule {
        Rule::Overlap => match (first.holding, second.holding) {
            (Some(first), Some(second)) => first.from < second.to && second.from < first.to,
            _ => false,
        },
        Rule::SameFence => first.fence.is_some() && first.fence == second.fence,
        Rule::FenceFell => {
            let falls = matches!((first.fence, second.fence), (Some(a), Some(b)) if a > b);
            let after = match (first.holding, second.holding) {
                (Some(first), Some(second)) => first.to < second.from,
                _ => false,
            };
            falls && (first.told < second.asked || after)
        }
    };
    a.key == b.key && (one_way(a, b) || one_way(b, a))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn the_judge_finds_what_a_comparison_of_all_finds(
        processes in prop::collection::vec(prop::collection::vec(turn(), 0..5), 1..5)
    ) {
        let history = history(&processes);
        let grants = grants(&history.entries).expect("each operation has a beginning");
        let verdict = judge(&history).expect("each operation has a beginning");
        for rule in [Rule::Overlap, Rule::SameFence, Rule::FenceFell] {
            let naive = (0..grants.len()).any(|a| {
                (0..a).any(|b| contradict(rule, &grants[a], &grants[b]))
            });
            prop_assert_eq!(verdict.count(rule) > 0, naive, "{:?}: {}", rule, verdict);
        }
        for found in &verdict.contradictions {
            prop_assert!(contradict(found.rule, &found.first, &found.second), "{}", found);
        }
    }
}
