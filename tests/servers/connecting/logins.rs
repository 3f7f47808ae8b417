//! Sentinels that want a login of their own.

use lockmacro_tests::{Group, Server};

use crate::*;

async fn is_refused(url: &str) {
    let error = LockManager::connect(url).await.expect_err("refused");
    assert!(matches!(error, LockError::Authentication { .. }), "{url}: {error:?}");
    let shown = format!("{error} {error:?}");
    assert!(["hunter", "wrong"].iter().all(|word| !shown.contains(word)), "{shown}");
}

#[tokio::test]
async fn sentinels_and_servers_are_each_logged_in_to_by_their_own() {
    let primary = Server::with(&["--requirepass", "hunter1"]);
    let lines = "sentinel auth-pass main hunter1\n\
                 requirepass hunter2\n\
                 user watcher on >hunter3%& resetkeys -@all +sentinel|get-master-addr-by-name\n";
    // The right that the page names is enough.
    assert!(
        include_str!("../../../docs/reference/servers.md")
            .contains("`+sentinel|get-master-addr-by-name`")
    );
    let group = Group::alone(primary, lines, &[]);
    let at = |password: &str| group.url().replace("://", &format!("://:{password}@"));
    let right = at("hunter1");
    for login in
        ["sentinel_password=hunter2", "sentinel_user=watcher&sentinel_password=hunter3%25%26"]
    {
        let locks = patient().connect(&format!("{right}?{login}")).await.expect("let in");
        lock(&locks).acquire().await.expect("free").release().await.expect("still held");
    }
    for login in [
        "",
        "sentinel_password=wrong",
        // That of the servers.
        "sentinel_password=hunter1",
        "sentinel_user=nobody&sentinel_password=hunter2",
        "sentinel_user=watcher&sentinel_password=hunter2",
    ] {
        is_refused(&format!("{right}?{login}")).await;
    }
    for password in ["", "wrong", "hunter2"] {
        is_refused(&format!("{}?sentinel_password=hunter2", at(password))).await;
    }
}
