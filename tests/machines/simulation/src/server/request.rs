//! Requests of a client, out of bytes that arrive in pieces.

/// The longest argument that a server accepts.
const LONGEST: i64 = 512 << 20;
const MOST_ARGUMENTS: i64 = 1 << 20;

/// The bytes of a client that are not yet a request.
#[derive(Debug, Default)]
pub(crate) struct Input {
    bytes: Vec<u8>,
    read: usize,
}

impl Input {
    pub(crate) fn add(&mut self, bytes: &[u8]) {
        self.bytes.drain(..self.read);
        self.read = 0;
        self.bytes.extend_from_slice(bytes);
    }

    /// The next request, if all of it is there: a command and its arguments, or nothing. The error is that of a client that does not speak the protocol.
    pub(crate) fn next(&mut self) -> Result<Option<Vec<Vec<u8>>>, String> {
        let mut reader = Reader { bytes: &self.bytes, at: self.read };
        let request = match reader.bytes.get(reader.at) {
            None => return Ok(None),
            Some(b'*') => reader.multibulk(),
            Some(_) => Err("a request begins with '*'".to_owned()),
        };
        if let Ok(Some(_)) = request {
            self.read = reader.at;
        }
        request
    }
}

struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Reader<'a> {
    fn line(&mut self) -> Option<&'a [u8]> {
        let rest = &self.bytes[self.at..];
        let end = rest.iter().position(|byte| *byte == b'\n')?;
        self.at += end + 1;
        let line = &rest[..end];
        Some(line.strip_suffix(b"\r").unwrap_or(line))
    }

    fn length(line: &[u8], most: i64) -> Option<i64> {
        let length: i64 = std::str::from_utf8(line).ok()?.parse().ok()?;
        (length <= most).then_some(length)
    }

    fn multibulk(&mut self) -> Result<Option<Vec<Vec<u8>>>, String> {
        let Some(line) = self.line() else { return Ok(None) };
        let Some(count) = Self::length(&line[1..], MOST_ARGUMENTS) else {
            return Err("invalid multibulk length".to_owned());
        };
        let mut arguments = Vec::with_capacity(count.clamp(0, 64) as usize);
        for _ in 0..count {
            let Some(line) = self.line() else { return Ok(None) };
            let Some((b'$', length)) = line.split_first().map(|(first, rest)| (*first, rest))
            else {
                let got = char::from(line.first().copied().unwrap_or(b'\r'));
                return Err(format!("expected '$', got '{got}'"));
            };
            let Some(length) = Self::length(length, LONGEST).filter(|length| *length >= 0) else {
                return Err("invalid bulk length".to_owned());
            };
            let end = self.at + length as usize;
            if self.bytes.len() < end + 2 {
                return Ok(None);
            }
            arguments.push(self.bytes[self.at..end].to_vec());
            self.at = end + 2;
        }
        Ok(Some(arguments))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_the_same_in_whatever_pieces_they_arrive() {
        let bytes = b"*2\r\n$3\r\nGET\r\n$2\r\n\r\n\r\n*1\r\n$4\r\nPING\r\n*0\r\n";
        for piece in 1..=bytes.len() {
            let (mut input, mut requests) = (Input::default(), Vec::new());
            for piece in bytes.chunks(piece) {
                input.add(piece);
                while let Some(request) = input.next().unwrap() {
                    requests.push(request);
                }
            }
            let expected: [&[&[u8]]; 3] = [&[b"GET", b"\r\n"], &[b"PING"], &[]];
            assert_eq!(requests, expected, "in pieces of {piece}");
        }
    }
}
