//! The result of one caller that requested the lock.

use std::fmt;
use std::str::FromStr;

/// Times in nanoseconds, on the clock that all processes share.
#[derive(Debug, Clone, Copy)]
pub struct Turn {
    pub asked: u64,
    /// When the body began and ended; `None` for a caller that gave up.
    pub served: Option<(u64, u64)>,
}

/// `asked began ended`, or `asked` only.
impl fmt::Display for Turn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.asked)?;
        self.served.map_or(Ok(()), |(began, ended)| write!(f, " {began} {ended}"))
    }
}

impl FromStr for Turn {
    type Err = std::num::ParseIntError;

    fn from_str(line: &str) -> Result<Self, Self::Err> {
        let mut times = line.split(' ').map(str::parse::<u64>);
        let asked = times.next().unwrap_or(Ok(0))?;
        let (began, ended) = (times.next().transpose()?, times.next().transpose()?);
        Ok(Self { asked, served: began.zip(ended) })
    }
}
