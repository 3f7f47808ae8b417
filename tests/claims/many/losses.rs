//! A lock on several keys is lost with any of them.

use std::time::Duration;

use lockmacro_runtime::{LockError, LossCause, OnLost};
use lockmacro_tests::{Admin, Backend, on};

use crate::{IN_TIME, LONG_TTL, Locked, become_free, free, has_keys, keys, many, ms};

/// Short, and long enough for a renewal in time on a loaded machine.
const TTL: Duration = Duration::from_millis(1_200);

#[on(memory, redis, slots, postgres, both_runtimes)]
async fn all_keys_are_renewed_or_extended_together(backend: &Backend) {
    let (manager, keys) = (backend.manager().await, keys::<6>(backend));
    let extended = many(&manager, &keys[..3]).ttl(TTL).acquire().await.expect("free");
    extended.extend(LONG_TTL).await.expect("still held");
    let body = async {
        tokio::time::sleep(TTL * 3 / 2).await;
        Locked::Ok(free(backend, &keys).await)
    };
    let free = many(&manager, &keys[3..]).ttl(TTL).renew().run(body).await;
    assert_eq!(free, Ok(vec![false; 6]));
    extended.release().await.expect("still held");
}

#[on(memory, redis, redlock, postgres, both_runtimes)]
async fn a_lease_ends_for_all_keys_at_once(backend: &Backend) {
    let (manager, keys) = (backend.manager().await, keys::<2>(backend));
    let body = std::future::pending::<Locked<()>>();
    let error = many(&manager, &keys).ttl(ms(100)).run(body).await.expect_err("lost");
    let LockError::Lost(lost) = &error else { panic!("{error}") };
    assert_eq!(lost.cause(), LossCause::Expired);
    assert!(lost.keys().map(|key| key.as_str()).eq(&keys));
    assert!(error.to_string().contains(&format!("`{}, {}`", keys[0], keys[1])), "{error}");
    become_free(backend, &keys).await;
}

/// Changes of a held key by other clients.
const THEFTS: [&[&str]; 3] =
    [&[], &["SET", "KEY", "php", "PX", "60000"], &["RPUSH", "KEY", "a list"]];

fn steal(admin: &mut Admin, key: &str, theft: &[&str]) {
    admin.ask::<()>(&["DEL", key]);
    let words: Vec<&str> =
        theft.iter().map(|word| if *word == "KEY" { key } else { word }).collect();
    if !words.is_empty() {
        admin.ask::<()>(&words);
    }
}

async fn with_each_theft(
    backend: &Backend,
    test: impl AsyncFn(&[String; 3], usize, &'static [&'static str]),
) {
    for theft in THEFTS {
        for nth in 0..3 {
            let keys = keys::<3>(backend);
            test(&keys, nth, theft).await;
            backend.admin().expect("a server").ask::<()>(&["DEL", &keys[nth]]);
            backend.keeps_nothing().await;
        }
    }
}

#[on(redis, slots)]
async fn a_body_is_stopped_when_one_key_is_taken_and_the_others_are_released(backend: &Backend) {
    with_each_theft(backend, async |keys, nth, theft| {
        let manager = backend.manager().await;
        let mut admin = backend.admin().expect("a server");
        let body = async {
            steal(&mut admin, &keys[nth], theft);
            std::future::pending::<Locked<()>>().await
        };
        let lock = many(&manager, keys).ttl(TTL).renew();
        let error = tokio::time::timeout(IN_TIME, lock.run(body)).await.expect("in time");
        let Err(LockError::Lost(lost)) = &error else { panic!("{error:?}") };
        assert_eq!(lost.cause(), LossCause::Taken, "key {nth} by {theft:?}");
        assert!(lost.keys().map(|key| key.as_str()).eq(keys));
        has_keys(&mut admin, usize::from(!theft.is_empty())).await;
    })
    .await;
}

/// A node alone has no say.
#[tokio::test]
async fn on_a_redlock_a_key_is_lost_when_a_majority_has_it_no_more() {
    let backend = Backend::redlock();
    let (manager, keys) = (backend.manager().await, keys::<3>(&backend));
    let mut admins = backend.admins();
    let guard = many(&manager, &keys).acquire().await.expect("free");
    steal(&mut admins[0], &keys[1], &[]);
    guard.extend(LONG_TTL).await.expect("two of three have it");
    steal(&mut admins[2], &keys[1], &[]);
    let error = guard.extend(LONG_TTL).await.expect_err("one of three has it");
    assert!(matches!(&error, LockError::Lost(lost) if lost.cause() == LossCause::Taken), "{error}");
    drop(guard);
    backend.keeps_nothing().await;
}

#[on(redis, slots)]
async fn a_release_that_finds_one_key_gone_says_so_and_releases_the_others(backend: &Backend) {
    with_each_theft(backend, async |keys, nth, theft| {
        let manager = backend.manager().await;
        let mut admin = backend.admin().expect("a server");
        let guard = many(&manager, keys).acquire().await.expect("free");
        steal(&mut admin, &keys[nth], theft);
        let error = guard.release().await.expect_err("one was gone");
        let LockError::Lost(lost) = &error else { panic!("{error}") };
        assert_eq!(lost.cause(), LossCause::Taken, "key {nth} by {theft:?}");
        assert_eq!(admin.keys().len(), usize::from(!theft.is_empty()), "key {nth} by {theft:?}");
    })
    .await;
}

#[on(redis, slots)]
async fn an_extension_is_refused_when_one_key_is_gone(backend: &Backend) {
    with_each_theft(backend, async |keys, nth, theft| {
        let manager = backend.manager().await;
        let mut admin = backend.admin().expect("a server");
        let guard = many(&manager, keys).acquire().await.expect("free");
        steal(&mut admin, &keys[nth], theft);
        let error = guard.extend(LONG_TTL).await.expect_err("one was gone");
        assert!(matches!(&error, LockError::Lost(lost) if lost.cause() == LossCause::Taken));
        assert!(!guard.is_held());
        drop(guard);
        has_keys(&mut admin, usize::from(!theft.is_empty())).await;
    })
    .await;
}

/// A body on a blocked thread cannot be stopped, and learns of the loss late.
#[on(redis, slots)]
async fn the_other_keys_are_kept_for_a_body_that_goes_on(backend: &Backend) {
    let (manager, keys) = (backend.manager().await, keys::<2>(backend));
    let mut admin = backend.admin().expect("a server");
    let guard = many(&manager, &keys).acquire().await.expect("free");
    let lock = many(&manager, &keys[1..]).wait(IN_TIME);
    let mut waits = tokio::spawn(async move { lock.acquire().await.map(drop) });
    steal(&mut admin, &keys[0], &[]);
    let error = guard.extend(LONG_TTL).await.expect_err("one was gone");
    assert!(matches!(&error, LockError::Lost(_)), "{error}");
    let early = tokio::time::timeout(ms(300), &mut waits).await;
    assert!(early.is_err(), "another caller of the process has the second key: {early:?}");
    drop(guard);
    waits.await.expect("no panic").expect("the second key was released");
}

#[on(redis)]
async fn a_body_that_runs_to_its_end_can_see_the_loss(backend: &Backend) {
    let (manager, keys) = (backend.manager().await, keys::<2>(backend));
    let mut admin = backend.admin().expect("a server");
    let lock = many(&manager, &keys).ttl(TTL).renew().on_lost(OnLost::Error);
    let guard = lock.acquire().await.expect("free");
    let seen = guard.handle();
    let body = async {
        steal(&mut admin, &keys[1], &[]);
        Locked::Ok(seen.lost().await.cause())
    };
    let error = guard.run(body).await.expect_err("lost");
    assert!(matches!(&error, LockError::Lost(lost) if lost.cause() == LossCause::Taken), "{error}");
    has_keys(&mut admin, 0).await;
}
