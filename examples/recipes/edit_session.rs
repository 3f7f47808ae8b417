//! A lock over two requests: one opens a form, and a later one saves it. Whoever opens the same form
//! meanwhile learns who has it.
//!
//! `cargo run -p lockmacro-recipes --example edit_session`

use std::collections::HashMap;
use std::error::Error;
use std::sync::{Mutex, PoisonError};

use lockmacro_runtime::{Lock, LockError, LockGuard, LockManager};
use tokio::time::Duration;

/// How long a person may think.
const TIME: Duration = Duration::from_secs(15 * 60);

/// The forms that are open in this process. The requests of a form come to the same process, such as
/// by a cookie; a form that is never saved ends with its lease.
struct Desk {
    locks: LockManager,
    open: Mutex<HashMap<u64, LockGuard>>,
}

impl Desk {
    async fn open(&self, id: u64, user: &str) -> Result<(), LockError> {
        let form = Lock::new(format!("form:{id}")).ttl(TIME).holder_note(user);
        let guard = form.manager(&self.locks).acquire().await?;
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        open.insert(id, guard);
        Ok(())
    }

    async fn save(&self, id: u64, text: &str) -> Result<String, Box<dyn Error>> {
        let guard = self.open.lock().unwrap_or_else(PoisonError::into_inner).remove(&id);
        let guard = guard.ok_or("this form is not open")?;
        // `Lost` when the person was too slow.
        Ok(guard.run(async { Ok::<_, LockError>(format!("{id}: {text}")) }).await?)
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let locks = LockManager::connect("memory://").await?; // or "redis://…"
    let desk = Desk { locks, open: Mutex::default() };
    desk.open(7, "Ann").await?;
    let busy = desk.open(7, "Bob").await.expect_err("Ann has it");
    assert_eq!(busy.holder().note.as_deref(), Some("Ann"));
    assert_eq!(desk.save(7, "new text").await?, "7: new text");
    Ok(desk.open(7, "Bob").await?)
}

#[test]
fn the_form_is_free_again_when_it_is_saved() {
    main().expect("it is free");
}
