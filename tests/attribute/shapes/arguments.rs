//! The function's arguments, and the names that the expansion adds.

use std::any::Any;
use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use lockmacro_runtime::{LockError, LockManager, Lost, distributed_lock};

use crate::{held_blocking, probe};

const KEY: &str = "order:7";

/// For each dropped value, whether the lock was held at that moment.
type Seen = Arc<Mutex<Vec<bool>>>;

/// A value that looks at the lock when it is dropped.
struct Witness {
    locks: LockManager,
    seen: Seen,
}

impl Drop for Witness {
    fn drop(&mut self) {
        self.seen.lock().unwrap().push(held_blocking(&self.locks, KEY));
    }
}

/// Two values, of which a body may use one.
struct Order {
    used: Witness,
    _unused: Witness,
}

fn witnesses() -> (LockManager, Seen, impl Fn() -> Witness) {
    let (locks, seen) = (LockManager::isolated_memory(), Seen::default());
    let (of, by) = (locks.clone(), Arc::clone(&seen));
    (locks, seen, move || Witness { locks: of.clone(), seen: Arc::clone(&by) })
}

/// Asserts that this many values were dropped, each of them under the lock.
fn assert_seen(seen: &Seen, count: usize) {
    assert_eq!(*seen.lock().unwrap(), vec![true; count]);
}

#[tokio::test]
async fn all_of_them_are_dropped_before_the_release() {
    #[distributed_lock(key = "order:7", ttl = "30s", manager = locks)]
    async fn audit(
        locks: &LockManager,
        order: Order,
        (first, second): (Witness, Witness),
        mut changed: Option<Witness>,
        _ignored: Witness,
    ) -> Result<usize, LockError> {
        changed.take();
        let seen = order.used.seen.lock().unwrap().len();
        drop(first);
        let _ = &second;
        Ok(seen)
    }
    let (locks, seen, witness) = witnesses();
    let order = Order { used: witness(), _unused: witness() };
    let ended = audit(&locks, order, (witness(), witness()), Some(witness()), witness()).await;
    assert_eq!(ended.unwrap(), 1, "the one that was taken out is dropped at once");
    assert_seen(&seen, 6);
}

impl Order {
    #[distributed_lock(key = "order:7", ttl = "30s", manager = locks)]
    fn audit(self, locks: &LockManager, _ignored: Witness) -> Result<usize, LockError> {
        Ok(self.used.seen.lock().unwrap().len())
    }

    #[distributed_lock(key = "order:7", ttl = "30s", manager = locks, guard = lock)]
    async fn assign(self, locks: &LockManager, note: Witness) -> Result<usize, LockError> {
        lock.check()?;
        let Witness { seen, .. } = &note;
        Ok(seen.lock().unwrap().len())
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn all_of_them_are_dropped_before_the_release_in_sync_functions_and_methods() {
    let (locks, seen, witness) = witnesses();
    let order = || Order { used: witness(), _unused: witness() };
    let (of, by) = ((order(), witness()), locks.clone());
    let audited = tokio::task::spawn_blocking(move || of.0.audit(&by, of.1)).await.unwrap();
    assert_eq!(audited.unwrap(), 0);
    assert_seen(&seen, 3);
    assert_eq!(order().assign(&locks, witness()).await.unwrap(), 3);
    assert_seen(&seen, 6);
}

/// What expressions of the attribute ask an order for.
impl Order {
    fn number(&self) -> u32 {
        7
    }

    fn lease(&self) -> Duration {
        Duration::from_secs(30)
    }

    fn locks(&self) -> &LockManager {
        &self.used.locks
    }
}

fn order_key(order: &Order) -> String {
    format!("order:{}", order.number())
}

fn give_up(lost: Lost, _: Result<usize, LockError>) -> Result<usize, LockError> {
    Err(lost.into())
}

/// Asserts that an order is dropped before the release, of which the body uses a part.
macro_rules! assert_dropped_under_the_lock {
    ($(($locks:ident, $order:ident) $arguments:tt)*) => {$(
        assert_dropped_under_the_lock!($locks, $order, async await $arguments);
        assert_dropped_under_the_lock!($locks, $order, $arguments);
    )*};
    ($locks:ident, $order:ident, $($async:ident $await:ident)? [$($arguments:tt)*]) => {{
        #[distributed_lock($($arguments)*)]
        $($async)? fn audit($locks: &LockManager, $order: Order) -> Result<usize, LockError> {
            let _ = $locks;
            Ok($order.used.seen.lock().unwrap().len())
        }
        let (locks, seen, witness) = witnesses();
        let order = Order { used: witness(), _unused: witness() };
        let audited = tokio::task::block_in_place(|| audit(&locks, order));
        assert_eq!(audited$(.$await)?, Ok(0));
        assert_eq!(*seen.lock().unwrap(), [true; 2], "{}", stringify!($($arguments)*));
    }};
}

#[tokio::test(flavor = "multi_thread")]
async fn an_argument_that_an_expression_borrows_is_dropped_before_the_release() {
    assert_dropped_under_the_lock! {
        (locks, order) [key = order_key(&order), manager = locks]
        (locks, order) [key = format!("order:{}", order.number()), manager = locks]
        (locks, order) [key = format!("order:{0}", order.number()).trim(), manager = locks]
        (locks, order) [key = keys([7].map(|_| order_key(&order))), manager = locks]
        (locks, order) [key = ["order:7", order_key(&order)], manager = locks]
        (locks, order) [
            key = if order.number() > 6 { order_key(&order) } else { String::new() },
            manager = locks
        ]
        (locks, order) [key = "order:7", ttl = order.lease(), manager = locks]
        (locks, order) [key = "order:7", max_hold = order.lease() * 2, manager = locks]
        (locks, order) [key = "order:7", permits = order.number() - 6, manager = locks]
        (locks, order) [key = "order:7", manager = order.locks()]
        (locks, order) [
            key = "order:7", on_lost = give_up, guard = _lock, manager = order.locks()
        ]
        (locks, order) [
            key = "order:7",
            manager = if order.number() > 6 { order.locks() } else { locks }
        ]
    }
}

mod names_of_ours {
    #![allow(non_upper_case_globals, non_camel_case_types, dead_code)]

    use lockmacro_runtime::{Fence, LockError, LockGuard, LockManager, distributed_lock};

    // A pattern of any of these names would be compared with it.
    pub(super) const error: u8 = 0;
    pub(super) const busy: u8 = 1;
    pub(super) static fences: u8 = 2;
    pub(super) struct lock;
    pub(super) struct held;
    pub(super) const acquired: u8 = 3;
    pub(super) const manager: u8 = 4;
    pub(super) const later: u8 = 5;
    pub(super) const value: u8 = 6;
    pub(super) const lost: u8 = 7;

    async fn instead(_: &LockManager, _: String) -> Result<u64, LockError> {
        Ok(9)
    }

    #[distributed_lock(key = ["order:<id>", "stock"], manager = { locks }, guard = my_guard,
        fence = [one, two], on_busy = fallback(instead))]
    pub(super) async fn audit(locks: &LockManager, id: String) -> Result<u64, LockError> {
        let _: (&LockGuard, Fence, Fence) = (my_guard, one, two);
        Ok(id.len() as u64 + u64::from(error))
    }
}

#[tokio::test]
async fn constants_and_structs_may_have_any_name() {
    let locks = LockManager::isolated_memory();
    assert_eq!(names_of_ours::audit(&locks, "7".to_owned()).await.unwrap(), 1);
    let _guard = probe(&locks, "stock").acquire().await.unwrap();
    assert_eq!(names_of_ours::audit(&locks, "7".to_owned()).await.unwrap(), 9);
}

fn no_shop() -> LockError {
    LockError::unavailable("there is no such shop")
}

#[tokio::test]
async fn branches_and_failures_may_give_the_manager() {
    struct Shops {
        eu: LockManager,
        us: LockManager,
    }
    impl Shops {
        fn of(&self, id: u64) -> Result<&LockManager, LockError> {
            if id > 9 { Err(no_shop()) } else { Ok(&self.eu) }
        }

        #[distributed_lock(key = "order:7", manager = self.of(id)?)]
        async fn audit(&self, id: u64) -> Result<(), LockError> {
            Ok(())
        }

        #[distributed_lock(key = "order:7", manager = if id > 9 { &self.us } else { &self.eu })]
        async fn assign(&self, id: u64) -> Result<(), LockError> {
            Ok(())
        }

        #[distributed_lock(key = "order:7", manager = match id { 7 => &self.eu, _ => &self.us })]
        fn book(&self, id: u64) -> Result<(), LockError> {
            Ok(())
        }
    }
    let shops = Shops { eu: LockManager::isolated_memory(), us: LockManager::isolated_memory() };
    let _guard = probe(&shops.eu, KEY).acquire().await.unwrap();
    assert!(shops.audit(7).await.unwrap_err().is_busy());
    assert_eq!(shops.audit(10).await, Err(no_shop()));
    assert!(shops.assign(7).await.unwrap_err().is_busy());
    shops.assign(10).await.unwrap();
    let book = |id| std::thread::scope(|scope| scope.spawn(|| shops.book(id)).join().unwrap());
    assert!(book(7).unwrap_err().is_busy());
    book(10).unwrap();
}

#[tokio::test]
async fn a_message_is_written_for_a_busy_lock_and_not_before() {
    struct Counted<'a>(&'a AtomicUsize);
    impl fmt::Display for Counted<'_> {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            self.0.fetch_add(1, Ordering::Relaxed);
            f.write_str("seven")
        }
    }
    #[distributed_lock(key = "order:7", manager = locks, message = "order <order> is audited")]
    async fn audit(locks: &LockManager, order: Counted<'_>) -> Result<(), LockError> {
        let _ = order;
        Ok(())
    }
    let (locks, times) = (LockManager::isolated_memory(), AtomicUsize::new(0));
    audit(&locks, Counted(&times)).await.unwrap();
    assert_eq!(times.load(Ordering::Relaxed), 0);
    let _guard = probe(&locks, KEY).acquire().await.unwrap();
    let busy = audit(&locks, Counted(&times)).await.unwrap_err().to_string();
    assert!(busy.contains("order seven is audited"), "{busy}");
    assert_eq!(times.load(Ordering::Relaxed), 1);
}

/// The text of a panic, which would be another one if the body had run.
fn text(panic: Box<dyn Any + Send>) -> String {
    *panic.downcast::<String>().unwrap()
}

#[tokio::test]
async fn a_silent_function_without_a_manager_panics_and_its_body_does_not_run() {
    #[distributed_lock(key = "order:7", on_busy = skip)]
    async fn tidy() {
        unreachable!("it has no lock");
    }
    #[distributed_lock(key = "order:7", on_busy = skip, guard = _lock)]
    async fn tidy_guarded() -> Option<()> {
        unreachable!("it has no lock")
    }
    #[distributed_lock(key = "order:7", on_busy = skip)]
    fn tidy_sync() {
        unreachable!("it has no lock");
    }
    for panic in [
        tokio::spawn(tidy()).await.unwrap_err().into_panic(),
        tokio::spawn(tidy_guarded()).await.unwrap_err().into_panic(),
        std::thread::spawn(tidy_sync).join().unwrap_err(),
    ] {
        let text = text(panic);
        assert!(text.contains("arguments::") && text.contains("`LockManager::install`"), "{text}");
    }
}

#[test]
fn a_silent_function_without_a_runtime_panics_and_its_body_does_not_run() {
    #[distributed_lock(key = "order:7", on_busy = skip, manager = locks)]
    async fn tidy(locks: LockManager) {
        unreachable!("it has no lock");
    }
    let outside = || futures::executor::block_on(tidy(LockManager::isolated_memory()));
    let text = text(std::thread::spawn(outside).join().unwrap_err());
    assert!(text.contains("tokio runtime"), "{text}");
}

#[tokio::test]
async fn a_silent_sync_function_on_the_thread_of_a_runtime_panics_and_its_body_does_not_run() {
    #[distributed_lock(key = "order:7", on_busy = skip, manager = locks)]
    fn tidy(locks: LockManager) {
        unreachable!("it has no lock");
    }
    #[distributed_lock(key = "order:7", on_busy = skip, manager = locks, guard = _lock)]
    fn tidy_guarded(locks: LockManager) -> Option<()> {
        unreachable!("it has no lock")
    }
    #[distributed_lock(key = "order:7", on_busy = skip, manager = locks)]
    fn tidy_or_tell(locks: LockManager) -> Result<(), LockError> {
        unreachable!("it has no lock")
    }
    let locks = LockManager::isolated_memory();
    let (one, other) = (locks.clone(), locks.clone());
    for panic in [
        tokio::spawn(async { tidy(one) }).await.unwrap_err().into_panic(),
        tokio::spawn(async { tidy_guarded(other) }).await.unwrap_err().into_panic(),
    ] {
        let text = text(panic);
        assert!(text.contains("arguments::tidy") && text.contains("`spawn_blocking`"), "{text}");
    }
    let told = tidy_or_tell(locks).unwrap_err();
    let LockError::NoRuntime { detail, .. } = &told else { panic!("{told:?}") };
    assert!(detail.contains("spawn_blocking"), "{detail}");
}

#[test]
fn a_fallback_may_take_types_with_hidden_lifetimes() {
    struct Context<'a>(&'a str);
    #[allow(elided_lifetimes_in_paths)]
    fn later(_: &LockManager, context: Context, _: u64) -> Result<usize, LockError> {
        Ok(context.0.len())
    }
    #[allow(elided_lifetimes_in_paths)]
    #[distributed_lock(key = "order:<id>", manager = locks, on_busy = fallback(later))]
    fn audit(locks: &LockManager, context: Context, id: u64) -> Result<usize, LockError> {
        Ok(context.0.len() + 100)
    }
    let (locks, text) = (LockManager::isolated_memory(), "four".to_owned());
    assert_eq!(audit(&locks, Context(&text), 7), Ok(104));
    let _guard = probe(&locks, KEY).acquire_blocking().unwrap();
    assert_eq!(audit(&locks, Context(&text), 7), Ok(4));
}

#[tokio::test]
async fn a_key_may_take_an_argument_or_a_part_of_it() {
    struct Line {
        sku: String,
        note: String,
    }
    fn sku_key(sku: String) -> String {
        format!("order:{sku}")
    }
    #[distributed_lock(key = sku_key(line.sku), manager = locks)]
    async fn audit(locks: &LockManager, line: Line) -> Result<String, LockError> {
        Ok(line.note)
    }
    #[distributed_lock(key = line.sku, manager = locks)]
    fn book(locks: &LockManager, line: Line) -> Result<String, LockError> {
        Ok(line.note)
    }
    #[distributed_lock(key = sku.unwrap_or_default(), manager = locks)]
    fn count(locks: &LockManager, sku: Option<String>) -> Result<u32, LockError> {
        Ok(7)
    }
    let line = || Line { sku: "7".to_owned(), note: "late".to_owned() };
    let locks = LockManager::isolated_memory();
    assert_eq!(audit(&locks, line()).await.unwrap(), "late");
    let sync = move || (book(&locks, line()), count(&locks, Some("7".to_owned())));
    let (booked, counted) = std::thread::spawn(sync).join().unwrap();
    assert_eq!((booked.unwrap().as_str(), counted), ("late", Ok(7)));
}

#[tokio::test]
async fn a_placeholder_may_take_an_argument() {
    fn hash(name: String) -> usize {
        name.len()
    }
    #[distributed_lock(key = "order:<hash(name)>", manager = locks)]
    async fn audit(locks: &LockManager, name: String) -> Result<bool, LockError> {
        Ok(crate::held(locks, KEY).await)
    }
    assert!(audit(&LockManager::isolated_memory(), "seven!!".to_owned()).await.unwrap());
}
