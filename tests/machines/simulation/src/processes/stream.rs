//! The process's end of a connection.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::processes::sim::sim;

pub(crate) struct StreamOf {
    link: usize,
}

impl StreamOf {
    pub(crate) fn new(link: usize) -> Self {
        Self { link }
    }
}

impl AsyncRead for StreamOf {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        sim().network.link(self.link, |link| {
            if !link.inbox.is_empty() {
                let length = link.inbox.len().min(into.remaining());
                into.put_slice(&link.inbox[..length]);
                link.inbox.drain(..length);
                return Poll::Ready(Ok(()));
            }
            match link.end {
                Some(io::ErrorKind::UnexpectedEof) => Poll::Ready(Ok(())),
                Some(kind) => Poll::Ready(Err(kind.into())),
                None => {
                    link.reader = Some(cx.waker().clone());
                    Poll::Pending
                }
            }
        })
    }
}

impl AsyncWrite for StreamOf {
    fn poll_write(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let sim = sim();
        if sim.network.link(self.link, |link| link.end.is_some()) {
            return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
        }
        sim.network.write(self.link, bytes);
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

impl Drop for StreamOf {
    fn drop(&mut self) {
        trace!("#{} is closed", self.link);
        sim().network.close(self.link);
    }
}
