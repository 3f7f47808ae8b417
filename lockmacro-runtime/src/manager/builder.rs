//! The builder of a manager: its settings, and how it is connected.
//! Long, because its items have examples.

use std::time::Duration;

use crate::defer::Jobs;
use crate::engine::core::{Core, inside_runtime};
use crate::engine::manager::Manager;
use crate::manager::lock_manager::LockManager;
#[cfg(feature = "redis")]
use crate::manager::redis::settings::RedisSettings;
use crate::manager::url_settings::UrlSettings;
use crate::store::handle::Store;
use crate::store::lock_store::LockStore;
use crate::store::lock_store::adapter::Adapter;
use crate::store::memory::Memory;
#[cfg(feature = "postgres")]
use crate::store::postgres;
use crate::value::defaults::Defaults;
use crate::value::error::LockError;
use crate::value::fence::{RETENTION, RETENTION_MAX, RETENTION_MIN};
use crate::value::setting;
use crate::value::url::{SCHEMES, Url, decoded, duration, named};

/// How long a caller waits by default for a server that fails or does not answer.
const TIMEOUT: Duration = Duration::from_secs(2);

const TIMEOUT_MIN: Duration = Duration::from_millis(20);
const TIMEOUT_MAX: Duration = Duration::from_secs(60 * 60);

/// A builder for a [`LockManager`], from [`LockManager::builder`].
#[derive(Debug, Clone)]
#[must_use = "a builder does nothing until it is connected"]
pub struct LockManagerBuilder {
    label: Option<String>,
    pub(super) timeout: Duration,
    pub(super) fence_retention: Duration,
    lazy: bool,
    pub(super) extra: UrlSettings,
    pub(crate) defaults: Defaults,
    #[cfg(feature = "redis")]
    pub(super) redis: RedisSettings,
    pub(crate) jobs: Jobs,
}

impl LockManagerBuilder {
    pub(crate) fn new() -> Self {
        Self {
            label: None,
            timeout: TIMEOUT,
            fence_retention: RETENTION,
            lazy: false,
            extra: UrlSettings::default(),
            defaults: Defaults::default(),
            #[cfg(feature = "redis")]
            redis: RedisSettings::default(),
            jobs: Jobs::default(),
        }
    }

    /// Sets the label of this process, which others see in [`LockError::Busy`] and in the value of
    /// the key. The default is `host:pid`. Control characters and blanks become `-`.
    ///
    /// ```
    /// # use lockmacro_runtime::{Lock, LockError, LockManager};
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), LockError> {
    /// let locks = LockManager::builder().label("web-3").isolated_memory();
    /// let order = Lock::new("order:42").name("audit").manager(&locks);
    /// let _guard = order.acquire().await?;
    /// let busy = order.acquire().await.expect_err("it is held");
    /// assert_eq!(busy.holder().owner.as_deref(), Some("web-3:audit"));
    /// # Ok(()) }
    /// ```
    pub fn label(mut self, label: impl Into<String>) -> Self {
        self.label = Some(label.into()).filter(|label| !label.is_empty());
        self
    }

    /// Sets how long a caller waits at most for a server that fails or does not answer, by default
    /// 2 s and from 20 ms to an hour. Another time is an error when the manager is made, as for
    /// every setting: [`LockError::InvalidSetting`].
    ///
    /// - A caller that waits for its lock waits for the server as long as for the lock.
    /// - A single command is given up after a quarter of this timeout.
    /// - With a Redlock, this is how long a caller tries to reach a majority; see
    ///   [the guide](crate::guide::redis#redlock).
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use lockmacro_runtime::{LockError, LockManager};
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), LockError> {
    /// let builder = LockManager::builder().timeout(Duration::from_millis(500));
    /// let locks = builder.connect("memory://").await?; // or "redis://…"
    /// # drop(locks);
    /// # Ok(()) }
    /// ```
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.set_timeout(Some(timeout));
        self
    }

    fn set_timeout(&mut self, timeout: Option<Duration>) {
        match timeout.filter(|timeout| (TIMEOUT_MIN..=TIMEOUT_MAX).contains(timeout)) {
            Some(timeout) => self.timeout = timeout,
            None => self.defaults.refuse("timeout", "set a time from 20ms to 1h"),
        }
    }

    /// Takes the settings out of a URL that are about the manager, and not about its store.
    pub(crate) fn take_from(&mut self, url: &mut Url<'_>) -> Result<(), LockError> {
        setting::check_all(url)?;
        self.defaults.take_from(url)?;
        if !url.may_be_cut {
            url.settings.retain(|setting| !self.take(setting));
        }
        self.defaults.usable()
    }

    /// Sets what a setting of a URL says; returns whether it is about the manager.
    fn take(&mut self, setting: &str) -> bool {
        let (name, value) = named(setting);
        match name {
            "label" => self.label = Some(decoded(value)).filter(|label| !label.is_empty()),
            "lazy" if setting == name => self.lazy = true,
            "lazy" => self.defaults.refuse("lazy", "write it without a value"),
            "timeout" => self.set_timeout(duration(value)),
            "retry_after" => {
                let bounds = value.split_once("..");
                match bounds.and_then(|(least, most)| Some((duration(least)?, duration(most)?))) {
                    Some((least, most)) => self.defaults.set_retry_after(least, most),
                    None => self.defaults.refuse("retry_after", "write two times, as `1s..30s`"),
                }
            }
            _ => return false,
        }
        true
    }

    /// Sets whether a caller without a `wait` gets its error at once while its server is down, by
    /// default yes.
    ///
    /// A server is down when it has answered nothing for a quarter of the
    /// [timeout](LockManagerBuilder::timeout). From then on each such caller waits for an answer
    /// to a probe, which all of them share, for at most 40 ms and five round trips. Without an
    /// answer it fails, and [`LockError::retry_after`] is a second. The first answer ends this.
    /// Renewals and releases go on as before, and so do callers with a `wait`.
    ///
    /// It applies to each server of a cluster by itself, and not to a Redlock. With `false` each
    /// caller tries for the whole timeout. A URL sets the same with `?fail_fast=no`, and takes
    /// precedence over this method.
    ///
    /// ```
    /// # use lockmacro_runtime::{LockError, LockManager};
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), LockError> {
    /// let locks = LockManager::builder().fail_fast(false).connect("memory://").await?;
    /// # drop(locks);
    /// # Ok(()) }
    /// ```
    pub fn fail_fast(mut self, at_once: bool) -> Self {
        self.defaults.asks_down = !at_once;
        self
    }

    /// Sets how long the server keeps the last [fence](crate::value::fence) of a key after the
    /// key's last grant with a fence, by default a week and from a day to ten years. Use the same
    /// value in every process.
    ///
    /// Until then, each key that was locked with a fence takes about 145 bytes, and one more for
    /// each byte of the key beyond ten: a million different keys take 145 MB. After that, the next
    /// fence of the key is made from the server's clock, so the fences still grow unless that clock
    /// was set back meanwhile. A URL sets the same with `?fence_retention=30d`, and takes precedence
    /// over this method. It is for servers: `memory://` keeps one number for all keys as long as the
    /// process lives, and connecting to it with this setting fails with
    /// [`LockError::InvalidSetting`].
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use lockmacro_runtime::LockManager;
    /// const DAY: Duration = Duration::from_secs(24 * 60 * 60);
    /// let builder = LockManager::builder().fence_retention(30 * DAY);
    /// ```
    pub fn fence_retention(mut self, retention: Duration) -> Self {
        self.extra.asked("fence_retention");
        if (RETENTION_MIN..=RETENTION_MAX).contains(&retention) {
            self.fence_retention = retention
        } else {
            self.defaults.refuse("fence_retention", "set a time from 1d to 3650d")
        }
        self
    }

    /// Delays the first connection until a lock is acquired, so that the program can start while
    /// the server is down.
    ///
    /// Until the server is up, acquiring fails with [`LockError::Unavailable`]. Errors that
    /// connecting would have returned, such as a wrong password, are returned by the first lock or
    /// by [`LockManager::ready`]. An invalid URL still fails at once.
    ///
    /// ```
    /// # use lockmacro_runtime::{LockError, LockManager};
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), LockError> {
    /// // Nothing listens there, and the program starts all the same.
    /// let locks = LockManager::builder().lazy().connect("redis://127.0.0.1:1").await?;
    /// assert!(matches!(locks.ready().await, Err(LockError::Unavailable { .. })));
    /// # Ok(()) }
    /// ```
    pub fn lazy(mut self) -> Self {
        self.lazy = true;
        self
    }

    /// For encrypted connections: sets the file of the authority to trust, in PEM, in place of those
    /// of the system. A URL sets the same with `?cacert=/etc/ca.pem`.
    ///
    /// ```no_run
    /// # use lockmacro_runtime::{LockError, LockManager};
    /// # async fn connect() -> Result<LockManager, LockError> {
    /// LockManager::builder().ca_cert("/etc/ca.pem").connect("rediss://localhost").await
    /// # }
    /// ```
    pub fn ca_cert(mut self, file: impl Into<String>) -> Self {
        self.extra.set("cacert", file.into());
        self
    }

    /// For encrypted connections: sets the files of the client's certificate and of its key, in
    /// PEM. A URL sets the same with `?cert=/etc/client.pem&key=/etc/client.key`.
    pub fn client_cert(mut self, cert: impl Into<String>, key: impl Into<String>) -> Self {
        self.extra.set("cert", cert.into());
        self.extra.set("key", key.into());
        self
    }

    /// For PostgreSQL: sets the schema that has the functions of the locks, by default `lm1`. A URL
    /// sets the same with `?schema=locks`.
    pub fn schema(mut self, name: impl Into<String>) -> Self {
        self.extra.set("schema", name.into());
        self
    }

    /// For PostgreSQL: makes the schema while connecting, where it is missing. A URL sets the same
    /// with `?install=1`.
    pub fn install_schema(mut self) -> Self {
        self.extra.set("install", "1".to_owned());
        self
    }

    /// For PostgreSQL behind a pooler: sets the hosts from which notifications come, as
    /// `db:5432`. A URL sets the same with `?listen=db%3A5432`.
    pub fn listen(mut self, hosts: impl Into<String>) -> Self {
        self.extra.set("listen", hosts.into());
        self
    }

    /// Connects, as [`LockManager::connect`] does.
    ///
    /// ```
    /// # use lockmacro_runtime::{LockError, LockManager};
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), LockError> {
    /// let locks = LockManager::builder().label("web-3").connect("memory://").await?;
    /// # drop(locks);
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// As [`LockManager::connect`].
    pub async fn connect(mut self, url: &str) -> Result<LockManager, LockError> {
        let store = self.at(url)?;
        self.asked(store).await
    }

    /// Connects, as [`LockManager::connect_blocking`] does.
    ///
    /// # Errors
    /// As [`LockManager::connect_blocking`].
    pub fn connect_blocking(mut self, url: &str) -> Result<LockManager, LockError> {
        let store = self.at(url)?;
        self.asked_blocking(store)
    }

    /// Makes a manager of locks that are kept in a store of your own: see [`LockStore`]. The store
    /// is asked once whether it is [ready](LockStore::ready), unless the manager is
    /// [lazy](LockManagerBuilder::lazy).
    ///
    /// ```no_run
    /// # use lockmacro_runtime::store::LockStore;
    /// # use lockmacro_runtime::{LockError, LockManager};
    /// # async fn connect(my_store: impl LockStore) -> Result<(), LockError> {
    /// let locks = LockManager::builder().label("web-3").connect_store(my_store).await?;
    /// locks.install()
    /// # }
    /// ```
    ///
    /// # Errors
    /// The failure of the store, or [`LockError::InvalidSetting`] for a setting of the builder that
    /// the store cannot keep, which names both.
    pub async fn connect_store(self, store: impl LockStore) -> Result<LockManager, LockError> {
        let store = self.own(store)?;
        self.asked(store).await
    }

    /// The same in a program that is not async, as [`LockManager::connect_blocking`].
    ///
    /// # Errors
    /// As [`connect_store`](LockManagerBuilder::connect_store), and [`LockError::NoRuntime`] on the
    /// thread of a current-thread runtime.
    pub fn connect_store_blocking(self, store: impl LockStore) -> Result<LockManager, LockError> {
        let store = self.own(store)?;
        self.asked_blocking(store)
    }

    /// A store of somebody else, not asked yet.
    fn own(&self, store: impl LockStore) -> Result<Store, LockError> {
        self.defaults.usable()?;
        let store = Adapter::new(store, self.timeout, !self.defaults.asks_down);
        if let Some(setting) = self.extra.names().next() {
            return Err(store.refusal(setting, setting::why_not_own(setting)));
        }
        store.check_limits()?;
        if let Some(ttl) = self.defaults.given_ttl() {
            store.check_ttl("default_ttl", ttl)?;
        }
        Ok(Store::of(store))
    }

    /// The store that a URL names, not connected yet.
    pub(crate) fn at(&mut self, url: &str) -> Result<Store, LockError> {
        let extra = self.extra.clone();
        let mut url = extra.added_to(Url::parse(url)?);
        extra.check(url.scheme)?;
        if !setting::is_scheme(url.scheme) {
            return Err(LockError::invalid_url(SCHEMES));
        }
        self.take_from(&mut url)?;
        if url.is_only("memory") {
            // Else a forgotten URL would show in nothing but in bodies that run twice.
            tracing::info!("locks are kept in memory, so other processes do not see them");
            return Ok(Store::of(Memory::shared()));
        }
        #[cfg(feature = "postgres")]
        if let Some(server) = postgres::client::url::Database::of(&url, self.timeout) {
            let mut server = server?;
            let default = self.fence_retention;
            self.defaults.usable()?;
            server.fence_retention.get_or_insert(default);
            let mut store = postgres::store::Postgres::new(server, self.timeout);
            store.fails_fast = !self.defaults.asks_down;
            return Ok(Store::of(store));
        }
        #[cfg(not(feature = "postgres"))]
        if matches!(url.scheme, "postgres" | "postgresql") {
            return Err(LockError::invalid_url("it needs the feature `postgres`"));
        }
        #[cfg(feature = "redis")]
        return self.on_redis(&url);
        #[cfg(not(feature = "redis"))]
        Err(LockError::invalid_url("a URL of Redis servers needs the feature `redis`"))
    }

    pub(super) async fn asked(self, store: Store) -> Result<LockManager, LockError> {
        if !self.lazy && !store.is_local() {
            inside_runtime()?;
            store.backend.ready().await?;
        }
        Ok(self.with(store))
    }

    fn asked_blocking(self, store: Store) -> Result<LockManager, LockError> {
        let lazy = self.lazy || store.is_local();
        let manager = self.with(store);
        if !lazy {
            manager.core().ready_blocking()?;
        }
        Ok(manager)
    }

    /// Makes a manager with locks of its own in memory, as [`LockManager::isolated_memory`] does.
    /// Settings that are about a server have no effect on it, such as `credentials` and
    /// [`fence_retention`](LockManagerBuilder::fence_retention), so a test can use the builder of
    /// the program. A value out of its bounds is an error of the first lock, because this returns
    /// none.
    ///
    /// ```
    /// # use lockmacro_runtime::LockManager;
    /// let locks = LockManager::builder().label("web-3").isolated_memory();
    /// ```
    pub fn isolated_memory(self) -> LockManager {
        self.with(Store::of(Memory::new()))
    }

    pub(crate) fn with(self, store: Store) -> LockManager {
        LockManager(Manager::new(Core::over(store, self.label, self.defaults, self.jobs)))
    }
}

#[cfg(test)]
#[cfg(not(feature = "redis"))]
mod tests {
    use super::*;

    #[tokio::test]
    async fn without_its_client_a_url_of_redis_names_the_feature() {
        for url in ["redis://localhost", "rediss-cluster://a,b", "redlock://a,b,c", "unix:///run"] {
            for built in [LockManager::builder(), LockManager::builder().lazy()] {
                let error = built.connect(url).await.expect_err(url);
                let LockError::InvalidSetting { setting: "url", detail } = error else {
                    panic!("{url}: {error}");
                };
                assert!(detail.contains("the feature `redis`"), "{url}: {detail}");
            }
        }
        LockManager::connect("memory://").await.expect("needs no client");
    }
}
