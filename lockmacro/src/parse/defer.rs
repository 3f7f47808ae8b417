//! The settings of `on_busy = defer("30s")`.

use std::time::Duration;

use syn::{Error, Expr, ExprCall, ExprLit, Lit, LitInt, Result};

use crate::messages;
use crate::parse::duration::{Bounds, Time, time};
use crate::parse::path::is_path;
use crate::parse::values::settings;

/// The bounds of a delay, the same as in the runtime.
const DELAY: Bounds = Duration::from_millis(1)..=Duration::from_secs(7 * 24 * 60 * 60);

/// The settings of `defer(..)`.
pub(crate) struct Defer {
    pub(crate) delay: Time,
    pub(crate) unique: bool,
    pub(crate) latest: bool,
    pub(crate) at_most: Option<Time>,
    pub(crate) attempts: Option<LitInt>,
}

impl Defer {
    /// Reads `defer("30s", latest, at_most = "5m", attempts = 5)`.
    pub(crate) fn parse(call: &ExprCall) -> Result<Self> {
        if !cfg!(feature = "defer") {
            return Err(Error::new_spanned(call, messages::feature("defer")));
        }
        let mut given = call.args.iter();
        let is_setting = |delay: &Expr| {
            matches!(delay, Expr::Assign(_)) || is_path(delay, "unique") || is_path(delay, "latest")
        };
        let delay = match given.next() {
            Some(delay) if is_setting(delay) => {
                return Err(Error::new_spanned(delay, messages::DEFER_DELAY));
            }
            Some(delay) => time("defer({})", delay.clone(), &DELAY)?,
            None => return Err(Error::new_spanned(call, messages::DEFER_DELAY)),
        };
        let mut defer = Self { delay, unique: false, latest: false, at_most: None, attempts: None };
        settings(given, messages::DEFER_SETTINGS, |name, value| {
            match (name, value) {
                ("unique", None) => defer.unique = true,
                ("latest", None) => defer.latest = true,
                ("at_most", Some(value)) => {
                    defer.at_most = Some(time("at_most = {}", value.clone(), &DELAY)?);
                }
                ("attempts", Some(Expr::Lit(ExprLit { lit: Lit::Int(number), .. })))
                    if number.base10_parse::<u32>().is_ok_and(|tries| tries > 0) =>
                {
                    defer.attempts = Some(number.clone());
                }
                _ => return Ok(false),
            }
            Ok(true)
        })?;
        defer.fit().map_err(|message| Error::new_spanned(call, message))?;
        Ok(defer)
    }

    /// Refuses settings that do not fit each other.
    fn fit(&self) -> std::result::Result<(), &'static str> {
        let at_most = self.at_most.as_ref().map(Time::literal);
        match (at_most, self.delay.literal()) {
            _ if self.unique && self.latest => Err(messages::UNIQUE_AND_LATEST),
            (Some(_), _) if !self.latest => Err(messages::AT_MOST_ALONE),
            (Some(Some(at_most)), Some(delay)) if at_most < delay => Err(messages::SHORT_AT_MOST),
            _ => Ok(()),
        }
    }
}
