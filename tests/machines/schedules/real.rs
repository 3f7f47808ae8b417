//! A real server, which goes by the clock of the machine.

use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use lockmacro_tests::Server;
use redis::{Cmd, Connection, ConnectionLike, PushInfo, PushKind, Value};

use crate::store::{Connected, PROCESSES};

pub struct Real {
    connection: Connection,
    subscribers: Vec<Subscriber>,
    // Last: the connections go before their server.
    _server: Server,
}

struct Subscriber {
    connection: Connection,
    pushes: Receiver<PushInfo>,
}

impl Real {
    pub fn start() -> Real {
        let server = Server::start();
        let open = |url: String| {
            let client = redis::Client::open(url).expect("a valid address");
            let connection = client.get_connection().expect("the server accepts a connection");
            let timeout = Some(Duration::from_secs(30));
            connection.set_read_timeout(timeout).expect("a socket takes a timeout");
            connection
        };
        let connection = open(server.url());
        let subscribers = (0..PROCESSES)
            .map(|_| {
                let mut connection = open(format!("{}?protocol=resp3", server.url()));
                let (sender, pushes) = channel();
                connection.set_push_sender(sender);
                Subscriber { connection, pushes }
            })
            .collect();
        Real { connection, subscribers, _server: server }
    }

    /// Messages come before the reply to a PING that was sent after them.
    fn barrier(&mut self, process: usize) {
        let connection = &mut self.subscribers[process].connection;
        redis::cmd("PING").query::<()>(connection).expect("the server answers");
    }
}

impl Connected for Real {
    fn run(&mut self, commands: &[Cmd]) -> Vec<Value> {
        let packed: Vec<u8> = commands.iter().flat_map(Cmd::get_packed_command).collect();
        let replies = self.connection.req_packed_commands(&packed, 0, commands.len());
        replies.expect("the server answers")
    }

    fn subscribe(&mut self, process: usize, channel: &str) {
        let connection = &mut self.subscribers[process].connection;
        connection.subscribe_resp3(channel).expect("a subscription");
        self.barrier(process);
    }

    fn unsubscribe(&mut self, process: usize, channel: &str) {
        let connection = &mut self.subscribers[process].connection;
        connection.unsubscribe_resp3(channel).expect("an end of a subscription");
        self.barrier(process);
    }

    fn messages(&mut self, process: usize) -> Vec<Vec<u8>> {
        self.barrier(process);
        let pushes = self.subscribers[process].pushes.try_iter();
        pushes.filter_map(|push| message(push.kind, push.data)).collect()
    }

    fn pause(&mut self, time: Duration) {
        std::thread::sleep(time);
    }
}

/// What was published, if a push is a message.
pub fn message(kind: PushKind, data: Vec<Value>) -> Option<Vec<u8>> {
    match (kind, <[Value; 2]>::try_from(data)) {
        (PushKind::Message, Ok([_, Value::BulkString(message)])) => Some(message),
        _ => None,
    }
}
