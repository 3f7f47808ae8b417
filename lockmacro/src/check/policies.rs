//! What happens when the lock is busy or lost, beside the function.

use syn::spanned::Spanned as _;
use syn::{Error, FnArg, Result};

use crate::check::defer;
use crate::parse::args::Args;
use crate::parse::item::Function;
use crate::parse::policy::{AfterLoss, OnBusy};
use crate::parse::returns;

/// Checks that a fallback or a worker can call a function with the same arguments.
pub(super) fn check_calls(args: &Args, function: &Function) -> Result<()> {
    let policy = args.on_busy.word();
    match &args.on_busy {
        OnBusy::Error | OnBusy::Skip | OnBusy::Reuse(_) => return Ok(()),
        OnBusy::Fallback(_) => drop(function.call_arguments(policy)?),
        OnBusy::Defer(settings) => defer::check(settings, function, !args.key.is_one())?,
    }
    for input in &function.sig.inputs {
        let attributes = match input {
            FnArg::Receiver(receiver) => &receiver.attrs,
            FnArg::Typed(argument) => &argument.attrs,
        };
        if let Some(cfg) = attributes.iter().find(|attribute| attribute.path().is_ident("cfg")) {
            let message = format!(
                "`{policy}` passes all arguments on, and this one is not always there: put the \
                 `cfg` on two functions, one with the argument and one without"
            );
            return Err(Error::new(cfg.path().span(), message));
        }
    }
    Ok(())
}

/// Checks that the value of a function can be shared.
pub(super) fn check_reuse(args: &Args, function: &Function) -> Result<()> {
    let OnBusy::Reuse(reuse) = &args.on_busy else { return Ok(()) };
    let message = args.message.as_ref().filter(|message| message.as_plain().is_none());
    let at = |name: &str, is: bool| is.then(|| args.span_of(name));
    let sync = (!function.is_async()).then(|| function.sig.ident.span());
    let output = &function.output;
    let value = returns::is_no_result(output).then(|| output.span());
    let faults = [
        (sync, "`reuse` waits for the value of another caller: make this an `async fn`"),
        (
            value,
            "`reuse` shares the `Ok` of a `Result`, and this function does not return one: \
             return `Result<_, LockError>`",
        ),
        (
            at("key", !args.key.is_one()),
            "`reuse` shares the value of one key, and this lock has several: write one key",
        ),
        (
            at("shared", args.has("shared")),
            "`reuse` has one caller run for all, and `shared` lets all of them run: remove one",
        ),
        (
            at("permits", args.has("permits")),
            "`reuse` has one caller run for all, and `permits` lets several run: remove one",
        ),
        (
            at("fence", args.fence.is_some()),
            "a caller that reuses a value has no lock, and so no fence: remove `fence`, or \
             `on_busy = reuse`",
        ),
        (
            at("guard", args.guard.is_some()),
            "the body finds its guard by `LockGuard::current()` beside `reuse`: remove `guard`",
        ),
        (
            at("message", message.is_some()),
            "beside `reuse` a message is the same for all calls: remove its placeholders",
        ),
    ];
    if let Some((span, message)) = faults.into_iter().find_map(|(span, it)| Some((span?, it))) {
        return Err(Error::new(span, message));
    }
    reuse.same.as_ref().map_or(Ok(()), |same| same.check_same(&function.template_names()))
}

pub(super) fn check_on_lost(args: &Args, function: &Function) -> Result<()> {
    if matches!(args.on_lost, Some(AfterLoss::Cancel)) && !function.is_async() {
        let message = "a function that is not async cannot be stopped: write `on_lost = error` to \
                       have it finish and then fail, or make it an `async fn`";
        return Err(Error::new(args.span_of("on_lost"), message));
    }
    Ok(())
}

/// Only a `Result` has an error that a `LockError` can be converted into.
pub(super) fn check_map_err(args: &Args, function: &Function) -> Result<()> {
    if args.map_err.is_none() || !returns::is_no_result(&function.output) {
        return Ok(());
    }
    let message = "`map_err` makes the error of a `Result`, and this function does not return one: \
                   remove `map_err`, or return a `Result`";
    Err(Error::new(args.span_of("map_err"), message))
}

/// An argument hides the function of its name that one of the paths means.
pub(super) fn check_functions(args: &Args, function: &Function) -> Result<()> {
    let map_err = args.map_err.as_ref().map(|path| ("map_err", &path.path));
    let on_lost = match &args.on_lost {
        Some(AfterLoss::Recover(path)) => Some(("on_lost", &path.path)),
        _ => None,
    };
    let fallback = match &args.on_busy {
        OnBusy::Fallback(path) => Some(("fallback", path)),
        _ => None,
    };
    for (argument, path) in map_err.into_iter().chain(on_lost).chain(fallback) {
        if let Some(name) = path.get_ident().filter(|name| function.is_no_function(name)) {
            let message = format!(
                "`{argument}` takes a function, and `{name}` is an argument of this one, which \
                 hides a function of this name: write `self::{name}`, or give the argument another \
                 name"
            );
            return Err(Error::new(name.span(), message));
        }
    }
    Ok(())
}
