//! Runs simulations by hand: README.md of this package says how.

use std::process::ExitCode;

use lockmacro_simulation_tests::mutants::try_all;
use lockmacro_simulation_tests::processes::many::{self, Many};
use lockmacro_simulation_tests::processes::parts::{Part, shrink};
use lockmacro_simulation_tests::processes::run::run_without;

const USAGE: &str = "simulation [--seeds NUMBER] [--from SEED] [--threads NUMBER] [--interleaved]
simulation --seed SEED [--trace] [--without fault|process NUMBER]... [--shrink]
simulation --mutants [NAME]";

fn main() -> ExitCode {
    let mut args = std::env::args().skip(1);
    let (mut many, mut seed) = (Many::default(), None);
    let (mut traced, mut shrinks, mut without) = (false, false, Vec::new());
    while let Some(arg) = args.next() {
        let mut number = || args.next().and_then(|text| text.parse::<u64>().ok());
        let known = match arg.as_str() {
            "--seeds" => number().map(|seeds| many.seeds = seeds),
            "--from" => number().map(|from| many.from = from),
            "--threads" => number().map(|threads| many.threads = threads.max(1) as usize),
            "--seed" => number().map(|number| seed = Some(number)),
            "--trace" => {
                traced = true;
                Some(())
            }
            "--shrink" => {
                shrinks = true;
                Some(())
            }
            "--first" => {
                many.only_first = true;
                Some(())
            }
            "--interleaved" => {
                many.is_interleaved = true;
                Some(())
            }
            "--without" => {
                let (kind, number) = (args.next(), args.next());
                let part = kind.zip(number).and_then(|(kind, number)| Part::of(&kind, &number));
                part.map(|part| without.push(part))
            }
            "--mutants" => return status(try_all(args.next().as_deref())),
            _ => None,
        };
        if known.is_none() {
            eprintln!("{USAGE}");
            return ExitCode::from(2);
        }
    }
    let Some(seed) = seed else {
        let found = many::run_seeds(many);
        println!("{found}");
        return status(found.failures.is_empty());
    };
    let outcome = if shrinks {
        let (without, outcome) = shrink(seed, without);
        let without: Vec<_> = without.iter().map(Part::to_string).collect();
        println!("--seed {seed} {}", without.join(" "));
        outcome
    } else {
        run_without(seed, &without, true)
    };
    if traced || outcome.failure.is_some() {
        print!("{}", outcome.trace.unwrap_or_default());
    }
    match &outcome.failure {
        Some(failure) => println!("seed {seed}: {}: {}", failure.oracle, failure.text),
        None => println!("seed {seed}: passed"),
    }
    status(outcome.failure.is_none())
}

fn status(passes: bool) -> ExitCode {
    ExitCode::from(u8::from(!passes))
}
