//! Numbers as Redis reads and writes them.

use super::reply::Fault;

/// Reads an integer: no sign but a minus, no leading zeros, no spaces.
pub(super) fn integer(text: &[u8]) -> Result<i64, Fault> {
    let read = std::str::from_utf8(text).ok().and_then(|text| text.parse::<i64>().ok());
    read.filter(|number| number.to_string().as_bytes() == text).ok_or(Fault::NOT_INTEGER)
}

/// Reads a number that is not NaN.
pub(super) fn double(text: &[u8]) -> Option<f64> {
    let number: f64 = std::str::from_utf8(text).ok()?.parse().ok()?;
    (!number.is_nan()).then_some(number)
}

/// Writes a number as `%.17g` does.
pub(super) fn format_double(number: f64) -> String {
    const DIGITS: i32 = 17;
    if number.is_nan() {
        return if number.is_sign_negative() { "-nan" } else { "nan" }.to_owned();
    }
    if number.is_infinite() {
        return if number > 0.0 { "inf" } else { "-inf" }.to_owned();
    }
    if number == number.trunc()
        && number.abs() < 1e15
        && (number != 0.0 || number.is_sign_positive())
    {
        return (number as i64).to_string();
    }
    let scientific = format!("{number:.*e}", DIGITS as usize - 1);
    let (mantissa, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or_default();
    let trimmed = |text: &str| match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.').to_owned(),
        false => text.to_owned(),
    };
    if (-4..DIGITS).contains(&exponent) {
        return trimmed(&format!("{number:.*}", (DIGITS - 1 - exponent) as usize));
    }
    let sign = if exponent < 0 { '-' } else { '+' };
    format!("{}e{sign}{:02}", trimmed(mantissa), exponent.abs())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integers_have_one_spelling() {
        for (text, expected) in [("0", 0), ("-1", -1), ("9223372036854775807", i64::MAX)] {
            assert_eq!(integer(text.as_bytes()), Ok(expected));
        }
        for text in ["", "+1", "01", "-0", " 1", "1 ", "1.0", "9223372036854775808", "a"] {
            assert_eq!(integer(text.as_bytes()), Err(Fault::NOT_INTEGER), "{text}");
        }
    }

    #[test]
    fn doubles_are_written_with_17_digits() {
        for (number, expected) in [
            (0.0, "0"),
            (-0.0, "-0"),
            (3.0, "3"),
            (-2.5, "-2.5"),
            (0.1, "0.10000000000000001"),
            (1_763_870_000_123_456.0, "1763870000123456"),
            (1e16, "10000000000000000"),
            (1e17, "1e+17"),
            (1.5e300, "1.5000000000000001e+300"),
            (0.0001, "0.0001"),
            (0.00001, "1.0000000000000001e-05"),
            (f64::NEG_INFINITY, "-inf"),
        ] {
            assert_eq!(format_double(number), expected);
        }
    }
}
