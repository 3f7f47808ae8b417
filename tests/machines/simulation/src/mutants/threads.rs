//! The mutants of the client that only another thread can find: between two statements.

use super::Mutant;
use super::client::mutant;

#[rustfmt::skip]
pub(crate) const MUTANTS: &[Mutant] = &[
    // The owner of the queue.
    mutant("a change between the check and the wait is missed", "late", "sys/sync.rs",
        "        change.await;\n", "        if MUTANT { changes.notified().await } else { change.await }\n"),
    mutant("a caller takes a token that its queue has passed on", "exclusion|errors", "engine/queue/shared_queue/in_queue.rs",
        "let is_ours = state.queue.holder() == Some(self.ticket);", "let is_ours = MUTANT || state.queue.holder() == Some(self.ticket);"),
    mutant("a request that is refused forgets the release before it", "errors", "engine/queue/shared_queue/request.rs",
        "!matches!(acquisition, Ok(Some(_))))", "!MUTANT && !matches!(acquisition, Ok(Some(_))))"),
    // The end of a held lock, its loss and its renewal.
    mutant("a lock that is lost while it is released stays with its handles", "shutdown", "engine/lease/held.rs",
        "if !state.life.is_over() {\n                    state.acquisition", "if !state.life.is_over() || MUTANT {\n                    state.acquisition"),
    mutant("a renewal that is due sooner is missed", "errors", "engine/thread/timers.rs",
        "        if wakes.is_none_or(|wakes| due < wakes) {\n            self.sooner.notify_one();", "        if wakes.is_none_or(|wakes| due < wakes) {\n            if MUTANT { self.sooner.notify_waiters() } else { self.sooner.notify_one() }"),
    // The hand-over to the cleanup.
    mutant("a dropped lock does not count until it is released", "shutdown|left", "engine/thread/background.rs",
        "self.cleanup.take(request.clone(), guard)", "self.cleanup.take(request.clone(), if MUTANT { drop(guard); Arc::<InFlight>::default().join() } else { guard })"),
];
