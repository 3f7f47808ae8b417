//! Passwords that change while locks are held, waited for and renewed.

use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use lockmacro_runtime::{Lock, LockError, LockManager, LockManagerBuilder};
use lockmacro_tests::times::TEST_TIMEOUT;
use lockmacro_tests::{Admin, Cluster, Server, eventually, in_time};

const TTL: Duration = Duration::from_millis(2_500);

/// Where a program finds its password, and how often it has looked.
#[derive(Clone, Default)]
struct Safe {
    password: Arc<Mutex<String>>,
    asked: Arc<AtomicUsize>,
}

impl Safe {
    fn with(password: &str) -> Self {
        let safe = Self::default();
        safe.put(password);
        safe
    }

    fn put(&self, password: &str) {
        *self.password.lock().expect("the safe") = password.to_owned();
    }

    fn builder(&self) -> LockManagerBuilder {
        let safe = self.clone();
        LockManager::builder().credentials(move || {
            let safe = safe.clone();
            async move {
                safe.asked.fetch_add(1, SeqCst);
                let password = safe.password.lock().expect("the safe").clone();
                Ok::<_, std::io::Error>(("shop".to_owned(), password))
            }
        })
    }
}

fn set(admin: &mut Admin, password: &str) {
    let password = format!(">{password}");
    admin.ask::<()>(&["ACL", "SETUSER", "shop", "reset", "on", &password, "~*", "&*", "+@all"]);
}

/// Has the server take another password, and end every connection of before.
fn rotate(admin: &mut Admin, password: &str) {
    set(admin, password);
    admin.ask::<redis::Value>(&["CLIENT", "KILL", "USER", "shop"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_lock_is_lost_while_its_password_changes_again_and_again() {
    in_time(async {
        let server = Server::start();
        let mut admin = server.admin();
        set(&mut admin, "first");
        let safe = Safe::with("first");
        // The login of the URL is not used.
        let url = server.url_as("nobody", "guess");
        let manager = safe.builder().connect(&url).await.expect("there");
        let lock = |key: &str| Lock::new(key).ttl(TTL).renew().manager(&manager);
        let mut guards = Vec::new();
        for nth in 0..10 {
            guards.push(lock(&format!("order:{nth}")).acquire().await.expect("free"));
        }
        let waiting = tokio::spawn(lock("order:0").wait(TEST_TIMEOUT * 3).acquire());
        for round in 0..4 {
            let next = format!("password {round}");
            let asked = safe.asked.load(SeqCst);
            rotate(&mut admin, &next);
            // The program learns of it a little later.
            let is_refused = || std::future::ready(safe.asked.load(SeqCst) > asked);
            eventually("a login is refused meanwhile", TEST_TIMEOUT, is_refused).await;
            safe.put(&next);
            tokio::time::sleep(TTL / 2).await;
            for guard in &guards {
                guard.check().expect("renewed all the time");
            }
            let run = lock("another").run(async { Ok::<_, LockError>(round) });
            assert_eq!(run.await, Ok(round));
        }
        guards.remove(0).release().await.expect("still ours");
        let next = waiting.await.expect("no panic").expect("granted in the end");
        next.release().await.expect("ours");
        for guard in guards {
            guard.release().await.expect("still ours");
        }
        assert!(safe.asked.load(SeqCst) > 4, "it is asked for each connection");
    })
    .await;
}

#[tokio::test]
async fn a_login_that_stays_refused_is_reported_at_the_timeout() {
    let server = Server::start();
    set(&mut server.admin(), "right");
    let safe = Safe::with("wrong");
    let builder = safe.builder().timeout(Duration::from_millis(600));
    let error = builder.connect(&server.url()).await.expect_err("refused");
    assert!(matches!(error, LockError::Authentication { .. }), "{error:?}");
    assert!(!error.to_string().contains("wrong"), "{error}");
    assert!(safe.asked.load(SeqCst) > 1, "it may have changed meanwhile");
}

#[tokio::test]
async fn an_error_of_the_credentials_callback_is_reported() {
    let server = Server::start();
    let builder = LockManager::builder()
        .timeout(Duration::from_millis(600))
        .credentials(|| async { Err(std::io::Error::other("the safe is shut")) });
    let error = builder.connect(&server.url()).await.expect_err("no credentials");
    assert!(matches!(error, LockError::Authentication { .. }), "{error:?}");
    assert!(error.to_string().contains("the safe is shut"), "{error}");
}

#[tokio::test]
async fn every_node_of_a_cluster_and_of_a_redlock_uses_them() {
    in_time(async {
        let cluster = Cluster::start(3, 0).await;
        (0..3).for_each(|nth| rotate(&mut cluster.admin(nth), "secret"));
        let safe = Safe::with("secret");
        let manager = safe.builder().connect(&cluster.url()).await.expect("there");
        for nth in 0..6 {
            let run = Lock::new(format!("order:{nth}")).manager(&manager);
            assert_eq!(run.run(async { Ok::<_, LockError>(nth) }).await, Ok(nth));
        }
        let nodes: Vec<_> = (0..3).map(|_| Server::start()).collect();
        nodes.iter().for_each(|node| set(&mut node.admin(), "secret"));
        let builder = safe.builder().durable().node_timeout(TEST_TIMEOUT);
        let redlock = builder.redlock(nodes.iter().map(Server::url)).await.expect("there");
        let run = Lock::new("order:42").manager(&redlock).run(async { Ok::<_, LockError>(7) });
        assert_eq!(run.await, Ok(7));
    })
    .await;
}
