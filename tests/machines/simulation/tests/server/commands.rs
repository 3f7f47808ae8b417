//! Each command on data, with its odd cases.

use super::lines::same_replies;

/// A time in milliseconds that no test reaches.
const LATER: &str = "4102444800000";

#[test]
fn strings() {
    same_replies(&[
        "GET k | SET k v | set k v NX | SET k w XX | GET k | SET none x XX | SET k x NX XX",
        "SET k x PX | SET k x PX 0 | SET k x PX -1 | SET k x PX 9223372036854775807",
        "SET k x PX a | SET k x PX 1 PX 1 | SET k x BAD | GET k",
        "SET k y PX 900 | PTTL k | SET k y | PEXPIRETIME k | SET k y XX PX 900 | PTTL k",
        "SET | SET k | GET | GET k k | GETEX k | PTTL k | GETEX none",
        "SET k 0123456789 | GETRANGE k 0 3 | GETRANGE k -3 -1 | GETRANGE k 3 1 | GETRANGE k -1 -3",
        "GETRANGE k 0 100 | GETRANGE k -100 2 | GETRANGE k 20 30 | GETRANGE none 0 1",
        "GETRANGE k a 1",
        "LPUSH l a | GET l | GETEX l | GETRANGE l 0 1 | SET l x NX | SET l x | TYPE l",
        "SET \"\" \"\" | GET \"\" | SET bytes \"a\\r\\nb\\xff\" | GET bytes",
    ]);
}

#[test]
fn keys_and_when_they_expire() {
    same_replies(&[
        "SET a 1 | SET b 1 | DEL a b none | DEL | SET a 1 | EXISTS a a none",
        "TYPE a | TYPE none | PTTL a | PTTL none | PEXPIRETIME none",
        "PEXPIRE none 1000 | PEXPIRE a b | PEXPIRE none b",
        "PEXPIRE a 9223372036854775807 | PEXPIRE a -9223372036854775808",
        &format!("PEXPIREAT a {LATER} | PEXPIRETIME a | PEXPIREAT none {LATER}"),
        "PEXPIRE a 0 | EXISTS a | SET a 1 | PEXPIRE a -1 | EXISTS a",
        "SET a 1 | PEXPIREAT a -5 | EXISTS a | TIME",
        "SET a 1 PX 100 | SET b 1 PX 100 | PTTL a | wait 99 | PTTL a | wait 1 | PTTL a | GET a",
        "wait 1 | PTTL a | GET a | SET a 2 NX | DEL b",
        "wait 2000 | PEXPIRE a 1000 | TYPE a | DEL a | HSET a f 1 | PEXPIRE a 10 | wait 11",
        "HSET a g 1 | PTTL a | DEL a",
        "SET one 1 | KEYS * | KEYS o?e | KEYS [a-z]ne | KEYS [^o]ne | KEYS o\\\\ne | SCAN 0",
        "SCAN 0 MATCH x* COUNT 10 TYPE string | SCAN 0 MATCH o* COUNT 10 TYPE string",
        "SCAN 0 TYPE zset | SCAN a | SCAN 0 COUNT 0 | SCAN 0 COUNT a | SCAN 0 BAD",
        "FLUSHALL | KEYS *",
    ]);
}

#[test]
fn hashes() {
    same_replies(&[
        "HGET h a | HSET h a 1 b 2 | HSET h a 3 c 4 | HSET h a | HSET h a 1 b | HSET h",
        "HGET h a | HGET h none | HMGET h a none b | HMGET none a b | HMGET h",
        "HGETALL h | HGETALL none | HKEYS h | HEXISTS h a | HEXISTS h none | HEXISTS none a",
        "HSETNX h a 9 | HSETNX h d 9 | HDEL h a none | HDEL none a | HDEL h b c d new | EXISTS h",
        "SET s 1 | HGET s a | HSET s a 1 | HSETNX s a 1 | HMGET s a | HGETALL s | HEXISTS s a",
        "HDEL s a",
    ]);
}

#[test]
fn sorted_sets() {
    same_replies(&[
        "ZADD z 1 a 2 b | ZADD z 1 a 3 b | ZADD z 4 b 5 c | ZADD z NX 9 a 9 d | ZADD z XX 7 a 7 e",
        "ZADD z XX GT 6 a 8 c | ZADD z GT -inf x | ZSCORE z x | ZSCORE z c | ZSCORE z a",
        "ZADD none XX GT -inf \"\" | EXISTS none | ZADD z NX XX 1 a | ZADD z NX GT 1 a",
        "ZADD z 1 | ZADD z 1 a 2 | ZADD z a a | ZADD z nan a",
        "ZADD z 0.1 tenth 1e300 large -0.0 zero 1763870000123456 time",
        "ZSCORE z tenth | ZSCORE z large | ZSCORE z zero | ZSCORE z time | ZSCORE z none",
        "ZSCORE none a | ZRANGE z 0 -1 | ZRANGE z 0 -1 WITHSCORES | ZRANGE z 1 2 | ZRANGE z -2 -1",
        "ZRANGE z 5 2 | ZRANGE z 100 200 | ZRANGE z -100 0 | ZRANGE none 0 -1 | ZRANGE z a 1",
        "ZRANK z a | ZRANK z none | ZRANK none a | ZCARD z | ZCARD none",
        "ZCOUNT z -inf +inf | ZCOUNT z (1 5 | ZCOUNT z a 5",
        "ZRANGEBYSCORE z -inf 5 | ZRANGEBYSCORE z (1 (5 WITHSCORES",
        "ZRANGEBYSCORE z -inf +inf LIMIT 1 2 | ZRANGEBYSCORE z -inf +inf LIMIT 1 -1",
        "ZRANGEBYSCORE z -inf +inf LIMIT -1 2 | ZRANGEBYSCORE z -inf +inf WITHSCORES LIMIT 0 1",
        "ZRANGEBYSCORE z -inf +inf LIMIT 0 | ZRANGEBYSCORE z -inf +inf LIMIT a 1",
        "ZRANGEBYSCORE z -inf +inf BAD | ZRANGEBYSCORE z a 1 | ZRANGEBYSCORE none 0 1",
        "ZREMRANGEBYSCORE z 1e300 inf | ZREMRANGEBYSCORE none 0 1 | ZREMRANGEBYSCORE z a 1",
        "ZPOPMIN z | ZPOPMAX z | ZPOPMIN z 2 | ZPOPMIN z 0 | ZPOPMIN z -1 | ZPOPMIN z a",
        "ZPOPMIN z 1 2 | ZPOPMIN none | ZPOPMIN none 2 | ZREM z a none | ZREM none a",
        "ZPOPMAX z 100 | EXISTS z | ZADD same 1 b 1 a 1 c | ZRANGE same 0 -1 | ZRANK same c",
        "SET s 1 | ZADD s 1 a | ZADD s XX 0 \"\" | ZADD s a a | ZREM s a | ZCARD s | ZSCORE s a",
        "ZRANK s a | ZRANGE s 0 1 | ZRANGEBYSCORE s 0 1 | ZREMRANGEBYSCORE s 0 1 | ZCOUNT s 0 1",
        "ZPOPMIN s | ZPOPMIN s 1",
    ]);
}

#[test]
fn lists() {
    same_replies(&[
        "LPUSH l a b c | LRANGE l 0 -1 | LRANGE l 1 1 | LRANGE l 5 9 | LRANGE none 0 1 | DEL l",
        "SET t 1 | LPUSH t a | LRANGE t 0 1",
    ]);
}
