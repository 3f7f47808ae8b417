//! Contradictions between the arguments, and between them and the function.

mod bindings;
mod defer;
mod policies;
mod times;

use bindings::{check_bindings, check_fences};
use policies::{
    check_calls, check_map_err, check_message, check_on_lost, check_reuse, check_sharing,
};
use syn::Result;
use times::{check_min_hold, check_renewal, check_wait};

use crate::messages;
use crate::parse::args::Args;
use crate::parse::item::Function;

type Check = fn(&Args, &Function) -> Result<()>;

/// Each check, and the arguments that it compares: it is left out when one of them has a mistake
/// itself.
const CHECKS: [(&[&str], Check); 11] = [
    (&["key", "shared", "permits"], check_sharing),
    (&["on_busy", "message"], check_message),
    (&["ttl", "renew", "max_hold"], check_renewal),
    (&["ttl", "renew", "min_hold"], check_min_hold),
    (&["wait", "on_busy"], check_wait),
    (&["on_lost"], check_on_lost),
    (&["key", "fence"], check_fences),
    (&["map_err"], check_map_err),
    (&["on_busy"], check_calls),
    (&["key", "on_busy", "shared", "permits", "fence", "guard", "message"], check_reuse),
    (&["guard", "fence"], check_bindings),
];

/// Reports all mistakes in the arguments and the function together.
pub(crate) fn check(args: &Args, function: Result<Function>) -> Result<Function> {
    let mut faults = args.faults.clone();
    match &function {
        Ok(function) => {
            let checks = CHECKS.iter().filter(|(about, _)| args.are_right(about));
            faults.extend(checks.filter_map(|(_, check)| check(args, function).err()));
        }
        Err(error) => faults.push(error.clone()),
    }
    messages::all(faults)?;
    function
}
