# SPDX-License-Identifier: MIT
"""MDM daemons on loopback ports that nobody uses, started and ended by pid, with bounded waits."""
import json
import os
import signal
import select
import socket
import subprocess
import time

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))
BIN = os.environ.get("ASHLAR_BIN", os.path.join(ROOT, "build", "bin"))


def free_ports(count):
    """Ports that were free a moment ago; all different."""
    socks = [socket.socket() for _ in range(count)]
    try:
        for s in socks:
            s.bind(("127.0.0.1", 0))
        return [s.getsockname()[1] for s in socks]
    finally:
        for s in socks:
            s.close()


def wait_until(what, seconds, test):
    """Asks again until test() is true, at most that long. What is waited for lives in other processes, which
    have nothing to wait on: a short pause lies between two questions."""
    end = time.monotonic() + seconds
    while not (last := test()):
        left = end - time.monotonic()
        if left <= 0:
            raise AssertionError(f"waited {seconds} s for {what}; last answer: {last!r}")
        select.select([], [], [], min(0.02, left))
    return last


def goes_on(proc, seconds):
    """The process runs for that long: it fails the moment it ends."""
    try:
        code = proc.wait(seconds)
    except subprocess.TimeoutExpired:
        return
    raise AssertionError(f"{proc.args[0]} ended with {code}: {proc.communicate()}")


class Mdm:
    def __init__(self, directory, name, tie_breaker=False):
        self.name, self.tie_breaker = name, tie_breaker
        self.state_dir = os.path.join(str(directory), name)
        self.run_dir = os.path.join(str(directory), "run")
        self.log_path = os.path.join(str(directory), name + ".log")
        self.port, self.raft_port = free_ports(2)
        self.proc = None

    @property
    def address(self):
        return f"127.0.0.1:{self.port}"

    @property
    def member(self):
        return f"{self.name}={self.address}/127.0.0.1:{self.raft_port}"

    def start(self, wait=True):
        argv = [f"{BIN}/ashlar-mdm", "--name", self.name, "--state-dir", self.state_dir, "--run-dir", self.run_dir,
                "--listen", self.address, "--raft", f"127.0.0.1:{self.raft_port}"]
        with open(self.log_path, "ab") as log:
            self.proc = subprocess.Popen(argv + (["--tie-breaker"] if self.tie_breaker else []),
                                         stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        if wait:
            wait_until(f"{self.name} to listen", 20, self.listens)

    def listens(self):
        assert self.proc.poll() is None, f"{self.name} ended with {self.proc.returncode}: {self.log()}"
        with socket.socket() as s:
            return s.connect_ex(("127.0.0.1", self.port)) == 0

    def log(self):
        with open(self.log_path, encoding="utf-8", errors="replace") as f:
            return f.read()[-3000:]

    def running(self):
        return self.proc is not None and self.proc.poll() is None

    def kill(self):
        if self.running():
            self.proc.kill()
        self.proc.wait(10)

    def stop(self, seconds=15):
        """Gracefully; returns the exit code."""
        if self.running():
            self.proc.send_signal(signal.SIGTERM)
        return self.proc.wait(seconds)


class Cluster:
    """1, 3 or 5 MDMs; of three the last is a tie-breaker."""

    def __init__(self, directory, count):
        self.mdms = [Mdm(directory, f"mdm{i + 1}", count > 1 and i >= count // 2 + 1) for i in range(count)]

    def start(self):
        for m in self.mdms:
            m.start(wait=False)
        for m in self.mdms:
            wait_until(f"{m.name} to listen", 20, m.listens)

    def create(self):
        argv = ["system", "create", "--name", "sys1"]
        for m in self.mdms:
            argv += ["--tb" if m.tie_breaker else "--mdm", m.member]
        return self.ashlar(*argv)

    def run(self, *argv, mdms=None, timeout=60):
        env = dict(os.environ, ASHLAR_MDM=mdms or ",".join(m.address for m in self.mdms))
        return subprocess.run([f"{BIN}/ashlar", *argv], env=env, capture_output=True, text=True, timeout=timeout)

    def ashlar(self, *argv, **how):
        p = self.run(*argv, "--json", **how)
        assert p.returncode == 0, f"ashlar {' '.join(argv)}: {p.returncode}: {p.stderr}"
        return json.loads(p.stdout) if p.stdout.strip() else {}

    def leader(self):
        """The MDM that leads, once one does."""
        def find():
            p = self.run("mdm", "list", "--json", "--timeout", "3")
            lead = [m["name"] for m in json.loads(p.stdout)["mdms"] if m["state"] == "leader"] if p.returncode == 0 else []
            return next((m for m in self.mdms if lead and m.name == lead[0]), None)
        return wait_until("a leader", 20, find)

    def end(self):
        for m in self.mdms:
            if m.running():
                m.kill()
