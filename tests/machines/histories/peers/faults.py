"""Runs each lock under each fault, and prints the verdicts.

DIRECTORY BINARIES [SECONDS [SCENARIO...]]
"""

import json
import os
import random
import re
import signal
import socket
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
WORKERS, TTL = 4, 1.0
KEY = "order:1"
SAVING = ["--appendonly", "yes", "--appendfsync", "always"]


class Server:
    def __init__(self, directory, saves):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self.url = f"redis://127.0.0.1:{self.port}"
        self.directory = os.path.join(directory, f"server-{self.port}")
        os.makedirs(self.directory)
        self.saves = saves
        self.start()

    def start(self):
        command = ["redis-server", "--port", str(self.port), "--bind", "127.0.0.1", "--save", ""]
        command += ["--dir", self.directory, "--logfile", "log"] + (SAVING if self.saves else [])
        self.process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        until = time.monotonic() + 10
        while time.monotonic() < until:
            try:
                with socket.create_connection(("127.0.0.1", self.port), 1) as connection:
                    connection.sendall(b"PING\r\n")
                    if connection.recv(5) == b"+PONG":
                        return
            except OSError:
                pass
            time.sleep(0.005)
        raise RuntimeError("redis-server does not start")

    def kill(self):
        self.process.kill()
        self.process.wait()

    def restart(self):
        """With its data if it saves them, else without."""
        self.kill()
        self.start()


class Run:
    def __init__(self, lock, scenario, directory, binaries):
        self.lock, self.binaries, self.directory = lock, binaries, directory
        nodes, saves = scenario.nodes, scenario.saves
        self.servers = [Server(directory, saves) for _ in range(nodes)]
        self.history = os.path.join(directory, f"{lock.name}-{scenario.name}.jsonl")
        open(self.history, "w").close()
        self.workers, self.started = {}, 0
        for _ in range(WORKERS):
            self.add()

    def add(self):
        name = f"worker-{self.started}"
        self.started += 1
        command = self.lock.command(self, [server.url for server in self.servers])
        command += [KEY, self.history, name, str(int(TTL * 1000))]
        self.workers[name] = subprocess.Popen(command, stdin=subprocess.PIPE, cwd=self.directory)

    def note(self, function, process="nemesis"):
        entry = {"type": "info", "f": function, "process": process, "time": time.monotonic_ns()}
        with open(self.history, "a") as history:
            history.write(json.dumps(entry) + "\n")

    def holder(self):
        """A worker that works under the lock now."""
        until = time.monotonic() + 3
        while time.monotonic() < until:
            with open(self.history, "rb") as history:
                history.seek(max(0, os.path.getsize(self.history) - 8_000))
                lines = history.read().splitlines()[1:]
            last = {}
            for entry in map(json.loads, lines):
                last[entry["process"]] = (entry["f"], entry["type"])
            working = [("acquire", "ok"), ("use", "ok")]
            found = [name for name in self.workers if last.get(name) in working]
            if found:
                return random.choice(found)
            time.sleep(0.003)
        return random.choice(list(self.workers))

    def end(self):
        for worker in self.workers.values():
            worker.stdin.close()
        for worker in self.workers.values():
            try:
                worker.wait(5)
            except subprocess.TimeoutExpired:
                worker.kill()
                worker.wait()
        for server in self.servers:
            server.kill()


def frozen(run, nth):
    """The holder is stopped for longer than its lease."""
    worker = run.workers[run.holder()]
    run.note("stop-process")
    worker.send_signal(signal.SIGSTOP)
    time.sleep(1.7 * TTL)
    worker.send_signal(signal.SIGCONT)


def killed(run, nth):
    """The holder dies, and another process comes."""
    name = run.holder()
    worker = run.workers.pop(name)
    worker.kill()
    worker.wait()
    run.note("kill", name)
    run.add()


def restarted(run, nth):
    """A server is killed and comes back, with its data or without."""
    run.holder()
    run.note("restart-server")
    run.servers[nth % len(run.servers)].restart()


def node_stopped(run, nth):
    """A node does not answer for longer than a lease."""
    node = run.servers[nth % len(run.servers)].process
    run.note("stop-node")
    node.send_signal(signal.SIGSTOP)
    time.sleep(1.3 * TTL)
    node.send_signal(signal.SIGCONT)


def nodes_forget(run, nth):
    """Nodes come back empty, one shortly after the other."""
    for node in (nth, nth + 1):
        restarted(run, node)
        time.sleep(0.02)


class Scenario:
    def __init__(self, name, fault, nodes=1, saves=True, pause=0.4):
        self.name, self.fault, self.nodes, self.saves = name, fault, nodes, saves
        self.pause = pause


SCENARIOS = [
    Scenario("frozen-holder", frozen),
    Scenario("killed-holder", killed),
    Scenario("server-restarted", restarted),
    Scenario("server-forgets", restarted, saves=False),
    Scenario("redlock-frozen-holder", frozen, nodes=3),
    Scenario("redlock-node-stopped", node_stopped, nodes=3),
    Scenario("redlock-nodes-restarted", restarted, nodes=3),
    Scenario("redlock-nodes-forget", nodes_forget, nodes=3, saves=False, pause=2.5),
]


class Lock:
    def __init__(self, name, command, redlock=True):
        self.name, self.command, self.redlock = name, command, redlock


def lockmacro(run, urls):
    url = urls[0]
    if len(urls) > 1:
        nodes = ",".join(url.removeprefix("redis://") for url in urls)
        url = f"redlock://{nodes}?longest_ttl=1s"
    return [os.path.join(run.binaries, "peer-worker"), url]


def redis_py(run, urls):
    return [sys.executable, os.path.join(HERE, "redis_py_worker.py"), urls[0]]


def redlock(style):
    return lambda run, urls: ["node", "redlock_worker.js", style, ",".join(urls)]


LOCKS = [
    Lock("lockmacro", lockmacro),
    Lock("redis-py", redis_py, redlock=False),
    Lock("redlock-4", redlock("lock")),
    Lock("redlock-5-using", redlock("using")),
]


def of_fences(history):
    """Steps that a resource which checks fences would have refused; None without fences."""
    largest, refused = 0, 0
    with open(history) as lines:
        for entry in sorted(map(json.loads, lines), key=lambda entry: entry["time"]):
            if entry["f"] != "use":
                continue
            fence = entry["value"].get("fence")
            if fence is None:
                return None
            refused += fence < largest
            largest = max(largest, fence)
    return refused


def main(directory, binaries, seconds="15", *names):
    check = os.path.join(binaries, "lockmacro-check")
    scenarios = [scenario for scenario in SCENARIOS if not names or scenario.name in names]
    rows = []
    for scenario in scenarios:
        for lock in LOCKS:
            if scenario.nodes > 1 and not lock.redlock:
                continue
            run = Run(lock, scenario, directory, binaries)
            try:
                time.sleep(2 * TTL)
                end, nth = time.monotonic() + float(seconds), 0
                while time.monotonic() < end:
                    scenario.fault(run, nth)
                    nth += 1
                    time.sleep(scenario.pause + random.random() / 4)
            finally:
                run.end()
            told = subprocess.run([check, run.history], capture_output=True, text=True)
            text = told.stdout + told.stderr
            print(f"== {scenario.name}, {lock.name}, {nth} faults: {text}", flush=True)
            first = text.splitlines()[0]
            grants = re.search(r"(\d+) grants", first)
            overlaps = re.search(r"(\d+) overlaps", first)
            rows.append([
                scenario.name, lock.name, nth, first.split(":")[0],
                grants[1] if grants else "-", overlaps[1] if overlaps else "0",
                "-" if (refused := of_fences(run.history)) is None else refused,
            ])
    print("| fault | lock | faults | verdict | grants | overlaps | refused by fence |")
    print("|---|---|---|---|---|---|---|")
    for row in rows:
        print("| " + " | ".join(map(str, row)) + " |")


main(*sys.argv[1:])
