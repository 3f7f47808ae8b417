//! Calls that are merged into one, beside the same calls one after the other.

use std::time::Duration;

use redis::{Cmd, Value};

use crate::scripts::{self, File, Script, Scripts};
use crate::simulated::Simulated;
use crate::store::Connected as _;

/// A lock, its queue and its holders, for each of two locks.
const KEYS: [[&str; 3]; 2] = [["{a}", "{a}q", "{a}h"], ["{b}", "{b}q", "{b}h"]];
const ROUNDS: usize = 40;
const SEEDS: u64 = 100;

/// All that the keys say.
const LOOK: &str = "local all = {}
for nth = 1, #KEYS, 3 do
  all[#all + 1] = redis.call('GET', KEYS[nth]) or ''
  all[#all + 1] = redis.call('PTTL', KEYS[nth])
  all[#all + 1] = redis.call('PTTL', KEYS[nth + 2])
  all[#all + 1] = table.concat(redis.call('ZRANGE', KEYS[nth + 2], 0, -1, 'WITHSCORES'), ' ')
end
return all";

#[test]
fn merged_calls_do_what_the_calls_do_one_after_the_other() {
    for seed in 0..SEEDS {
        if let Err(why) = compare(&scripts::real(), seed) {
            panic!("seed {seed}: {why}");
        }
    }
}

/// Each is right for a call by itself.
#[test]
fn mistakes_between_merged_calls_are_found() {
    let mutants = [
        ("known, count = lock, count + 1", "known = lock"),
        ("value, kept = shared, math.max", "_, kept = shared, math.max"),
        ("lock ~= known then\n    known = nil", "not known or lock ~= known then"),
        ("if lock ~= known then", "if not known then"),
    ];
    for (old, new) in mutants {
        let scripts = scripts::changed(File::AcquireShared, old, new);
        assert!((0..SEEDS).any(|seed| compare(&scripts, seed).is_err()), "{new}");
    }
}

/// Lets random calls come to two servers, merged and one after the other.
fn compare(scripts: &Scripts, seed: u64) -> Result<(), String> {
    let mut random = fastrand::Rng::with_seed(seed);
    let (mut merged, mut single) = (Simulated::alone(), Simulated::alone());
    let script = Script::AcquireShared as usize;
    let alone = scripts::real();
    for round in 0..ROUNDS {
        let earlier = earlier(&mut random);
        let time = Duration::from_millis(random.u64(..40));
        let calls: Vec<_> = (0..random.usize(1..8)).map(|_| call(&mut random)).collect();
        let keys = calls.iter().flat_map(|(keys, _)| *keys).collect::<Vec<_>>();
        let args = calls.iter().flat_map(|(_, args)| args.clone()).collect::<Vec<_>>();
        let of_all = eval(&scripts[script], &keys, &args);
        let each = calls.iter().map(|(keys, args)| eval(&alone[script], keys, args));
        let look = eval(LOOK, &KEYS.concat(), &[]);
        let (mut answers, mut looks) = (Vec::new(), Vec::new());
        for (server, commands) in [(&mut merged, vec![of_all]), (&mut single, each.collect())] {
            server.pause(time);
            let commands = [&earlier[..], &commands, std::slice::from_ref(&look)].concat();
            let mut replies = server.run(&commands);
            looks.push(replies.pop());
            answers.push(match replies.split_off(earlier.len()) {
                one if matches!(one[..], [Value::Array(_)]) => one.into_iter().next(),
                several if several.len() > 1 => Some(Value::Array(several)),
                mut one => one.pop(),
            });
        }
        if answers[0] != answers[1] || looks[0] != looks[1] {
            return Err(format!("round {round}: {calls:?}: {answers:?}, {looks:?}"));
        }
    }
    Ok(())
}

/// What others do before the calls.
fn earlier(random: &mut fastrand::Rng) -> Vec<Cmd> {
    let [lock, queue, holders] = KEYS[random.usize(..2)];
    let words: &[&str] = match random.u8(..8) {
        0 => &["DEL", lock],
        1 => &["DEL", lock, queue, holders],
        2 => &["SET", lock, "host/0123456789abcdef0123456789abcdef", "NX", "PX", "30"],
        3 => &["ZADD", queue, "1", "a waiter"],
        4 => &["DEL", queue],
        5 => &["DEL", holders],
        _ => &[],
    };
    let command = words.split_first().map(|(name, args)| {
        let mut command = redis::cmd(name);
        command.arg(args);
        command
    });
    command.into_iter().collect()
}

fn call(random: &mut fastrand::Rng) -> ([&'static str; 3], [String; 3]) {
    let label = if random.u8(..4) == 0 { "other" } else { "host" };
    let token = format!("{label}/{:032x}", random.u8(..24));
    let ttl = [10, 10, 60, 100][random.usize(..4)].to_string();
    let limit = [0, 2, 5][random.usize(..3)].to_string();
    // Most calls are for one lock.
    (KEYS[usize::from(random.u8(..5) == 0)], [token, ttl, limit])
}

fn eval(script: &str, keys: &[&str], args: &[String]) -> Cmd {
    let mut eval = redis::cmd("EVAL");
    eval.arg(script).arg(keys.len()).arg(keys).arg(args);
    eval
}
