//! The values of a builder's settings for Redis servers.

use std::time::Duration;

use crate::store::redis::client::settings::Credentials;
use crate::store::redlock::rules::Rules;

/// Default longest ttl of the locks of a Redlock manager.
const LONGEST_TTL: Duration = Duration::from_secs(10 * 60);
/// Default timeout of one node of a Redlock.
const NODE_TIMEOUT: Duration = Duration::from_millis(50);

/// What a builder keeps by itself, because it is no setting of one URL.
#[derive(Debug, Clone)]
pub(crate) struct RedisSettings {
    pub(crate) rules: Rules,
    /// How many replicas have to acknowledge a lock, and within which time.
    pub(crate) replicated: Option<(u32, Duration)>,
    pub(crate) credentials: Option<Credentials>,
}

impl Default for RedisSettings {
    fn default() -> Self {
        let rules = Rules { longest_ttl: LONGEST_TTL, durable: false, node: NODE_TIMEOUT };
        Self { rules, replicated: None, credentials: None }
    }
}
