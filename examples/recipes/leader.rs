//! One process leads, and another one takes over when it ends.
//!
//! `cargo run -p lockmacro-recipes --example leader`

use lockmacro_runtime::{Lock, LockError, LockManager};
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};
use tokio::time::{Duration, sleep};

/// Works as the leader whenever this process is the leader, until the manager is shut down. A lease
/// of a second is how long after a crash nobody leads.
async fn replica(
    locks: LockManager,
    name: &'static str,
    leads: UnboundedSender<&'static str>,
) -> Result<(), LockError> {
    let lead = Lock::new("leader").ttl(Duration::from_secs(1)).name(name).manager(&locks);
    lead.lead(async |term| {
        println!("{name} leads with fence {:?}", term.fence());
        let _closed = leads.send(name);
        loop {
            sleep(Duration::from_millis(100)).await; // the work: it is dropped when the lead is lost
        }
    })
    .await
}

#[tokio::main]
async fn main() -> Result<(), LockError> {
    // Two processes would each have `LockManager::connect("redis://…").await?`.
    let url = "memory://";
    let (anna, bert) = (LockManager::connect(url).await?, LockManager::connect(url).await?);
    let (leads, mut leaders) = unbounded_channel();
    let first = tokio::spawn(replica(anna.clone(), "anna", leads.clone()));
    assert_eq!(leaders.recv().await, Some("anna"));
    let next = tokio::spawn(replica(bert.clone(), "bert", leads));
    // A leader that is stopped, as by a deployment: the next one leads at once.
    anna.shutdown(Duration::from_secs(5)).await?;
    assert_eq!(leaders.recv().await, Some("bert"));
    bert.shutdown(Duration::from_secs(5)).await?;
    first.await.and(next.await).expect("no panic")
}

#[test]
fn the_next_one_leads() {
    assert_eq!(main(), Ok(()));
}
