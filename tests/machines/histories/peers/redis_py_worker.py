"""A worker with redis-py's Lock: URL KEY HISTORY NAME TTL_MS, until its input ends."""

import json
import os
import sys
import threading
import time

import redis
from redis.lock import Lock

STEPS, STEP = 3, 0.02


def main(url, key, history, name, ttl):
    out = os.open(history, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    ttl = int(ttl)

    def note(kind, function, at=None, error=None, **value):
        at = at or time.monotonic_ns()
        entry = {"type": kind, "f": function, "value": {"key": key, **value}}
        entry |= {"process": name, "time": at}
        if error is not None:
            entry["error"] = repr(error)
        os.write(out, (json.dumps(entry) + "\n").encode())

    ended = threading.Event()
    threading.Thread(target=lambda: (sys.stdin.read(), ended.set()), daemon=True).start()
    client = redis.Redis.from_url(url, socket_timeout=1)
    while not ended.is_set():
        lock = Lock(client, key, timeout=ttl / 1000, sleep=0.01)
        note("invoke", "acquire")
        try:
            lock.acquire()
        except redis.RedisError as error:
            note("info", "acquire", error=error)
            time.sleep(0.05)
            continue
        # The library tells no end of the lease; the caller has asked for this one.
        at = time.monotonic_ns()
        note("ok", "acquire", at=at, until=at + ttl * 1_000_000)
        for _ in range(STEPS):
            time.sleep(STEP)
            note("ok", "use")
        note("invoke", "release")
        try:
            lock.release()
            note("ok", "release")
        except redis.RedisError as error:
            note("info", "release", error=error)


main(*sys.argv[1:])
