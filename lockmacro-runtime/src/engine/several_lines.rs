//! A caller of several keys at their lines. It becomes the head of each line, in the order of the
//! keys, and then asks the store for all of them with a token of its own. So it overtakes no other
//! caller of its process, and none overtakes it.
//!
//! No two callers wait for each other: of two callers that want the same keys, one is the head of
//! the first line, and the other waits there.

use std::mem;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use crate::engine::acquisition::{Acquisition, Refusal};
use crate::engine::asker::Asker;
use crate::engine::core::Core;
use crate::engine::head_of_lines::HeadOfLines;
use crate::engine::in_line::InLine;
use crate::engine::line::{Arrived, Line, Place};
use crate::protocol::request::Request;
use crate::value::error::LockError;

/// A caller that becomes the head of each line. Dropping it leaves the lines.
pub(crate) struct SeveralLines {
    heads: Box<HeadOfLines>,
    /// In the line of the next key.
    waits: Option<InLine>,
    core: Arc<Core>,
    request: Arc<Request>,
}

impl SeveralLines {
    pub(crate) fn new(core: Arc<Core>, request: Request) -> Self {
        let (heads, waits) = Default::default();
        Self { heads, waits, core, request: Arc::new(request) }
    }

    pub(crate) fn core(&self) -> &Arc<Core> {
        &self.core
    }

    pub(crate) fn request(&self) -> &Arc<Request> {
        &self.request
    }

    /// Ready when the caller is the head of all lines, and may ask the store.
    pub(crate) fn poll(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Result<(Acquisition, Asker), Refusal>> {
        loop {
            if let Some(waits) = &mut self.waits {
                let turn = waits.poll(cx, InLine::begin_turn);
                if turn.is_pending() {
                    self.heads.poll(cx);
                }
                self.begins_turn(ready!(turn)?);
            }
            if self.arrives()? {
                return Poll::Ready(self.asks());
            }
        }
    }

    /// The same for blocking callers.
    pub(crate) fn block(&mut self) -> Result<(Acquisition, Asker), Refusal> {
        while !self.arrives()? {
            self.heads.block();
            if let Some(waits) = &mut self.waits {
                let place = waits.block(InLine::begin_turn)?;
                self.begins_turn(place);
            }
        }
        self.asks()
    }

    /// Arrives at the line of each further key, until it has to wait. Returns whether it is the
    /// head of all lines.
    fn arrives(&mut self) -> Result<bool, Refusal> {
        let (core, request) = (&self.core, &self.request);
        while self.heads.places.len() < request.keys().len() {
            if core.shutdown().is_closed() {
                return Err(Refusal::Failed(LockError::ShutDown));
            }
            match Line::of_caller(core, self.heads.places.len(), Arc::clone(request)) {
                Arrived::Asks(place, _) => self.heads.places.push(place),
                Arrived::Waits(place, draft) => {
                    self.waits = Some(InLine::new(place, Arc::clone(core), draft));
                    return Ok(false);
                }
                Arrived::Refused(_, refusal) => return Err(refusal),
                Arrived::Closed(_) => return Err(Refusal::Failed(LockError::ShutDown)),
            }
        }
        Ok(true)
    }

    /// The caller's turn has begun in the line where it waits.
    fn begins_turn(&mut self, place: Place) {
        self.heads.places.push(place);
        self.waits = None;
    }

    fn asks(&mut self) -> Result<(Acquisition, Asker), Refusal> {
        let request = self.request.with_new_token().map_err(Refusal::Failed)?;
        let acquisition = Acquisition::new(Arc::clone(&self.core), request);
        Ok((acquisition, Asker::of_several(mem::take(&mut self.heads))))
    }
}
