//! Lease, renewal and wait beside each other.

use humantime::format_duration;
use std::time::Duration;
use syn::{Error, Result};

use crate::messages;
use crate::parse::args::Args;
use crate::parse::duration::{TTL_DEFAULT, Time, Wait};
use crate::parse::item::Function;

pub(super) fn check_renewal(args: &Args, _: &Function) -> Result<()> {
    if args.renew && args.ttl.is_none() {
        return Err(Error::new(args.span_of("renew"), messages::RENEWED_ALREADY));
    }
    let Some(max_hold) = &args.max_hold else { return Ok(()) };
    let message = match (max_hold.literal(), lease(args)) {
        _ if args.ttl.is_some() && !args.renew => messages::NOT_RENEWED.to_owned(),
        (Some(max_hold), Some((ttl, lease))) if max_hold < ttl => {
            messages::short_max_hold(lease, format_duration(ttl), format_duration(max_hold))
        }
        _ => return Ok(()),
    };
    Err(Error::new(args.span_of("max_hold"), message))
}

pub(super) fn check_min_hold(args: &Args, _: &Function) -> Result<()> {
    let min_hold = args.min_hold.as_ref().and_then(Time::literal);
    let (Some(min_hold), Some((ttl, lease))) = (min_hold, lease(args)) else { return Ok(()) };
    if min_hold <= ttl {
        return Ok(());
    }
    let renew = if args.ttl.is_some() { "" } else { " with `renew`" };
    let ttl = format_duration(ttl);
    let message = messages::long_min_hold(lease, ttl, format_duration(min_hold), renew);
    Err(Error::new(args.span_of("min_hold"), message))
}

pub(super) fn check_wait(args: &Args, _: &Function) -> Result<()> {
    let policy = args.on_busy.word();
    if matches!(policy, "error" | "reuse") || !matches!(args.wait, Some(Wait::Forever)) {
        return Ok(());
    }
    Err(Error::new(args.span_of("on_busy"), messages::wait_never_ends(policy)))
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
