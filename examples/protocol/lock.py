import secrets, socket

RELEASE = "if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end return 0"


def ask(server, *words):
    words = [str(word).encode() for word in words]
    server.sendall(b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%s\r\n" % (len(w), w) for w in words))
    return server.makefile("rb").readline().strip()


def acquire(server, key, ttl_ms):
    token = secrets.token_hex(16)  # new for each acquisition
    answer = ask(server, "SET", key, token, "NX", "PX", ttl_ms)
    return token if answer == b"+OK" else None


def release(server, key, token):
    return ask(server, "EVAL", RELEASE, 1, key, token) == b":1"
