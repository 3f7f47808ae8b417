//! Durations: literals are checked at compile time, other expressions are passed on.

use std::time::Duration;

use syn::spanned::Spanned as _;
use syn::{Error, Expr, Lit, LitStr, Result};

use crate::policy::is_path;

/// The lease of a lock without `ttl`, the shortest and the longest one, as the engine has them.
pub(crate) const TTL_DEFAULT: Duration = Duration::from_secs(30);
const TTL_MIN: Duration = Duration::from_millis(50);
const TTL_MAX: Duration = Duration::from_secs(24 * 60 * 60);
/// Longest wait that has an end.
const WAIT_MAX: Duration = Duration::from_secs(24 * 60 * 60);

/// A span of time, as written in the attribute.
pub(crate) enum Time {
    /// A literal such as `"300s"`.
    Literal(Duration),
    /// An expression of type `Duration`.
    Expr(Expr),
}

/// How long to wait for a busy lock.
pub(crate) enum Wait {
    For(Time),
    Forever,
    /// Not at all, whatever the manager's default is.
    Never,
}

impl Wait {
    /// The longest wait.
    pub(crate) fn limit(&self) -> Option<&Time> {
        match self {
            Wait::For(limit) => Some(limit),
            Wait::Forever | Wait::Never => None,
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

/// Reads the value of `ttl`, which has bounds.
pub(crate) fn ttl(value: Expr) -> Result<Time> {
    let span = value.span();
    let time = time("ttl", value)?;
    let message = match time.literal() {
        Some(ttl) if ttl < TTL_MIN => "this lease is too short: `ttl` is at least \"50ms\"",
        Some(ttl) if ttl > TTL_MAX => "this lease is too long: `ttl` is at most \"24h\"",
        _ => return Ok(time),
    };
    Err(Error::new(span, message))
}

/// Reads the value of `wait`, which may be without an end, and without a beginning.
pub(crate) fn wait(value: Expr) -> Result<Wait> {
    if is_path(&value, "forever") {
        return Ok(Wait::Forever);
    }
    if is_path(&value, "never") {
        return Ok(Wait::Never);
    }
    let span = value.span();
    let literal = match &value {
        Expr::Lit(syn::ExprLit { lit: Lit::Str(text), .. }) => text.value(),
        _ => String::new(),
    };
    if let word @ ("forever" | "never") = literal.trim() {
        return Err(Error::new(span, format!("write it without quotes: `wait = {word}`")));
    }
    let limit = time("wait", value)?;
    match limit.literal() {
        Some(limit) if limit > WAIT_MAX => Err(Error::new(
            span,
            "this wait is too long: `wait` is at most \"24h\", or write `wait = forever`",
        )),
        _ => Ok(Wait::For(limit)),
    }
}

/// Reads the value of the argument `name`.
pub(crate) fn time(name: &str, value: Expr) -> Result<Time> {
    let literal = match &value {
        Expr::Lit(literal) => &literal.lit,
        _ => return Ok(Time::Expr(value)),
    };
    match literal {
        Lit::Str(text) => parse(name, text).map(Time::Literal),
        Lit::Int(number) => {
            let number = number.base10_digits();
            Err(Error::new(
                literal.span(),
                format!("a duration needs a unit: write `{name} = \"{number}s\"` for seconds"),
            ))
        }
        other => Err(Error::new(
            other.span(),
            format!(
                "`{name}` is a duration: write `{name} = \"300s\"`, or an expression of type `Duration`"
            ),
        )),
    }
}

/// Reads a literal of whole milliseconds, more than none.
fn parse(name: &str, literal: &LitStr) -> Result<Duration> {
    let text = literal.value();
    let fault = |message: String| Err(Error::new(literal.span(), message));
    if !text.trim().is_empty() && text.trim().chars().all(|c| c.is_ascii_digit()) {
        let number = text.trim();
        return fault(format!(
            "a duration needs a unit: write \"{number}s\" for seconds or \"{number}ms\" for milliseconds"
        ));
    }
    for unit in text.split(|c: char| !c.is_alphabetic()) {
        match unit {
            "M" => return fault("`M` is a month: write `m` for minutes".to_owned()),
            "month" | "months" | "y" | "yr" | "year" | "years" => {
                return fault(format!("a `{unit}` has no fixed length: write `s`, `m` or `h`"));
            }
            _ => {}
        }
    }
    let Ok(duration) = humantime::parse_duration(&text) else {
        return fault(format!(
            "`{text}` is not a duration: write a number and a unit, as in \"300s\", \"1m30s\" or \"500ms\""
        ));
    };
    if duration.is_zero() && name == "wait" {
        return fault("a wait of zero: write `wait = never` to ask once".to_owned());
    }
    if duration.is_zero() {
        return fault("a duration of zero: write a longer one, as in \"300s\"".to_owned());
    }
    if duration.subsec_nanos() % 1_000_000 != 0 {
        return fault("durations are whole milliseconds: write one such as \"500ms\"".to_owned());
    }
    Ok(duration)
}

#[cfg(test)]
mod tests {
    use super::*;
    use syn::parse_quote;

    fn read(value: Expr) -> std::result::Result<Duration, String> {
        match ttl(value) {
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
        for (value, word) in [
            ("1M", "month"),
            ("1m 2months", "no fixed length"),
            ("1y", "no fixed length"),
            ("0s", "zero"),
            ("60ms 1us", "whole milliseconds"),
            ("300", "\"300s\""),
            ("", "not a duration"),
            ("soon", "not a duration"),
            ("-5s", "not a duration"),
            ("99999999999999999999s", "not a duration"),
        ] {
            let error = read(parse_quote!(#value)).unwrap_err();
            assert!(error.contains(word), "{value:?}: {error}");
        }
    }

    #[test]
    fn a_lease_has_bounds() {
        assert!(read(parse_quote!("50ms")).is_ok());
        assert!(read(parse_quote!("49ms")).unwrap_err().contains("too short"));
        assert!(read(parse_quote!("24h")).is_ok());
        assert!(read(parse_quote!("24h 1ms")).unwrap_err().contains("too long"));
    }

    #[test]
    fn a_bare_number_gets_its_unit_in_the_message() {
        assert!(read(parse_quote!(300)).unwrap_err().contains("`ttl = \"300s\"`"));
    }

    #[test]
    fn only_a_lease_has_bounds() {
        let read = |value| time("max_hold", value).ok()?.literal();
        assert_eq!(read(parse_quote!("1ms")), Some(Duration::from_millis(1)));
        assert_eq!(read(parse_quote!("7days")), Some(Duration::from_secs(7 * 86_400)));
        assert_eq!(read(parse_quote!("0s")), None);
    }

    #[test]
    fn a_wait_is_a_millisecond_to_a_day_or_has_no_end() {
        let read = |value| match wait(value) {
            Ok(Wait::For(limit)) => Ok(limit.literal()),
            Ok(Wait::Forever) => Ok(Some(Duration::MAX)),
            Ok(Wait::Never) => Ok(Some(Duration::ZERO)),
            Err(error) => Err(error.to_string()),
        };
        assert_eq!(read(parse_quote!("1ms")), Ok(Some(Duration::from_millis(1))));
        assert_eq!(read(parse_quote!("24h")), Ok(Some(WAIT_MAX)));
        assert_eq!(read(parse_quote!(forever)), Ok(Some(Duration::MAX)));
        assert_eq!(read(parse_quote!(never)), Ok(Some(Duration::ZERO)));
        assert_eq!(read(parse_quote!(self.patience)), Ok(None));
        for (value, word) in [
            ("24h 1ms", "`wait = forever`"),
            ("forever", "without quotes"),
            ("never", "without quotes: `wait = never`"),
            ("0s", "`wait = never` to ask once"),
            ("999us", "whole milliseconds"),
        ] {
            let error = read(parse_quote!(#value)).unwrap_err();
            assert!(error.contains(word), "{value:?}: {error}");
        }
    }

    #[test]
    fn an_expression_is_passed_on() {
        assert!(matches!(ttl(parse_quote!(self.ttl)), Ok(Time::Expr(_))));
    }
}
