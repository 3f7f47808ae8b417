//! How a lock that is not granted reaches the caller of each return type.

use lockmacro_runtime::{Lock, LockError, LockOutcome, SkipOutcome};
use lockmacro_tests::times::TEST_TIMEOUT;
use lockmacro_tests::{Backend, on, on_a_plain_thread};
use tokio::time::timeout;

use crate::{Failure, Locked, lock, ms};

#[on(memory, redis, redlock, postgres, both_runtimes)]
async fn a_skipped_body_is_nothing_in_every_return_type(backend: &Backend) {
    let (ours, theirs, key) = backend.two_managers("job").await;
    let guard = lock(&ours, &key).acquire().await.expect("free");
    let mut runs = 0;

    lock(&theirs, &key).skip_when_busy().run(async { runs += 1 }).await;
    let option = lock(&theirs, &key).skip_when_busy().run(async {
        runs += 1;
        Some(7)
    });
    assert_eq!(option.await, None);
    let result = lock(&theirs, &key).skip_when_busy().run(async {
        runs += 1;
        Err::<(), _>(Failure::Own)
    });
    assert_eq!(result.await, Ok(()));
    let both = lock(&theirs, &key).skip_when_busy().run(async {
        runs += 1;
        Ok::<_, Failure>(Some(7))
    });
    assert_eq!(both.await, Ok(None));

    assert_eq!(runs, 0);
    guard.release().await.expect("released");
}

#[on(memory, redis, redlock, postgres, both_runtimes)]
async fn a_lock_that_is_only_tried_waits_for_nobody(backend: &Backend) {
    let (ours, theirs, key) = backend.two_managers("job").await;
    let guard = lock(&ours, &key).acquire().await.expect("free");
    let lock = lock(&theirs, &key).wait_forever();
    let mut ran = false;
    let tried = async {
        assert!(lock.try_acquire().await.expect("an answer").is_none());
        lock.try_run(async {
            ran = true;
            Locked::Ok(7)
        })
        .await
    };
    assert_eq!(timeout(TEST_TIMEOUT, tried).await.expect("at once"), Ok(None));
    assert!(!ran);
    let blocking = lock.clone();
    let tried = on_a_plain_thread(move || {
        assert!(blocking.try_acquire_blocking().expect("an answer").is_none());
        blocking.try_run_blocking(|| Locked::Ok(7))
    });
    assert_eq!(timeout(TEST_TIMEOUT, tried).await.expect("at once"), Ok(None));

    guard.release().await.expect("released");
    let failed = lock.try_run(async { Err::<u32, _>(Failure::Own) }).await;
    assert_eq!(failed, Err(Failure::Own));
    assert_eq!(lock.try_run(async { Locked::Ok(7) }).await, Ok(Some(7)));
    let guard = lock.try_acquire().await.expect("an answer").expect("free");
    guard.release().await.expect("released");
}

#[on(memory, redis, redlock, postgres, both_runtimes)]
async fn a_body_that_is_not_skipped_gives_its_value(backend: &Backend) {
    let (manager, key) = (backend.manager().await, backend.key("job"));
    let mut runs = 0;
    lock(&manager, &key).skip_when_busy().run(async { runs += 1 }).await;
    assert_eq!(runs, 1);
    assert_eq!(lock(&manager, &key).skip_when_busy().run(async { Some(7) }).await, Some(7));
    let error =
        lock(&manager, &key).skip_when_busy().run(async { Err::<Option<u32>, _>(Failure::Own) });
    assert_eq!(error.await, Err(Failure::Own));
    assert!(backend.is_free(&key).await);
}

#[on(memory, redis, redlock, postgres, both_runtimes)]
async fn a_refused_lock_runs_no_body_and_skip_does_not_hide_its_error(backend: &Backend) {
    let manager = backend.manager().await;
    let mut ran = false;
    let result: Result<Option<u32>, Failure> = lock(&manager, "")
        .skip_when_busy()
        .run(async {
            ran = true;
            Ok(Some(7))
        })
        .await;
    assert!(matches!(result, Err(Failure::Lock(LockError::InvalidKey { .. }))), "{result:?}");
    lock(&manager, "").skip_when_busy().run(async { ran = true }).await;
    let result: Locked<()> = lock(&manager, "")
        .run(async {
            ran = true;
            Ok(())
        })
        .await;
    assert!(matches!(result, Err(LockError::InvalidKey { .. })), "{result:?}");
    assert!(!ran);
}

#[on(memory, redis, redlock, postgres, both_runtimes)]
async fn a_lock_error_becomes_the_callers_own_error(backend: &Backend) {
    let (ours, theirs, key) = backend.two_managers("order:42").await;
    let guard = lock(&ours, &key).acquire().await.expect("free");
    let typed: Result<(), Failure> = lock(&theirs, &key).run(async { Ok(()) }).await;
    assert!(matches!(typed, Err(Failure::Lock(LockError::Busy { .. }))), "{typed:?}");
    type Boxed = Box<dyn std::error::Error + Send + Sync>;
    let boxed: Result<(), Boxed> = lock(&theirs, &key).run(async { Ok(()) }).await;
    let error = boxed.expect_err("busy").downcast::<LockError>().expect("a lock error");
    assert!(error.is_busy());
    guard.release().await.expect("released");
}

#[derive(Debug, PartialEq)]
enum Answer {
    Done,
    Later,
    Broken,
    TooLate,
}

impl LockOutcome for Answer {
    fn from_lock_error(error: LockError) -> Self {
        if error.is_busy() { Answer::Later } else { Answer::Broken }
    }

    fn after_loss(self, _: LockError) -> Self {
        Answer::TooLate
    }
}

#[on(memory, redis, redlock, postgres, both_runtimes)]
async fn a_custom_return_type_decides_for_itself(backend: &Backend) {
    let (ours, theirs, key) = backend.two_managers("order:42").await;
    assert_eq!(lock(&theirs, &key).run(async { Answer::Done }).await, Answer::Done);
    let guard = lock(&ours, &key).acquire().await.expect("free");
    assert_eq!(lock(&theirs, &key).run(async { Answer::Done }).await, Answer::Later);
    assert_eq!(lock(&theirs, "").run(async { Answer::Done }).await, Answer::Broken);
    guard.release().await.expect("released");
    // It finishes after its lease, and is asked what becomes of its value.
    let short = Lock::new(&*key).ttl(ms(60)).manager(&ours);
    assert_eq!(short.run(async { late(Answer::Done) }).await, Answer::TooLate);
}

#[on(memory, redis, redlock, postgres, both_runtimes)]
async fn a_skippable_value_that_comes_after_the_loss_is_not_given(backend: &Backend) {
    let (manager, key) = (backend.manager().await, backend.key("job"));
    let short = || Lock::new(&*key).ttl(ms(60)).manager(&manager);
    let option = short().skip_when_busy().run(async { late(Some(7)) }).await;
    assert_eq!(option, None);
    let result: Locked<()> = short().skip_when_busy().run(async { late(Ok(())) }).await;
    assert!(matches!(result, Err(LockError::Lost(_))), "{result:?}");
    let both: Locked<Option<u32>> = short().skip_when_busy().run(async { late(Ok(Some(7))) }).await;
    assert!(matches!(both, Err(LockError::Lost(_))), "{both:?}");
    let own = short().skip_when_busy().run(async { late(Err::<(), _>(Failure::Own)) }).await;
    assert_eq!(own, Err(Failure::Own));
}

/// The value of a body that outlasts a lease of 60 ms.
fn late<T>(value: T) -> T {
    std::thread::sleep(ms(90));
    value
}

/// Four types can be skipped. Only where an error cannot be carried it is logged instead.
#[test]
fn the_types_that_can_be_skipped_say_which_of_them_carry_no_error() {
    fn carries<T: SkipOutcome>() -> bool {
        T::CARRIES_ERRORS
    }
    assert!(!carries::<()>() && !carries::<Option<u32>>());
    assert!(carries::<Locked<()>>() && carries::<Locked<Option<u32>>>());
}
