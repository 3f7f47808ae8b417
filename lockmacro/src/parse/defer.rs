//! The settings of `on_busy = defer("30s")`.

use std::time::Duration;

use proc_macro2::Span;
use quote::ToTokens as _;
use syn::spanned::Spanned as _;
use syn::{Error, Expr, ExprCall, ExprLit, Lit, LitInt, Result};

use crate::fix::names;
use crate::parse::duration::{self, Time};
use crate::parse::faults::Faults;
use crate::parse::path::is_path;

/// The longest delay, the same as in the runtime.
const DELAY_MAX: Duration = Duration::from_secs(7 * 24 * 60 * 60);

/// The settings of `defer(..)`.
pub(crate) struct Defer {
    pub(crate) delay: Time,
    pub(crate) unique: bool,
    pub(crate) latest: bool,
    pub(crate) at_most: Option<Time>,
    pub(crate) attempts: Option<LitInt>,
    /// The span of `defer(..)`.
    pub(crate) span: Span,
}

impl Defer {
    /// Reads `defer("30s", latest, at_most = "5m", attempts = 5)`.
    pub(crate) fn parse(call: ExprCall) -> Result<Self> {
        if !cfg!(feature = "defer") {
            let message = "`defer` is a feature: write `lockmacro-runtime = { version = \"0.1\", \
                           features = [\"defer\"] }` in Cargo.toml";
            return Err(Error::new_spanned(call, message));
        }
        let span = call.span();
        let mut settings = call.args.into_iter();
        let Some(delay) = settings.next() else {
            let message =
                "`defer` says after how long the call is tried again: write `defer(\"30s\")`";
            return Err(Error::new(span, message));
        };
        if let Expr::Assign(assign) = &delay
            && is_path(&assign.left, "delay")
        {
            return Err(Error::new_spanned(
                delay,
                "the delay stands alone: write `defer(\"30s\")`",
            ));
        }
        let place = delay.span();
        let delay = duration::written("defer({})", delay)?;
        if delay.literal().is_some_and(|delay| delay > DELAY_MAX) {
            let message = "this delay is too long: it is at most \"7days\"";
            return Err(Error::new(place, message));
        }
        let unique = false;
        let latest = false;
        let mut defer = Self { delay, unique, latest, at_most: None, attempts: None, span };
        let mut faults = Faults::default();
        for setting in settings {
            faults.keep(defer.set(&setting));
        }
        faults.end()?;
        defer.fit().map(|()| defer)
    }

    /// Refuses settings that do not fit each other.
    fn fit(&self) -> Result<()> {
        let at_most = self.at_most.as_ref().map(Time::literal);
        let message = match (at_most, self.delay.literal()) {
            _ if self.unique && self.latest => {
                "`unique` keeps the first call of a key, and `latest` the last one: remove one of \
                 them"
            }
            (Some(_), _) if !self.latest => {
                "`at_most` is how long later calls put the waiting one off, which `latest` keeps: \
                 write `defer(\"30s\", latest, at_most = \"5m\")`"
            }
            (Some(Some(at_most)), Some(delay)) if at_most < delay => {
                "`at_most` is shorter than the delay, so no call could be put off: write a longer \
                 one, or remove it"
            }
            _ => return Ok(()),
        };
        Err(Error::new(self.span, message))
    }

    /// Reads the settings after the delay.
    fn set(&mut self, setting: &Expr) -> Result<()> {
        let (name, value) = match setting {
            Expr::Assign(assign) => (assign.left.to_token_stream(), Some(&*assign.right)),
            alone => (alone.to_token_stream(), None),
        };
        let message = match (name.to_string().as_str(), value) {
            ("unique", None) => {
                if std::mem::replace(&mut self.unique, true) {
                    "`unique` is given twice: remove one"
                } else {
                    return Ok(());
                }
            }
            ("unique", _) => "`unique` stands alone: write `defer(\"30s\", unique)`",
            ("latest", None) => {
                if std::mem::replace(&mut self.latest, true) {
                    "`latest` is given twice: remove one"
                } else {
                    return Ok(());
                }
            }
            ("latest", _) => "`latest` stands alone: write `defer(\"30s\", latest)`",
            ("at_most", Some(value)) => match duration::time("at_most", value.clone())? {
                time if time.literal().is_some_and(|time| time > DELAY_MAX) => {
                    "this time is too long: `at_most` is at most \"7days\""
                }
                time => match self.at_most.replace(time) {
                    None => return Ok(()),
                    Some(_) => "`at_most` is given twice: remove one",
                },
            },
            ("at_most", None) => {
                "`at_most` is the longest time for which calls put one off: write \
                 `at_most = \"5m\"`"
            }
            ("attempts", Some(Expr::Lit(ExprLit { lit: Lit::Int(number), .. })))
                if number.base10_parse::<u32>().is_ok_and(|tries| tries > 0) =>
            {
                match self.attempts.replace(number.clone()) {
                    None => return Ok(()),
                    Some(_) => "`attempts` is given twice: remove one",
                }
            }
            ("attempts", _) => {
                "`attempts` is the number of times that the call is tried: write `attempts = 5`"
            }
            ("name", _) => {
                "the name stands beside `on_busy`: write `name = \"orders.audit\"` there"
            }
            (other, _) => &names::setting(other).unwrap_or_else(|| {
                "after the delay `defer` takes `unique` or `latest`, `at_most = \"5m\"` and \
                 `attempts = 5`"
                    .to_owned()
            }),
        };
        Err(Error::new_spanned(setting, message))
    }
}
