//! Acquiring by callers that block their thread.

use std::sync::Arc;

use crate::engine::acquire::{Prepared, Start, answered, prepared, start, waited};
use crate::engine::acquired::{Acquired, Outcome};
use crate::engine::acquisition::{Acquisition, Refusal};
use crate::engine::asker::Asker;
use crate::engine::blocking::may_block;
use crate::engine::in_line::InLine;
use crate::engine::spec::LockSpec;
use crate::engine::unreported::Errors;
use crate::value::error::LockError;
use crate::value::time::Moment;

/// Acquires the lock of a spec, and blocks the thread until the answer.
pub(crate) fn acquire_blocking(
    spec: Box<LockSpec>,
    fenced: bool,
    errors: Errors,
) -> Result<Acquired, LockError> {
    let (manager, request, wanted) = match prepared(spec, fenced, errors)? {
        Prepared::Joined(guard) => return Ok(guard),
        Prepared::ToAsk(manager, request, wanted) => (manager, request, wanted),
    };
    may_block().inspect_err(|error| wanted.report(&request, error))?;
    let refused =
        |request, refusal| Box::new(Outcome::Refused(Arc::clone(&manager), request, refusal));
    let waits = match start(&manager, request) {
        Start::Asks(acquisition, asker) => asked_blocking(acquisition, asker),
        Start::Arrives(mut lines) => match lines.block() {
            Ok((acquisition, asker)) => asked_blocking(acquisition, asker),
            Err(refusal) => Err(refused(Arc::clone(lines.request()), refusal)),
        },
        Start::Waits(in_line) => Ok(in_line),
        Start::Refused(request, refusal) => Err(refused(Arc::new(request), refusal)),
    };
    let mut in_line = match waits {
        Ok(in_line) => in_line,
        Err(outcome) => return wanted.guard(*outcome),
    };
    let found = in_line.block(InLine::take_up);
    wanted.guard(waited(&in_line, found))
}

/// Has a caller ask the store for itself, and blocks until the answer. Returns the caller as a
/// waiter in the line, or the outcome of its request.
fn asked_blocking(mut acquisition: Acquisition, asker: Asker) -> Result<InLine, Box<Outcome>> {
    asker.blocks();
    let longest = Asker::longest(acquisition.manager());
    let within = asker.until().map(|until| longest.min(until.since(Moment::now())));
    match acquisition.acquire_blocking(within) {
        Some(answer) => answered(acquisition, asker, answer),
        None => asker.unanswered(&acquisition).ok_or_else(|| {
            let (manager, request) = (acquisition.manager(), acquisition.request());
            let refusal = Refusal::Failed(LockError::ShutDown);
            Box::new(Outcome::Refused(Arc::clone(manager), Arc::clone(request), refusal))
        }),
    }
}
