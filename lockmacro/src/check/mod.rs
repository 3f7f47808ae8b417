//! Contradictions between the arguments, and between them and the function.

mod bindings;
mod defer;
mod keys;
mod policies;
mod texts;
mod times;

use bindings::{check_bindings, check_fences};
use keys::{check_key, check_sharing};
use policies::{check_calls, check_functions, check_map_err, check_on_lost, check_reuse};
use syn::Result;
use texts::{check_holder_note, check_message, check_message_is_shown, check_name};
use times::{check_min_hold, check_renewal, check_wait};

use crate::parse::args::Args;
use crate::parse::item::Function;

type Check = fn(&Args, &Function) -> Result<()>;

/// Reports all mistakes in the arguments and the function together.
pub(crate) fn check(args: &mut Args, function: Result<Function>) -> Result<Function> {
    let mut faults = args.faults.clone();
    let function = match function {
        Ok(function) => function,
        Err(error) => return Err(faults.with(error)),
    };
    args.bind(&function.template_names());
    // Each check names its arguments: it is left out when one of them has a mistake itself.
    let checks: [(&[&str], Check); 16] = [
        (&["key"], check_key),
        (&["key", "shared", "permits"], check_sharing),
        (&["message"], check_message),
        (&["holder_note"], check_holder_note),
        (&["name"], check_name),
        (&["on_busy", "message"], check_message_is_shown),
        (&["ttl", "renew", "max_hold"], check_renewal),
        (&["ttl", "renew", "min_hold"], check_min_hold),
        (&["wait", "on_busy"], check_wait),
        (&["on_lost"], check_on_lost),
        (&["key", "fence"], check_fences),
        (&["map_err"], check_map_err),
        (&["map_err", "on_lost", "on_busy"], check_functions),
        (&["key", "on_busy"], check_calls),
        (&["key", "on_busy", "shared", "permits", "fence", "guard", "message"], check_reuse),
        (&["guard", "fence"], check_bindings),
    ];
    for (about, check) in checks {
        if args.are_right(about) {
            faults.keep(check(args, &function));
        }
    }
    faults.end().map(|()| function)
}
