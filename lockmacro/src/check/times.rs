//! Lease, renewal and wait beside each other.

use humantime::format_duration;
use std::time::Duration;
use syn::{Error, Result};

use crate::parse::args::Args;
use crate::parse::duration::{TTL_DEFAULT, Time, Wait};
use crate::parse::item::Function;

pub(super) fn check_renewal(args: &Args, _: &Function) -> Result<()> {
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
            let max_hold = format_duration(max_hold);
            let lease = format_duration(lease);
            fault(format!(
                "`max_hold` is the end of renewal, so it is at least {its_name}: write a \
                 `max_hold` of \"{lease}\" or more, or `ttl = \"{max_hold}\"` alone for the \
                 longest hold"
            ))
        }
        _ => Ok(()),
    }
}

pub(super) fn check_min_hold(args: &Args, _: &Function) -> Result<()> {
    let min_hold = args.min_hold.as_ref().and_then(Time::literal);
    match (min_hold, lease(args)) {
        (Some(min_hold), Some((lease, its_name))) if min_hold > lease => {
            let min_hold = format_duration(min_hold);
            let lease = format_duration(lease);
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

pub(super) fn check_wait(args: &Args, _: &Function) -> Result<()> {
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
