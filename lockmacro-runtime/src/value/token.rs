//! Tokens: the value of a lock key, `label asked note/random` or `label/random`. Every acquisition
//! has its own. The value of a key that holders share is `label asked note/shared`, with the label
//! of the holder that came last.
//!
//! `asked` is a time in base 36, after `~` where the holder could wait, and before `*3` where it
//! asked for one of three permits.

use std::fmt;
use std::hash::{BuildHasher as _, BuildHasherDefault, DefaultHasher};
use std::time::{Duration, SystemTime};

use crate::value::escaped::Escaped;
use crate::value::holder::Holder;

/// Longest label, in bytes, with the name of the lock in it.
const LABEL_MAX: usize = 128;
/// Longest note, in bytes.
const NOTE_MAX: usize = 64;
/// Longest part of a token with the time and the note, in bytes.
const ABOUT_MAX: usize = " ~3w5e11264sgsf*10000 ".len() + NOTE_MAX;
/// Hexadecimal digits of the 128 random bits.
const RANDOM_DIGITS: usize = 32;
/// The sign before the time of a holder that could wait.
const COULD_WAIT: char = '~';
/// The sign before the number of permits.
const OF_PERMITS: char = '*';
/// The end of a shared key's value, as in `queue.lua`.
const SHARED: &str = "shared";
/// Longest token, in bytes.
pub(crate) const TOKEN_MAX: usize = LABEL_MAX + ABOUT_MAX + "/".len() + RANDOM_DIGITS;

/// One acquisition's token. The label may be shown. The random part proves that a client is the
/// holder, so it appears in no message and no debug output.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Token(Box<str>);

/// What a token says of its holder, beside the label.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct About<'a> {
    pub(crate) asked: Option<SystemTime>,
    /// The holder could wait, and so was maybe granted the lock later.
    pub(crate) could_wait: bool,
    /// The number of permits of which it asked for one.
    pub(crate) permits: Option<u32>,
    pub(crate) note: Option<&'a str>,
}

impl Token {
    /// A token of these random bits for the lock `name` of a manager with `label`.
    pub(crate) fn of(label: &str, name: &str, about: About<'_>, random: u128) -> Self {
        let About { asked, could_wait, permits, note } = about;
        // The exact length of most tokens, so that the box needs no second allocation.
        let marked = |text: &str| text.len() + usize::from(!text.is_empty());
        let time = asked.map_or(0, |_| " t8nxqs".len() + usize::from(could_wait));
        let about = time + marked(note.unwrap_or_default());
        let room = label.len() + marked(name) + about + "/".len() + RANDOM_DIGITS;
        let mut text = String::with_capacity(room);
        text.push_str(label);
        if !name.is_empty() {
            extend(&mut text, ":");
            extend(&mut text, name);
        }
        push_about(&mut text, asked, could_wait, permits, note);
        text.push('/');
        push_random(&mut text, random);
        Self(text.into())
    }

    /// A token read from a server; `None` for a value of another format.
    #[cfg(feature = "inspect")]
    pub(crate) fn found(stored: &[u8]) -> Option<Self> {
        label_of(stored)
            .and_then(|_| std::str::from_utf8(stored).ok())
            .map(|text| Self(text.into()))
    }

    /// A token that somebody else has made.
    #[cfg(feature = "test-util")]
    pub(crate) fn given(text: &str) -> Self {
        Self(text.into())
    }

    /// The `nth` token of the same acquisition. Number 0 is this one.
    pub(crate) fn nth(&self, nth: u64) -> Self {
        self.with_random(self.random().wrapping_add(nth.into()))
    }

    /// The same label without the random part, for a key that has no holder any more.
    pub(crate) fn spent(&self) -> Self {
        self.with_random(0)
    }

    /// Half of its random bits.
    pub(crate) fn bits(&self) -> u64 {
        self.random() as u64
    }

    fn with_random(&self, random: u128) -> Self {
        let label = self.0.rsplit_once('/').map_or(&*self.0, |(label, _)| label);
        let mut text = String::with_capacity(label.len() + "/".len() + RANDOM_DIGITS);
        text.push_str(label);
        text.push('/');
        push_random(&mut text, random);
        Self(text.into())
    }

    fn random(&self) -> u128 {
        let random = self.0.rsplit_once('/').map(|(_, random)| u128::from_str_radix(random, 16));
        random.and_then(Result::ok).unwrap_or_default()
    }

    /// What others see of its holder.
    pub(crate) fn holder(&self) -> Holder {
        Holder::of(self.0.as_bytes(), None)
    }

    /// The whole token. Only for the server.
    pub(crate) fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Token({})", label_of(self.0.as_bytes()).unwrap_or_default())
    }
}

impl Holder {
    /// The holder that wrote this value of a key, as far as the value tells.
    pub(crate) fn of(value: &[u8], free_within: Option<Duration>) -> Self {
        let shown = label_of(value);
        let is_kept = shown.is_some() && value.ends_with(&[b'0'; RANDOM_DIGITS]);
        let unread = |owner| Self { owner, free_within, is_kept, ..Self::default() };
        let Some((owner, about)) = shown.as_deref().and_then(|shown| shown.split_once(' ')) else {
            return unread(shown);
        };
        let (time, note) = about.split_once(' ').unwrap_or((about, ""));
        let (time, permits) = match time.split_once(OF_PERMITS) {
            Some((time, permits)) => (time, permits.parse().ok()),
            None => (time, None),
        };
        let (digits, could_wait) = match time.strip_prefix(COULD_WAIT) {
            Some(digits) => (digits, true),
            None => (time, false),
        };
        let seconds = (time != "-").then(|| u64::from_str_radix(digits, 36)).transpose();
        // Not our format: the whole text is shown.
        let Ok(seconds) = seconds else { return unread(shown) };
        let asked = seconds.map(Duration::from_secs);
        let asked = asked.and_then(|asked| SystemTime::UNIX_EPOCH.checked_add(asked));
        let since = asked.filter(|_| !could_wait);
        let note = Some(note).filter(|note| !note.is_empty()).map(str::to_owned);
        Self { owner: Some(owner.to_owned()), note, asked, since, free_within, permits, is_kept }
    }
}

/// Writes the part of a token after the label: nothing, or ` <asked> <note>`. It begins at the
/// first space, as a label has none. An unknown time is `-`.
fn push_about(
    text: &mut String,
    asked: Option<SystemTime>,
    could_wait: bool,
    permits: Option<u32>,
    note: Option<&str>,
) {
    let note = note.map(cut).filter(|note| !note.is_empty());
    match asked.and_then(|asked| asked.duration_since(SystemTime::UNIX_EPOCH).ok()) {
        Some(asked) => {
            text.push(' ');
            text.extend(could_wait.then_some(COULD_WAIT));
            push_in_36(text, asked.as_secs());
            if let Some(permits) = permits {
                text.push(OF_PERMITS);
                text.push_str(&permits.to_string());
            }
        }
        None if note.is_none() => return,
        None => text.push_str(" -"),
    }
    if let Some(note) = note {
        text.push(' ');
        text.push_str(&note);
    }
}

/// The note in one line, cut to the longest length.
fn cut(note: &str) -> String {
    let line: String = note.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    let fits = |(at, c): &(usize, char)| at + c.len_utf8() <= NOTE_MAX;
    line.trim().char_indices().take_while(fits).map(|(_, c)| c).collect()
}

/// Writes the random part. Without a formatter, as each acquisition has one.
fn push_random(text: &mut String, random: u128) {
    let digit = |value: u8| b"0123456789abcdef"[usize::from(value & 15)];
    let digits = random.to_be_bytes().map(|byte| [digit(byte >> 4), digit(byte)]);
    text.push_str(str::from_utf8(digits.as_flattened()).unwrap_or_default());
}

/// Writes a number in base 36.
fn push_in_36(text: &mut String, mut number: u64) {
    // No number has more digits.
    let mut digits = [b'0'; 13];
    let mut first = digits.len();
    while first == digits.len() || number > 0 {
        first -= 1;
        digits[first] = b"0123456789abcdefghijklmnopqrstuvwxyz"[(number % 36) as usize];
        number /= 36;
    }
    text.push_str(str::from_utf8(&digits[first..]).unwrap_or_default());
}

/// Hash of a key's value, to compare values.
pub(crate) fn hash_of(value: &[u8]) -> u64 {
    BuildHasherDefault::<DefaultHasher>::default().hash_one(value)
}

/// The part before the random digits of a token read from a server. Escaped, as any client can
/// write there. `None` for a value of another format, which may be a secret as a whole.
fn label_of(stored: &[u8]) -> Option<String> {
    if stored.len() > TOKEN_MAX {
        return None;
    }
    let (label, random) = std::str::from_utf8(stored).ok()?.rsplit_once('/')?;
    let ours = random == SHARED
        || random.len() == RANDOM_DIGITS
            && random.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
    ours.then(|| Escaped(label).to_string())
}

/// The text of a token without the random part, for a key that has no holder any more.
pub(crate) fn kept(token: &str) -> String {
    let label = token.rsplit_once('/').map_or(token, |(label, _)| label);
    format!("{label}/{}", "0".repeat(RANDOM_DIGITS))
}

/// The label at the start of a manager's tokens, by default `host:pid`: one line, at most 128 bytes
/// with the lock's name, readable in `redis-cli GET`.
pub(crate) fn label(given: Option<&str>, host: impl FnOnce() -> String) -> String {
    let mut label = String::new();
    match given {
        Some(given) => extend(&mut label, given),
        None => {
            extend(&mut label, &format!("{}:{}", host(), std::process::id()));
        }
    }
    label
}

fn extend(label: &mut String, text: &str) {
    for c in text.chars() {
        let c = if c.is_control() || c.is_whitespace() { '-' } else { c };
        if label.len() + c.len_utf8() > LABEL_MAX {
            break;
        }
        label.push(c);
    }
}

#[cfg(test)]
impl Token {
    /// The first token that is sent.
    pub(crate) fn new(
        label: &str,
        name: &str,
        note: &str,
    ) -> Result<Self, crate::value::error::LockError> {
        let random =
            crate::sys::random::secret().map_err(crate::value::error::LockError::no_random)?;
        let about = About { note: Some(note), ..About::default() };
        Ok(Self::of(label, name, about, random))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    fn token(label: &str, name: &str) -> Token {
        Token::new(label, name, "").unwrap()
    }

    #[test]
    fn a_token_shows_its_label_and_hides_the_rest() {
        let token = token("web-3:4711", "audit_order");
        let random = &token.expose()["web-3:4711:audit_order/".len()..];
        assert_eq!(random.len(), RANDOM_DIGITS);
        assert_eq!(format!("{token:?}"), "Token(web-3:4711:audit_order)");
        assert_eq!(label_of(token.expose().as_bytes()).as_deref(), Some("web-3:4711:audit_order"));
    }

    #[test]
    fn tokens_of_one_label_differ() {
        let tokens: HashSet<_> = (0..1_000).map(|_| token("a", "").0).collect();
        assert_eq!(tokens.len(), 1_000);
    }

    #[test]
    fn an_acquisition_has_many_tokens() {
        let token = Token("web/ffffffffffffffffffffffffffffffff".into());
        assert_eq!(token.nth(0), token);
        assert_eq!(token.nth(2).expose(), "web/00000000000000000000000000000001");
    }

    #[test]
    fn half_of_the_bits_are_a_number() {
        let token = Token("web/0123456789abcdeffedcba9876543210".into());
        assert_eq!(token.bits(), 0xfedc_ba98_7654_3210);
    }

    #[test]
    fn a_foreign_value_has_no_label() {
        for foreign in ["", "a3f1", "web/1", "web/0123456789ABCDEF0123456789ABCDEF"] {
            assert_eq!(label_of(foreign.as_bytes()), None, "{foreign}");
        }
        assert_eq!(label_of(b"\xff/0123456789abcdef0123456789abcdef"), None);
    }

    #[test]
    fn the_value_of_a_shared_key_has_a_label() {
        assert_eq!(label_of(b"web-3:report/shared").as_deref(), Some("web-3:report"));
    }

    #[test]
    fn a_label_is_one_short_line() {
        let shown =
            |text: &str, name| format!("{:?}", token(&label(Some(text), String::new), name));
        assert_eq!(shown("web 3\n", "audit\torder"), "Token(web-3-:audit-order)");
        assert_eq!(shown("web", ""), "Token(web)");
        let long = token(&label(Some(&"订".repeat(100)), String::new), "f");
        assert!(long.expose().len() <= LABEL_MAX + "/".len() + RANDOM_DIGITS);
    }

    fn about(asked: Option<SystemTime>, note: Option<&str>) -> String {
        let mut text = String::new();
        push_about(&mut text, asked, false, None, note);
        text
    }

    /// The holder with this label in the value of a key.
    fn read(label: &str) -> Holder {
        Holder::of(format!("{label}/shared").as_bytes(), None)
    }

    #[test]
    fn a_written_token_is_read_back() {
        let at = |seconds| Some(SystemTime::UNIX_EPOCH + Duration::from_secs(seconds));
        let times = [None, at(0), at(1_763_826_000), at(u64::from(u32::MAX) * 4)];
        for (asked, waits) in times.into_iter().flat_map(|at| [(at, false), (at, true)]) {
            for note in [None, Some("Ann Example"), Some("-"), Some("~1"), Some("a/b 7 订单 /3f")]
            {
                let permits = waits.then_some(10_000).filter(|_| asked.is_some());
                let about = About { asked, could_wait: waits, permits, note };
                let token = Token::of("web-3:4711", "audit", about, 7);
                let left = Some(Duration::from_secs(9));
                let holder = Holder::of(token.expose().as_bytes(), left);
                assert_eq!(holder.owner.as_deref(), Some("web-3:4711:audit"));
                assert_eq!((holder.note.as_deref(), holder.asked), (note, asked));
                assert_eq!((holder.since, holder.permits), (asked.filter(|_| !waits), permits));
                let kept = Holder::of(token.spent().expose().as_bytes(), left);
                assert_eq!((holder.is_kept, kept.is_kept), (false, true));
                assert_eq!((holder.free_within, token.holder().free_within), (left, None));
            }
        }
        assert_eq!(about(None, None), "");
        assert_eq!(about(None, Some("")), "");
    }

    #[test]
    fn a_note_is_cut_between_characters_and_in_one_line() {
        let long = "订".repeat(40);
        assert_eq!(about(None, Some(&long)), format!(" - {}", "订".repeat(NOTE_MAX / 3)));
        assert_eq!(about(None, Some(" a\r\nb\x1b\0c\n")), " - a  b  c");
        assert_eq!(about(None, Some("\n")), "");
    }

    #[test]
    fn the_value_of_another_program_is_not_shown() {
        for foreign in ["a secret", "a lock\u{1}00000000000000000000000000000000"] {
            assert_eq!(Holder::of(foreign.as_bytes(), None), Holder::default());
        }
        assert_eq!(Holder::default().to_string(), "a foreign client");
    }

    #[test]
    fn a_foreign_label_is_shown_without_control_characters() {
        let strange = read("nobody knows\x1b[31m\n\u{202e}it");
        let escaped = "nobody knows\\u{1b}[31m\\n\\u{202e}it";
        assert_eq!((strange.to_string().as_str(), strange.note), (escaped, None));
        assert_eq!(read("web - \u{7}note").to_string(), "web (\\u{7}note)");
    }
}
