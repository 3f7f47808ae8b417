//! What clients agree on with a server, what they receive, and what they are refused.

use super::both::Both;
use super::lines::{command, same_everywhere, same_replies};

#[test]
fn sessions_and_mistakes() {
    same_replies(&[
        "PING",
        "PING a",
        "PING a b",
        "ECHO a",
        "ECHO",
        "SELECT 0",
        "SELECT 99",
        "SELECT a",
        "HELLO 4",
        "HELLO a",
        "HELLO 3 BAD",
        "CLIENT GETNAME",
        "CLIENT SETNAME me",
        "CLIENT GETNAME",
        "CLIENT SETINFO LIB-NAME redis-rs",
        "NOSUCH",
        "NOSUCH a \"b c\"",
        "GET",
        "ROLE",
        "PUBSUB BAD",
        "CONFIG BAD",
        "SCRIPT BAD",
        "ACL WHOAMI",
    ]);
}

#[test]
fn every_connection_receives_the_same_pushes() {
    for protocol in ["2", "3"] {
        let mut both = Both::start(3);
        for nth in 0..3 {
            same_everywhere(&mut both, 3, nth, &format!("HELLO {protocol}"));
        }
        same_everywhere(&mut both, 3, 0, "SUBSCRIBE one two");
        same_everywhere(&mut both, 3, 1, "SUBSCRIBE one");
        same_everywhere(&mut both, 3, 1, "SUBSCRIBE one");
        same_everywhere(&mut both, 3, 1, "SSUBSCRIBE shard");
        same_everywhere(&mut both, 3, 2, "PUBLISH one hello");
        same_everywhere(&mut both, 3, 2, "PUBLISH none hello");
        same_everywhere(&mut both, 3, 2, "SPUBLISH shard hello");
        same_everywhere(&mut both, 3, 2, "SPUBLISH one hello");
        same_everywhere(&mut both, 3, 2, "PUBSUB NUMSUB one two none");
        same_everywhere(&mut both, 3, 2, "PUBSUB NUMSUB");
        same_everywhere(&mut both, 3, 2, "PUBSUB SHARDNUMSUB shard one");
        same_everywhere(&mut both, 3, 2, "PUBSUB CHANNELS t*");
        same_everywhere(&mut both, 3, 2, "PUBSUB SHARDCHANNELS");
        same_everywhere(&mut both, 3, 2, "PUBSUB NUMPAT");
        same_everywhere(
            &mut both,
            3,
            2,
            "EVAL \"redis.call('PUBLISH', 'one', '1') return 'done'\" 0",
        );
        same_everywhere(&mut both, 3, 0, "GET a");
        same_everywhere(&mut both, 3, 0, "PING");
        same_everywhere(&mut both, 3, 0, "PUBLISH two self");
        same_everywhere(
            &mut both,
            3,
            0,
            "EVAL \"redis.call('PUBLISH', 'two', '1') return 'done'\" 0",
        );
        same_everywhere(&mut both, 3, 0, "UNSUBSCRIBE two");
        same_everywhere(&mut both, 3, 0, "UNSUBSCRIBE none");
        same_everywhere(&mut both, 3, 0, "UNSUBSCRIBE");
        same_everywhere(&mut both, 3, 0, "UNSUBSCRIBE");
        same_everywhere(&mut both, 3, 0, "GET a");
        same_everywhere(&mut both, 3, 1, "SUNSUBSCRIBE");
        same_everywhere(&mut both, 3, 1, "SUNSUBSCRIBE");
        same_everywhere(&mut both, 3, 1, "UNSUBSCRIBE");
        same_everywhere(&mut both, 3, 1, "GET a");
        assert!(both.unknown().is_empty());
    }
}

#[test]
fn a_full_server_and_a_user_without_rights() {
    let mut both = Both::start(1);
    for line in [
        "SET there 1",
        "ZADD z 1 a",
        "CONFIG SET maxmemory 1",
        "SET k v",
        "ZADD z 2 a",
        "ZADD z XX 2 a",
        "GETEX there",
        "PEXPIRE there 100000",
        "DEL there",
        "EVAL \"return redis.call('SET', KEYS[1], '1')\" 1 k",
        "EVAL \"return redis.pcall('SET', KEYS[1], '1')\" 1 k",
        "EVAL \"redis.call('GETEX', KEYS[1]) return redis.call('SET', KEYS[1], '1')\" 1 k",
        "EVAL \"redis.call('GET', KEYS[1]) return redis.call('SET', KEYS[1], '1')\" 1 k",
        "CONFIG SET maxmemory 0",
        "SET k v",
        "ACL SETUSER default -publish -pubsub",
        "PUBLISH a b",
        "PUBSUB NUMSUB a",
        "EVAL \"return redis.call('PUBLISH', 'a', 'b')\" 0",
        "EVAL \"return redis.pcall('PUBLISH', 'a', 'b')\" 0",
        "EVAL \"return redis.pcall('PUBSUB', 'NUMSUB', 'b')\" 0",
        "EVAL \"return redis.acl_check_cmd('publish', 'a', 'b')\" 0",
        "EVAL \"return redis.acl_check_cmd('get', 'a')\" 0",
        "EVAL \"return redis.acl_check_cmd('nosuch', 'a')\" 0",
        "ACL SETUSER default +publish +pubsub",
        "PUBLISH a b",
    ] {
        same_everywhere(&mut both, 1, 0, line);
    }
}

#[test]
fn what_is_not_simulated_is_listed() {
    let mut both = Both::simulated_alone(1);
    both.same(0, &command("GEOADD k 1 1 a"));
    both.same(0, &command("CONFIG REWRITE"));
    both.same(0, &command("EVAL \"return redis.pcall('BITCOUNT', 'k')\" 0"));
    assert_eq!(both.unknown(), ["GEOADD", "config REWRITE", "BITCOUNT"]);
}
