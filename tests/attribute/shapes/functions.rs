//! Async functions that stand alone.

use std::cell::Cell;
use std::fmt::Display;
use std::sync::Mutex;

use lockmacro_runtime::{LockError, LockKey, LockManager, distributed_lock};

use crate::{OrderError, assert_locked, assert_send, held};

#[tokio::test(flavor = "multi_thread")]
async fn in_a_module_without_a_prelude() {
    use crate::without_a_prelude::{audit, book, count, skip, transfer};
    let locks = LockManager::isolated_memory();
    let id = || "7".to_owned();
    let all = async {
        assert_eq!(audit(id(), false).await, Ok(1));
        assert_eq!(transfer(id(), LockKey::from("stock")).await, Ok(1));
        assert_eq!(book(id()).await, Ok(Some(1)));
        assert_eq!(count(id()).await, Ok(1));
        tokio::task::block_in_place(|| assert_eq!(skip(id()), Some(1)));
        let _orders = crate::without_a_prelude::book_deferred();
    };
    locks.scope(all).await;
}

#[tokio::test]
async fn generics_lifetimes_and_where() {
    #[distributed_lock(key = "<prefix>:<id>", ttl = "30s", manager = locks)]
    async fn audit<'a, 'b: 'a, T, const N: usize>(
        locks: &'a LockManager,
        prefix: &'b str,
        id: T,
        rest: [T; N],
    ) -> Result<(bool, &'b str, T), LockError>
    where
        T: Display + Copy + Send + Sync + std::iter::Sum<T>,
    {
        let held = held(locks, &format!("{prefix}:{id}")).await;
        Ok((held, prefix, rest.into_iter().sum()))
    }
    let locks = LockManager::isolated_memory();
    let (held, prefix, sum) = audit(&locks, "order", 7, [1, 2, 3]).await.unwrap();
    assert_eq!((prefix, sum), ("order", 6));
    assert_locked!(&locks, "order:7", held);
}

#[tokio::test]
async fn impl_trait_arguments() {
    #[distributed_lock(key = "order:<id>", ttl = "30s", manager = locks)]
    async fn audit(
        locks: &LockManager,
        id: impl Display,
        check: impl AsyncFn(&LockManager) -> bool,
    ) -> Result<bool, LockError> {
        drop(id);
        Ok(check(locks).await)
    }
    let locks = LockManager::isolated_memory();
    let check = async |locks: &LockManager| held(locks, "order:SO-1").await;
    assert_locked!(&locks, "order:SO-1", audit(&locks, "SO-1", check).await.unwrap());
}

#[tokio::test]
async fn arguments_that_are_patterns() {
    struct Path<T>(T);
    struct State {
        locks: LockManager,
        tenant: &'static str,
    }

    #[distributed_lock(key = "<tenant>:<id>:<line>", ttl = "30s", manager = locks)]
    async fn audit(
        Path(id): Path<u64>,
        State { locks, tenant }: &State,
        (line, mut total): (u8, u32),
        _: &str,
    ) -> Result<(bool, u32), LockError> {
        total += 1;
        Ok((held(locks, "acme:42:1").await, total))
    }
    let state = State { locks: LockManager::isolated_memory(), tenant: "acme" };
    let (held, total) = audit(Path(42), &state, (1, 9), "unused").await.unwrap();
    assert_eq!(total, 10);
    assert_locked!(&state.locks, "acme:42:1", held);
}

#[tokio::test]
async fn early_return_and_question_mark() {
    #[distributed_lock(key = "order:<id>", ttl = "30s", manager = locks)]
    async fn audit(
        locks: &LockManager,
        id: &str,
        held_inside: &mut bool,
    ) -> Result<u32, OrderError> {
        *held_inside = held(locks, "order:7").await || held(locks, "order:x").await;
        if id == "9" {
            return Ok(0);
        }
        let number: u32 = id.parse().map_err(|_| OrderError::Unknown)?;
        Ok(number)
    }
    let locks = LockManager::isolated_memory();
    let mut inside = false;
    assert_eq!(audit(&locks, "7", &mut inside).await.unwrap(), 7);
    assert_locked!(&locks, "order:7", inside);
    assert!(matches!(audit(&locks, "x", &mut inside).await, Err(OrderError::Unknown)));
    assert_locked!(&locks, "order:x", inside);
    assert_eq!(audit(&locks, "9", &mut inside).await.unwrap(), 0);
    assert!(!held(&locks, "order:9").await);
}

#[tokio::test]
async fn recursion_under_different_keys() {
    #[distributed_lock(key = "level:<level>", ttl = "30s", manager = locks)]
    async fn descend(locks: &LockManager, level: u32) -> Result<u32, LockError> {
        if level == 0 {
            let mut held_above = 0;
            for level in 0..=3 {
                held_above += u32::from(held(locks, &format!("level:{level}")).await);
            }
            return Ok(held_above);
        }
        Box::pin(descend(locks, level - 1)).await
    }
    let locks = LockManager::isolated_memory();
    assert_eq!(descend(&locks, 3).await.unwrap(), 4);
    assert!(!held(&locks, "level:3").await && !held(&locks, "level:0").await);
}

#[tokio::test]
#[allow(clippy::mixed_attributes_style, reason = "users write both")]
async fn docs_and_attributes_on_both_sides() {
    /// Audits.
    #[allow(clippy::needless_pass_by_value)]
    #[tracing::instrument(skip(locks))]
    #[distributed_lock(key = "order:<id>", ttl = "30s", manager = locks)]
    /// Really.
    #[must_use = "it tells whether the lock was held"]
    #[tracing::instrument(skip_all, err)]
    async fn audit(
        locks: &LockManager,
        #[allow(unused_variables)] id: u64,
    ) -> Result<bool, LockError> {
        #![allow(unused_mut)]
        let mut held = held(locks, "order:42").await;
        Ok(held)
    }
    let locks = LockManager::isolated_memory();
    assert_locked!(&locks, "order:42", audit(&locks, 42).await.unwrap());
}

#[tokio::test]
async fn a_borrow_is_returned() {
    #[distributed_lock(key = "<name>", ttl = "30s", manager = locks)]
    async fn first<'n>(locks: &LockManager, name: &'n mut String) -> Result<&'n str, LockError> {
        if held(locks, "ab").await {
            name.push('!');
        }
        Ok(name)
    }
    let locks = LockManager::isolated_memory();
    let mut name = "ab".to_owned();
    assert_locked!(&locks, "ab", first(&locks, &mut name).await.unwrap() == "ab!");
}

#[tokio::test]
async fn boxes_of_traits_and_impl_traits_are_returned() {
    #[distributed_lock(key = "boxed:<id>", ttl = "30s", manager = locks)]
    async fn boxed(locks: &LockManager, id: u64) -> Result<Box<dyn Display + Send>, OrderError> {
        if id == 0 {
            return Ok(Box::new("none"));
        }
        Ok(Box::new(held(locks, "boxed:42").await))
    }
    #[distributed_lock(key = "opaque:<id>", ttl = "30s", manager = locks)]
    async fn opaque(locks: &LockManager, id: u64) -> Result<impl Display + use<>, OrderError> {
        Ok(format!("{} {id}", held(locks, "opaque:42").await))
    }
    let locks = LockManager::isolated_memory();
    assert_locked!(&locks, "boxed:42", boxed(&locks, 42).await.unwrap().to_string() == "true");
    assert_locked!(&locks, "opaque:42", opaque(&locks, 42).await.unwrap().to_string() == "true 42");
}

/// Neither a guard that the key needs, nor a reference to a value that threads cannot share.
#[tokio::test]
async fn nothing_of_the_key_lives_on_beside_a_body_that_is_sent() {
    #[distributed_lock(key = "<id.lock().unwrap()>:<count.get()>", ttl = "30s", manager = locks)]
    async fn audit(
        locks: &LockManager,
        id: &Mutex<u64>,
        count: Cell<u64>,
    ) -> Result<bool, LockError> {
        let key = format!("{}:{}", id.try_lock().unwrap(), count.get());
        tokio::task::yield_now().await;
        count.set(count.get() + 1);
        Ok(held(locks, &key).await && count.get() == 42)
    }
    let (locks, id) = (LockManager::isolated_memory(), Mutex::new(7));
    let audited = assert_send(audit(&locks, &id, Cell::new(41)));
    assert_locked!(&locks, "7:41", audited.await.unwrap());
}

/// A raw name, and values that come through a macro's variables.
mod named_by_a_macro {
    use super::*;

    macro_rules! audits {
        ($name:ident, $key:literal, $ttl:literal, $arg:ident: $type:ty) => {
            #[distributed_lock(key = $key, ttl = $ttl, manager = locks)]
            async fn $name(locks: &LockManager, $arg: $type) -> Result<bool, LockError> {
                Ok(held(locks, &format!("order:{}", $arg)).await)
            }
        };
    }
    audits!(r#move, "order:<id>", "30s", id: u64);

    #[tokio::test]
    async fn a_function_made_by_a_macro() {
        let locks = LockManager::isolated_memory();
        assert_locked!(&locks, "order:42", r#move(&locks, 42).await.unwrap());
    }
}
