//! A caller whose lock belongs to no queue, because it is shared or has several keys. It asks the
//! store, and waits there, by itself.

use std::borrow::Cow;
use std::sync::Arc;

use tokio::time::sleep;

use crate::engine::manager::Manager;
use crate::engine::queue::shared_queue::waiting::released;
use crate::engine::telemetry::{Behind, WaitingGauge};
use crate::engine::token::acquisition::{Acquisition, PAUSE, Refusal, drawn};
use crate::protocol::answer::{Answer, Grant};
use crate::protocol::ask::{Ask, RequestEvents};
use crate::store::handle::Store;
use crate::sys::sync::Mutex;
use crate::sys::time::Moment;
use crate::value::holder::Holder;

/// Asks until the lock is granted or refused. After a stale grant it asks again: until the end of
/// the wait, or once for a caller that does not wait.
pub(crate) async fn ask_outside(
    manager: &Manager,
    store: &Store,
    ask: &Arc<Ask>,
) -> Result<(Acquisition, Grant, Behind), Refusal> {
    let core = &manager.core;
    let last = Arc::<LastHolder>::default();
    let ask = if cfg!(feature = "metrics") && ask.until.is_some() {
        &Arc::new(Ask { events: Some(Arc::clone(&last) as _), ..Ask::clone(ask) })
    } else {
        ask
    };
    let mut releases = ask.keys().len();
    let mut is_first = true;
    loop {
        // Before the request is sent: a release that begins later is not that of the holder it
        // finds.
        let trails = core.trailing.count() > 0;
        let guard = core.enter().map_err(Refusal::Failed)?;
        let request = drawn(ask).map_err(Refusal::Failed)?;
        let mut own = Acquisition::new(guard, Arc::clone(core), request.clone(), None);
        let answer = {
            let _waiting = WaitingGauge::new(&**ask);
            store.acquire(&request, &core.shutdown).await
        };
        let goes_on = ask.until.map_or(is_first, |until| Moment::now() < until);
        is_first = false;
        if matches!(answer, Ok(Answer::Stale(_))) && goes_on {
            // After an error, dropping the acquisition releases it in the background.
            _ = own.release_at(store).await;
            sleep(PAUSE).await;
            continue;
        }
        let refusal = match own.take_answer(answer) {
            Ok(grant) => {
                let behind = last.0.lock().take().map(|name| ("waited", name));
                return Ok((own, grant, behind));
            }
            Err(refusal) => refusal,
        };
        // A release of this process, which no caller waits for, may have been in flight.
        let has_ended = match &refusal {
            Refusal::Contended { key, .. } if ask.until.is_none() && releases > 0 => {
                let longest = core.answer_time() * 2;
                released(&manager.queue(key), ask.asked).await
                    || trails && core.trailing_outside.over(key, longest).await
            }
            _ => false,
        };
        if !has_ended {
            return Err(refusal);
        }
        releases -= 1;
    }
}

/// The name of the last holder that the caller has waited for.
#[derive(Debug, Default)]
struct LastHolder(Mutex<Option<Cow<'static, str>>>);

impl RequestEvents for LastHolder {
    fn contended(&self, holder: &Holder, _: u32) {
        *self.0.lock() = Some(holder.function());
    }
}
