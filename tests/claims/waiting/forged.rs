//! A user without a right on any key, who may see and send every push.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use lockmacro_runtime::LockManager;
use lockmacro_tests::queue::Queue;
use lockmacro_tests::{Server, eventually};
use tokio::time::timeout;

use crate::access::with_user;
use crate::{KEY, LONG_TTL, POLLED, PUSHED, handed_off, lock, manager, ms, served, waiting};

/// Answers each push with a grant of the same id, again and again.
struct Forger {
    stops: Arc<AtomicBool>,
    forging: Option<JoinHandle<usize>>,
}

impl Forger {
    fn at(server: &Server) -> Forger {
        let rights = ["resetkeys", "resetchannels", "&lm1:*", "nocommands"];
        let mut words = vec!["ACL", "SETUSER", "eve", "reset", "on", ">secret"];
        words.extend(rights.iter().chain(&["+psubscribe", "+publish"]));
        server.admin().ask::<()>(&words);
        let client = redis::Client::open(server.url_as("eve", "secret")).expect("an address");
        let connect = || client.get_connection().expect("let in");
        let (mut listening, mut sending) = (connect(), connect());
        let stops = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stops);
        let (subscribed, is_subscribed) = std::sync::mpsc::channel();
        let forging = std::thread::spawn(move || {
            let mut pushes = listening.as_pubsub();
            pushes.psubscribe("lm1:*").expect("allowed");
            pushes.set_read_timeout(Some(ms(5))).expect("a timeout");
            subscribed.send(()).expect("awaited");
            let mut seen = HashSet::new();
            while !stopped.load(Ordering::Relaxed) {
                if let Ok(push) = pushes.get_message() {
                    let text: String = push.get_payload().expect("text");
                    let id = text.split('|').next().unwrap_or_default().to_owned();
                    // A connection that subscribes sends an empty one.
                    if !id.is_empty() {
                        seen.insert((push.get_channel_name().to_owned(), id));
                    }
                }
                let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970");
                let at = (now + Duration::from_secs(1)).as_micros();
                for (channel, id) in &seen {
                    let grant = format!("{id}|0|{at}|60000");
                    let mut publish = redis::cmd("PUBLISH");
                    publish.arg(channel).arg(grant).query::<i64>(&mut sending).expect("allowed");
                }
            }
            seen.len()
        });
        is_subscribed.recv_timeout(LONG_TTL).expect("it listens");
        Forger { stops, forging: Some(forging) }
    }

    /// Ends; returns how many ids it has seen.
    fn end(mut self) -> usize {
        self.stops.store(true, Ordering::Relaxed);
        self.forging.take().expect("not ended").join().expect("no panic")
    }
}

impl Drop for Forger {
    fn drop(&mut self) {
        self.stops.store(true, Ordering::Relaxed);
    }
}

/// The push that makes the next waiter ask, as another program holds the lock, tells nothing by
/// which a grant could be sent.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_may_only_publish_cannot_grant_a_lock() {
    let server = Server::start();
    let (ours, theirs) = (manager(&server).await, manager(&server).await);
    let mut foreign = server.admin();
    foreign.ask::<()>(&["SET", KEY, "a stranger", "PX", "60000"]);
    let mut queue = Queue::at(&server, KEY);
    let first = queue.join(waiting(&ours, KEY).acquire()).await;
    let mut second = tokio::spawn(queue.join(waiting(&theirs, KEY).acquire()).await);
    let forger = Forger::at(&server);
    // The first one leaves, so the second one is told to ask.
    drop(first);
    queue.reaches(1).await;
    // For long enough that the forger has answered, and the waiter has asked many times.
    timeout(ms(700), &mut second).await.expect_err("granted beside the foreign holder");
    assert!(forger.end() > 0, "it has seen a push");
    foreign.ask::<()>(&["DEL", KEY]);
    served(POLLED, async { second.await.expect("no panic") }).await;
}

#[tokio::test]
async fn managers_with_a_prefix_need_only_the_channels_of_that_prefix() {
    let rights = ["~shop:*", "~lm1:w?:{shop:*}", "resetchannels", "&lm1:shop:*", "+@all"];
    let builder = LockManager::builder().key_prefix("shop:");
    let (server, ours, theirs) = with_user(&rights, builder).await;
    let mut admin = server.admin();
    let guard = lock(&ours, KEY).acquire().await.expect("free");
    let mut queue = Queue::at(&server, &format!("shop:{KEY}"));
    let waiter = queue.join(waiting(&theirs, KEY).acquire()).await;
    eventually("it listens", PUSHED, || {
        let channels: Vec<String> = admin.ask(&["PUBSUB", "CHANNELS"]);
        let ours = |channel: &String| channel.starts_with("lm1:shop:");
        std::future::ready(!channels.is_empty() && channels.iter().all(ours))
    })
    .await;
    handed_off(guard, waiter).await;
    let denied: Vec<redis::Value> = admin.ask(&["ACL", "LOG"]);
    assert_eq!(denied, [], "something was denied");
}
