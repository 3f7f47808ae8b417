//! Durations: literals are checked at compile time, other expressions are passed on.

use std::ops::RangeInclusive;
use std::time::Duration;

use humantime::{format_duration, parse_duration};
use syn::{Error, Expr, ExprLit, ExprUnary, Lit, Result, UnOp};

use crate::fix::slips::{near, shown};
use crate::messages;
use crate::parse::path::is_path;

/// The lease of a lock without `ttl`, as in the runtime.
pub(crate) const TTL_DEFAULT: Duration = Duration::from_secs(30);
const DAY: Duration = Duration::from_secs(24 * 60 * 60);

/// The bounds of times, as in the runtime.
pub(crate) type Bounds = RangeInclusive<Duration>;
pub(crate) const TTL: Bounds = Duration::from_millis(50)..=DAY;
/// The bounds of a wait except `forever`.
const WAIT: Bounds = Duration::from_millis(1)..=DAY;
pub(crate) const ANY: Bounds = Duration::ZERO..=Duration::MAX;

/// A duration in the attribute.
pub(crate) enum Time {
    /// A literal such as `"300s"`.
    Literal(Duration),
    /// An expression of type `Duration`.
    Expr(Box<Expr>),
}

/// The wait for a busy lock.
pub(crate) enum WaitSetting {
    For(Time),
    Forever,
    /// No wait, whatever the manager's default is.
    Never,
}

impl WaitSetting {
    /// The limit of the wait.
    pub(crate) fn limit(&self) -> Option<&Time> {
        match self {
            WaitSetting::For(limit) => Some(limit),
            WaitSetting::Forever | WaitSetting::Never => None,
        }
    }
}

impl Time {
    pub(crate) fn literal(&self) -> Option<Duration> {
        match self {
            Time::Literal(time) => Some(*time),
            Time::Expr(_) => None,
        }
    }

    pub(crate) fn expr(&self) -> Option<&Expr> {
        match self {
            Time::Literal(_) => None,
            Time::Expr(expr) => Some(expr),
        }
    }
}

/// Parses the value of `wait`, which may also be `forever` or `never`.
pub(crate) fn wait(value: Expr) -> Result<WaitSetting> {
    if is_path(&value, "forever") {
        return Ok(WaitSetting::Forever);
    }
    if is_path(&value, "never") {
        return Ok(WaitSetting::Never);
    }
    if let Expr::Lit(_) = value
        && let Some(near) = near(&value, "wait", &["forever", "never"])
    {
        return Err(Error::new_spanned(value, near));
    }
    time("wait = {}", value, &WAIT).map(WaitSetting::For)
}

/// Parses a duration that stands in place of the `{}` in `form`: a text of whole milliseconds.
pub(crate) fn time(form: &str, value: Expr, bounds: &Bounds) -> Result<Time> {
    let is_wait = form.starts_with("wait");
    let quoted = match &value {
        Expr::Lit(ExprLit { lit: Lit::Str(text), .. }) => Some(text.value()),
        Expr::Lit(_) | Expr::Unary(ExprUnary { op: UnOp::Neg(_), .. }) => None,
        _ => return Ok(Time::Expr(Box::new(value))),
    };
    let shown = shown(&value);
    let text = quoted.as_ref().unwrap_or(&shown);
    let message = match parse(text.trim()) {
        Some(Duration::ZERO) if is_wait => messages::ZERO_WAIT.to_owned(),
        Some(Duration::ZERO) => messages::ZERO.to_owned(),
        Some(time) if quoted.is_some() && bounds.contains(&time) => {
            return Ok(Time::Literal(time));
        }
        Some(_) if quoted.is_some() => {
            let most = format_duration(*bounds.end());
            messages::out_of_bounds(format_duration(*bounds.start()), most)
        }
        time => {
            let is_number = text.bytes().all(|byte| byte.is_ascii_digit());
            let example = match time {
                Some(_) => text.clone(),
                None if is_number => format!("{text}s"),
                None if is_wait => "5s".to_owned(),
                None => "300s".to_owned(),
            };
            messages::no_duration(shown.as_str(), form.replace("{}", &format!("{example:?}")))
        }
    };
    Err(Error::new_spanned(value, message))
}

/// Months and years have no fixed length, and `M` is one to the parser, but not to everybody.
fn parse(text: &str) -> Option<Duration> {
    let is_vague = |unit| ["M", "month", "months", "y", "yr", "year", "years"].contains(&unit);
    if text.split(|c: char| !c.is_alphabetic()).any(is_vague) || text.contains('.') {
        return None;
    }
    parse_duration(text).ok().filter(|time| time.subsec_nanos() % 1_000_000 == 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use syn::parse_quote;

    fn read(value: Expr) -> std::result::Result<Duration, String> {
        match time("ttl = {}", value, &TTL) {
            Ok(Time::Literal(duration)) => Ok(duration),
            Ok(Time::Expr(_)) => Err("an expression".to_owned()),
            Err(error) => Err(error.to_string()),
        }
    }

    #[test]
    fn units_are_read() {
        assert_eq!(read(parse_quote!("300s")), Ok(Duration::from_secs(300)));
        assert_eq!(read(parse_quote!("1m30s")), Ok(Duration::from_secs(90)));
        assert_eq!(read(parse_quote!("500ms")), Ok(Duration::from_millis(500)));
        assert_eq!(read(parse_quote!("1s 500ms")), Ok(Duration::from_millis(1500)));
        assert_eq!(read(parse_quote!("1day")), Ok(Duration::from_secs(86_400)));
        assert_eq!(read(parse_quote!("50000us")), Ok(Duration::from_millis(50)));
    }

    #[test]
    fn what_is_no_fixed_number_of_milliseconds_is_refused() {
        for value in [
            "1M",
            "1m 2months",
            "1y",
            "60ms 1us",
            "300",
            "",
            "soon",
            "-5s",
            "1.5s",
            "2.5",
            "99999999999999999999s",
            "PT5M",
            "PT1H30S",
        ] {
            let error = read(parse_quote!(#value)).unwrap_err();
            let start = format!("`{value:?}` is no duration: write whole numbers with the units");
            assert!(error.starts_with(&start), "{value:?}: {error}");
        }
        for value in ["0s", "0", "0ms"] {
            assert!(read(parse_quote!(#value)).unwrap_err().contains("zero"), "{value}");
        }
    }

    #[test]
    fn a_lease_has_bounds() {
        assert!(read(parse_quote!("50ms")).is_ok());
        assert!(read(parse_quote!("49ms")).unwrap_err().contains("write one from \"50ms\""));
        assert!(read(parse_quote!("24h")).is_ok());
        assert!(read(parse_quote!("24h 1ms")).unwrap_err().contains("to \"1day\""));
    }

    #[test]
    fn a_duration_stands_in_quotes() {
        for (value, shown, example) in [
            (parse_quote!(300), "300", "300s"),
            (parse_quote!(5min), "5min", "5min"),
            (parse_quote!(1.5s), "1.5s", "300s"),
            (parse_quote!(-5), "-5", "300s"),
            (parse_quote!(true), "true", "300s"),
        ] {
            let error = read(value).unwrap_err();
            assert!(error.starts_with(&format!("`{shown}` is no duration")), "{error}");
            assert!(error.contains(&format!("in quotes, as in `ttl = {example:?}`")), "{error}");
        }
    }

    #[test]
    fn only_a_lease_has_bounds() {
        let read = |value| time("max_hold = {}", value, &ANY).ok()?.literal();
        assert_eq!(read(parse_quote!("1ms")), Some(Duration::from_millis(1)));
        assert_eq!(read(parse_quote!("7days")), Some(Duration::from_secs(7 * 86_400)));
        assert_eq!(read(parse_quote!("0s")), None);
    }

    #[test]
    fn a_wait_is_a_millisecond_to_a_day_or_has_no_end() {
        let read = |value| match wait(value) {
            Ok(WaitSetting::For(limit)) => Ok(limit.literal()),
            Ok(WaitSetting::Forever) => Ok(Some(Duration::MAX)),
            Ok(WaitSetting::Never) => Ok(Some(Duration::ZERO)),
            Err(error) => Err(error.to_string()),
        };
        assert_eq!(read(parse_quote!("1ms")), Ok(Some(Duration::from_millis(1))));
        assert_eq!(read(parse_quote!("24h")), Ok(Some(DAY)));
        assert_eq!(read(parse_quote!(forever)), Ok(Some(Duration::MAX)));
        assert_eq!(read(parse_quote!(never)), Ok(Some(Duration::ZERO)));
        assert_eq!(read(parse_quote!(self.patience)), Ok(None));
        for (value, word) in [
            ("24h 1ms", "from \"1ms\" to \"1day\""),
            ("forever", "write `wait = forever`"),
            ("never", "write `wait = never`"),
            ("0s", "`wait = never` to request the lock once"),
            ("999us", "whole numbers with the units"),
        ] {
            let error = read(parse_quote!(#value)).unwrap_err();
            assert!(error.contains(word), "{value:?}: {error}");
        }
    }

    #[test]
    fn an_expression_is_passed_on() {
        assert!(matches!(time("ttl = {}", parse_quote!(self.ttl), &TTL), Ok(Time::Expr(_))));
    }
}
