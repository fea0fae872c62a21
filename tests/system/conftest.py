# SPDX-License-Identifier: MIT
"""Fixtures: a dev cluster of real daemons, NBD servers, and bounded waits."""
import json
import os
import signal
import socket
import subprocess
import time

import pytest

from lib.cluster import wait_until

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BIN = os.environ.get("ASHLAR_BIN", os.path.join(ROOT, "build", "bin"))
DEVCLUSTER = os.path.join(ROOT, "deploy", "devcluster")
# The full lengths that the documents quote; the default is what a test command can afford.
LONG = os.environ.get("ASHLAR_TEST_LONG") == "1"


class Nbd:
    """One `ashlar nbd` in the foreground of a process of its own."""

    def __init__(self, cluster, volume, socket_path, log):
        self.volume, self.socket = volume, socket_path
        self.log = open(log, "ab")
        self.proc = subprocess.Popen([f"{BIN}/ashlar", "nbd", "--volume", volume, "--socket", socket_path],
                                     env=cluster.env, stdout=self.log, stderr=self.log)
        wait_until(f"the NBD socket of {volume}", 30, self.ready)

    def ready(self):
        assert self.proc.poll() is None, f"ashlar nbd ended with {self.proc.returncode}; log: {self.log.name}"
        with socket.socket(socket.AF_UNIX) as s:
            return s.connect_ex(self.socket) == 0

    @property
    def uri(self):
        return f"nbd+unix:///{self.volume}?socket={self.socket}"

    def stop(self):
        if self.proc.poll() is None:
            self.proc.send_signal(signal.SIGTERM)
        assert self.proc.wait(30) == 0
        self.log.close()


class DevCluster:
    def __init__(self, directory, *options):
        self.dir = str(directory)
        self.logs = os.path.join(self.dir, "..", "logs")
        os.makedirs(self.logs, exist_ok=True)
        self.servers = []
        self.control("up", "--bin", BIN, *options)
        out = self.control("env")
        self.env = dict(os.environ)
        for line in out.splitlines():
            key, value = line.removeprefix("export ").split("=", 1)
            self.env[key] = value if key != "PATH" else f"{BIN}:{os.environ['PATH']}"

    def control(self, verb, *args, timeout=240):
        p = subprocess.run([DEVCLUSTER, verb, "--dir", self.dir, *args], capture_output=True, text=True, timeout=timeout)
        assert p.returncode == 0, f"devcluster {verb} {' '.join(args)}: {p.stderr}"
        return p.stdout

    def run(self, *args, timeout=60, program="ashlar"):
        return subprocess.run([f"{BIN}/{program}", *args], env=self.env, capture_output=True, text=True, timeout=timeout)

    def ashlar(self, *args, timeout=60):
        p = self.run(*args, "--json", timeout=timeout)
        assert p.returncode == 0, f"ashlar {' '.join(args)}: {p.stderr}{p.stdout}"
        return json.loads(p.stdout) if p.stdout.strip() else {}

    def status(self):
        return self.ashlar("status")

    def volume(self, name, size, *options):
        self.ashlar("volume", "create", "--pool", "pool1", "--name", name, "--size", size, *options)
        self.ashlar("volume", "map", "--volume", name, "--sdc", "sdc1")

    def allocated(self, name):
        for v in self.ashlar("volume", "list")["volumes"]:
            if v["name"] == name:
                return v["allocated_bytes"]
        pytest.fail(f"volume {name} is not listed")

    def nbd(self, volume):
        s = Nbd(self, volume, os.path.join(self.logs, f"{volume}.sock"), os.path.join(self.logs, f"nbd-{volume}.log"))
        self.servers.append(s)
        return s

    def data(self):
        with open(os.path.join(self.dir, "cluster.json"), encoding="utf-8") as f:
            return json.load(f)

    def wait_in_sync(self, seconds=120):
        def healthy():
            s = self.status()
            return s["degraded_pgs"] == 0 and s["failed_pgs"] == 0 and s["pgs"] > 0
        wait_until("every PG to be in sync", seconds, healthy)

    def down(self):
        for s in self.servers:
            if s.proc.poll() is None:
                s.proc.kill()
                s.proc.wait(10)
        self.control("down", "--keep")


@pytest.fixture
def make_cluster(tmp_path):
    """Function that starts dev clusters; they end with the test."""
    made = []

    def make(*options):
        cluster = DevCluster(tmp_path / f"cluster{len(made)}", *options)
        made.append(cluster)
        return cluster
    yield make
    for cluster in made:
        cluster.down()


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    """One healthy cluster shared by the tests of a file: 2 MDM + TB, 4 SDS in 4 fault sets."""
    c = DevCluster(tmp_path_factory.mktemp("shared") / "cluster", "--device-size", "16GiB")  # sparse files
    yield c
    c.down()
