//! The schema of a PostgreSQL database, and what inspection returns of it.

use lockmacro_runtime::defer::NewJob;

use super::*;

/// The random part of a token is all that a holder has.
#[on(postgres)]
async fn a_secret_never_leaves_the_database(backend: &Backend) {
    let (key, both) = (&*backend.key("order:1"), &*backend.key("report:1"));
    let (desk, night) = (manager(backend, "desk").await, manager(backend, "night").await);
    let held = hold(&desk, key).await;
    let lock = Lock::new(both).ttl(LONG_TTL).shared().manager(&desk);
    let shared = lock.acquire().await.expect("free");
    let waiting = wait_for(&night, key).await;
    let database = backend.database().expect("it is one");
    let (secrets, shown) = (backend.tokens(), |call: String| database.ask(&call));
    let seen = [
        shown(format!("SELECT token FROM lm1.look('{key}')")),
        shown(format!("SELECT token FROM lm1.look('{both}')")),
        shown(format!("SELECT token FROM lm1.look_for('{key}|{both}', 9)")),
        shown(format!("SELECT token FROM lm1.look_behind('{key}', 9)")),
    ];
    assert_eq!(seen.each_ref().map(Vec::len), [1, 1, 2, 1]);
    assert!(secrets.len() >= 3, "{secrets:?}");
    for token in seen.iter().flatten() {
        assert!(!secrets.iter().any(|secret| token.ends_with(secret)), "{token}");
        // It makes nobody a holder.
        for key in [key, both] {
            let renew = format!("SELECT lm1.renew('{{{key}}}', '{{{token}}}', '{{9}}')::text");
            assert_eq!(shown(renew), ["{f}"]);
        }
    }
    held.release().await.expect("held");
    in_time(waiting).await.expect("its turn").release().await.expect("held");
    shared.release().await.expect("held");
}

/// What was seen is not the lock that the key is kept for.
#[on(postgres)]
async fn a_key_that_is_kept_for_its_min_hold_has_another_token(backend: &Backend) {
    let key = &*backend.key("order:1");
    let locks = manager(backend, "desk").await;
    let lock = Lock::new(key).ttl(LONG_TTL).min_hold(LONG_TTL).manager(&locks);
    let held = lock.acquire().await.expect("free");
    let seen = locks.inspector().lock(key).await.expect("there").expect("held");
    held.release().await.expect("held");
    assert!(!locks.force_release(&seen).await.expect("there"), "it was released");
    let kept = locks.inspector().lock(key).await.expect("there").expect("kept");
    assert_eq!(kept.holder.owner.as_deref(), Some("desk"));
    assert!(locks.force_release(&kept).await.expect("there"));
}

#[on(postgres)]
async fn the_tool_makes_the_schema_once_and_prints_rights_that_are_enough(backend: &Backend) {
    let client = backend.database().expect("it is one").connect().await;
    let url = backend.url().replace("install=1", "schema=tool");
    let as_user = url.replace("postgres@", "app@");
    let missing = tool_at(&url, &["locks"]).await;
    assert_eq!(missing.code, Some(1));
    assert!(missing.err.contains("run `lockmacro postgres install`"), "{missing:?}");
    let said = tool_at("", &["postgres", "install", &format!("{url}&install=1")]).await;
    assert_eq!((said.code, &*said.err), (Some(0), ""), "{said:?}");
    assert!(said.out.starts_with("-- The schema tool was made."), "{said:?}");
    client.batch_execute("CREATE ROLE app LOGIN").await.expect("made");
    assert_eq!(tool_at(&as_user, &["locks"]).await.code, Some(1), "it has no rights");
    client.batch_execute(&said.out).await.expect("two statements");
    let said = tool_at(&url, &["postgres", "install"]).await;
    assert!(said.out.starts_with("-- The schema tool was there already."), "{said:?}");
    let said = tool_at("", &["--url", &url, "--json", "postgres", "install"]).await.json();
    assert_eq!((&said["installed"], &said["upgraded_from"]), (&false.into(), &Value::Null));
    let earlier =
        "CREATE OR REPLACE FUNCTION tool.version() RETURNS int LANGUAGE sql AS 'SELECT 2'";
    client.batch_execute(earlier).await.expect("made");
    let said = tool_at(&url, &["postgres", "install"]).await;
    let upgraded = "-- The schema tool was upgraded from version 2 to 4. For the user";
    assert!(said.out.starts_with(upgraded), "{said:?}");
    client.batch_execute(earlier).await.expect("made");
    let said = tool_at(&url, &["--json", "postgres", "install"]).await.json();
    assert_eq!((&said["installed"], &said["upgraded_from"]), (&true.into(), &2.into()));

    let locks = LockManager::builder().label("desk").connect(&as_user).await.expect("enough");
    let held = hold(&locks, "order:1").await;
    let said = tool_at(&as_user, &["locks"]).await;
    assert_eq!(said.rows()[1][..2], ["order:1", "desk"], "{said:?}");
    let said = tool_at(&as_user, &["release", "order:1", "--force", "--yes"]).await;
    assert_eq!(said.out, "`order:1` was taken away from desk\n", "{said:?}");
    assert!(held.release().await.is_err(), "it was taken away");
    client.batch_execute("DROP SCHEMA tool CASCADE; DROP ROLE app").await.expect("gone");
}

#[on(postgres)]
async fn what_the_tool_prints_makes_the_schema(backend: &Backend) {
    let client = backend.database().expect("it is one").connect().await;
    let said = tool_at("", &["postgres", "print", "--schema", "printed"]).await;
    assert_eq!((said.code, &*said.err), (Some(0), ""), "{said:?}");
    client.batch_execute(&said.out).await.expect("it is SQL");
    let url = backend.url().replace("install=1", "schema=printed");
    let locks = LockManager::connect(&url).await.expect("the schema is there");
    hold(&locks, "order:1").await.release().await.expect("held");
    client.batch_execute("DROP SCHEMA printed CASCADE").await.expect("gone");
    let said = tool_at("", &["postgres", "print", "--schema", "a; DROP"]).await;
    assert_eq!((said.code, &*said.out), (Some(1), ""), "{said:?}");
    let said = tool_at(&url, &["acl", "order:*"]).await;
    assert!(said.code == Some(1) && said.err.contains("postgres install` prints"), "{said:?}");
    let said = tool_at("", &["postgres", "install", "redis://127.0.0.1:1"]).await;
    assert!(said.code == Some(2) && said.err.contains("only a PostgreSQL database"), "{said:?}");
}

#[on(postgres)]
async fn the_functions_that_have_jobs_are_listed(backend: &Backend) {
    let locks = manager(backend, "desk").await;
    let names = ["z", "a", "b"].map(|name| backend.key(name));
    for name in &names {
        let mut call = NewJob::new(name.as_str(), "7f3a", "[42]", backend.key("order:42"));
        call.delay = LONG_TTL;
        locks.job_queue().put(call).await.expect("stored");
    }
    let listed = locks.inspector().job_functions(1_000).await.expect("there");
    let ours: Vec<_> = listed.items.iter().filter(|name| names.contains(name)).collect();
    assert_eq!(ours, [&names[1], &names[2], &names[0]]);
    let few = locks.inspector().job_functions(1).await.expect("there");
    assert!(few.truncated && few.items.len() == 1);
    for name in &names {
        locks.job_queue().remove(name.as_str().into(), "7f3a".to_owned()).await.expect("there");
    }
    let listed = locks.inspector().job_functions(1_000).await.expect("there");
    assert!(!listed.items.iter().any(|name| names.contains(name)));
}
