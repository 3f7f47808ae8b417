//! Each command, with its odd cases.

use super::both::Both;
use super::lines::{command, same_everywhere, same_replies};

/// A time in milliseconds that no test reaches.
const LATER: &str = "4102444800000";

#[test]
fn strings() {
    same_replies(&[
        "GET k",
        "SET k v",
        "set k v NX",
        "SET k w XX",
        "GET k",
        "SET k x GET",
        "SET none x XX GET",
        "SET none x XX",
        "SET k x NX GET",
        "SET k x NX XX",
        "SET k x PX",
        "SET k x PX 0",
        "SET k x PX -1",
        "SET k x EX 9223372036854775807",
        "SET k x PX 9223372036854775807",
        "SET k x PX a",
        "SET k x PX 1 EX 1",
        "SET k x PX 1 KEEPTTL",
        "SET k x BAD",
        "SET k x PXAT 1",
        "GET k",
        &format!("SET k x PXAT {LATER}"),
        "PEXPIRETIME k",
        "EXPIRETIME k",
        "SET k y KEEPTTL",
        "PEXPIRETIME k",
        "SET k y",
        "PEXPIRETIME k",
        "SET",
        "SET k",
        "GET",
        "GET k k",
        "GETEX k",
        "GETEX none",
        &format!("GETEX k PXAT {LATER}"),
        "PEXPIRETIME k",
        "GETEX k",
        "PEXPIRETIME k",
        "GETEX k PERSIST",
        "PEXPIRETIME k",
        "GETEX k PX",
        "GETEX k PX 0",
        "GETEX k PX a",
        "GETEX k BAD",
        "GETEX k PERSIST 1",
        "GETEX k PXAT 1",
        "GET k",
        "SET k 0123456789",
        "GETRANGE k 0 3",
        "GETRANGE k -3 -1",
        "GETRANGE k 3 1",
        "GETRANGE k -1 -3",
        "GETRANGE k 0 100",
        "GETRANGE k -100 2",
        "GETRANGE k 20 30",
        "GETRANGE none 0 1",
        "GETRANGE k a 1",
        "STRLEN k",
        "STRLEN none",
        "GETDEL k",
        "GETDEL k",
        "INCR n",
        "INCRBY n 41",
        "INCRBY n a",
        "INCRBY n 9223372036854775807",
        "SET n a",
        "INCR n",
        "APPEND n b",
        "MGET n none n",
        "LPUSH l a",
        "GET l",
        "GETEX l",
        "GETEX l PXAT a",
        "GETDEL l",
        "GETRANGE l 0 1",
        "STRLEN l",
        "INCR l",
        "APPEND l a",
        "MGET l n",
        "SET l x NX",
        "SET l x NX GET",
        "SET l x GET",
        "SET l x",
        "TYPE l",
        "SET \"\" \"\"",
        "GET \"\"",
        "SET bytes \"a\\r\\nb\\xff\"",
        "GET bytes",
    ]);
}

#[test]
fn keys_and_when_they_expire() {
    same_replies(&[
        "SET a 1",
        "SET b 1",
        "DEL a b none",
        "DEL",
        "UNLINK a",
        "SET a 1",
        "EXISTS a a none",
        "TYPE a",
        "TYPE none",
        "TTL a",
        "PTTL a",
        "TTL none",
        "PTTL none",
        "PEXPIRETIME none",
        "PEXPIRE none 1000",
        "PEXPIRE a b",
        "PEXPIRE none b",
        "PEXPIRE a 9223372036854775807",
        "PEXPIRE a -9223372036854775808",
        "EXPIRE a 9223372036854775807",
        "PEXPIRE a 1 BAD",
        "PEXPIRE a 1 NX XX",
        "PEXPIRE a 1 NX GT",
        "PEXPIRE a 1 GT LT",
        "PEXPIRE a 100000 GT",
        "PTTL a",
        "PEXPIRE a 100000 XX",
        "PTTL a",
        &format!("PEXPIREAT a {LATER} LT"),
        "PEXPIRETIME a",
        &format!("PEXPIREAT a {LATER} LT"),
        &format!("PEXPIREAT a {LATER} GT"),
        &format!("PEXPIREAT a {LATER} NX"),
        &format!("PEXPIREAT a {LATER} XX"),
        "EXPIREAT a 4102444801 GT",
        "PEXPIRETIME a",
        "PERSIST a",
        "PERSIST a",
        "PERSIST none",
        "PTTL a",
        "EXPIRE a 100",
        "TTL a",
        "PEXPIRE a 0",
        "EXISTS a",
        "SET a 1",
        "PEXPIRE a -1",
        "EXISTS a",
        "SET a 1",
        "PEXPIREAT a -5",
        "EXISTS a",
        "TIME",
        "SET a 1 PX 100",
        "SET b 1 PX 100",
        "PTTL a",
        "wait 99",
        "PTTL a",
        "wait 1",
        "PTTL a",
        "TTL a",
        "GET a",
        "wait 1",
        "PTTL a",
        "GET a",
        "SET a 2 NX",
        "DEL b",
        "SET a 1 PX 1700",
        "TTL a",
        "wait 300",
        "TTL a",
        "EXPIRETIME a",
        "PEXPIRETIME a",
        "wait 2000",
        "PEXPIRE a 1000",
        "TYPE a",
        "HSET a f 1",
        "PEXPIRE a 10",
        "wait 11",
        "HSET a g 1",
        "PTTL a",
        "DEL a",
        "SET one 1",
        "KEYS *",
        "KEYS o?e",
        "KEYS [a-z]ne",
        "KEYS [^o]ne",
        "KEYS o\\\\ne",
        "SCAN 0",
        "SCAN 0 MATCH x* COUNT 10 TYPE string",
        "SCAN 0 MATCH o* COUNT 10 TYPE string",
        "SCAN 0 TYPE zset",
        "SCAN a",
        "SCAN 0 COUNT 0",
        "SCAN 0 COUNT a",
        "SCAN 0 BAD",
        "DBSIZE",
        "FLUSHALL BAD",
        "FLUSHALL ASYNC",
        "DBSIZE",
        "FLUSHDB",
    ]);
}

#[test]
fn hashes() {
    same_replies(&[
        "HGET h a",
        "HSET h a 1 b 2",
        "HSET h a 3 c 4",
        "HSET h a",
        "HSET h a 1 b",
        "HSET h",
        "HGET h a",
        "HGET h none",
        "HMGET h a none b",
        "HMGET none a b",
        "HMGET h",
        "HGETALL h",
        "HGETALL none",
        "HKEYS h",
        "HVALS h",
        "HEXISTS h a",
        "HEXISTS h none",
        "HEXISTS none a",
        "HLEN h",
        "HLEN none",
        "HSETNX h a 9",
        "HSETNX h d 9",
        "HINCRBY h a 5",
        "HINCRBY h new 5",
        "HINCRBY h a 9223372036854775807",
        "HSET h a text",
        "HINCRBY h a 5",
        "HINCRBY h a b",
        "HDEL h a none",
        "HDEL none a",
        "HDEL h b c d new",
        "EXISTS h",
        "SET s 1",
        "HGET s a",
        "HSET s a 1",
        "HSETNX s a 1",
        "HMGET s a",
        "HGETALL s",
        "HEXISTS s a",
        "HDEL s a",
        "HLEN s",
        "HINCRBY s a 1",
    ]);
}

#[test]
fn sorted_sets() {
    same_replies(&[
        "ZADD z 1 a 2 b",
        "ZADD z 1 a 3 b",
        "ZADD z CH 1 a 4 b 5 c",
        "ZADD z NX 9 a 9 d",
        "ZADD z XX 7 a 7 e",
        "ZADD z XX CH GT 6 a 8 c",
        "ZADD z XX CH LT 9 a 1 c",
        "ZADD z GT -inf x",
        "ZSCORE z x",
        "ZADD none XX GT -inf \"\"",
        "EXISTS none",
        "ZADD z NX XX 1 a",
        "ZADD z GT LT 1 a",
        "ZADD z NX GT 1 a",
        "ZADD z INCR 1 a",
        "ZADD z INCR 1 a 2 b",
        "ZADD z NX INCR 1 a",
        "ZADD none XX INCR 1 a",
        "ZADD z INCR inf x",
        "ZADD z 1",
        "ZADD z 1 a 2",
        "ZADD z a a",
        "ZADD z nan a",
        "ZADD z 0.1 tenth 1e300 large -0.0 zero 1763870000123456 time",
        "ZSCORE z tenth",
        "ZSCORE z large",
        "ZSCORE z zero",
        "ZSCORE z time",
        "ZSCORE z none",
        "ZSCORE none a",
        "ZRANGE z 0 -1",
        "ZRANGE z 0 -1 WITHSCORES",
        "ZRANGE z 1 2",
        "ZRANGE z -2 -1",
        "ZRANGE z 5 2",
        "ZRANGE z 100 200",
        "ZRANGE z -100 0",
        "ZRANGE none 0 -1",
        "ZRANGE z a 1",
        "ZRANK z a",
        "ZRANK z none",
        "ZRANK none a",
        "ZCARD z",
        "ZCARD none",
        "ZCOUNT z -inf +inf",
        "ZCOUNT z (1 5",
        "ZCOUNT z a 5",
        "ZRANGEBYSCORE z -inf 5",
        "ZRANGEBYSCORE z (1 (5 WITHSCORES",
        "ZRANGEBYSCORE z -inf +inf LIMIT 1 2",
        "ZRANGEBYSCORE z -inf +inf LIMIT 1 -1",
        "ZRANGEBYSCORE z -inf +inf LIMIT -1 2",
        "ZRANGEBYSCORE z -inf +inf WITHSCORES LIMIT 0 1",
        "ZRANGEBYSCORE z -inf +inf LIMIT 0",
        "ZRANGEBYSCORE z -inf +inf LIMIT a 1",
        "ZRANGEBYSCORE z -inf +inf BAD",
        "ZRANGEBYSCORE z a 1",
        "ZRANGEBYSCORE none 0 1",
        "ZREMRANGEBYSCORE z 1e300 inf",
        "ZREMRANGEBYSCORE none 0 1",
        "ZREMRANGEBYSCORE z a 1",
        "ZPOPMIN z",
        "ZPOPMAX z",
        "ZPOPMIN z 2",
        "ZPOPMIN z 0",
        "ZPOPMIN z -1",
        "ZPOPMIN z a",
        "ZPOPMIN z 1 2",
        "ZPOPMIN none",
        "ZPOPMIN none 2",
        "ZREM z a none",
        "ZREM none a",
        "ZPOPMAX z 100",
        "EXISTS z",
        "ZADD same 1 b 1 a 1 c",
        "ZRANGE same 0 -1",
        "ZRANK same c",
        "SET s 1",
        "ZADD s 1 a",
        "ZADD s XX 0 \"\"",
        "ZADD s a a",
        "ZREM s a",
        "ZCARD s",
        "ZSCORE s a",
        "ZRANK s a",
        "ZRANGE s 0 1",
        "ZRANGEBYSCORE s 0 1",
        "ZREMRANGEBYSCORE s 0 1",
        "ZCOUNT s 0 1",
        "ZPOPMIN s",
        "ZPOPMIN s 1",
    ]);
}

#[test]
fn lists_and_sets() {
    same_replies(&[
        "LPUSH l a b",
        "RPUSH l c",
        "LLEN l",
        "LLEN none",
        "LRANGE l 0 -1",
        "LRANGE l 1 1",
        "LRANGE l 5 9",
        "LRANGE none 0 1",
        "SADD s a",
        "SADD s a b",
        "SCARD s",
        "SISMEMBER s a",
        "SISMEMBER s none",
        "SREM s b none",
        "SMEMBERS s",
        "SREM s a",
        "SMEMBERS s",
        "EXISTS s",
        "SADD l a",
        "SCARD l",
        "SREM l a",
        "SET t 1",
        "LPUSH t a",
        "LLEN t",
        "LRANGE t 0 1",
    ]);
}

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
