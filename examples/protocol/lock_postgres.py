import secrets, subprocess, time

# Rolled back, because somebody had locked a row: the call is repeated for so many seconds.
REPEATED = ("ERROR:  55P03", "ERROR:  40001", "ERROR:  40P01")
REPEATED_FOR = 5


def connect(url):
    psql = ["psql", "-qAtX", "-F", "\t", "-v", "VERBOSITY=sqlstate", url]
    pipe = subprocess.PIPE
    return subprocess.Popen(psql, stdin=pipe, stdout=pipe, stderr=subprocess.STDOUT, encoding="utf-8")


def quote(text):
    return "E'" + text.replace("\\", "\\\\").replace("'", "''") + "'"


def ask(db, statement):
    answer = REPEATED[0]
    end = time.monotonic() + REPEATED_FOR
    while answer in REPEATED and time.monotonic() < end:
        db.stdin.write(statement + ";\n")
        db.stdin.flush()
        line = db.stdout.readline()
        answer = line.rstrip("\n")
    if not line or answer.startswith(("ERROR:", "FATAL:", "WARNING:", "psql:", "server closed")):
        raise ConnectionError(answer or "psql has ended")
    return answer.split("\t")


def ask_and_push(db, column, call):
    done, channels, pushes = ask(db, f"SELECT {column}, channels, pushes FROM {call}")
    if pushes != "{}":  # the next holders wait for these
        each = f"unnest({quote(channels)}::text[], {quote(pushes)}::text[]) AS x(c, p)"
        ask(db, f"SELECT count(pg_notify(c, p)) FROM {each}")
    return done == "t"


def acquire(db, key, ttl_ms):
    token = "lock.py/" + secrets.token_hex(16)  # new for each acquisition
    request = f"ARRAY[{quote(key)}], {quote(token)}, {ttl_ms}, '{{1}}', false, NULL, NULL, 1, 0"
    return token if ask_and_push(db, "nth IS NULL", f"lm1.ask({request})") else None


def release(db, key, token):
    return ask_and_push(db, "held", f"lm1.release(ARRAY[{quote(key)}], {quote(token)}, 0)")


def renew(db, key, token, ttl_ms):
    renewals = f"ARRAY[{quote(key)}], ARRAY[{quote(token)}], ARRAY[{ttl_ms}]::bigint[]"
    return ask(db, f"SELECT (lm1.renew({renewals}))[1]") == ["t"]
