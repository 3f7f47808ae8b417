//! The commands that a client sends.

/// One command, word by word.
#[derive(Debug)]
pub struct Call<'a>(Vec<&'a [u8]>);

impl<'a> Call<'a> {
    /// The commands in these bytes, up to the first that is not there as a whole.
    pub(crate) fn all(mut bytes: &'a [u8]) -> Vec<Call<'a>> {
        let mut calls = Vec::new();
        while let Some(call) = Call::take(&mut bytes) {
            calls.push(call);
        }
        calls
    }

    /// Whether the key, or whatever else, is one of the command's words.
    pub fn names(&self, word: &str) -> bool {
        self.0.contains(&word.as_bytes())
    }

    fn take(bytes: &mut &'a [u8]) -> Option<Call<'a>> {
        let mut words = Vec::new();
        for _ in 0..number(bytes, b'*')? {
            let length = number(bytes, b'$')?;
            let (word, rest) = bytes.split_at_checked(length)?;
            *bytes = rest.strip_prefix(b"\r\n")?;
            words.push(word);
        }
        Some(Call(words))
    }
}

/// Takes `*3\r\n` or `$3\r\n` from the beginning.
fn number(bytes: &mut &[u8], kind: u8) -> Option<usize> {
    let end = bytes.windows(2).position(|two| two == b"\r\n")?;
    let (line, rest) = bytes.split_at(end);
    let number = str::from_utf8(line.strip_prefix(&[kind])?).ok()?.parse().ok()?;
    *bytes = &rest[2..];
    Some(number)
}
