//! The settings of `replicated`, its rights, and where it is refused.

use lockmacro_tests::with_replicas;

use crate::*;

const ACCESS: &str = include_str!("../../../docs/reference/servers.md");

async fn refused(builder: lockmacro_runtime::LockManagerBuilder, url: &str) -> String {
    let error = builder.connect(url).await.expect_err(url);
    let LockError::InvalidSetting { setting, .. } = &error else { panic!("{url}: {error:?}") };
    assert!(["replicated", "replicated_timeout"].contains(setting), "{url}: {error:?}");
    error.to_string()
}

#[tokio::test]
async fn a_server_without_replicas_is_refused_in_plain_words() {
    let asked = || LockManager::builder().replicated(1, ms(100));
    let three = "127.0.0.1:1,127.0.0.1:2,127.0.0.1:3";
    for url in ["memory://", &format!("redlock://{three}")] {
        assert!(refused(asked(), url).await.contains("with replicas"), "{url}");
    }
    let urls = ["redis://127.0.0.1:1?replicated=1", "redis://127.0.0.1:2", "redis://127.0.0.1:3"];
    let error = LockManager::builder().redlock(urls).await.expect_err("refused");
    assert!(error.to_string().contains("with replicas"), "{error}");
    for url in [
        "redis://localhost?replicated=0",
        "redis://localhost?replicated=all",
        "redis://localhost?replicated_timeout=1s",
        "redis://localhost?replicated=1&replicated_timeout=100",
        "redis://localhost?replicated=1&replicated_timeout=0ms",
        "redis://localhost?replicated=1&replicated_timeout=61m",
    ] {
        assert!(refused(LockManager::builder(), url).await.contains("`replicated"), "{url}");
    }
    let none = LockManager::builder().replicated(0, ms(100));
    assert!(refused(none, "redis://localhost").await.contains("at least one replica"));
    for timeout in [Duration::ZERO, Duration::MAX] {
        let told =
            refused(LockManager::builder().replicated(1, timeout), "redis://localhost").await;
        assert!(told.contains("`replicated_timeout`") && told.contains("from 1ms to 1h"), "{told}");
    }
}

#[tokio::test]
async fn the_url_goes_before_the_builder_and_neither_costs_a_plain_lock_anything() {
    let servers = with_replicas(1).await;
    let url = format!("{}?replicated=1&replicated_timeout=60s", servers[0].url());
    let builder = LockManager::builder().replicated(2, ms(20));
    let manager = builder.connect(&url).await.expect("there");
    lock(&manager).acquire().await.expect("one is enough").release().await.expect("held");

    let (mut admin, manager) = (servers[0].admin(), plain(&servers[0]).await);
    admin.forget_calls();
    lock(&manager).acquire().await.expect("free").release().await.expect("held");
    assert_eq!(["set", "evalsha", "wait"].map(|name| admin.count(&[name])), [1, 1, 0]);
    let manager = LockManager::connect(&url).await.expect("there");
    admin.forget_calls();
    for counts in [[1, 1, 1, 1], [2, 1, 3, 2]] {
        lock(&manager).acquire().await.expect("free").release().await.expect("held");
        assert_eq!(["set", "eval", "evalsha", "wait"].map(|name| admin.count(&[name])), counts);
    }
}

#[tokio::test]
async fn the_right_that_the_page_names_is_enough_and_needed() {
    let servers = with_replicas(1).await;
    let mut admin = servers[0].admin();
    let line = ACCESS.lines().find(|line| line.starts_with("ACL SETUSER"));
    let rights: Vec<_> = line.expect("the page has it").split_whitespace().collect();
    admin.ask::<()>(&rights);
    let url = format!("{}?replicated=1", servers[0].url_as("shop", "password"));
    let connecting = LockManager::connect(&url).await;
    let error = connecting.expect_err("it may not wait").to_string();
    assert!(error.contains("the user lacks +wait, at 127.0.0.1:"), "{error}");
    assert!(ACCESS.contains("`+wait`"));
    admin.ask::<()>(&["ACL", "SETUSER", "shop", "+wait"]);
    let manager = LockManager::connect(&url).await.expect("there");
    admin.ask::<()>(&["ACL", "LOG", "RESET"]);
    lock(&manager).acquire().await.expect("free").release().await.expect("held");
    assert_eq!(admin.ask::<Vec<redis::Value>>(&["ACL", "LOG"]), []);
}
