//! Locked functions that call each other: no level doubles the future of the next.

use std::hint::black_box;
use std::sync::OnceLock;
use std::thread;

use lockmacro_runtime::{LockError, LockManager, Lost, distributed_lock};
use tokio::runtime::Builder;
use tokio::task::yield_now;

/// Locked functions, each of which calls the next one. The last keeps bytes across an await.
macro_rules! levels {
    ($bytes:expr, [$($policy:tt)*]; $name:ident) => {
        #[distributed_lock(key = stringify!($name), ttl = "30s", manager = locks, $($policy)*)]
        async fn $name(locks: &'static LockManager) -> Result<usize, LockError> {
            let kept = [1_u8; $bytes];
            yield_now().await;
            Ok(black_box(&kept).iter().map(|byte| usize::from(*byte)).sum())
        }
    };
    ($bytes:expr, [$($policy:tt)*]; $name:ident $next:ident $($rest:ident)*) => {
        levels!($bytes, [$($policy)*]; $next $($rest)*);
        #[distributed_lock(key = stringify!($name), ttl = "30s", manager = locks, $($policy)*)]
        async fn $name(locks: &'static LockManager) -> Result<usize, LockError> {
            $next(locks).await
        }
    };
}

/// The same with no arguments, which `defer` would store, and with nothing to return, as `skip`
/// has nothing to return. `$used` is what the body does with the guard.
macro_rules! plain_levels {
    ([$($policy:tt)*], $used:expr; $name:ident) => {
        #[distributed_lock(key = stringify!($name), ttl = "30s", $($policy)*)]
        async fn $name() -> Result<(), LockError> {
            let kept = [1_u8; 1024];
            yield_now().await;
            let () = $used;
            black_box(&kept);
            Ok(())
        }
    };
    ([$($policy:tt)*], $used:expr; $name:ident $next:ident $($rest:ident)*) => {
        plain_levels!([$($policy)*], $used; $next $($rest)*);
        #[distributed_lock(key = stringify!($name), ttl = "30s", $($policy)*)]
        async fn $name() -> Result<(), LockError> {
            $next().await?;
            let () = $used;
            Ok(())
        }
    };
}

/// A manager for functions that are spawned with a borrow of it.
fn memory() -> &'static LockManager {
    Box::leak(Box::new(LockManager::isolated_memory()))
}

fn instead(_: &'static LockManager) -> std::future::Ready<Result<usize, LockError>> {
    std::future::ready(Ok(0))
}

fn undone(lost: Lost, _: Result<usize, LockError>) -> Result<usize, LockError> {
    Err(lost.into())
}

/// The futures' sizes under one lock and under six.
macro_rules! sizes {
    ($bytes:expr, [$($policy:tt)*]) => {{
        let locks = memory();
        let one = {
            levels!($bytes, [$($policy)*]; a);
            size_of_val(&a(locks))
        };
        let six = {
            levels!($bytes, [$($policy)*]; a b c d e f);
            size_of_val(&a(locks))
        };
        (stringify!($($policy)*), one, six)
    }};
}

/// The futures' sizes under one lock and under six, with 1 KB in the body.
macro_rules! plain_sizes {
    ([$($policy:tt)*], $used:expr) => {{
        let one = {
            plain_levels!([$($policy)*], $used; a);
            size_of_val(&a())
        };
        let six = {
            plain_levels!([$($policy)*], $used; a b c d e f);
            size_of_val(&a())
        };
        (stringify!($($policy)*), one, six)
    }};
}

#[test]
fn a_body_is_there_once_however_many_locks_are_around_it() {
    for (policy, one, six) in [
        sizes!(1024, []),
        sizes!(1024, [wait = "5s"]),
        sizes!(1024, [renew, max_hold = "60s"]),
        sizes!(1024, [on_lost = error]),
        sizes!(1024, [on_lost = finish]),
        sizes!(1024, [on_lost = undone]),
        sizes!(1024, [on_busy = fallback(instead)]),
        sizes!(1024, [message = "busy"]),
        sizes!(1024, [map_err = std::convert::identity]),
        sizes!(1024, [wait = "5s", on_busy = fallback(instead), on_lost = undone]),
        plain_sizes!([on_busy = skip], ()),
        plain_sizes!([on_busy = defer("30s")], ()),
        plain_sizes!([guard = guard], guard.check()?),
        plain_sizes!([guard = guard, fence = fence], guard.check().map(|()| _ = black_box(fence))?),
    ] {
        assert!(one <= 1_300, "`{policy}`: {one} bytes under one lock");
        assert!(six <= 2_200, "`{policy}`: {six} bytes under six locks");
    }
    let (_, one, six) = sizes!(4096, []);
    assert!(one <= 4_400 && six <= 5_300, "{one} and {six} bytes");
}

#[test]
fn twenty_levels_over_eight_kilobytes_fit_on_the_stack_of_a_worker() {
    levels!(8 * 1024, []; a b c d e f g h i j k l m n o p q r s t);
    let work = || {
        let runtime = Builder::new_current_thread().enable_all().build().unwrap();
        let locks = memory();
        runtime.block_on(a(locks))
    };
    // As tokio gives its workers.
    let worker = thread::Builder::new().stack_size(2 * 1024 * 1024).spawn(work).unwrap();
    assert_eq!(worker.join().unwrap().unwrap(), 8 * 1024);
}

#[tokio::test]
async fn sixteen_levels_can_be_spawned() {
    levels!(1, []; a b c d e f g h i j k l m n o p);
    let locks = memory();
    let spawned = tokio::spawn(a(locks));
    assert_eq!(spawned.await.unwrap().unwrap(), 1);
}

fn shared() -> &'static LockManager {
    static LOCKS: OnceLock<LockManager> = OnceLock::new();
    LOCKS.get_or_init(LockManager::isolated_memory)
}

/// Each before the one that it calls, as the compiler then looks at all of them at once.
macro_rules! chain {
    ($policy:tt $($name:ident $next:ident)*) => {
        $(chain!($name, $next, $policy);)*

        async fn end() -> Result<usize, LockError> {
            yield_now().await;
            Ok(1)
        }
    };
    ($name:ident, $next:ident, [$($policy:tt)*]) => {
        #[distributed_lock(key = stringify!($name), manager = shared(), $($policy)*)]
        pub(super) async fn $name() -> Result<usize, LockError> {
            $next().await
        }
    };
}

/// Twelve, as the guide says.
macro_rules! twelve {
    ($($module:ident $policy:tt)*) => {
        $(mod $module {
            use super::*;

            chain!($policy a b b c c d d e e f f g g h h i i j j k k l l end);
        })*

        #[tokio::test]
        async fn twelve_locked_functions_that_call_each_other_can_be_spawned() {
            $(assert_eq!(tokio::spawn($module::a()).await.unwrap(), Ok(1));)*
        }
    };
}

twelve! {
    plain []
    waiting [wait = "5s"]
    guarded [guard = _guard]
    fenced [fence = _fence]
    mapped [map_err = std::convert::identity]
    noted [holder_note = "note"]
}
