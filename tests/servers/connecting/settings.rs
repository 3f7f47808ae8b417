//! Each setting, by the URL and by the method of the builder, on each store: it is applied, or
//! refused by its name. Nothing listens at these addresses, so a manager is there because it is lazy.

use std::time::{Duration, Instant};

use lockmacro_runtime::{Lock, LockError, LockManager, LockManagerBuilder};
use lockmacro_tests::times::{LONG_TTL, ms};

const SECOND: Duration = Duration::from_secs(1);
const DAY: Duration = Duration::from_secs(24 * 60 * 60);

const STORES: [&str; 8] = [
    "memory://",
    "redis://127.0.0.1:1",
    "rediss://127.0.0.1:1",
    "redis+unix:///no/such/socket",
    "redis-sentinel://127.0.0.1:1/main",
    "redis-cluster://127.0.0.1:1",
    "redlock://127.0.0.1:1,127.0.0.1:2,127.0.0.1:3",
    "postgres://locks@127.0.0.1:1/locks",
];

type Method = fn(LockManagerBuilder) -> LockManagerBuilder;

/// A setting.
struct Setting {
    name: &'static str,
    /// As a URL writes it; empty for one of the builder only.
    in_url: &'static str,
    method: Method,
    /// How the URLs of the stores begin that have it.
    stores: &'static [&'static str],
}

const EVERY: &[&str] = &[""];
const SERVERS: &[&str] = &["redi", "redlock", "postgres"];
const ENCRYPTED: &[&str] = &["rediss:", "postgres"];

fn setting(
    name: &'static str,
    in_url: &'static str,
    stores: &'static [&'static str],
    method: Method,
) -> Setting {
    Setting { name, in_url, method, stores }
}

fn settings() -> Vec<Setting> {
    vec![
        setting("label", "label=web-3", EVERY, |builder| builder.label("web-3")),
        setting("lazy", "lazy", EVERY, LockManagerBuilder::lazy),
        setting("timeout", "timeout=500ms", EVERY, |builder| builder.timeout(ms(500))),
        setting("retry_after", "retry_after=1s..30s", EVERY, |builder| {
            builder.retry_after(SECOND..=30 * SECOND)
        }),
        setting("fence_retention", "fence_retention=30d", SERVERS, |builder| {
            builder.fence_retention(30 * DAY)
        }),
        setting("credentials", "", &["redi", "redlock"], |builder| {
            builder.credentials(async || Ok::<_, LockError>((String::new(), String::new())))
        }),
        setting("cacert", "cacert=/no/such/file", ENCRYPTED, |builder| {
            builder.ca_cert("/no/such/file")
        }),
        setting("cert", "cert=/no/such/file&key=/no/such/file", ENCRYPTED, |builder| {
            builder.client_cert("/no/such/file", "/no/such/file")
        }),
        setting("sentinel_password", "sentinel_password=secret", &["redis-sentinel"], |builder| {
            builder.sentinel_login("", "secret")
        }),
        setting(
            "sentinel_user",
            "sentinel_user=watcher",
            &["redis-sentinel"],
            // Its password is refused first elsewhere, by the order of their names.
            |builder| builder.sentinel_login("watcher", "secret"),
        ),
        setting("schema", "schema=locks", &["postgres"], |builder| builder.schema("locks")),
        setting("install", "install=1", &["postgres"], LockManagerBuilder::install_schema),
        setting("listen", "listen=127.0.0.1%3A2", &["postgres"], |builder| {
            builder.listen("127.0.0.1:2")
        }),
    ]
}

/// Connects to `store` with the setting, by its URL and by the method.
async fn by_both(store: &str, setting: &Setting) -> Vec<Result<LockManager, LockError>> {
    let lazily = LockManager::builder().lazy();
    let mut connected = vec![(setting.method)(lazily.clone()).connect(store).await];
    if !setting.in_url.is_empty() {
        connected.push(LockManager::connect(&format!("{store}?lazy&{}", setting.in_url)).await);
    }
    connected
}

#[tokio::test]
async fn each_is_taken_by_the_stores_that_have_it_and_refused_by_name_by_the_others() {
    for setting in settings() {
        for store in STORES {
            let has_it = setting.stores.iter().any(|begin| store.starts_with(begin));
            for connected in by_both(store, &setting).await {
                let what = format!("{} of {store}: {connected:?}", setting.name);
                match connected {
                    Ok(_) => assert!(has_it, "{what}"),
                    Err(LockError::InvalidSetting { setting: named, detail, .. }) => {
                        // The password is the first one of a login.
                        let is_named = named.starts_with(setting.name)
                            || setting.name == "sentinel_user" && named == "sentinel_password";
                        assert!(is_named, "{what}");
                        // Where it is read, its file is missing.
                        let is_missing = detail.contains("/no/such/file");
                        let is_foreign = detail.contains("it is for");
                        assert!(if has_it { is_missing } else { is_foreign }, "{what}");
                    }
                    Err(_) => panic!("{what}"),
                }
            }
        }
    }
}

#[tokio::test]
async fn a_value_that_cannot_be_is_refused_by_the_name_of_its_setting() {
    for (name, setting) in [
        ("lazy", "lazy=1"),
        ("lazy", "lazy="),
        ("timeout", "timeout=19ms"),
        ("timeout", "timeout=2h"),
        ("timeout", "timeout=soon"),
        ("retry_after", "retry_after=30s..1s"),
        ("retry_after", "retry_after=1s"),
        ("retry_after", "retry_after=1s.."),
        ("retry_after", "retry_after=..30s"),
        ("retry_after", "retry_after=1s..=30s"),
        ("retry_after", "retry_after=1s..soon"),
    ] {
        for store in STORES {
            let refused = LockManager::connect(&format!("{store}?{setting}")).await;
            let is_named = matches!(
                refused,
                Err(LockError::InvalidSetting { setting, .. }) if setting == name
            );
            assert!(is_named, "{setting} of {store}: {refused:?}");
        }
    }
    let builder = || LockManager::builder().lazy();
    for (name, built, store) in [
        ("timeout", builder().timeout(ms(19)), "memory://"),
        ("retry_after", builder().retry_after(30 * SECOND..=SECOND), "memory://"),
        ("schema", builder().schema("Locks!"), "postgres://locks@127.0.0.1:1/locks"),
        ("url", builder().listen(","), "postgres://locks@127.0.0.1:1/locks"),
    ] {
        let refused = built.connect(store).await;
        let is_named =
            matches!(refused, Err(LockError::InvalidSetting { setting, .. }) if setting == name);
        assert!(is_named, "{name}: {refused:?}");
    }
}

#[tokio::test]
async fn a_label_and_the_bounds_of_retry_after_are_seen_by_others() {
    let managers = [
        LockManager::connect("memory://?label=web%2D3&retry_after=5s..7s").await,
        LockManager::builder()
            .label("web-3")
            .retry_after(5 * SECOND..=7 * SECOND)
            .connect("memory://")
            .await,
    ];
    for (nth, manager) in managers.into_iter().enumerate() {
        let manager = manager.expect("in memory");
        let lock = Lock::new(format!("settings:{nth}")).ttl(LONG_TTL).manager(&manager);
        let held = lock.acquire().await.expect("free");
        let busy = lock.acquire().await.expect_err("held");
        let owner = busy.holder().owner.clone().unwrap_or_default();
        assert!(owner.starts_with("web-3"), "{owner}");
        assert_eq!(busy.retry_after(), Some(7 * SECOND));
        held.release().await.expect("held");
    }
}

#[tokio::test]
async fn a_timeout_is_how_long_a_server_that_is_down_is_tried() {
    for (builder, url) in [
        (LockManager::builder(), "redis://127.0.0.1:1?timeout=100ms"),
        (LockManager::builder().timeout(ms(100)), "redis://127.0.0.1:1"),
    ] {
        let start = Instant::now();
        let error = builder.connect(url).await.expect_err("nothing listens");
        assert!(matches!(error, LockError::Unavailable { .. }), "{error}");
        // The default is two seconds.
        assert!(start.elapsed() < SECOND * 3 / 2, "{:?}", start.elapsed());
    }
}
