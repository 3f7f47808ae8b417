//! The paragraph about a key that is busy.

use super::*;

/// A waiter knows how long its key is usually held.
#[on(redis, postgres)]
async fn a_stuck_holder_is_found_by_one_command(backend: &Backend) {
    let key = &*backend.key("order:1");
    let (stuck, other) = (manager(backend, "web-3:4711").await, manager(backend, "web-4:12").await);
    for _ in 0..3 {
        hold(&other, key).await.release().await.expect("held");
    }
    let lock = Lock::new(key).ttl(LONG_TTL).wait(LONG_TTL).name("audit").manager(&stuck);
    let held = lock.acquire().await.expect("free");
    let waiting = wait_for(&other, key).await;
    let said = tool(backend, &["why", key]).await;
    assert_eq!(said.code, Some(0), "{said:?}");
    let begins = format!("`{key}` is held by web-3:4711:audit, which asked for it ");
    assert!(said.out.starts_with(&begins), "{said:?}");
    assert!(said.shows("One caller waits, web-4:12 for "), "{said:?}");
    // Only Redis keeps what the waiter knows.
    let is_redis = backend.database().is_none();
    assert_eq!(said.shows("It is usually held for "), is_redis, "{said:?}");
    let report = tool(backend, &["why", key, "--json"]).await.json();
    let counted = (&report["processes"], &report["callers"], &report["is_stuck"]);
    assert_eq!(counted, (&1.into(), &1.into(), &false.into()), "{report}");
    assert!(report["asked_ms"].as_u64().is_some_and(|asked| asked < 60_000), "{report}");
    assert_eq!(report["usual_hold_ms"].is_u64(), is_redis, "{report}");
    assert_eq!(report["lock"]["holder"], "web-3:4711:audit");
    held.release().await.expect("held");
    in_time(waiting).await.expect("its turn").release().await.expect("held");
    let said = tool(backend, &["why", key]).await;
    assert!(said.out.starts_with(&format!("Nothing holds `{key}`. Nobody waits")), "{said:?}");
}
