//! The holder of a contended lock.

use std::time::Duration;

use crate::value::holder::Holder;
use crate::value::token::label_of;

/// The holder of a contended lock, as far as the store knows it. Nothing is known of it by default.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct OtherHolder {
    /// The part of the holder's token before the random digits; `None` for a foreign client.
    pub(crate) owner: Option<String>,
    /// The rest of the holder's lease; `None` for a foreign lock without an expiry.
    pub(crate) left: Option<Duration>,
}

impl OtherHolder {
    /// The holder that wrote this value of a key.
    pub(crate) fn of(value: &[u8], left: Option<Duration>) -> Self {
        Self { owner: label_of(value), left }
    }

    /// Whether another program holds the lock. Its release sends no push.
    pub(crate) fn is_foreign(&self) -> bool {
        self.owner.is_none()
    }
}

impl From<OtherHolder> for Holder {
    fn from(OtherHolder { owner, left }: OtherHolder) -> Self {
        Holder::of(owner, left)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::value::token::Token;

    #[test]
    fn a_holder_is_read_from_the_value_of_the_key() {
        let token = Token::new("web-3", "audit", " - Ann").unwrap();
        let left = Some(Duration::from_secs(9));
        let other = OtherHolder::of(token.expose().as_bytes(), left);
        assert!(!other.is_foreign());
        let holder = Holder::from(other);
        assert_eq!((holder.owner.as_deref(), holder.free_within), (Some("web-3:audit"), left));
        assert_eq!(holder.note.as_deref(), Some("Ann"));
    }

    #[test]
    fn the_value_of_another_program_is_not_shown() {
        let other = OtherHolder::of(b"a secret", None);
        assert!(other.is_foreign());
        assert_eq!(Holder::from(other), Holder::default());
    }
}
