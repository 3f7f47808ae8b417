//! Errors of the lock in the function's own words: `map_err`, and error types that convert.

use std::fmt::Display;
use std::io;

use lockmacro_runtime::{Lock, LockError, LockManager, Lost, distributed_lock};

use crate::{held, probe, until_lost};

const KEY: &str = "disk:7";

fn as_io(error: LockError) -> io::Error {
    io::Error::other(error)
}

fn is_busy(error: &io::Error) -> bool {
    error.get_ref().and_then(|error| error.downcast_ref()).is_some_and(LockError::is_busy)
}

#[distributed_lock(key = "disk:<id>", ttl = "30s", manager = locks, map_err = as_io)]
async fn grow(locks: &LockManager, id: u64) -> io::Result<bool> {
    if id == 0 {
        return Err(io::ErrorKind::NotFound.into());
    }
    Ok(held(locks, KEY).await)
}

#[tokio::test]
async fn an_error_of_another_crate_is_made_by_a_function() {
    let locks = LockManager::isolated_memory();
    assert!(grow(&locks, 7).await.unwrap());
    let guard = probe(&locks, KEY).acquire().await.unwrap();
    assert!(is_busy(&grow(&locks, 7).await.unwrap_err()));
    guard.release().await.unwrap();
    assert_eq!(grow(&locks, 0).await.unwrap_err().kind(), io::ErrorKind::NotFound);
}

#[tokio::test]
async fn it_is_made_beside_every_other_policy() {
    #[distributed_lock(key = "disk:7", manager = locks, on_busy = skip, map_err = io::Error::other)]
    async fn skipped(locks: &LockManager) -> io::Result<Option<u64>> {
        Ok(Some(1))
    }
    #[distributed_lock(key = "disk:7", manager = locks, map_err = as_io, guard = lock,
        fence = fence, message = "disk <id> grows")]
    async fn fenced(locks: &LockManager, id: u64) -> io::Result<u64> {
        lock.check().map_err(as_io)?;
        Ok(u64::from(fence).min(id))
    }
    async fn other(_: &LockManager) -> io::Result<u64> {
        Ok(2)
    }
    #[distributed_lock(key = "disk:7", manager = locks, map_err = as_io, on_busy = fallback(other))]
    async fn elsewhere(locks: &LockManager) -> io::Result<u64> {
        Ok(1)
    }
    fn undone(_: Lost, value: io::Result<u64>) -> io::Result<u64> {
        value
    }
    #[distributed_lock(key = "disk:7", manager = locks, map_err = as_io, on_lost = undone)]
    fn undoing(locks: &LockManager) -> io::Result<u64> {
        Ok(3)
    }
    let locks = LockManager::isolated_memory();
    assert_eq!(skipped(&locks).await.unwrap(), Some(1));
    assert_eq!(fenced(&locks, 7).await.unwrap(), 7);
    assert_eq!(elsewhere(&locks).await.unwrap(), 1);
    let sync = locks.clone();
    assert_eq!(tokio::task::spawn_blocking(move || undoing(&sync)).await.unwrap().unwrap(), 3);
    let _guard = probe(&locks, KEY).acquire().await.unwrap();
    assert_eq!(skipped(&locks).await.unwrap(), None);
    let error = fenced(&locks, 7).await.unwrap_err();
    assert!(is_busy(&error) && error.to_string().contains("disk 7 grows"), "{error}");
    assert_eq!(elsewhere(&locks).await.unwrap(), 2);
}

#[tokio::test]
async fn a_value_of_an_unnamed_type_may_stand_beside_it() {
    struct Json<T: Display>(T);
    #[distributed_lock(key = "disk:7", manager = locks, map_err = as_io)]
    async fn plain(locks: &LockManager) -> io::Result<impl Display> {
        Ok(7)
    }
    #[distributed_lock(key = "disk:7", manager = locks, map_err = as_io, fence = fence)]
    async fn fenced(locks: &LockManager) -> Result<Json<impl Display>, io::Error> {
        Ok(Json(u64::from(fence) / u64::MAX))
    }
    #[distributed_lock(key = "disk:7", manager = locks, map_err = as_io, on_busy = skip)]
    fn skipped(locks: &LockManager) -> io::Result<Option<impl Display>> {
        Ok(Some(7))
    }
    let locks = LockManager::isolated_memory();
    assert_eq!(plain(&locks).await.unwrap().to_string(), "7");
    assert_eq!(fenced(&locks).await.unwrap().0.to_string(), "0");
    let _guard = probe(&locks, KEY).acquire().await.unwrap();
    assert!(is_busy(&plain(&locks).await.err().unwrap()));
    let sync = locks.clone();
    let skipped = tokio::task::spawn_blocking(move || skipped(&sync).unwrap().is_none());
    assert!(skipped.await.unwrap());
}

#[tokio::test(start_paused = true)]
async fn a_lost_lock_is_reported_by_it_and_the_bodys_own_error_stays() {
    #[distributed_lock(
        key = "disk:7", ttl = "30s", manager = locks, map_err = as_io, on_lost = error,
    )]
    async fn late(locks: &LockManager, own: Option<io::ErrorKind>) -> io::Result<()> {
        until_lost().await;
        own.map_or(Ok(()), |own| Err(own.into()))
    }
    let locks = LockManager::isolated_memory();
    let error = late(&locks, None).await.unwrap_err();
    let lost = error.get_ref().and_then(|error| error.downcast_ref());
    assert!(matches!(lost, Some(LockError::Lost(_))), "{error}");
    let own = late(&locks, Some(io::ErrorKind::NotFound)).await.unwrap_err();
    assert_eq!(own.kind(), io::ErrorKind::NotFound);
}

#[tokio::test]
async fn the_name_is_the_functions_path_or_what_is_given() {
    #[distributed_lock(key = "disk:7", manager = locks)]
    async fn by_path(locks: &LockManager) -> Result<Option<String>, LockError> {
        owner(locks).await
    }
    #[distributed_lock(key = "disk:7", manager = locks, name = "disks.grow")]
    async fn by_name(locks: &LockManager) -> Result<Option<String>, LockError> {
        owner(locks).await
    }
    async fn owner(locks: &LockManager) -> Result<Option<String>, LockError> {
        let lock = Lock::new(KEY).manager(locks);
        match tokio::spawn(lock.acquire()).await.unwrap() {
            Err(busy) if busy.is_busy() => Ok(busy.holder().owner.clone()),
            other => panic!("it is held: {other:?}"),
        }
    }
    let locks = LockManager::builder().label("shop").isolated_memory();
    assert_eq!(by_path(&locks).await.unwrap().unwrap(), "shop:shapes::errors::by_path");
    assert_eq!(by_name(&locks).await.unwrap().unwrap(), "shop:disks.grow");
}
