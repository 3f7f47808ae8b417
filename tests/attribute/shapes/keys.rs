//! Keys, durations and managers of every form.

use std::time::Duration;

use lockmacro_runtime::{LockError, LockKey, LockManager, distributed_lock};

use crate::{assert_locked, held};

struct Order {
    sn: &'static str,
    lines: Vec<(u32, String)>,
}

const LEASE: Duration = Duration::from_secs(30);

fn order_key(order: &Order) -> LockKey {
    LockKey::template("order:<sn>").literal("order:").value(order.sn).into()
}

#[tokio::test]
async fn expressions() {
    #[distributed_lock(key = order_key(order), ttl = LEASE, manager = locks)]
    async fn by_function(locks: &LockManager, order: &Order) -> Result<bool, LockError> {
        Ok(held(locks, "order:SO-1").await && order.lines.len() == 1)
    }
    #[distributed_lock(
        key = format!("{{order:{}}}", order.sn), ttl = Duration::from_secs(30), manager = locks,
    )]
    async fn by_macro(locks: &LockManager, order: Order) -> Result<bool, LockError> {
        Ok(held(locks, "{order:SO-1}").await && order.lines.len() == 1)
    }
    #[distributed_lock(key = key, ttl = *ttl, manager = (locks))]
    async fn by_argument(
        locks: &LockManager,
        key: &LockKey,
        ttl: &Duration,
    ) -> Result<bool, LockError> {
        Ok(held(locks, key.as_str()).await)
    }
    let locks = LockManager::isolated_memory();
    let order = Order { sn: "SO-1", lines: vec![(1, String::new())] };
    assert_locked!(&locks, "order:SO-1", by_function(&locks, &order).await.unwrap());
    let key = order_key(&order);
    assert_locked!(&locks, "order:SO-1", by_argument(&locks, &key, &LEASE).await.unwrap());
    assert_locked!(&locks, "{order:SO-1}", by_macro(&locks, order).await.unwrap());
}

#[tokio::test]
async fn templates() {
    #[distributed_lock(
        key = "{<order.sn>}:<<<order.lines[*at].0>:<order.lines[0].1.to_lowercase()>",
        ttl = "30s",
        manager = locks
    )]
    async fn audit(locks: &LockManager, order: &Order, at: &usize) -> Result<bool, LockError> {
        Ok(held(locks, "{SO-1}:<7:ab%3Ac").await)
    }
    let locks = LockManager::isolated_memory();
    let order = Order { sn: "SO-1", lines: vec![(7, "AB:C".to_owned())] };
    assert_locked!(&locks, "{SO-1}:<7:ab%3Ac", audit(&locks, &order, &0).await.unwrap());
}

mod erp {
    pub mod locks {
        pub use lockmacro_runtime::*;
    }
}

#[tokio::test]
async fn a_runtime_under_another_path() {
    #[distributed_lock(
        key = "order:<id>", ttl = "30s", manager = locks, crate = crate::keys::erp::locks,
    )]
    async fn audit(locks: &LockManager, id: u64) -> Result<bool, LockError> {
        Ok(held(locks, "order:42").await)
    }
    let locks = LockManager::isolated_memory();
    assert_locked!(&locks, "order:42", audit(&locks, 42).await.unwrap());
}

#[tokio::test]
async fn the_manager_of_the_scope() {
    #[distributed_lock(key = "order:<id>", ttl = "30s")]
    async fn audit(id: u64) -> Result<bool, LockError> {
        Ok(held(&LockManager::current()?, "order:42").await)
    }
    assert!(matches!(audit(42).await, Err(LockError::NotInstalled { .. })));
    // An installed one stays for the life of the process, which other tests are in as well.
    let locks = LockManager::isolated_memory();
    assert_locked!(&locks, "order:42", locks.scope(audit(42)).await.unwrap());
}

/// Names of ours and of the user do not meet.
#[tokio::test]
async fn arguments_may_have_any_name() {
    #[distributed_lock(
        key = "<lock>:<guard>:<error.len()>", ttl = "30s", manager = locks,
        on_busy = fallback(later),
    )]
    async fn audit(
        locks: &LockManager,
        lock: u8,
        guard: u8,
        error: &str,
    ) -> Result<bool, LockError> {
        Ok(held(locks, "1:2:3").await && error == "abc" && lock + guard == 3)
    }
    async fn later(_: &LockManager, _: u8, guard: u8, error: &str) -> Result<bool, LockError> {
        Ok(guard == 0 && error.is_empty())
    }
    let locks = LockManager::isolated_memory();
    assert_locked!(&locks, "1:2:3", audit(&locks, 1, 2, "abc").await.unwrap());
}

#[tokio::test]
async fn text_in_parentheses_is_filled_in_and_branches_make_keys() {
    #[distributed_lock(key = ("order:<id>"), ttl = "30s", manager = locks)]
    async fn in_parentheses(locks: &LockManager, id: u64) -> Result<bool, LockError> {
        Ok(held(locks, "order:7").await && !held(locks, "order:8").await)
    }
    #[distributed_lock(
        key = { let large = *id > 5; if large { format!("large:{id}") } else { "small".into() } }, manager = locks,
    )]
    async fn by_a_branch(locks: &LockManager, id: &u64) -> Result<bool, LockError> {
        Ok(held(locks, "large:7").await && !held(locks, "large:8").await && *id > 5)
    }
    #[distributed_lock(
        key = match tenant {
            Some("none") => return Ok(false),
            Some("") => std::process::exit(1),
            None if id == 0 => std::process::abort(),
            Some(name) => format!("{name}:{id}"),
            None => format!("order:{id}"),
        },
        manager = locks
    )]
    async fn by_a_match(
        locks: &LockManager,
        id: u64,
        tenant: Option<&str>,
    ) -> Result<bool, LockError> {
        let expected = tenant.map_or("order:7".to_owned(), |tenant| format!("{tenant}:7"));
        Ok(held(locks, &expected).await && !held(locks, &format!("{expected}0")).await)
    }
    let locks = LockManager::isolated_memory();
    assert_locked!(&locks, "order:7", in_parentheses(&locks, 7).await.unwrap());
    assert_locked!(&locks, "large:7", by_a_branch(&locks, &7).await.unwrap());
    assert_locked!(&locks, "acme:7", by_a_match(&locks, 7, Some("acme")).await.unwrap());
    assert_locked!(&locks, "order:7", by_a_match(&locks, 7, None).await.unwrap());
    assert!(!by_a_match(&locks, 7, Some("none")).await.unwrap());
}

#[tokio::test]
async fn placeholders_may_be_computed() {
    fn hash(id: u64, salt: &u8) -> String {
        format!("h{}", id + u64::from(*salt))
    }
    struct Shard;
    impl Shard {
        const NAME: &str = "stock";
        #[distributed_lock(key = "<Self::NAME>:<N>:<hash(id, &5)>", ttl = "30s", manager = locks)]
        async fn count<const N: usize>(
            locks: &LockManager,
            id: u64,
            lines: [u8; N],
        ) -> Result<bool, LockError> {
            Ok(held(locks, "stock:2:h12").await && lines.len() == N)
        }
    }
    let locks = LockManager::isolated_memory();
    assert_locked!(&locks, "stock:2:h12", Shard::count(&locks, 7, [1, 2]).await.unwrap());
}

#[tokio::test]
async fn a_placeholder_may_be_a_constant_of_a_type_parameter() {
    trait Kind: Sync {
        const NAME: &str;
        fn is(&self) -> bool;
    }
    struct Stock<T>(T);
    impl Kind for u32 {
        const NAME: &str = "bin:a";
        fn is(&self) -> bool {
            *self == 5
        }
    }
    impl<T: Kind> Stock<T> {
        #[distributed_lock(key = "<T::NAME>:<id>", ttl = "30s", manager = locks)]
        async fn count(&self, locks: &LockManager, id: u64) -> Result<bool, LockError> {
            Ok(held(locks, "bin%3Aa:7").await && self.0.is())
        }
    }
    #[distributed_lock(key = "<id>:<K::NAME>", ttl = "30s", manager = locks)]
    async fn audit<K: Kind>(locks: &LockManager, kind: &K, id: u64) -> Result<bool, LockError> {
        Ok(held(locks, "7:bin%3Aa").await && kind.is())
    }
    let locks = LockManager::isolated_memory();
    let stock = Stock(5);
    assert_locked!(&locks, "bin%3Aa:7", stock.count(&locks, 7).await.unwrap());
    assert_locked!(&locks, "7:bin%3Aa", audit(&locks, &5, 7).await.unwrap());
}

/// The keys that messages propose in place of `"<PREFIX>:<id>"`.
#[tokio::test]
async fn a_key_may_format_a_constant() {
    mod kinds {
        pub const ORDER: &str = "order";
    }
    const PREFIX: &str = "shop";
    static SHOP: &str = "acme";
    struct Shelf<const N: usize>;
    #[distributed_lock(
        key = format!("{PREFIX}:{SHOP}:{{{}}}:{id}", kinds::ORDER), ttl = "30s", manager = locks
    )]
    async fn audit(locks: &LockManager, id: u64) -> Result<bool, LockError> {
        Ok(held(locks, "shop:acme:{order}:7").await)
    }
    impl<const N: usize> Shelf<N> {
        #[distributed_lock(key = format!("shelf:{N}:{id}"), ttl = "30s", manager = locks)]
        async fn count(&self, locks: &LockManager, id: u64) -> Result<bool, LockError> {
            Ok(held(locks, "shelf:3:7").await)
        }
    }
    let locks = LockManager::isolated_memory();
    assert_locked!(&locks, "shop:acme:{order}:7", audit(&locks, 7).await.unwrap());
    assert_locked!(&locks, "shelf:3:7", Shelf::<3>.count(&locks, 7).await.unwrap());
}

/// A constant's text is known at run time alone.
#[tokio::test]
async fn a_constant_that_looks_like_a_template_is_logged_once() {
    const TEMPLATE: &str = "constant:<id>";
    const LITERAL: &str = "constant:<other>";
    #[distributed_lock(key = TEMPLATE, ttl = "30s", manager = locks)]
    async fn audit(locks: &LockManager, id: u64) -> Result<bool, LockError> {
        Ok(held(locks, "constant:<id>").await && id > 0)
    }
    #[distributed_lock(key = ["constants", LITERAL], ttl = "30s", manager = locks)]
    async fn assign(locks: &LockManager, id: u64) -> Result<bool, LockError> {
        Ok(held(locks, "constant:<other>").await && id > 0)
    }
    lockmacro_tests::log::start();
    let locks = LockManager::isolated_memory();
    for id in 1..4 {
        assert!(audit(&locks, id).await.unwrap());
        assert!(assign(&locks, id).await.unwrap());
    }
    let log = lockmacro_tests::log::so_far();
    let warnings_of =
        |text| log.lines().filter(move |line| line.starts_with("WARN") && line.contains(text));
    let warnings: Vec<_> = warnings_of("constant:<id>").collect();
    assert_eq!(warnings.len(), 1, "{warnings:?}");
    assert!(warnings[0].contains("write the text itself"), "{warnings:?}");
    assert!(warnings[0].contains(r#"`key = "constant:<id>"`"#), "{warnings:?}");
    assert_eq!(warnings_of("constant:<other>").count(), 0);
}
