//! What a lock and its release cost on a simulated server.

use std::time::{Duration, Instant};

use lockmacro_simulation_tests::server::{ConnectionId, Output, Server};

const RELEASE: &str = concat!(
    include_str!("../../../lockmacro-runtime/src/store/redis/scripts/release_uncontended.lua"),
    include_str!("../../../lockmacro-runtime/src/store/redis/scripts/for_each_call.lua")
);
const PAIRS: u32 = 200_000;

fn main() {
    let mut server = Server::new();
    let client = server.connect();
    let load = packed(&["SCRIPT", "LOAD", RELEASE]);
    let hash = text(&server.receive(client, &load, Duration::ZERO));
    let hash = hash.lines().nth(1).expect("a hash").to_owned();
    let set = packed(&["SET", "order:1", "label/0123", "NX", "PX", "30000"]);
    let release = packed(&["EVALSHA", &hash, "2", "order:1", "lm1:wq:{order:1}", "label/0123"]);
    let begun = Instant::now();
    for nth in 0..PAIRS {
        let now = Duration::from_millis(u64::from(nth));
        expect(&mut server, client, &set, now, "+OK\r\n");
        expect(&mut server, client, &release, now, ":1\r\n");
    }
    println!("{:?} for a lock and its release", begun.elapsed() / PAIRS);
}

fn expect(server: &mut Server, client: ConnectionId, request: &[u8], now: Duration, reply: &str) {
    assert_eq!(text(&server.receive(client, request, now)), reply);
}

fn text(outputs: &[Output]) -> String {
    let [Output::Send(_, bytes)] = outputs else { panic!("one reply: {outputs:?}") };
    String::from_utf8_lossy(bytes).into_owned()
}

fn packed(words: &[&str]) -> Vec<u8> {
    let words = words.iter().map(|word| format!("${}\r\n{word}\r\n", word.len()));
    format!("*{}\r\n{}", words.len(), words.collect::<String>()).into_bytes()
}
