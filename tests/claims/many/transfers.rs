//! Money between two accounts, in both directions at once: nothing is lost, and nobody waits for
//! ever.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU32, Ordering};

use lockmacro_tests::{Backend, in_time, on};

use crate::{LONG_TTL, Locked, many};

const TASKS: u32 = 8;
const OPENING: i64 = 1_000;

/// An account whose amount is read and written in two steps, as by a body that awaits a database.
#[derive(Default)]
struct Account {
    cents: AtomicI64,
    in_use: AtomicBool,
}

impl Account {
    async fn book(&self, cents: i64) {
        assert!(!self.in_use.swap(true, Ordering::SeqCst), "two bodies under one key");
        let before = self.cents.load(Ordering::SeqCst);
        tokio::task::yield_now().await;
        self.cents.store(before + cents, Ordering::SeqCst);
        self.in_use.store(false, Ordering::SeqCst);
    }
}

#[on(memory, redis, slots, postgres, both_runtimes)]
async fn opposite_transfers_keep_the_balance_and_do_not_deadlock(backend: &Backend) {
    transfer(backend, 1_000).await;
}

#[on(redlock)]
async fn opposite_transfers_on_several_nodes_keep_the_balance(backend: &Backend) {
    transfer(backend, 400).await;
}

/// With threads, where the most can go wrong.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ten_thousand_opposite_transfers_keep_the_balance_and_do_not_deadlock() {
    for backend in [Backend::memory(), Backend::redis()] {
        in_time(transfer(&backend, 10_000)).await;
        backend.keeps_nothing().await;
    }
}

async fn transfer(backend: &Backend, rounds: u32) {
    let keys = [backend.key("account:1"), backend.key("account:2")];
    let accounts = Arc::new([Account::default(), Account::default()]);
    for account in accounts.iter() {
        account.cents.store(OPENING, Ordering::SeqCst);
    }
    let done = Arc::new(AtomicU32::new(0));
    let mut tasks = Vec::new();
    for nth in 0..TASKS {
        // As many processes as tasks, half of which transfer in each direction.
        let manager = backend.manager().await;
        let (from, to) = if nth % 2 == 0 { (0, 1) } else { (1, 0) };
        let (keys, accounts, done) = (keys.clone(), Arc::clone(&accounts), Arc::clone(&done));
        tasks.push(tokio::spawn(async move {
            for cents in 0..rounds / TASKS {
                let cents = i64::from(cents);
                let lock = many(&manager, [&keys[from], &keys[to]]).wait(LONG_TTL);
                let booked = lock.run(async {
                    accounts[from].book(-cents).await;
                    accounts[to].book(cents).await;
                    done.fetch_add(1, Ordering::SeqCst);
                    Locked::Ok(())
                });
                booked.await.expect("both accounts");
            }
        }));
    }
    for task in tasks {
        task.await.expect("a task");
    }
    assert_eq!(done.load(Ordering::SeqCst), rounds);
    // Each direction has moved the same.
    let cents = accounts.each_ref().map(|account| account.cents.load(Ordering::SeqCst));
    assert_eq!(cents, [OPENING, OPENING]);
}
