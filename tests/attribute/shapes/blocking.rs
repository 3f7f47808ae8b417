//! Functions that are not async.

use std::cell::Cell;
use std::fmt::Display;

use lockmacro_runtime::{LockError, LockManager, distributed_lock};

use crate::{OrderError, assert_locked, held_blocking};

#[test]
fn generics_lifetimes_where_and_a_returned_borrow() {
    #[distributed_lock(key = "<prefix>:<id>", ttl = "30s", manager = locks)]
    fn audit<'a, T>(
        locks: &LockManager,
        prefix: &'a str,
        id: T,
    ) -> Result<(bool, &'a str), LockError>
    where
        T: Display,
    {
        Ok((held_blocking(locks, &format!("{prefix}:{id}")), prefix))
    }
    let locks = LockManager::isolated_memory();
    let (held, prefix) = audit(&locks, "order", 7).unwrap();
    assert_eq!(prefix, "order");
    assert_locked!(blocking, &locks, "order:7", held);
}

#[test]
fn a_borrow_with_no_name_is_returned() {
    #[distributed_lock(key = "<name>", ttl = "30s", manager = &LockManager::isolated_memory())]
    fn first(name: &mut String) -> Result<&str, LockError> {
        name.push('!');
        Ok(name)
    }
    assert_eq!(first(&mut "ab".to_owned()).unwrap(), "ab!");
}

#[test]
fn patterns_and_impl_trait_arguments() {
    struct Path<T>(T);

    #[distributed_lock(key = "order:<id>", ttl = "30s", manager = locks)]
    fn audit(
        locks: &LockManager,
        Path(id): Path<impl Display>,
        mut count: u8,
    ) -> Result<(bool, u8), LockError> {
        drop(id);
        count += 1;
        Ok((held_blocking(locks, "order:42"), count))
    }
    let locks = LockManager::isolated_memory();
    let (held, count) = audit(&locks, Path(42), 1).unwrap();
    assert_eq!(count, 2);
    assert_locked!(blocking, &locks, "order:42", held);
}

#[test]
fn early_return_and_question_mark() {
    #[distributed_lock(key = "order:<id>", ttl = "30s", manager = locks)]
    fn audit(locks: &LockManager, id: &str, inside: &Cell<bool>) -> Result<u32, OrderError> {
        inside.set(held_blocking(locks, &format!("order:{id}")));
        if id == "9" {
            return Ok(0);
        }
        let number: u32 = id.parse().map_err(|_| OrderError::Unknown)?;
        Ok(number)
    }
    let locks = LockManager::isolated_memory();
    let inside = Cell::new(false);
    assert_eq!(audit(&locks, "9", &inside).unwrap(), 0);
    assert_locked!(blocking, &locks, "order:9", inside.take());
    assert!(matches!(audit(&locks, "x", &inside), Err(OrderError::Unknown)));
    assert_locked!(blocking, &locks, "order:x", inside.take());
}

#[test]
fn boxes_of_traits_and_impl_traits_are_returned() {
    #[distributed_lock(key = "boxed", ttl = "30s", manager = locks)]
    fn boxed(locks: &LockManager) -> Result<Box<dyn Display>, OrderError> {
        Ok(Box::new(held_blocking(locks, "boxed")))
    }
    #[distributed_lock(key = "opaque", ttl = "30s", manager = locks)]
    fn opaque(locks: &LockManager) -> Result<impl Display + use<>, OrderError> {
        Ok(held_blocking(locks, "opaque"))
    }
    let locks = LockManager::isolated_memory();
    assert_locked!(blocking, &locks, "boxed", boxed(&locks).unwrap().to_string() == "true");
    assert_locked!(blocking, &locks, "opaque", opaque(&locks).unwrap().to_string() == "true");
}

#[test]
fn docs_and_attributes_on_both_sides() {
    /// Audits.
    #[must_use = "it tells whether the lock was held"]
    #[distributed_lock(key = "order:<id>", ttl = "30s", manager = locks)]
    /// Really.
    #[inline]
    #[tracing::instrument(skip_all, fields(id))]
    fn audit(locks: &LockManager, id: u64) -> Result<bool, LockError> {
        #![allow(clippy::needless_return)]
        return Ok(held_blocking(locks, "order:42"));
    }
    let locks = LockManager::isolated_memory();
    assert_locked!(blocking, &locks, "order:42", audit(&locks, 42).unwrap());
}
