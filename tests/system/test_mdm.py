# SPDX-License-Identifier: MIT
"""MDM processes: creation of a system, fail-over, restarts, bad directories, garbage on the ports."""
import os
import random
import shutil
import socket
import subprocess
import sys

import pytest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from lib.cluster import BIN, Cluster, Mdm, free_ports, wait_until  # noqa: E402


@pytest.fixture
def make(tmp_path):
    made = []

    def cluster(count, create=True):
        c = Cluster(tmp_path, count)
        made.append(c)
        c.start()
        if create:
            c.create()
        return c
    yield cluster
    for c in made:
        c.end()


def domains(cluster):
    return [d["name"] for d in cluster.ashlar("protection-domain", "list")["protection_domains"]]


def add_objects(cluster):
    cluster.ashlar("protection-domain", "create", "--name", "pd1")
    cluster.ashlar("fault-set", "create", "--protection-domain", "pd1", "--name", "fs1")
    cluster.ashlar("sds", "add", "--name", "sds1", "--protection-domain", "pd1", "--fault-set", "fs1",
                   "--address", "127.0.0.1:7072")
    cluster.ashlar("pool", "create", "--protection-domain", "pd1", "--name", "pool1", "--pg-count", "64")
    cluster.ashlar("sdc", "add", "--name", "sdc1", "--guid", "5b0e7b3e-9f3c-4c59-9d6e-0d1f6a4b8c21")


@pytest.mark.parametrize("count", [1, 3])
def test_state_survives_graceful_and_hard_restarts(make, count):
    c = make(count)
    add_objects(c)
    for m in c.mdms:
        assert m.stop() == 0, m.log()
    c.start()
    assert domains(c) == ["pd1"]
    # Names of odd lengths: entries of the log must come back whatever their size.
    names = ["p" * n for n in range(1, 18)]
    for n in names:
        c.ashlar("protection-domain", "create", "--name", n)
    for m in c.mdms:
        m.kill()
    c.start()
    assert sorted(domains(c)) == sorted(["pd1"] + names)
    assert c.ashlar("pool", "list")["pools"][0]["name"] == "pool1"


def test_another_mdm_leads_when_the_leader_is_killed(make):
    c = make(3)
    add_objects(c)
    for turn in range(3):
        old = c.leader()
        assert not old.tie_breaker
        old.kill()
        c.ashlar("protection-domain", "create", "--name", f"after{turn}")
        new = c.leader()
        assert new is not old and not new.tie_breaker
        old.start()
        wait_until("the killed one to catch up", 20, lambda: all(
            m["reachable"] for m in c.ashlar("mdm", "list")["mdms"]))
    assert [f"after{t}" for t in range(3)] == [d for d in domains(c) if d.startswith("after")]


def test_no_change_without_a_majority(make):
    c = make(3)
    for m in c.mdms[1:]:
        m.kill()
    # The survivor may have led: the first change then ends unknown. Later ones find no leader.
    p = c.run("protection-domain", "create", "--name", "pd1", "--timeout", "3")
    assert p.returncode == 3, p.stderr
    p = c.run("protection-domain", "create", "--name", "pd1", "--timeout", "3")
    assert p.returncode == 3, p.stderr
    assert all(m.address in p.stderr for m in c.mdms), p.stderr
    c.mdms[1].start()
    c.leader()
    c.ashlar("protection-domain", "create", "--name", "pd2")


def test_the_tie_breaker_never_serves(make):
    c = make(3)
    p = c.run("protection-domain", "create", "--name", "pd1", "--timeout", "2", mdms=c.mdms[2].address)
    assert p.returncode in (0, 3)  # it names the leader, or nobody: it does not do it itself
    c.mdms[0].kill()
    c.mdms[1].kill()
    p = c.run("protection-domain", "create", "--name", "pd2", "--timeout", "2")
    assert p.returncode == 3


def test_creation_needs_every_mdm_and_may_be_repeated(make):
    c = make(3, create=False)
    c.mdms[1].kill()
    argv = ["system", "create", "--name", "sys1", "--timeout", "4", "--mdm", c.mdms[0].member, "--mdm", c.mdms[1].member,
            "--tb", c.mdms[2].member]
    assert c.run(*argv).returncode == 3
    c.mdms[1].start()
    c.create()
    add_objects(c)
    p = c.run("system", "create", "--name", "other", "--timeout", "4", "--mdm", c.mdms[0].member)
    assert p.returncode == 1 and "sys1" in p.stderr, p.stderr


def test_uninitialised_says_what_to_do(make):
    c = make(1, create=False)
    p = c.run("status", "--timeout", "2")
    assert p.returncode == 3 and "uninitialised" in p.stderr, p.stderr


def refused(argv):
    p = subprocess.run([f"{BIN}/ashlar-mdm", *argv], capture_output=True, text=True, timeout=20)
    return p.returncode, p.stderr


def test_bad_state_directory(tmp_path):
    blocked = tmp_path / "file"
    blocked.write_text("not a directory")
    client, raft = free_ports(2)
    addresses = ["--listen", f"127.0.0.1:{client}", "--raft", f"127.0.0.1:{raft}", "--run-dir", str(tmp_path / "run")]
    code, said = refused(["--name", "m", "--state-dir", str(blocked / "mdm"), *addresses])
    assert code == 1 and str(blocked) in said and "--state-dir" in said
    m = Mdm(tmp_path, "mdm1")
    m.start()
    try:
        code, said = refused(["--name", "m", "--state-dir", m.state_dir, *addresses])
        assert code == 1 and "in use" in said
    finally:
        assert m.stop() == 0


@pytest.mark.parametrize("argv,word", [
    ([], "--name"), (["--name", "m"], "--listen"), (["--bogus"], "--help"),
    (["--name", "m", "--listen", "nonsense:x", "--raft", "127.0.0.1"], "nonsense"),
    (["--name", "-", "--listen", "127.0.0.1", "--raft", "127.0.0.1"], "MDM"),
])
def test_usage(argv, word):
    code, said = refused(argv)
    assert code == 2 and word in said


def test_garbage_on_both_ports(make):
    c = make(3)
    rng = random.Random(7)
    for m in c.mdms:
        for port in (m.port, m.raft_port):
            for _ in range(20):
                with socket.create_connection(("127.0.0.1", port), timeout=5) as s:
                    try:
                        s.sendall(rng.randbytes(rng.choice([1, 16, 300, 5000])))
                    except OSError:
                        pass  # it hung up already
    c.ashlar("protection-domain", "create", "--name", "pd1")
    assert all(m.running() for m in c.mdms)
    assert domains(c) == ["pd1"]


def test_a_damaged_log_is_not_repaired_silently(make):
    c = make(3)
    add_objects(c)
    m = next(x for x in c.mdms if not x.tie_breaker and x is not c.leader())
    assert m.stop() == 0
    raft = os.path.join(m.state_dir, "raft")
    segment = sorted(f for f in os.listdir(raft) if f.startswith("0"))[-1]
    with open(os.path.join(raft, segment), "r+b") as f:
        f.seek(-8, os.SEEK_END)
        f.write(b"\xff" * 8)
    m.start(wait=False)
    assert m.proc.wait(20) == 1
    assert "damaged" in m.log()
    assert domains(c) == ["pd1"]


@pytest.mark.parametrize("lost", ["all of it", "all but term and vote"])
def test_a_lost_log_is_not_begun_anew(make, lost):
    """Without its log an MDM would forget what it has promised; alone it would begin an empty system of the same name."""
    c = make(1)
    m = c.mdms[0]
    add_objects(c)
    assert m.stop() == 0
    log, kept = os.path.join(m.state_dir, "raft"), os.path.join(m.state_dir, "kept")
    shutil.copytree(log, kept)
    for name in os.listdir(log):
        if lost == "all of it" or not name.startswith("metadata"):
            os.unlink(os.path.join(log, name))
    if lost == "all of it":
        os.rmdir(log)
    m.start(wait=False)
    assert m.proc.wait(20) == 1
    assert log in m.log() and "is gone" in m.log(), m.log()
    shutil.rmtree(log, ignore_errors=True)
    os.rename(kept, log)
    m.start()
    assert domains(c) == ["pd1"]


def test_members_come_and_go_and_hand_on(make, tmp_path):
    c = make(3)
    add_objects(c)
    old = c.leader()
    c.ashlar("mdm", "transfer")
    assert c.leader() is not old
    new = Mdm(tmp_path, "mdm4")
    new.start()
    c.mdms.append(new)
    c.ashlar("mdm", "add", "--name", "mdm4", "--address", new.address, "--raft", f"127.0.0.1:{new.raft_port}")
    assert len(c.ashlar("mdm", "list")["mdms"]) == 4
    c.ashlar("mdm", "transfer", "--to", "mdm4")
    assert c.leader() is new
    assert domains(c) == ["pd1"]
    p = c.run("mdm", "remove", "--name", "mdm4")
    assert p.returncode == 1 and "transfer" in p.stderr
    c.ashlar("mdm", "remove", "--name", old.name)
    assert old.name not in [m["name"] for m in c.ashlar("mdm", "list")["mdms"]]
    assert new.stop() == 0
    new.start()
    assert domains(c) == ["pd1"]
