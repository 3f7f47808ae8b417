//! The body of a lost lock: four policies, for async and sync bodies.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::Duration;

use lockmacro_runtime::{Lock, LockManager, LossCause, Lost, OnLost};
use lockmacro_tests::{Backend, Fault, eventually, in_time, on, on_a_plain_thread, watched};

use crate::{
    Failure, Locked, SOON, block_until_lost, cause, ms, next, through, until_lost, warm_up,
};

const TTL: Duration = Duration::from_millis(500);

fn short(manager: &LockManager, key: &str, on_lost: OnLost) -> Lock {
    Lock::new(key).ttl(TTL).on_lost(on_lost).manager(manager)
}

/// Records that it was dropped.
struct Dropped(Arc<AtomicBool>);

impl Drop for Dropped {
    fn drop(&mut self) {
        self.0.store(true, SeqCst);
    }
}

#[on(memory, redis, postgres)]
async fn under_cancel_the_body_is_dropped_before_a_rival_is_granted(backend: &Backend) {
    let (manager, rival) = (backend.manager().await, backend.manager().await);
    let key = backend.key("order:42");
    for chance in 1.. {
        let dropped = Arc::new(AtomicBool::new(false));
        let noted = Dropped(Arc::clone(&dropped));
        let (begun, began) = tokio::sync::oneshot::channel();
        let body = async move {
            let _noted = noted;
            begun.send(()).expect("the test goes on");
            std::future::pending::<Locked<()>>().await
        };
        // Its lease ends 22 ms before the key does: time enough to drop the body, unless its task
        // is seen to be stalled just then.
        let long = Lock::new(&*key).ttl(ms(2_000)).manager(&manager);
        let holding = tokio::spawn(watched(ms(20), long.run(body)));
        began.await.expect("the body begins");
        let guard = next(&rival, &key).await;
        let before = dropped.load(SeqCst);
        let (result, stalled) = in_time(holding).await.expect("no panic");
        assert_eq!(cause(result), LossCause::Expired);
        assert!(dropped.load(SeqCst), "the body is still there");
        guard.release().await.expect("the rival's");
        if before {
            return;
        }
        assert!(stalled, "granted to a rival, and the body is still there");
        assert!(chance < 5, "the machine stalls each time");
    }
}

#[on(memory, redis, postgres, both_runtimes)]
async fn under_error_and_finish_the_body_ends_and_its_value_counts_under_finish(backend: &Backend) {
    let manager = backend.manager().await;
    for (on_lost, counts) in [(OnLost::Error, false), (OnLost::Finish, true)] {
        let mut ended = false;
        let lock = short(&manager, &backend.key(&format!("{on_lost:?}")), on_lost);
        let result = lock.run(async {
            until_lost().await;
            ended = true;
            Locked::Ok(7)
        });
        is_value_or_loss(result.await, counts);
        assert!(ended, "{on_lost:?}");
    }
}

fn is_value_or_loss(result: Locked<u32>, counts: bool) {
    match counts {
        true => assert_eq!(result, Ok(7)),
        false => assert_eq!(cause(result), LossCause::Expired),
    }
}

/// As a business may handle a loss: keeps the value, and adds what was done about the loss.
fn roll_back(lost: Lost, written: Locked<Vec<String>>) -> Locked<Vec<String>> {
    let mut written = written?;
    written.push(format!("rolled back: {} {:?}", lost.key(), lost.cause()));
    Ok(written)
}

#[on(memory, redis, postgres, both_runtimes)]
async fn a_handler_gets_the_loss_and_the_value(backend: &Backend) {
    let (manager, key) = (backend.manager().await, backend.key("order:42"));
    // Whatever was set before it.
    let lock = short(&manager, &key, OnLost::Finish);
    let guard = lock.acquire().await.expect("free").recovering(roll_back);
    let book = async {
        until_lost().await;
        Ok(vec!["written".to_owned()])
    };
    let written = guard.run(book).await.expect("it recovers");
    assert_eq!(written, ["written".to_owned(), format!("rolled back: {key} Expired")]);
    assert!(backend.is_free(&key).await);

    let failed = async {
        until_lost().await;
        Err(Failure::Own)
    };
    let recover = |_: Lost, result: Result<(), Failure>| {
        assert_eq!(result, Err(Failure::Own), "the body's own");
        result
    };
    let lock = short(&manager, &key, OnLost::Cancel).recovering(recover);
    assert_eq!(lock.run(failed).await, Err(Failure::Own));
}

#[on(memory, redis, postgres, both_runtimes)]
async fn a_handler_of_a_lock_that_was_not_lost_is_not_called(backend: &Backend) {
    let (manager, key) = (backend.manager().await, backend.key("order:42"));
    let guard = crate::lock(&manager, &key).acquire().await.expect("free");
    let written = guard.recovering(roll_back).run(async { Ok(vec!["written".to_owned()]) }).await;
    assert_eq!(written, Ok(vec!["written".to_owned()]));
    assert!(backend.is_free(&key).await);
}

#[on(memory, redis, postgres, both_runtimes)]
async fn a_lock_that_is_lost_before_the_body_has_nothing_to_recover(backend: &Backend) {
    let manager = backend.manager().await;
    for on_lost in [OnLost::Cancel, OnLost::Error, OnLost::Finish] {
        let key = backend.key(&format!("{on_lost:?}"));
        for recovering in [false, true] {
            let mut ran = false;
            let body = async {
                ran = true;
                Locked::Ok(())
            };
            let never = |_, _| panic!("nothing was done");
            let lock = short(&manager, &key, on_lost);
            let result = if recovering {
                let guard = lock.acquire().await.expect("free");
                guard.lost().await;
                guard.recovering(never).run(body).await
            } else {
                let guard = lock.acquire().await.expect("free");
                guard.lost().await;
                guard.run(body).await
            };
            assert_eq!(cause(result), LossCause::Expired);
            assert!(!ran, "{on_lost:?}");
            backend.becomes_free(&key, SOON).await;
        }
    }
}

#[on(memory, redis, postgres, both_runtimes)]
async fn a_bodys_own_error_is_kept_under_every_policy(backend: &Backend) {
    let manager = backend.manager().await;
    for on_lost in [OnLost::Cancel, OnLost::Error, OnLost::Finish] {
        let key = backend.key(&format!("{on_lost:?}"));
        let result: Result<(), Failure> = short(&manager, &key, on_lost)
            .run(async {
                // One poll that outlasts the lease: there is no await at which to stop it.
                block_until_lost();
                Err(Failure::Own)
            })
            .await;
        assert_eq!(result, Err(Failure::Own), "{on_lost:?}");
    }
}

#[on(memory, redis, postgres, both_runtimes)]
async fn a_skipped_function_has_the_policies_too(backend: &Backend) {
    let manager = backend.manager().await;
    let lock = |name: &str, on_lost| short(&manager, &backend.key(name), on_lost);

    let cancelled: Result<Option<u32>, Failure> = lock("one", OnLost::Cancel)
        .skip_when_busy()
        .run(async {
            until_lost().await;
            Ok(Some(7))
        })
        .await;
    assert!(matches!(cancelled, Err(Failure::Lock(_))), "{cancelled:?}");
    let option = lock("two", OnLost::Error).skip_when_busy().run(async {
        until_lost().await;
        Some(7)
    });
    assert_eq!(option.await, None, "it cannot carry the error, which is logged");
    let option = lock("three", OnLost::Finish).skip_when_busy().run(async {
        until_lost().await;
        Some(7)
    });
    assert_eq!(option.await, Some(7));
    let own: Result<(), Failure> = lock("four", OnLost::Error)
        .skip_when_busy()
        .run(async {
            until_lost().await;
            Err(Failure::Own)
        })
        .await;
    assert_eq!(own, Err(Failure::Own));
    let mut ended = false;
    let nothing = lock("five", OnLost::Cancel).skip_when_busy().run(async {
        until_lost().await;
        ended = true;
    });
    nothing.await;
    assert!(!ended);
}

#[on(memory, redis, postgres, both_runtimes)]
async fn a_sync_body_ends_first_whatever_the_policy(backend: &Backend) {
    let manager = backend.manager().await;
    for (on_lost, counts) in
        [(OnLost::Cancel, false), (OnLost::Error, false), (OnLost::Finish, true)]
    {
        let lock = short(&manager, &backend.key(&format!("{on_lost:?}")), on_lost);
        let (result, ended) = on_a_plain_thread(move || {
            let mut ended = false;
            let result = lock.run_blocking(|| {
                block_until_lost();
                ended = true;
                Locked::Ok(7)
            });
            (result, ended)
        })
        .await;
        assert!(ended);
        is_value_or_loss(result, counts);
    }
}

#[on(memory, redis, postgres, both_runtimes)]
async fn a_handler_recovers_a_sync_body(backend: &Backend) {
    let manager = backend.manager().await;
    let lock = short(&manager, &backend.key("order:42"), OnLost::Error);
    let recover = |lost: Lost, value: Locked<u32>| {
        assert_eq!(lost.cause(), LossCause::Expired);
        value.map(|value| value + 1)
    };
    let value = on_a_plain_thread(move || {
        lock.acquire_blocking().expect("free").recovering(recover).run_blocking(|| {
            block_until_lost();
            Ok(1)
        })
    });
    assert_eq!(value.await, Ok(2));
}

/// The limit of every policy: only awaits are stopped. Spawned work watches the lock by itself.
#[on(memory, redis, postgres, both_runtimes)]
async fn a_loss_is_visible_to_the_work_that_a_body_spawned(backend: &Backend) {
    let manager = backend.manager().await;
    let guard = short(&manager, &backend.key("order:42"), OnLost::Cancel).acquire().await;
    let guard = guard.expect("free");
    let watched = guard.handle();
    let work = tokio::spawn(async move { watched.lost().await.cause() });
    let result = guard.run(std::future::pending::<Locked<()>>()).await;
    assert_eq!(cause(result), LossCause::Expired);
    let seen = tokio::time::timeout(SOON, work).await.expect("in time").expect("no panic");
    assert!(matches!(seen, LossCause::Expired | LossCause::Released), "{seen:?}");
}

#[tokio::test]
async fn a_body_is_dropped_before_its_release_is_sent() {
    for lost in [false, true] {
        let (_server, proxy, manager) = through(crate::LONG_TTL).await;
        warm_up(&manager).await;
        // The server frees the key, and the holder does not know it for a while.
        proxy.on_next("EVALSHA", Fault::DelayReply(ms(800)));
        let dropped = Arc::new(AtomicBool::new(false));
        let noted = Dropped(Arc::clone(&dropped));
        let body = async move {
            let _noted = &noted;
            if lost {
                std::future::pending::<()>().await;
            }
            Locked::Ok(())
        };
        let holding = tokio::spawn(short(&manager, "order:42", OnLost::Cancel).run(body));
        let free = async || proxy.orders_are_done();
        eventually("the release is sent", SOON, free).await;
        assert!(dropped.load(SeqCst), "the body is still there");
        assert!(!holding.is_finished());
        assert_eq!(holding.await.expect("no panic").is_err(), lost);
    }
}
