//! Many programs of both versions at once.

use std::sync::{Arc, Mutex};

use lockmacro_runtime::LockManager;
use lockmacro_tests::AcquireFenced as _;
use lockmacro_tests::times::ms;
use lockmacro_tests::{Server, in_time};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use crate::client::{Program, Request};
use crate::{all_keys_have_an_end, lock, manager, nothing_is_left, released, several};

const TURNS: usize = 150;
const PERMITS: u32 = 2;

/// Who holds each key, by those who hold it.
#[derive(Debug, Default)]
struct Holders {
    alone: u32,
    sharing: u32,
    last_fence: u64,
    visits: u32,
}

type Keys = Arc<[Mutex<Holders>; 3]>;

/// What one turn asks for: a key is shared by any number, or held by `PERMITS`, but not both.
#[derive(Clone, Copy, Debug)]
struct Turn {
    keys: &'static [usize],
    limit: u32,
    waits: bool,
    fenced: bool,
}

impl Turn {
    fn any() -> Self {
        let waits = fastrand::bool();
        let fenced = fastrand::bool();
        let (keys, limit): (&[usize], _) = match fastrand::u8(..10) {
            0..=2 => (&[0], 1),
            3..=4 => (&[1], 1),
            5 => (&[2], 1),
            6 => (&[0], 0),
            7..=8 => (&[2], PERMITS),
            _ => (&[0, 1], 1),
        };
        Turn { keys, limit, waits: waits && keys.len() == 1, fenced: fenced && limit == 1 }
    }

    fn names(self) -> Vec<String> {
        self.keys.iter().map(|key| format!("key:{key}")).collect()
    }

    /// Holds the keys for a moment. `fences` are the first and the last one of each.
    async fn visit(self, keys: &Keys, fences: &[[u64; 2]]) {
        for (nth, key) in self.keys.iter().enumerate() {
            let mut holders = keys[*key].lock().expect("no overlap before");
            *if self.limit == 1 { &mut holders.alone } else { &mut holders.sharing } += 1;
            let Holders { alone, sharing, .. } = *holders;
            assert!(alone == 0 || alone == 1 && sharing == 0, "{self:?} {holders:?}");
            assert!(self.limit != PERMITS || sharing <= PERMITS, "{self:?} {holders:?}");
            if let Some([first, last]) = fences.get(nth) {
                assert!(holders.last_fence < *first, "{fences:?} {holders:?}");
                holders.last_fence = *last;
            }
            holders.visits += 1;
        }
        sleep(ms(fastrand::u64(0..3))).await;
        for key in self.keys {
            let mut holders = keys[*key].lock().expect("no overlap before");
            *if self.limit == 1 { &mut holders.alone } else { &mut holders.sharing } -= 1;
        }
    }
}

async fn earlier(mut program: Program, keys: Keys) {
    for _ in 0..TURNS {
        let turn = Turn::any();
        let wanted = Request::of_all(&turn.names()).permits(turn.limit);
        let wanted = if turn.fenced { wanted.fenced() } else { wanted };
        let held = match turn.waits {
            true => Some(program.acquire(wanted).await),
            false => program.ask(wanted),
        };
        let Some(held) = held else {
            sleep(ms(1)).await;
            continue;
        };
        turn.visit(&keys, &held.fences).await;
        assert!(program.renew(&held) && program.release(&held));
    }
}

async fn ours(manager: LockManager, keys: Keys) {
    for _ in 0..TURNS {
        let turn = Turn::any();
        let names = turn.names();
        let wanted = match &names[..] {
            [key] => lock(&manager, key, turn.limit),
            _ => several(&manager, &names),
        };
        let wanted = if turn.waits { wanted.wait_forever() } else { wanted };
        let granted = if turn.fenced {
            wanted.acquire_fenced().await
        } else {
            wanted.acquire().await.map(|guard| (guard, Vec::new()))
        };
        match granted {
            Ok((guard, fences)) => {
                let fences: Vec<_> = fences.into_iter().map(u64::from).map(|f| [f, f]).collect();
                turn.visit(&keys, &fences).await;
                released(guard).await;
            }
            Err(error) => {
                assert!(error.is_busy(), "{error}");
                sleep(ms(1)).await;
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn programs_of_both_versions_exclude_each_other_and_leave_nothing() {
    let server = Server::start();
    let keys = Keys::default();
    let mut tasks = JoinSet::new();
    for _ in 0..3 {
        let manager = manager(&server).await;
        // Two of a process may pass the lock on without the server.
        tasks.spawn(ours(manager.clone(), Arc::clone(&keys)));
        tasks.spawn(ours(manager, Arc::clone(&keys)));
        tasks.spawn(earlier(Program::on(&server), Arc::clone(&keys)));
        tasks.spawn(earlier(Program::on(&server), Arc::clone(&keys)));
    }
    let mut admin = server.admin();
    in_time(async {
        while !tasks.is_empty() {
            // Keys are looked at while waiters stand in queues.
            if let Ok(ended) = timeout(ms(5), tasks.join_next()).await {
                ended.expect("one").expect("no overlap");
            }
            all_keys_have_an_end(&mut admin);
        }
    })
    .await;
    for holders in &*keys {
        let holders = holders.lock().expect("no overlap");
        assert!(holders.visits > 100, "{holders:?}");
    }
    nothing_is_left(&server);
}
