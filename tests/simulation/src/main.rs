//! Runs simulations by hand: see the chapter on them in `tests/README.md`.

use std::process::ExitCode;

use lockmacro_simulation_tests::mutants::try_all;
use lockmacro_simulation_tests::processes::many::{self, Many};
use lockmacro_simulation_tests::processes::run::run;

const USAGE: &str = "simulation [--seeds NUMBER] [--from SEED] [--threads NUMBER]
simulation --seed SEED [--trace]
simulation --mutants [NAME]";

fn mutants(only: Option<&str>) -> ExitCode {
    ExitCode::from(u8::from(!try_all(only)))
}

fn main() -> ExitCode {
    let mut args = std::env::args().skip(1);
    let (mut many, mut seed, mut traced) = (Many::default(), None, false);
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
            "--first" => {
                many.only_first = true;
                Some(())
            }
            "--mutants" => return mutants(args.next().as_deref()),
            _ => None,
        };
        if known.is_none() {
            eprintln!("{USAGE}");
            return ExitCode::from(2);
        }
    }
    match seed {
        Some(seed) => {
            let outcome = run(seed, true);
            if traced || outcome.failure.is_some() {
                print!("{}", outcome.trace.unwrap_or_default());
            }
            match outcome.failure {
                Some(failure) => println!("seed {seed}: {}: {}", failure.oracle, failure.text),
                None => println!("seed {seed}: passed"),
            }
            ExitCode::SUCCESS
        }
        None => {
            let found = many::run_seeds(many);
            println!("{found}");
            ExitCode::from(u8::from(!found.failures.is_empty()))
        }
    }
}
