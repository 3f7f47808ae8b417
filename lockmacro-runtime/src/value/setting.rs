//! The settings of a manager: one table, for the URLs of every store and for the builder, which has
//! a method for each. A setting that a store does not have is refused by its name.

use crate::value::error::LockError;
use crate::value::url::{Url, named};

/// What a URL names. A bit each, so that a row of the table can have several.
type Stores = u8;

const MEMORY: Stores = 1;
const REDIS: Stores = 1 << 1;
const SOCKET: Stores = 1 << 2;
const SENTINEL: Stores = 1 << 3;
const CLUSTER: Stores = 1 << 4;
const REDLOCK: Stores = 1 << 5;
const POSTGRES: Stores = 1 << 6;
/// Redis servers whose URL says that the connections are encrypted.
const ENCRYPTED: Stores = 1 << 7;

const REPLICATED: Stores = REDIS | SOCKET | SENTINEL | CLUSTER;
const SERVERS: Stores = REPLICATED | REDLOCK | POSTGRES;
const EVERY: Stores = MEMORY | SERVERS;

/// Name, stores, and which these are, in words.
const TABLE: &[(&str, Stores, &str)] = &[
    ("default_ttl", EVERY, ""),
    ("default_wait", EVERY, ""),
    ("fail_fast", EVERY, ""),
    ("key_prefix", EVERY, ""),
    ("label", EVERY, ""),
    ("lazy", EVERY, ""),
    ("retry_after", EVERY, ""),
    ("timeout", EVERY, ""),
    ("turn", EVERY, ""),
    ("fence_retention", SERVERS, "a server"),
    ("replicated", REPLICATED, "a Redis server with replicas"),
    ("replicated_timeout", REPLICATED, "a Redis server with replicas"),
    ("credentials", REPLICATED | REDLOCK, "Redis servers"),
    ("cacert", ENCRYPTED | POSTGRES, "an encrypted connection"),
    ("cert", ENCRYPTED | POSTGRES, "an encrypted connection"),
    ("key", ENCRYPTED | POSTGRES, "an encrypted connection"),
    ("sentinel_user", SENTINEL, "sentinels"),
    ("sentinel_password", SENTINEL, "sentinels"),
    ("durable", REDLOCK, "a Redlock"),
    ("longest_ttl", REDLOCK, "a Redlock"),
    ("node_timeout", REDLOCK, "a Redlock"),
    ("db", SOCKET, "a Unix socket; with a host the database is the URL's path"),
    ("user", SOCKET, "a Unix socket; with a host write `user:password@host`"),
    ("pass", SOCKET, "a Unix socket; with a host write `user:password@host`"),
    ("schema", POSTGRES, "PostgreSQL"),
    ("install", POSTGRES, "PostgreSQL"),
    ("listen", POSTGRES, "PostgreSQL"),
    ("application_name", POSTGRES, "PostgreSQL"),
    ("channel_binding", POSTGRES, "PostgreSQL"),
    ("connect_timeout", POSTGRES, "PostgreSQL"),
    ("options", POSTGRES, "PostgreSQL"),
    ("target_session_attrs", POSTGRES, "PostgreSQL"),
    ("sslmode", POSTGRES, "PostgreSQL; of Redis, `rediss://` is encrypted"),
    ("sslrootcert", POSTGRES, "PostgreSQL; of Redis it is `cacert`"),
    ("sslcert", POSTGRES, "PostgreSQL; of Redis it is `cert`"),
    ("sslkey", POSTGRES, "PostgreSQL; of Redis it is `key`"),
];

/// What a URL of this scheme names; `None` for an unknown scheme.
fn stores(scheme: &str) -> Option<Stores> {
    Some(match scheme {
        "memory" => MEMORY,
        "redis" | "valkey" => REDIS,
        "rediss" | "valkeys" => REDIS | ENCRYPTED,
        "redis+unix" | "valkey+unix" | "unix" => SOCKET,
        "redis-sentinel" => SENTINEL,
        "rediss-sentinel" => SENTINEL | ENCRYPTED,
        "redlock" => REDLOCK,
        "redlocks" => REDLOCK | ENCRYPTED,
        "postgres" | "postgresql" => POSTGRES,
        "rediss-cluster" | "valkeys-cluster" => CLUSTER | ENCRYPTED,
        _ if scheme.ends_with("-cluster") => CLUSTER,
        _ => return None,
    })
}

/// Whether this is a scheme of a store, in capitals or not.
pub(crate) fn is_scheme(scheme: &str) -> bool {
    stores(&scheme.to_ascii_lowercase()).is_some()
}

/// Whether a URL of this scheme has settings for encrypted connections to Redis servers.
pub(crate) fn is_encrypted(scheme: &str) -> bool {
    stores(scheme).is_some_and(|stores| stores & ENCRYPTED != 0)
}

/// Checks that the store of this scheme has a setting.
///
/// # Errors
/// [`LockError::InvalidSetting`] with the name of a setting that only other stores have. The store
/// itself refuses a name that none of them has.
pub(crate) fn check(scheme: &str, setting: &str) -> Result<(), LockError> {
    let row = TABLE.iter().find(|(name, ..)| *name == setting);
    let Some((name, of, whose)) = row.copied() else { return Ok(()) };
    let has = |store| of & store != 0;
    if stores(scheme).is_none_or(has) {
        return Ok(());
    }
    Err(LockError::invalid(name, format!("it is for {whose}, and this is a `{scheme}://` URL")))
}

/// The same for each of a URL's settings.
pub(crate) fn check_all(url: &Url<'_>) -> Result<(), LockError> {
    // A part of a password is no setting.
    if url.may_be_cut {
        return Ok(());
    }
    url.settings.iter().try_for_each(|setting| check(url.scheme, named(setting).0))
}

/// Why a store of somebody else does not have one of these settings.
pub(crate) fn why_not_own(setting: &str) -> &'static str {
    match setting {
        "replicated" => "decides itself how its data is copied",
        "fence_retention" => "decides itself how long it keeps fences",
        "longest_ttl" | "node_timeout" | "durable" => "is no Redlock",
        "schema" | "install" | "listen" => "is no PostgreSQL",
        _ => "connects and logs in itself: give it what it needs for that",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_setting_of_another_store_is_refused_by_its_name() {
        for (scheme, setting, whose) in [
            ("postgres", "replicated", "a Redis server with replicas"),
            ("redlock", "replicated", "a Redis server with replicas"),
            ("redis", "durable", "a Redlock"),
            ("rediss-cluster", "schema", "PostgreSQL"),
            ("memory", "fence_retention", "a server"),
            ("memory", "credentials", "Redis servers"),
            ("postgresql", "credentials", "Redis servers"),
            ("rediss", "sslrootcert", "`cacert`"),
            ("redis", "db", "the URL's path"),
            ("redis-cluster", "key", "an encrypted connection"),
        ] {
            let LockError::InvalidSetting { setting: named, detail } =
                check(scheme, setting).expect_err(setting)
            else {
                panic!("{scheme}: {setting}");
            };
            assert!(named == setting && detail.contains(whose), "{scheme}: {detail}");
            assert!(detail.ends_with(&format!("this is a `{scheme}://` URL")), "{detail}");
        }
        for (scheme, setting) in [
            ("memory", "label"),
            ("redis", "replicated"),
            ("redlocks", "cacert"),
            ("rediss-cluster", "cert"),
            ("redlock", "credentials"),
            ("redis+unix", "credentials"),
            ("postgresql", "cacert"),
            ("redis+unix", "db"),
            // The store has an error of its own for these.
            ("http", "durable"),
            ("redis", "quick"),
        ] {
            assert_eq!(check(scheme, setting), Ok(()), "{scheme}: {setting}");
        }
    }

    #[test]
    fn the_rest_of_a_password_is_not_named() {
        let url = Url::parse("redis://:pa?durable&x@localhost").expect("a URL");
        assert_eq!(check_all(&url), Ok(()));
    }
}
