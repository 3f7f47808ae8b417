//! Lease, renewal and wait beside each other.

use humantime::format_duration;
use std::time::Duration;
use syn::{Error, Result};

use crate::messages;
use crate::parse::args::Args;
use crate::parse::duration::{TTL_DEFAULT, Time, WaitSetting};
use crate::parse::item::Function;

pub(super) fn check_renewal(args: &Args, _: &Function) -> Result<()> {
    if args.renew && args.ttl.is_none() {
        return Err(Error::new(args.span_of("renew"), messages::RENEWED_ALREADY));
    }
    let Some(max_hold) = &args.max_hold else { return Ok(()) };
    let message = match (max_hold.literal(), lease(args)) {
        _ if args.ttl.is_some() && !args.renew => messages::NOT_RENEWED.to_owned(),
        (Some(max_hold), Some(ttl)) if max_hold < ttl => {
            messages::short_max_hold(format_duration(ttl), format_duration(max_hold))
        }
        _ => return Ok(()),
    };
    Err(Error::new(args.span_of("max_hold"), message))
}

pub(super) fn check_min_hold(args: &Args, _: &Function) -> Result<()> {
    match (args.min_hold.as_ref().and_then(Time::literal), lease(args)) {
        (Some(min_hold), Some(ttl)) if min_hold > ttl => {
            let message = messages::long_min_hold(format_duration(ttl));
            Err(Error::new(args.span_of("min_hold"), message))
        }
        _ => Ok(()),
    }
}

pub(super) fn check_wait(args: &Args, _: &Function) -> Result<()> {
    let policy = args.on_busy.word();
    if matches!(policy, "error" | "reuse") || !matches!(args.wait, Some(WaitSetting::Forever)) {
        return Ok(());
    }
    Err(Error::new(args.span_of("on_busy"), messages::wait_never_ends(policy)))
}

/// The lease as far as it is known at compile time.
fn lease(args: &Args) -> Option<Duration> {
    args.ttl.as_ref().map_or(Some(TTL_DEFAULT), Time::literal)
}
