//! An open connection, and the task that sends and receives on it.
//!
//! What a caller asks for lies in a queue until the task comes to send it. The task may be late for
//! seconds, where a runtime's thread is blocked, and the caller has asked again on another
//! connection meanwhile, and released what it got. So the task looks before it sends: nothing goes
//! out on a connection that was left, nor after the time for its answer.

use std::future::poll_fn;
use std::num::NonZeroU64;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use futures_util::future::{Either, select};
use tokio::runtime;
use tokio::sync::{OnceCell, watch};
use tokio::time::{sleep, timeout, timeout_at};
use tokio_postgres::tls::{MakeTlsConnect, TlsConnect, TlsStream};
use tokio_postgres::{AsyncMessage, Client, Connection, Error, Row, Socket};

use super::values::Values;
use crate::store::remote::health::Monitor;
use crate::store::subscriptions::Subscriptions;
use crate::sys::sync::Mutex;
use crate::sys::task::{here, spawn};
use crate::sys::time::Instant;

/// The number of any connection, for the waiters: a push has the secret of the last request, and
/// comes from the server that has it.
pub(crate) const CONNECTION: NonZeroU64 = NonZeroU64::MIN;
/// The push by which a listening connection finds out whether it gets any.
pub(crate) const HELLO: &str = "hello";
/// For the request that ends a call on a connection that was left.
const CANCEL_WITHIN: Duration = Duration::from_secs(1);

/// An open connection, for as long as somebody uses it.
pub(crate) struct Live {
    pub(crate) client: Client,
    /// The number of its link.
    pub(crate) link: usize,
    /// Whether it asks for pushes.
    pub(crate) listens: OnceCell<()>,
    /// Whether it has received its own first push.
    pub(crate) heard: Arc<watch::Sender<bool>>,
    left: watch::Sender<bool>,
    unsent: Arc<Unsent>,
    /// The one that drives it.
    runtime: Option<runtime::Id>,
}

/// Until when the answer was wanted to the first of the calls that the task may not have sent yet.
type Unsent = Mutex<Option<Instant>>;

/// Why a connection ended.
enum End {
    Closed,
    Left,
    Unused,
}

impl Live {
    /// Begins to send and receive, for the link of this number. The waiters get the pushes that
    /// arrive. No call takes longer than `longest`.
    pub(crate) fn new<T>(
        link: usize,
        subscriptions: Arc<Subscriptions>,
        monitor: Arc<Monitor>,
        longest: Duration,
        tls: T,
        (client, connection): (Client, Connection<Socket, T::Stream>),
    ) -> Arc<Self>
    where
        T: MakeTlsConnect<
                Socket,
                Stream: TlsStream + Send + 'static,
                TlsConnect: TlsConnect<Socket, Future: Send> + Send,
            > + Send
            + 'static,
    {
        let cancel = client.cancel_token();
        let heard = Arc::new(watch::Sender::new(false));
        let (left, mut leaving) = watch::channel(false);
        let unsent = Arc::<Unsent>::default();
        let is_heard = heard.subscribe();
        let mut reading = Box::pin({
            let unsent = Arc::clone(&unsent);
            let heard = Arc::clone(&heard);
            let subscriptions = Arc::clone(&subscriptions);
            read(connection, unsent, move |push| match push {
                HELLO => drop(heard.send_replace(true)),
                push => subscriptions.receive(push.as_bytes(), CONNECTION.get()),
            })
        });
        let listens = OnceCell::new();
        let live = Self { client, link, listens, heard, left, unsent, runtime: here() };
        spawn(async move {
            let ends = async {
                match leaving.wait_for(|left| *left).await {
                    Ok(_) => End::Left,
                    Err(_) => End::Unused,
                }
            };
            // In this order: nothing is sent on a connection that was left.
            let end = match select(pin!(ends), &mut reading).await {
                Either::Left((end, _)) => end,
                Either::Right(_) => End::Closed,
            };
            if *is_heard.borrow() {
                // Those that wait may have missed a push.
                subscriptions.alarm_where(|_| true);
            }
            match end {
                End::Closed => return monitor.broken(),
                // It ends by itself when its last call is answered.
                End::Unused if timeout(longest, &mut reading).await.is_ok() => return,
                End::Unused => drop(reading),
                End::Left => {
                    // Closes it.
                    drop(reading);
                    sleep(longest).await;
                }
            }
            // A call that is only slow goes on, and is of use when it is repeated. One that hangs,
            // such as a commit that waits for a standby, does not see that nobody is there. One
            // request is enough to cancel it: then the server notices that the connection is
            // closed.
            let _ = timeout(CANCEL_WITHIN, cancel.cancel_query(tls)).await;
        });
        Arc::new(live)
    }

    /// Sends a statement. `None` if there is no answer until then.
    pub(crate) async fn query(
        &self,
        statement: &str,
        values: Values<'_>,
        until: Instant,
    ) -> Option<Result<Vec<Row>, Error>> {
        let mut asked = pin!(self.client.query_typed(statement, values));
        // Queues it.
        if let Poll::Ready(answer) = poll_fn(|cx| Poll::Ready(asked.as_mut().poll(cx))).await {
            return Some(answer);
        }
        {
            let mut unsent = self.unsent.lock();
            *unsent = Some(unsent.map_or(until, |earlier| earlier.min(until)));
        }
        let answer = timeout_at(until, asked).await;
        // The task may have sent it before that was noted.
        self.unsent.lock().take_if(|earliest| *earliest == until && answer.is_ok());
        answer.ok()
    }

    /// Ends it at once, with all calls on it: they may have been applied.
    pub(crate) fn leave(&self) {
        self.left.send_replace(true);
    }

    /// Whether another runtime drives it than that of the caller.
    pub(crate) fn is_driven_elsewhere(&self) -> bool {
        self.runtime != here()
    }

    pub(crate) fn is_open(&self) -> bool {
        !self.client.is_closed() && !*self.left.borrow()
    }
}

/// Sends and receives, until the connection is closed or a call has not been sent in time.
async fn read<S: TlsStream + Unpin>(
    mut connection: Connection<Socket, S>,
    unsent: Arc<Unsent>,
    receive: impl Fn(&str),
) {
    loop {
        let next = poll_fn(|cx| match unsent.lock().take() {
            Some(until) if until <= Instant::now() => Poll::Ready(None),
            _ => connection.poll_message(cx),
        });
        match next.await {
            Some(Ok(AsyncMessage::Notification(push))) => receive(push.payload()),
            Some(Ok(_)) => {}
            Some(Err(_)) | None => return,
        }
    }
}
