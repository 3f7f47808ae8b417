//! The holder of a busy lock, read from the value of its key.

use std::fmt;
use std::time::{Duration, SystemTime};

use crate::value::escaped::Escaped;

/// Longest note, in bytes.
const NOTE_MAX: usize = 64;
/// Longest part of a value with the time and the note, in bytes.
pub(crate) const ABOUT_MAX: usize = " 3w5e11264sgsf ".len() + NOTE_MAX;

/// The holder of a busy lock, as far as it is known. Part of [`LockError::Busy`] and
/// [`LockError::TimedOut`], whose methods return the same values.
///
/// Everything but [`free_within`](Holder::free_within) was written by the holder. Characters that
/// could act on a terminal are escaped, as in `\u{1b}`. `Display` shows owner and note.
///
/// [`LockError::Busy`]: crate::LockError::Busy
/// [`LockError::TimedOut`]: crate::LockError::TimedOut
///
/// ```
/// # use lockmacro_runtime::{Lock, LockError, LockManager};
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), LockError> {
/// let locks = LockManager::builder().label("web-3").memory();
/// let lock = Lock::new("order:42").name("audit").manager(&locks);
/// let guard = lock.clone().holder_note("Ann Example").acquire().await?;
/// let Err(LockError::Busy { holder, .. }) = lock.acquire().await else { panic!("it is held") };
/// assert_eq!(holder.owner.as_deref(), Some("web-3:audit"));
/// assert_eq!(holder.note.as_deref(), Some("Ann Example"));
/// assert_eq!(holder.to_string(), "web-3:audit (Ann Example)");
/// # guard.release().await }
/// ```
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Holder {
    /// The label of the holder's manager, and the name of its lock; `None` when the value of the
    /// key was not written by this crate, or no holder can have a majority of a Redlock.
    pub owner: Option<String>,
    /// The holder's [note](crate::Lock::holder_note), if there is one.
    pub note: Option<String>,
    /// Since when the lock is held, by the clock of the holder's machine and to a second; `None`
    /// for a foreign client, and for a holder that was ready to wait for the lock.
    pub since: Option<SystemTime>,
    /// The rest of the lease, unless the holder renews or releases it; `None` when a foreign client
    /// locked the key without an expiry, or no holder can have a majority of a Redlock.
    pub free_within: Option<Duration>,
}

impl Holder {
    /// Makes a holder whose other fields are not known, for tests of code that handles one.
    ///
    /// ```
    /// use lockmacro_runtime::Holder;
    ///
    /// let mut holder = Holder::new("web-3:audit");
    /// holder.note = Some("Ann Example".to_owned());
    /// assert_eq!(holder.to_string(), "web-3:audit (Ann Example)");
    /// ```
    pub fn new(owner: impl Into<String>) -> Self {
        Self { owner: Some(owner.into()), ..Self::default() }
    }

    /// Reads the part of a token before the random digits.
    pub(crate) fn of(shown: Option<String>, free_within: Option<Duration>) -> Self {
        let unread = |owner| Self { owner, free_within, ..Self::default() };
        let Some((owner, about)) = shown.as_deref().and_then(|shown| shown.split_once(' ')) else {
            return unread(shown);
        };
        let (since, note) = about.split_once(' ').unwrap_or((about, ""));
        let seconds = (since != "-").then(|| u64::from_str_radix(since, 36)).transpose();
        // Not our format: the whole text is shown.
        let Ok(seconds) = seconds else { return unread(shown) };
        let since = seconds.map(Duration::from_secs);
        let since = since.and_then(|since| SystemTime::UNIX_EPOCH.checked_add(since));
        let note = Some(note).filter(|note| !note.is_empty()).map(str::to_owned);
        Self { owner: Some(owner.to_owned()), note, since, free_within }
    }
}

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Escaped(self.owner.as_deref().unwrap_or("a foreign client")).fmt(f)?;
        self.note.as_deref().map_or(Ok(()), |note| write!(f, " ({})", Escaped(note)))
    }
}

/// The part of a token after the label: nothing, or ` <since> <note>`. It begins at the first
/// space, as a label has none. An unknown time is `-`.
pub(crate) fn about(since: Option<SystemTime>, note: Option<&str>) -> String {
    let note = note.map(cut).unwrap_or_default();
    let since = since.and_then(|since| since.duration_since(SystemTime::UNIX_EPOCH).ok());
    let mut about = " ".to_owned();
    match since {
        Some(since) => push_in_36(&mut about, since.as_secs()),
        None if note.is_empty() => return String::new(),
        None => about.push('-'),
    }
    if !note.is_empty() {
        about.push(' ');
        about.push_str(&note);
    }
    about
}

/// The note in one line, cut to the longest length.
fn cut(note: &str) -> String {
    let line: String = note.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    let fits = |(at, c): &(usize, char)| at + c.len_utf8() <= NOTE_MAX;
    line.trim().char_indices().take_while(fits).map(|(_, c)| c).collect()
}

/// Writes a number in base 36.
fn push_in_36(text: &mut String, number: u64) {
    if number >= 36 {
        push_in_36(text, number / 36);
    }
    text.extend(u32::try_from(number % 36).ok().and_then(|digit| char::from_digit(digit, 36)));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> (Option<String>, Option<String>, Option<SystemTime>) {
        let Holder { owner, note, since, .. } = Holder::of(Some(text.to_owned()), None);
        (owner, note, since)
    }

    #[test]
    fn a_written_token_is_read_back() {
        let at = |seconds| Some(SystemTime::UNIX_EPOCH + Duration::from_secs(seconds));
        for since in [None, at(0), at(1_763_826_000), at(u64::from(u32::MAX) * 4)] {
            for note in [None, Some("Ann Example"), Some("-"), Some("a/b 7 订单 /3f")] {
                let holder = read(&format!("web-3:4711:audit{}", about(since, note)));
                assert_eq!(holder, (Some("web-3:4711:audit".into()), note.map(Into::into), since));
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
    fn a_foreign_value_is_shown_without_control_characters() {
        let strange = "nobody knows\x1b[31m\n\u{202e}it";
        assert_eq!(read(strange), (Some(strange.to_owned()), None, None));
        let shown = Holder::of(Some(strange.to_owned()), None).to_string();
        assert_eq!(shown, "nobody knows\\u{1b}[31m\\n\\u{202e}it");
        let forged = Holder::of(Some("web - \u{7}note".to_owned()), None).to_string();
        assert_eq!(forged, "web (\\u{7}note)");
        assert_eq!(Holder::of(None, None).to_string(), "a foreign client");
    }
}
