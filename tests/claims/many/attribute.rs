//! The attribute with several keys, in every form of function.

use std::collections::HashMap;
use std::sync::Mutex;

use lockmacro_runtime::{
    Fence, LockError, LockGuard, LockKey, LockManager, Lost, distributed_lock,
};

use crate::{Locked, busy_key, lock};

/// The keys that the running code is under.
fn under() -> Vec<String> {
    let guard = LockGuard::current();
    guard.iter().flat_map(|guard| guard.keys()).map(LockKey::to_string).collect()
}

struct Bank {
    name: &'static str,
    locks: LockManager,
    cents: Mutex<HashMap<u64, (i64, Option<Fence>)>>,
}

impl Bank {
    fn new() -> Self {
        Self { name: "north", locks: LockManager::isolated_memory(), cents: Mutex::default() }
    }

    /// Books what comes with no smaller fence than the account has seen.
    fn book(&self, account: u64, cents: i64, fence: Fence) -> bool {
        let mut accounts = self.cents.lock().expect("accounts");
        let (balance, seen) = accounts.entry(account).or_default();
        let in_time = seen.is_none_or(|seen| seen <= fence);
        if in_time {
            *balance += cents;
            *seen = Some(fence);
        }
        in_time
    }

    #[distributed_lock(
        key = ["account:<from>", "account:<to>"],
        ttl = "10s",
        wait = "5s",
        fence = [debit, credit],
        manager = self.locks
    )]
    async fn transfer(&self, from: u64, to: u64, cents: i64) -> Locked<[Fence; 2]> {
        assert!(self.book(from, -cents, debit));
        tokio::task::yield_now().await;
        assert!(self.book(to, cents, credit));
        Ok([debit, credit])
    }

    #[distributed_lock(
        key = [format!("{}:vault", self.name), "<self.name>:account:<id>", "books"],
        ttl = "10s",
        manager = self.locks,
        message = "account <id> is being closed",
        guard = lock
    )]
    async fn close(&self, id: u64) -> Locked<Vec<String>> {
        lock.check()?;
        Ok(under())
    }

    #[distributed_lock(
        key = keys(ids.iter().map(|id| format!("account:{id}"))), ttl = "10s", fence = fences,
        manager = self.locks,
    )]
    async fn freeze(&self, ids: &[u64]) -> Locked<Vec<(u64, Fence)>> {
        Ok(ids.iter().copied().zip(fences).collect())
    }

    #[distributed_lock(key = keys(keys), ttl = "10s", on_busy = skip, manager = self.locks)]
    fn tidy_up<K: Into<LockKey>>(&self, keys: Vec<K>) -> Option<Vec<String>> {
        Some(under())
    }

    #[distributed_lock(
        key = ["books", "till"], manager = self.locks, on_busy = fallback(Self::later),
    )]
    fn count(&self, day: u32) -> Locked<String> {
        Ok(format!("{day}: {:?}", under()))
    }

    fn later(&self, day: u32) -> Locked<String> {
        Ok(format!("{day}: later"))
    }

    #[distributed_lock(
        key = ["books", "till"], ttl = "500ms", on_lost = Self::undo, manager = self.locks,
    )]
    async fn reckon(&self) -> Locked<Vec<String>> {
        lockmacro_tests::until_lost().await;
        Ok(vec!["reckoned".to_owned()])
    }

    fn undo(lost: Lost, reckoned: Locked<Vec<String>>) -> Locked<Vec<String>> {
        let keys = lost.keys().map(LockKey::to_string);
        reckoned.map(|reckoned| reckoned.into_iter().chain(keys).collect())
    }
}

#[tokio::test]
async fn a_transfer_has_both_accounts_and_a_fence_for_each() {
    let bank = Bank::new();
    let [debit, credit] = bank.transfer(1, 2, 100).await.expect("both");
    let [later, _] = bank.transfer(2, 1, 30).await.expect("both");
    assert!(credit < later && debit < later);
    // The fence of an earlier grant is refused by its own account.
    assert!(!bank.book(1, -100, debit) && !bank.book(2, 100, credit));
    let [one, same] = bank.transfer(1, 1, 5).await.expect("one account");
    assert_eq!(one, same);
    let cents = bank.cents.lock().expect("accounts");
    assert_eq!((cents[&1].0, cents[&2].0), (-70, 70));
}

#[tokio::test]
async fn keys_may_be_templates_texts_and_expressions() {
    let bank = Bank::new();
    let keys = bank.close(7).await.expect("free");
    assert_eq!(keys, ["books", "north:account:7", "north:vault"]);
    let _busy = lock(&bank.locks, "north:account:7").acquire().await.expect("free");
    let error = bank.close(7).await.expect_err("busy");
    assert_eq!(busy_key(&error), "north:account:7");
    assert_eq!(error.message(), Some("account 7 is being closed"));
}

#[tokio::test]
async fn keys_may_come_from_an_iterator() {
    let bank = Bank::new();
    let fences = bank.freeze(&[9, 3, 9]).await.expect("free");
    assert_eq!(fences.iter().map(|(id, _)| *id).collect::<Vec<_>>(), [9, 3, 9]);
    assert_eq!(fences[0], fences[2]);
    let error = bank.freeze(&[]).await.expect_err("no keys");
    assert!(matches!(error, LockError::InvalidKey { .. }), "{error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sync_functions_are_skipped_and_fall_back() {
    let bank = Bank::new();
    assert_eq!(bank.tidy_up(vec!["b", "a"]), Some(vec!["a".to_owned(), "b".to_owned()]));
    assert_eq!(bank.count(7).expect("free"), r#"7: ["books", "till"]"#);
    let _busy = lock(&bank.locks, "till").acquire().await.expect("free");
    assert_eq!(bank.tidy_up(vec!["till", "a"]), None);
    assert_eq!(bank.count(7).expect("later"), "7: later");
}

#[tokio::test]
async fn a_loss_is_reported_with_all_keys() {
    let reckoned = Bank::new().reckon().await.expect("undone");
    assert_eq!(reckoned, ["reckoned", "books", "till"]);
}

/// The values of a function's own, which its keys are made of, are moved into its body afterwards,
/// and what an expression leaves behind is gone before.
#[tokio::test]
async fn a_locked_function_of_several_keys_can_be_spawned() {
    #[distributed_lock(
        key = keys(names.lock().expect("names").iter()),
        ttl = "10s",
        wait = "1s",
        manager = locks
    )]
    async fn sort(locks: LockManager, names: &'static Mutex<Vec<String>>) -> Locked<usize> {
        tokio::task::yield_now().await;
        Ok(names.lock().expect("names").len() + under().len())
    }
    #[distributed_lock(key = ["order:<ids[0]>", "order:<ids[1]>"], wait = "1s", manager = locks)]
    async fn merge(locks: LockManager, ids: Vec<u64>) -> Locked<(Vec<u64>, Vec<String>)> {
        tokio::task::yield_now().await;
        Ok((ids, under()))
    }
    static NAMES: Mutex<Vec<String>> = Mutex::new(Vec::new());
    NAMES.lock().expect("names").extend(["b".to_owned(), "a".to_owned()]);
    let locks = LockManager::isolated_memory();
    let sorted = tokio::spawn(sort(locks.clone(), &NAMES)).await.expect("no panic");
    assert_eq!(sorted, Ok(4));
    let (ids, keys) =
        tokio::spawn(merge(locks, vec![8, 7])).await.expect("no panic").expect("free");
    assert_eq!((ids, keys), (vec![8, 7], vec!["order:7".to_owned(), "order:8".to_owned()]));
}
