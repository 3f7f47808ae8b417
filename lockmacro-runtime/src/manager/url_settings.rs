//! What a builder sets for the store of its URL, in the grammar of the URL.

use std::collections::BTreeMap;
use std::fmt;

use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};

use crate::value::error::LockError;
use crate::value::setting;
use crate::value::url::{Url, named};

/// Settings by their names in a URL, each with its text there; empty for one that the builder keeps
/// by itself. So a URL and the builder have the same settings, and a store reads them once.
#[derive(Clone, Default)]
pub(crate) struct UrlSettings(BTreeMap<&'static str, String>);

impl UrlSettings {
    /// Sets a setting that the store reads.
    pub(crate) fn set(&mut self, name: &'static str, value: String) {
        let value = utf8_percent_encode(&value, NON_ALPHANUMERIC);
        self.0.insert(name, format!("{name}={value}"));
    }

    /// Notes one that the builder keeps, and that not every store has.
    pub(crate) fn asked(&mut self, name: &'static str) {
        self.0.entry(name).or_default();
    }

    /// Fails if a store with URLs of this scheme lacks one of them.
    pub(crate) fn check(&self, scheme: &str) -> Result<(), LockError> {
        self.0.keys().try_for_each(|name| setting::check(scheme, name))
    }

    /// The names of all of them.
    pub(crate) fn names(&self) -> impl Iterator<Item = &'static str> {
        self.0.keys().copied()
    }

    /// Fails for one that a store would read in its URL, where there is none.
    #[cfg(feature = "redis-1")]
    pub(crate) fn check_without_url(&self, detail: &str) -> Result<(), LockError> {
        let unread = self.0.iter().find(|(_, setting)| !setting.is_empty());
        unread.map_or(Ok(()), |(name, _)| Err(LockError::invalid(name, detail)))
    }

    /// The URL with those that it does not have.
    pub(crate) fn added_to<'a>(&'a self, mut url: Url<'a>) -> Url<'a> {
        for (name, setting) in &self.0 {
            let is_in_url = url.settings.iter().any(|setting| named(setting).0 == *name);
            if !is_in_url && !setting.is_empty() {
                url.settings.push(setting);
            }
        }
        url
    }
}

/// The names only: a value may be a password.
impl fmt::Debug for UrlSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.0.keys()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_takes_precedence_and_no_value_is_shown() {
        let mut settings = UrlSettings::default();
        settings.set("schema", "locks".to_owned());
        settings.set("sentinel_password", "hunter2&x=/".to_owned());
        settings.asked("durable");
        let url = settings.added_to(Url::parse("postgres://a@b?schema=mine").expect("a URL"));
        assert_eq!(url.settings, ["schema=mine", "sentinel_password=hunter2%26x%3D%2F"]);
        assert!(!format!("{settings:?}").contains("hunter2"));
        assert!(settings.check("redis").is_err_and(|error| error.to_string().contains("Redlock")));
    }
}
