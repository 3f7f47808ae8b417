//! What happens when the lock is busy or lost, beside the function and the other arguments.

use syn::spanned::Spanned as _;
use syn::{Error, FnArg, Result};

use crate::check::defer;
use crate::messages::{self, refuse};
use crate::parse::args::Args;
use crate::parse::item::Function;
use crate::parse::policy::{AfterLoss, OnBusy};
use crate::parse::returns;

/// Checks that a fallback or a worker can call a function with the same arguments.
pub(super) fn check_calls(args: &Args, function: &Function) -> Result<()> {
    match &args.on_busy {
        OnBusy::Error | OnBusy::Skip | OnBusy::Reuse(_) => return Ok(()),
        OnBusy::Fallback(_) => {}
        OnBusy::Defer(settings) => defer::check(settings, args, function)?,
    }
    let policy = args.on_busy.word();
    function.call_arguments(policy)?;
    for input in &function.sig.inputs {
        let attributes = match input {
            FnArg::Receiver(receiver) => &receiver.attrs,
            FnArg::Typed(argument) => &argument.attrs,
        };
        if let Some(cfg) = attributes.iter().find(|attribute| attribute.path().is_ident("cfg")) {
            return Err(Error::new(cfg.path().span(), messages::cfg(policy)));
        }
    }
    Ok(())
}

/// Checks that the value of a function can be shared.
pub(super) fn check_reuse(args: &Args, function: &Function) -> Result<()> {
    let OnBusy::Reuse(_) = &args.on_busy else { return Ok(()) };
    let output = &function.output;
    let no_result = returns::is_no_result(output).then(|| output.span());
    let has_late_message =
        args.message.as_ref().is_some_and(|message| message.as_plain().is_none());
    let sync = (!function.is_async()).then(|| function.sig.ident.span());
    let at = |name: &str, is: bool| is.then(|| args.span_of(name));
    refuse([
        (sync, messages::REUSE_SYNC),
        (no_result, messages::REUSE_NO_RESULT),
        (at("key", !args.key.is_one()), messages::REUSE_SEVERAL),
        (at("shared", args.has("shared")), messages::REUSE_SHARED),
        (at("permits", args.has("permits")), messages::REUSE_SHARED),
        (at("fence", args.fence.is_some()), messages::REUSE_FENCE),
        (at("guard", args.guard.is_some()), messages::REUSE_GUARD),
        (at("message", has_late_message), messages::REUSE_MESSAGE),
    ])
}

/// Checks that only one argument says who may hold a key.
pub(super) fn check_sharing(args: &Args, _: &Function) -> Result<()> {
    let one_of_keys = args.key.each().iter().any(|key| key.sharing().is_some());
    let at = |name: &str, is: bool| (is && args.has(name)).then(|| args.span_of(name));
    refuse([
        (at("permits", args.has("shared")), messages::SHARED_AND_PERMITS),
        (at("shared", one_of_keys), messages::SHARED_TWICE),
        (at("permits", one_of_keys), messages::SHARED_TWICE),
    ])
}

/// Checks that a message is shown.
pub(super) fn check_message(args: &Args, _: &Function) -> Result<()> {
    let policy = args.on_busy.word();
    if args.message.is_none() || matches!(policy, "error" | "reuse") {
        return Ok(());
    }
    Err(Error::new(args.span_of("message"), messages::message_not_shown(policy)))
}

pub(super) fn check_on_lost(args: &Args, function: &Function) -> Result<()> {
    let cannot_stop = matches!(args.on_lost, Some(AfterLoss::Cancel)) && !function.is_async();
    refuse([(cannot_stop.then(|| args.span_of("on_lost")), messages::CANNOT_STOP)])
}

/// Only a `Result` has an error that a `LockError` can be converted into.
pub(super) fn check_map_err(args: &Args, function: &Function) -> Result<()> {
    let has_none = args.map_err.is_some() && returns::is_no_result(&function.output);
    refuse([(has_none.then(|| args.span_of("map_err")), messages::NO_ERROR_TO_MAP)])
}
