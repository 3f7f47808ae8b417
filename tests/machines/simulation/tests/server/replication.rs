//! Replicas, and clients that wait for them.

use std::time::Duration;

use lockmacro_simulation_tests::server::{ConnectionId, Output, ReplicaId, Server};

use super::lines::command;

const NOW: Duration = Duration::from_secs(1_000_000);
const REPLICA: ReplicaId = ReplicaId(1);

fn ask(server: &mut Server, client: ConnectionId, line: &str, now: Duration) -> String {
    text(&server.receive(client, &command(line), now))
}

fn text(outputs: &[Output]) -> String {
    let text = |output: &Output| match output {
        Output::Send(_, bytes) => String::from_utf8_lossy(bytes).into_owned(),
        Output::Close(_) => "closed".to_owned(),
    };
    outputs.iter().map(text).collect()
}

#[test]
fn a_replica_has_what_it_was_sent_and_takes_no_writes() {
    let (mut primary, mut replica) = (Server::new(), Server::new());
    let (client, reader) = (primary.connect(), replica.connect());
    ask(&mut primary, client, "SET old 1", NOW);
    assert_eq!(text(&replica.follow(("one".to_owned(), 6379), primary.snapshot())), "");
    let script = "EVAL \"redis.call('SET', 'a', '1', 'PX', 500) redis.call('DEL', 'old')\" 0";
    ask(&mut primary, client, script, NOW);
    ask(&mut primary, client, "ZADD z 1 member", NOW);
    let changes = primary.changes_after(replica.offset()).to_vec();
    assert_eq!(changes.len(), 2, "a script is one change");
    assert_eq!(ask(&mut replica, reader, "GET old", NOW), "$1\r\n1\r\n");
    replica.apply(&changes[0]);
    assert_eq!(ask(&mut replica, reader, "GET old", NOW), "$-1\r\n");
    assert_eq!(ask(&mut replica, reader, "PTTL a", NOW), ":500\r\n");
    let readonly = "-READONLY You can't write against a read only replica.";
    assert_eq!(ask(&mut replica, reader, "SET a 2", NOW), format!("{readonly}\r\n"));
    let write = ask(&mut replica, reader, "EVAL \"return redis.call('DEL', 'a')\" 0", NOW);
    assert!(write.starts_with(&format!("{readonly} script: ")), "{write}");
    assert!(ask(&mut replica, reader, "ROLE", NOW).contains("slave"));
    // The last change never arrived.
    replica.promote();
    assert_eq!(ask(&mut replica, reader, "ZCARD z", NOW), ":0\r\n");
    assert_eq!(ask(&mut replica, reader, "SET a 2", NOW), "+OK\r\n");
}

#[test]
fn wait_answers_when_replicas_have_acknowledged_or_its_time_is_over() {
    let mut primary = Server::new();
    let client = primary.connect();
    assert_eq!(ask(&mut primary, client, "WAIT 0 100", NOW), ":0\r\n");
    primary.acknowledge(REPLICA, 0, NOW);
    assert_eq!(ask(&mut primary, client, "WAIT 1 100", NOW), ":1\r\n", "nothing was written");
    ask(&mut primary, client, "SET a 1", NOW);
    assert_eq!(ask(&mut primary, client, "WAIT 1 100", NOW), "");
    assert_eq!(ask(&mut primary, client, "PING", NOW), "", "a blocked client is not served");
    let acknowledged = primary.acknowledge(REPLICA, primary.offset(), NOW);
    assert_eq!(text(&acknowledged), ":1\r\n+PONG\r\n");
    ask(&mut primary, client, "SET a 2", NOW);
    assert_eq!(ask(&mut primary, client, "WAIT 1 100", NOW), "");
    let over = NOW + Duration::from_millis(100);
    assert_eq!(primary.next_timeout(), Some(over));
    assert_eq!(text(&primary.tick(over)), ":0\r\n");
    assert_eq!(primary.next_timeout(), None);
}

#[test]
fn a_primary_that_becomes_a_replica_ends_the_waiting() {
    let (mut primary, mut other) = (Server::new(), Server::new());
    let client = primary.connect();
    ask(&mut primary, client, "SET a 1", NOW);
    assert_eq!(ask(&mut primary, client, "WAIT 1 0", NOW), "");
    let ended = text(&primary.follow(("other".to_owned(), 6379), other.snapshot()));
    assert!(ended.starts_with("-UNBLOCKED ") && ended.ends_with("closed"), "{ended}");
    let client = primary.connect();
    assert_eq!(ask(&mut primary, client, "GET a", NOW), "$-1\r\n");
}

#[test]
fn a_restart_closes_all_connections_and_keeps_what_it_is_told_to() {
    let mut server = Server::new();
    let client = server.connect();
    ask(&mut server, client, "SET a 1", NOW);
    assert_eq!(text(&server.restart_with_data()), "closed");
    assert_eq!(ask(&mut server, client, "GET a", NOW), "", "the connection is closed");
    let client = server.connect();
    assert_eq!(ask(&mut server, client, "GET a", NOW), "$1\r\n1\r\n");
    server.restart_empty();
    let client = server.connect();
    assert_eq!(ask(&mut server, client, "GET a", NOW), "$-1\r\n");
    server.set_loading(true);
    let loading = "-LOADING Redis is loading the dataset in memory\r\n";
    assert_eq!(ask(&mut server, client, "PING", NOW), loading);
}

#[test]
fn a_server_tells_of_its_starts() {
    let mut servers = [Server::with_seed(1), Server::with_seed(2)];
    let mut info = |nth: usize, now| {
        let server: &mut Server = &mut servers[nth];
        let client = server.connect();
        let info = ask(server, client, "INFO server", now);
        server.restart_with_data();
        let field = |name| info.lines().find_map(|line| line.strip_prefix(name)).map(str::to_owned);
        (field("run_id:").expect("a run id"), field("uptime_in_seconds:").expect("an uptime"))
    };
    let runs = [info(0, NOW), info(1, NOW), info(0, NOW)].map(|(run_id, _)| run_id);
    assert!(runs[0] != runs[1] && runs[0] != runs[2] && runs[0].len() == 40, "{runs:?}");
}
