//! gRPC on a connection to one node: a request is a stream of HTTP/2, and each message on it is
//! preceded by a flag and its length.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use bytes::{Buf, BufMut, Bytes, BytesMut};
use h2::client::SendRequest;
use h2::{RecvStream, SendStream};
use http::HeaderMap;
use http::header::HeaderValue;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::task::AbortHandle;
use tokio::time::timeout;

use crate::api::Request;
use crate::error::CallError;
use crate::wire::{Answer, Message};

/// A connection to a node. It is closed when it is dropped.
#[derive(Debug)]
pub(crate) struct Connection {
    requests: SendRequest<Bytes>,
    origin: String,
    /// What the login has given.
    token: Option<HeaderValue>,
    driver: AbortHandle,
    opened: Instant,
    /// When the node answered last: microseconds after the connection was opened.
    answered: AtomicU64,
}

impl Connection {
    /// Speaks HTTP/2 on a transport to a node, which is `http://host:port`.
    pub(crate) async fn open<T>(transport: T, origin: String) -> Result<Self, CallError>
    where
        T: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    {
        let opened = h2::client::handshake(transport).await.map_err(CallError::not_sent)?;
        let (requests, connection) = opened;
        let driver = tokio::spawn(connection).abort_handle();
        let opened = Instant::now();
        let answered = AtomicU64::new(0);
        Ok(Self { requests, origin, token: None, driver, opened, answered })
    }

    /// Sends this token with every request from now on.
    pub(crate) fn log_in(&mut self, token: Bytes) {
        self.token = HeaderValue::from_maybe_shared(token).ok();
    }

    /// Whether the node has answered any request since then.
    pub(crate) fn has_answered_since(&self, then: Instant) -> bool {
        let answered = Duration::from_micros(self.answered.load(Ordering::Relaxed));
        self.opened + answered > then
    }

    /// Whether it has ended, so that nothing can be sent on it.
    pub(crate) fn is_closed(&self) -> bool {
        self.driver.is_finished()
    }

    /// Ends the connection and all requests on it, which then count as unanswered.
    pub(crate) fn close(&self) {
        self.driver.abort();
    }

    /// Sends a request, and waits so long for its answer.
    pub(crate) async fn call(&self, request: Request, time: Duration) -> Result<Answer, CallError> {
        let call = async {
            let (mut messages, mut answers) = self.stream(request.path).await?;
            messages.send(&request.message, true)?;
            let answer = answers.next().await?;
            // A status behind the answer would say that the answer does not count.
            let end = answers.next().await?;
            let now = u64::try_from(self.opened.elapsed().as_micros()).unwrap_or(u64::MAX);
            self.answered.store(now, Ordering::Relaxed);
            answer.filter(|_| end.is_none()).ok_or(CallError::unanswered("half of an answer"))
        };
        let late =
            |_| CallError::unanswered(format!("{} has not answered in {time:?}", self.origin));
        timeout(time, call).await.map_err(late)?
    }

    /// Begins a request that may have several messages, and several answers.
    pub(crate) async fn stream(&self, path: &str) -> Result<(Messages, Answers), CallError> {
        let mut requests = self.requests.clone().ready().await.map_err(CallError::not_sent)?;
        let mut request = http::Request::post(format!("{}{path}", self.origin))
            .header("content-type", "application/grpc")
            .header("te", "trailers")
            // A node that has lost the others ends a watch, and does not keep silent.
            .header("hasleader", "true");
        if let Some(token) = &self.token {
            request = request.header("token", token);
        }
        let request = request.body(()).map_err(CallError::not_sent)?;
        let opened = requests.send_request(request, false).map_err(CallError::not_sent)?;
        let (answer, send) = opened;
        let answers = Answers { head: Some(answer), body: None, buffer: BytesMut::new() };
        Ok((Messages(send), answers))
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.close();
    }
}

/// The messages of one request.
pub(crate) struct Messages(SendStream<Bytes>);

impl Messages {
    /// Sends a message, which is the last one or not.
    pub(crate) fn send(&mut self, message: &Message, is_last: bool) -> Result<(), CallError> {
        let message = message.as_ref();
        let mut frame = BytesMut::with_capacity(5 + message.len());
        frame.put_u8(0);
        frame.put_u32(u32::try_from(message.len()).map_err(CallError::not_sent)?);
        frame.put_slice(message);
        self.0.send_data(frame.freeze(), is_last).map_err(CallError::unanswered)
    }
}

/// The messages of its answer.
pub(crate) struct Answers {
    head: Option<h2::client::ResponseFuture>,
    body: Option<RecvStream>,
    buffer: BytesMut,
}

impl Answers {
    /// The next message, or `None` at the end. A dropped future loses none.
    pub(crate) async fn next(&mut self) -> Result<Option<Answer>, CallError> {
        const PREFIX: usize = 5;
        if let Some(head) = &mut self.head {
            let answer = head.await.map_err(CallError::unanswered)?;
            self.head = None;
            if answer.status() != http::StatusCode::OK {
                let text = format!("HTTP status {}: this is no etcd", answer.status());
                return Err(CallError::unanswered(text));
            }
            // An answer without a message has its status here.
            status(answer.headers())?;
            self.body = Some(answer.into_body());
        }
        let Some(body) = &mut self.body else { return Ok(None) };
        loop {
            if let Some(mut length) = self.buffer.get(1..PREFIX) {
                let length = length.get_u32() as usize;
                if self.buffer.len() >= PREFIX + length {
                    self.buffer.advance(PREFIX);
                    return Ok(Some(Answer(self.buffer.split_to(length).freeze())));
                }
            }
            let Some(data) = body.data().await else { break };
            let data = data.map_err(CallError::unanswered)?;
            // Fails only when the stream has ended, and then nothing more comes anyway.
            let _ = body.flow_control().release_capacity(data.len());
            self.buffer.extend_from_slice(&data);
        }
        let trailers = body.trailers().await.map_err(CallError::unanswered)?;
        status(&trailers.ok_or(CallError::unanswered("an answer without a status"))?)?;
        Ok(None)
    }
}

fn status(headers: &HeaderMap) -> Result<(), CallError> {
    let text = |name| headers.get(name).and_then(|value: &HeaderValue| value.to_str().ok());
    match text("grpc-status").map(str::parse) {
        None | Some(Ok(0)) => Ok(()),
        Some(Ok(code)) => Err(CallError::of(code, text("grpc-message").unwrap_or_default())),
        Some(Err(error)) => Err(CallError::unanswered(error)),
    }
}
