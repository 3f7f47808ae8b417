//! Durations: literals are checked at compile time, other expressions are passed on.

use std::time::Duration;

use humantime::parse_duration;
use syn::spanned::Spanned as _;
use syn::{Error, Expr, ExprLit, ExprUnary, Lit, Result, UnOp};

use crate::fix::slips::near;
use crate::parse::path::is_path;

/// The lease of a lock without `ttl`, and the shortest and the longest lease, as in the runtime.
pub(crate) const TTL_DEFAULT: Duration = Duration::from_secs(30);
const TTL_MIN: Duration = Duration::from_millis(50);
const TTL_MAX: Duration = Duration::from_secs(24 * 60 * 60);
/// The longest wait except `forever`.
const WAIT_MAX: Duration = Duration::from_secs(24 * 60 * 60);

/// A duration in the attribute.
pub(crate) enum Time {
    /// A literal such as `"300s"`.
    Literal(Duration),
    /// An expression of type `Duration`.
    Expr(Box<Expr>),
}

/// The wait for a busy lock.
pub(crate) enum Wait {
    For(Time),
    Forever,
    /// No wait, whatever the manager's default is.
    Never,
}

impl Wait {
    /// The limit of the wait.
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

/// Parses the value of `ttl`, which has bounds.
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

/// Parses the value of `wait`, which may also be `forever` or `never`.
pub(crate) fn wait(value: Expr) -> Result<Wait> {
    let span = value.span();
    let words = ["forever", "never"];
    let limit = match value {
        _ if is_path(&value, "forever") => return Ok(Wait::Forever),
        _ if is_path(&value, "never") => return Ok(Wait::Never),
        Expr::Lit(_) => match near(&value, "wait", &words) {
            Some(message) => return Err(Error::new(span, message)),
            None => time("wait", value)?,
        },
        other => time("wait", other)?,
    };
    if limit.literal().is_none_or(|limit| limit <= WAIT_MAX) {
        return Ok(Wait::For(limit));
    }
    let message = "this wait is too long: `wait` is at most \"24h\", or write `wait = forever`";
    Err(Error::new(span, message))
}

/// Parses the value of the argument `name`.
pub(crate) fn time(name: &str, value: Expr) -> Result<Time> {
    written(&format!("{name} = {{}}"), value)
}

/// Parses a duration that stands in place of the `{}` in `form`.
pub(crate) fn written(form: &str, value: Expr) -> Result<Time> {
    let (sign, number) = match &value {
        Expr::Unary(ExprUnary { op: UnOp::Neg(_), expr, .. }) => ("-", &**expr),
        other => ("", other),
    };
    let Expr::Lit(ExprLit { lit, .. }) = number else { return Ok(Time::Expr(Box::new(value))) };
    let write = |text: &str| form.replace("{}", &format!("{text:?}"));
    let (text, is_text) = match lit {
        Lit::Str(text) => (text.value(), true),
        Lit::Int(number) => (format!("{}{}", number.base10_digits(), number.suffix()), false),
        Lit::Float(number) => (format!("{}{}", number.base10_digits(), number.suffix()), false),
        _ => {
            let write = write(example(form));
            let message = format!(
                "this is no duration: write `{write}`, or an expression of type `Duration`"
            );
            return Err(Error::new_spanned(value, message));
        }
    };
    let message = match parse(form, format!("{sign}{text}").trim()) {
        Ok(time) if is_text => return Ok(Time::Literal(time)),
        Ok(_) => format!("a duration stands in quotes: write `{}`", write(&text)),
        Err(message) => message,
    };
    Err(Error::new_spanned(value, message))
}

/// Parses a text of whole milliseconds, at least one.
fn parse(form: &str, text: &str) -> std::result::Result<Duration, String> {
    let write = |text: &str| form.replace("{}", &format!("{text:?}"));
    if text.starts_with('-') {
        return Err(format!(
            "a duration is not negative: write one such as `{}`",
            write(example(form))
        ));
    }
    for unit in text.split(|c: char| !c.is_alphabetic()) {
        match unit {
            "M" if text.starts_with(|first: char| first.is_ascii_digit()) => {
                return Err("`M` is a month: write `m` for minutes".to_owned());
            }
            "month" | "months" | "y" | "yr" | "year" | "years" => {
                return Err(format!("a `{unit}` has no fixed length: write `s`, `m` or `h`"));
            }
            _ => {}
        }
    }
    let (number, unit) =
        text.split_at(text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len()));
    match (number.parse::<f64>(), unit.trim()) {
        (Ok(0.0), "") => Err(zero(form)),
        (Ok(_), _) if number.contains('.') => Err(format!(
            "the numbers of a duration are whole: write one such as `{}`",
            write("1500ms")
        )),
        (Ok(_), "") => Err(format!(
            "a duration needs a unit: write `{}` for seconds or `{}` for milliseconds",
            write(&format!("{text}s")),
            write(&format!("{text}ms"))
        )),
        _ => match parse_duration(text) {
            Ok(time) if time.is_zero() => Err(zero(form)),
            Ok(time) if time.subsec_nanos() % 1_000_000 == 0 => Ok(time),
            Ok(_) => {
                Err("durations are whole milliseconds: write one such as \"500ms\"".to_owned())
            }
            Err(_) => Err(format!(
                "`{text}` is not a duration: write a number and a unit, as in \"300s\", \"1m30s\" \
                 or \"500ms\""
            )),
        },
    }
}

fn example(form: &str) -> &'static str {
    if form.starts_with("wait") { "5s" } else { "300s" }
}

/// The message for a time of zero for the argument that `form` starts with.
fn zero(form: &str) -> String {
    if form.starts_with("wait") {
        "a wait of zero: write `wait = never` to request the lock once".to_owned()
    } else {
        "a duration of zero is too short: write a longer one, as in \"300s\"".to_owned()
    }
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
            ("-5s", "not negative: write one such as `ttl = \"300s\"`"),
            ("0", "zero"),
            ("1.5s", "whole: write one such as `ttl = \"1500ms\"`"),
            ("2.5", "whole: write one such as `ttl = \"1500ms\"`"),
            ("99999999999999999999s", "not a duration"),
            ("PT5M", "not a duration"),
            ("PT1H30S", "not a duration"),
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
    fn without_quotes_the_whole_duration_is_quoted_in_the_advice() {
        for (value, words) in [
            (parse_quote!(300), "write `ttl = \"300s\"` for seconds or `ttl = \"300ms\"`"),
            (parse_quote!(1_000), "`ttl = \"1000s\"`"),
            (parse_quote!(5min), "in quotes: write `ttl = \"5min\"`"),
            (parse_quote!(300ms), "in quotes: write `ttl = \"300ms\"`"),
            (parse_quote!(1.5s), "write one such as `ttl = \"1500ms\"`"),
            (parse_quote!(5mins_or_so), "`5mins_or_so` is not a duration"),
            (parse_quote!(0), "a duration of zero is too short"),
            (parse_quote!(0s), "a duration of zero is too short"),
            (parse_quote!(-5), "not negative: write one such as `ttl = \"300s\"`"),
            (parse_quote!(-5min), "not negative"),
            (parse_quote!(true), "no duration: write `ttl = \"300s\"`"),
        ] {
            let error = read(value).unwrap_err();
            assert!(error.contains(words), "{words}: {error}");
        }
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
            ("0s", "`wait = never` to request the lock once"),
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
