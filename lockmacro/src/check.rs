//! Contradictions between the arguments, and between them and the function.

use std::time::Duration;

use humantime::format_duration;
use proc_macro2::Ident;
use syn::ext::IdentExt as _;
use syn::spanned::Spanned as _;
use syn::{Error, FnArg, Result};

use crate::args::Args;
use crate::duration::{TTL_DEFAULT, Time, Wait};
use crate::item::Function;
use crate::key::Key;
use crate::literal;
use crate::path::variable;
use crate::policy::{OnBusy, OnLost};
use crate::returns;
use crate::sharing::Sharing;
use crate::template::Template;
use crate::values::Fences;

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

fn check_key(args: &Args, function: &Function) -> Result<()> {
    let before = if args.key.is_one() { "key = " } else { "" };
    for key in args.key.each() {
        if let Key::Expr(expr) = key
            && let Some(name) = variable(expr)
            && function.is_number(name)
        {
            let message = format!(
                "a key is text, and `{name}` is none: write `{before}\"<{name}>\"`, or with a word \
                 before it, as in `{before}\"order:<{name}>\"`"
            );
            return Err(Error::new_spanned(expr, message));
        }
    }
    args.key.check_names(&function.template_names())
}

/// Checks that a name has no text that was meant as a placeholder.
fn check_name(args: &Args, function: &Function) -> Result<()> {
    let Some(name) = &args.name else { return Ok(()) };
    let names = function.template_names();
    let has_values =
        Template::parse(name.clone()).is_ok_and(|template| template.exprs().next().is_some());
    if !has_values && literal::mistake(&name.value(), &names, false).is_none() {
        return Ok(());
    }
    let message = "`name` takes no placeholders, because it is the same for all calls: write one \
                   such as `name = \"orders.audit\"`, and values into `holder_note`";
    Err(Error::new(name.span(), message))
}

/// Checks that only one argument says who may hold a key.
fn check_sharing(args: &Args, _: &Function) -> Result<()> {
    if let Some(one) = args.sharing.as_ref().filter(|sharing| sharing.is_one()) {
        let message = "one permit is an exclusive lock, which is the default: remove `permits`";
        return Err(Error::new_spanned(one.expr(), message));
    }
    let Some(name) = args.sharing.as_ref().map(|sharing| match sharing {
        Sharing::Shared => "shared",
        Sharing::Permits(_) => "permits",
    }) else {
        return Ok(());
    };
    if args.has("shared") && args.has("permits") {
        let message = "`shared` lets any number of callers in, and `permits` at most so many: \
                       remove one of them";
        return Err(Error::new(args.span_of("permits"), message));
    }
    if args.key.each().iter().any(|key| matches!(key, Key::Shared(..))) {
        let message = format!(
            "`{name}` is for all keys, and one of them says for itself who may hold it: remove \
             `{name}` here, or the `shared(..)` and `permits(..)` in the list"
        );
        return Err(Error::new(args.span_of(name), message));
    }
    Ok(())
}

fn check_holder_note(args: &Args, function: &Function) -> Result<()> {
    let Some(note) = &args.holder_note else { return Ok(()) };
    note.check_note()?;
    note.check_names(&function.template_names(), false)
}

fn check_message(args: &Args, function: &Function) -> Result<()> {
    let names = function.template_names();
    args.message.as_ref().map_or(Ok(()), |message| message.check_names(&names, false))
}

/// Checks that a fallback or a worker can call a function with the same arguments.
fn check_calls(args: &Args, function: &Function) -> Result<()> {
    let policy = args.on_busy.word();
    match &args.on_busy {
        OnBusy::Error | OnBusy::Skip | OnBusy::Reuse(_) => return Ok(()),
        OnBusy::Fallback(_) => drop(function.call_arguments(policy)?),
        OnBusy::Defer(defer) => defer.check(function, !args.key.is_one())?,
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
fn check_reuse(args: &Args, function: &Function) -> Result<()> {
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

fn check_message_is_shown(args: &Args, _: &Function) -> Result<()> {
    let policy = args.on_busy.word();
    if args.message.is_none() || matches!(policy, "error" | "reuse") {
        return Ok(());
    }
    let message = format!(
        "the message belongs to the busy error, which `on_busy = {policy}` does not give: \
         remove `message`, or write `on_busy = error`"
    );
    Err(Error::new(args.span_of("message"), message))
}

fn check_renewal(args: &Args, _: &Function) -> Result<()> {
    if args.renew && args.ttl.is_none() {
        let message =
            "a lock without `ttl` is renewed already: remove `renew`, or give a `ttl` beside it";
        return Err(Error::new(args.span_of("renew"), message));
    }
    let Some(max_hold) = &args.max_hold else {
        return Ok(());
    };
    let fault = |message: String| Err(Error::new(args.span_of("max_hold"), message));
    if args.ttl.is_some() && !args.renew {
        return fault(
            "`max_hold` is the end of renewal, and a lock with `ttl` is not renewed: add `renew`, \
             or remove `max_hold`, as `ttl` is the longest hold then"
                .to_owned(),
        );
    }
    match (max_hold.literal(), lease(args)) {
        (Some(max_hold), Some((lease, its_name))) if max_hold < lease => {
            let (max_hold, lease) = (format_duration(max_hold), format_duration(lease));
            fault(format!(
                "`max_hold` is the end of renewal, so it is at least {its_name}: write a \
                 `max_hold` of \"{lease}\" or more, or `ttl = \"{max_hold}\"` alone for the \
                 longest hold"
            ))
        }
        _ => Ok(()),
    }
}

fn check_min_hold(args: &Args, _: &Function) -> Result<()> {
    let min_hold = args.min_hold.as_ref().and_then(Time::literal);
    match (min_hold, lease(args)) {
        (Some(min_hold), Some((lease, its_name))) if min_hold > lease => {
            let (min_hold, lease) = (format_duration(min_hold), format_duration(lease));
            let renew = if args.ttl.is_some() { "" } else { " with `renew`" };
            let message = format!(
                "`min_hold` is at most {its_name}: write a `min_hold` of \"{lease}\" or less, or a \
                 `ttl` of \"{min_hold}\" or more{renew}"
            );
            Err(Error::new(args.span_of("min_hold"), message))
        }
        _ => Ok(()),
    }
}

fn check_wait(args: &Args, _: &Function) -> Result<()> {
    let policy = args.on_busy.word();
    if matches!(policy, "error" | "reuse") || !matches!(args.wait, Some(Wait::Forever)) {
        return Ok(());
    }
    let message = format!(
        "`on_busy` is for when the wait is over, and `wait = forever` never is: remove `on_busy`, \
         or write how long to wait before `{policy}`, as in `wait = \"5s\"`"
    );
    Err(Error::new(args.span_of("on_busy"), message))
}

fn check_on_lost(args: &Args, function: &Function) -> Result<()> {
    if matches!(args.on_lost, Some(OnLost::Cancel)) && !function.is_async() {
        let message = "a function that is not async cannot be stopped: write `on_lost = error` to \
                       have it finish and then fail, or make it an `async fn`";
        return Err(Error::new(args.span_of("on_lost"), message));
    }
    Ok(())
}

/// Only a `Result` has an error that a `LockError` can be converted into.
fn check_map_err(args: &Args, function: &Function) -> Result<()> {
    if args.map_err.is_none() || !returns::is_no_result(&function.output) {
        return Ok(());
    }
    let message = "`map_err` makes the error of a `Result`, and this function does not return one: \
                   remove `map_err`, or return a `Result`";
    Err(Error::new(args.span_of("map_err"), message))
}

/// An argument hides the function of its name that one of the paths means.
fn check_functions(args: &Args, function: &Function) -> Result<()> {
    let map_err = args.map_err.as_ref().map(|path| ("map_err", &path.path));
    let on_lost = match &args.on_lost {
        Some(OnLost::Recover(path)) => Some(("on_lost", &path.path)),
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

/// One key has one fence, and several keys have one fence each.
fn check_fences(args: &Args, _: &Function) -> Result<()> {
    let Some(fences) = &args.fence else {
        return Ok(());
    };
    let message = match (&args.key, fences) {
        (Key::Several(keys), Fences::Each(names)) if keys.len() != names.len() => {
            let (keys, names) = (keys.len(), names.len());
            format!(
                "the lock has {keys} keys, and the number of names is {names}: write a name \
                 for each key, in the same order"
            )
        }
        (Key::Several(_), Fences::Name(_)) => {
            "each of several keys has a fence of its own: write a name for each, in the same \
             order, as in `fence = [debit, credit]`"
                .to_owned()
        }
        (Key::Keys(_), Fences::Each(_)) => {
            "the number of keys is known only when the function is called: write `fence = fences`, \
             which is a `Vec<Fence>` in the order of the keys"
                .to_owned()
        }
        (_, Fences::Each(_)) if args.key.is_one() => {
            "one key has one fence: write `fence = fence`".to_owned()
        }
        _ => return Ok(()),
    };
    Err(Error::new(args.span_of("fence"), message))
}

/// A guard or a fence must not shadow another name in the body.
fn check_bindings(args: &Args, function: &Function) -> Result<()> {
    let names = function.names();
    let mut bound: Vec<&Ident> = Vec::new();
    let guard = args.guard.iter().map(|guard| ("guard", guard));
    let fences = args.fence.iter().flat_map(Fences::names).map(|fence| ("fence", fence));
    for (argument, binding) in guard.chain(fences) {
        let word = binding.unraw();
        if names.iter().any(|name| name.unraw() == word) {
            let message = format!(
                "`{argument} = {word}` would shadow the function's argument `{word}`: write \
                 another name, such as `{argument} = {word}_{argument}`"
            );
            return Err(Error::new(binding.span(), message));
        }
        if bound.iter().any(|name| name.unraw() == word) {
            let message = match &args.guard {
                Some(guard) if guard.unraw() == word => {
                    format!("`guard` and `fence` are both called `{word}`: write two names")
                }
                _ => format!("two fences are called `{word}`: write two names"),
            };
            return Err(Error::new(binding.span(), message));
        }
        bound.push(binding);
    }
    Ok(())
}

/// The lease as far as it is known at compile time, and its description.
fn lease(args: &Args) -> Option<(Duration, String)> {
    match &args.ttl {
        Some(ttl) => {
            let ttl = ttl.literal()?;
            Some((ttl, format!("the `ttl` of {}", format_duration(ttl))))
        }
        None => {
            let lease = format_duration(TTL_DEFAULT);
            Some((TTL_DEFAULT, format!("the lease of {lease} that a lock without `ttl` has")))
        }
    }
}
