//! What clients agree on with a server, what they receive, and what they are refused.

use super::both::Both;
use super::lines::{command, same_replies};

#[test]
fn sessions_and_mistakes() {
    same_replies(&[
        "PING | PING a | PING a b | HELLO 4 | HELLO a | HELLO 3 BAD",
        "CLIENT SETINFO LIB-NAME redis-rs | NOSUCH | NOSUCH a \"b c\" | GET | ROLE",
        "PUBSUB BAD | CONFIG BAD | SCRIPT BAD",
    ]);
}

#[test]
fn every_connection_receives_the_same_pushes() {
    for protocol in ["2", "3"] {
        let mut both = Both::start(3);
        let hello = format!("HELLO {protocol}");
        for (nth, line) in [
            (0, hello.as_str()),
            (1, &hello),
            (2, &hello),
            (0, "SUBSCRIBE one two"),
            (1, "SUBSCRIBE one"),
            (1, "SUBSCRIBE one"),
            (2, "PUBLISH one hello"),
            (2, "PUBLISH none hello"),
            (2, "PUBSUB NUMSUB one two none"),
            (2, "PUBSUB NUMSUB"),
            (2, "EVAL \"redis.call('PUBLISH', 'one', '1') return 'done'\" 0"),
            (0, "GET a"),
            (0, "PING"),
            (0, "PUBLISH two self"),
            (0, "EVAL \"redis.call('PUBLISH', 'two', '1') return 'done'\" 0"),
            (0, "UNSUBSCRIBE two"),
            (0, "UNSUBSCRIBE none"),
            (0, "UNSUBSCRIBE"),
            (0, "UNSUBSCRIBE"),
            (0, "GET a"),
            (1, "UNSUBSCRIBE"),
            (1, "GET a"),
        ] {
            both.same(nth, &command(line));
            for other in 0..3 {
                both.same(other, b"");
            }
        }
        assert!(both.unknown().is_empty());
    }
}

#[test]
fn a_full_server_and_a_user_without_rights() {
    same_replies(&[
        "SET there 1 | ZADD z 1 a | CONFIG SET maxmemory 1",
        "SET k v | ZADD z 2 a | ZADD z XX 2 a | GETEX there | PEXPIRE there 100000 | DEL there",
        "EVAL \"return redis.call('SET', KEYS[1], '1')\" 1 k",
        "EVAL \"return redis.pcall('SET', KEYS[1], '1')\" 1 k",
        "EVAL \"redis.call('GETEX', KEYS[1]) return redis.call('SET', KEYS[1], '1')\" 1 k",
        "EVAL \"redis.call('GET', KEYS[1]) return redis.call('SET', KEYS[1], '1')\" 1 k",
        "CONFIG SET maxmemory 0 | SET k v",
        "ACL SETUSER default -publish -pubsub | PUBLISH a b | PUBSUB NUMSUB a",
        "EVAL \"return redis.call('PUBLISH', 'a', 'b')\" 0",
        "EVAL \"return redis.pcall('PUBLISH', 'a', 'b')\" 0",
        "EVAL \"return redis.pcall('PUBSUB', 'NUMSUB', 'b')\" 0",
        "EVAL \"return redis.acl_check_cmd('publish', 'a', 'b')\" 0",
        "EVAL \"return redis.acl_check_cmd('get', 'a')\" 0",
        "EVAL \"return redis.acl_check_cmd('nosuch', 'a')\" 0",
        "ACL SETUSER default +publish +pubsub | PUBLISH a b",
    ]);
}

#[test]
fn what_is_not_simulated_is_listed() {
    let mut both = Both::simulated_alone(1);
    both.same(0, &command("GEOADD k 1 1 a"));
    both.same(0, &command("CONFIG REWRITE"));
    both.same(0, &command("EVAL \"return redis.pcall('BITCOUNT', 'k')\" 0"));
    assert_eq!(both.unknown(), ["GEOADD", "config REWRITE", "BITCOUNT"]);
}
