//! What a store of one's own is asked, and what it answers.

use std::fmt;
use std::time::Duration;

use crate::value::holder::Holder;
use crate::value::token;

/// A request for a key: see [`LockStore::acquire`](super::LockStore::acquire).
#[derive(Clone, Copy)]
pub struct AcquireRequest<'a> {
    key: &'a str,
    token: &'a str,
    ttl: Duration,
    is_fenced: bool,
}

impl<'a> AcquireRequest<'a> {
    /// Makes a request without a fence, as for the tests of a store.
    ///
    /// ```
    /// # use std::time::Duration;
    /// use lockmacro_runtime::store::AcquireRequest;
    ///
    /// let ask = AcquireRequest::new("order:42", "web-3/1", Duration::from_secs(5)).fenced();
    /// assert!(ask.is_fenced());
    /// assert_eq!(ask.label(), "web-3");
    /// ```
    pub fn new(key: &'a str, token: &'a str, ttl: Duration) -> Self {
        Self { key, token, ttl, is_fenced: false }
    }

    /// The same request for a grant with a fence.
    pub fn fenced(self) -> Self {
        self.with_fence(true)
    }

    pub(crate) fn with_fence(self, is_fenced: bool) -> Self {
        Self { is_fenced, ..self }
    }

    /// The key: 1 to 1,024 bytes of UTF-8, with any characters in it. It is compared byte by byte.
    pub fn key(&self) -> &'a str {
        self.key
    }

    /// The token: at most 300 bytes of UTF-8 without control characters. It proves that a client is
    /// the holder, so it belongs into no log.
    pub fn token(&self) -> &'a str {
        self.token
    }

    /// How long the key is granted unless it is renewed: at least the
    /// [shortest](super::StoreLimits::shortest_ttl) ttl of the store and a multiple of its
    /// [granularity](super::StoreLimits::granularity).
    pub fn ttl(&self) -> Duration {
        self.ttl
    }

    /// Whether the grant has to come with a fence: only asked of a store that
    /// [has fences](super::StoreLimits::fences). The store may number all grants.
    pub fn is_fenced(&self) -> bool {
        self.is_fenced
    }

    /// The part of the token that may be shown to others, for a store that has a column for it.
    pub fn label(&self) -> &'a str {
        self.token.rsplit_once('/').map_or("", |(label, _)| label)
    }
}

impl fmt::Debug for AcquireRequest<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AcquireRequest")
            .field("key", &self.key)
            .field("label", &self.label())
            .field("ttl", &self.ttl)
            .field("is_fenced", &self.is_fenced)
            .finish_non_exhaustive()
    }
}

/// A key and the token that holds it, or that may hold it.
#[derive(Clone, Copy)]
pub struct HeldKey<'a> {
    key: &'a str,
    token: &'a str,
}

impl<'a> HeldKey<'a> {
    /// Names a key and a token, as for the tests of a store.
    pub fn new(key: &'a str, token: &'a str) -> Self {
        Self { key, token }
    }

    /// The key, as in [`AcquireRequest::key`].
    pub fn key(&self) -> &'a str {
        self.key
    }

    /// The token, as in [`AcquireRequest::token`].
    pub fn token(&self) -> &'a str {
        self.token
    }

    /// A value for a key that is kept after its release: it shows the same label, and is nobody's
    /// token.
    ///
    /// ```
    /// use lockmacro_runtime::store::HeldKey;
    ///
    /// let held = HeldKey::new("order:42", "web-3/0123456789abcdef0123456789abcdef");
    /// assert_eq!(held.kept(), "web-3/00000000000000000000000000000000");
    /// ```
    pub fn kept(&self) -> String {
        token::kept(self.token)
    }
}

impl fmt::Debug for HeldKey<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HeldKey").field("key", &self.key).finish_non_exhaustive()
    }
}

/// The answer of a store to a request for a key.
#[derive(Clone, PartialEq, Eq)]
pub enum Outcome {
    /// The token holds the key now.
    Granted {
        /// A number larger than that of every earlier grant of the key, at most 2^63 - 1. `None` for
        /// a store without [fences](super::StoreLimits::fences), or for a request that needs none.
        fence: Option<u64>,
        /// How long the store keeps the key, if that is longer than was asked. It is never shorter.
        ttl: Option<Duration>,
    },
    /// Another token holds the key, and nothing was changed.
    Held {
        /// The token of the holder, as it was given to `acquire`, or [`HeldKey::kept`]. The engine
        /// shows its label and nothing else. `None` if it is not known.
        by: Option<String>,
        /// How long the key is held if it is not renewed; `None` if that is not known.
        left: Option<Duration>,
    },
}

impl Outcome {
    /// A grant without a fence, for the ttl that was asked.
    pub const fn granted() -> Self {
        Self::Granted { fence: None, ttl: None }
    }

    /// A grant with a fence, for the ttl that was asked.
    pub const fn fenced(fence: u64) -> Self {
        Self::Granted { fence: Some(fence), ttl: None }
    }
}

impl fmt::Debug for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Granted { fence, ttl } => {
                f.debug_struct("Granted").field("fence", fence).field("ttl", ttl).finish()
            }
            Self::Held { by, left } => {
                // A token is a secret.
                let by = by.as_ref().map(|by| Holder::of(by.as_bytes(), None).to_string());
                f.debug_struct("Held").field("by", &by).field("left", left).finish()
            }
        }
    }
}
