//! What inspection returns of a PostgreSQL database.

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
    let seen = locks.inspect_lock(key).await.expect("there").expect("held");
    held.release().await.expect("held");
    assert!(!locks.force_release(&seen).await.expect("there"), "it was released");
    let kept = locks.inspect_lock(key).await.expect("there").expect("kept");
    assert_eq!(kept.holder.owner.as_deref(), Some("desk"));
    assert!(locks.force_release(&kept).await.expect("there"));
}
