# SPDX-License-Identifier: MIT
"""Daemons are killed under verified load: no error, no wrong block, nothing acknowledged is lost."""
import filecmp
import json
import os
import signal
import subprocess
import threading
import time

from conftest import BIN, LONG
from lib.cluster import goes_on, wait_until


DATA = "1"  # state of a block, as ashlar-store-dump prints it


def fio(server, seconds):
    argv = ["fio", "--name=v", "--ioengine=nbd", f"--uri={server.uri}", "--rw=randrw", "--bsrange=512-1m", "--bs_unaligned=0",
            "--blockalign=512", "--iodepth=32", "--size=192m", "--verify=crc32c", "--verify_fatal=1", "--verify_backlog=1024",
            "--verify_state_save=0", "--time_based", f"--runtime={seconds}", "--output-format=json", "--randrepeat=0", "--norandommap=0"]
    return subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def lose_and_return(cluster, victim, load):
    """The server dies under the load, is noticed, stays away while I/O goes on, and comes back up to date."""
    cluster.control("kill", victim)
    wait_until(f"the loss of {victim} to be noticed", 10, lambda: cluster.status()["degraded_pgs"] > 0)
    goes_on(load, 3)
    cluster.control("start", victim)
    cluster.wait_in_sync(60)


def test_fio_verify_while_servers_die(cluster):
    """One server at a time is killed while fio writes and verifies; it stays away for a while and returns."""
    seconds = 120 if LONG else 30
    cluster.volume("fio", "256MiB")
    server = cluster.nbd("fio")
    load = fio(server, seconds)
    start = time.monotonic()
    victims = ["sds2", "sds4"] if not LONG else ["sds1", "sds2", "sds3", "sds4"]
    for victim in victims:
        goes_on(load, seconds / (len(victims) * 2 + 1))
        lose_and_return(cluster, victim, load)
    out, err = load.communicate(timeout=seconds * 4 + 60)
    assert load.returncode == 0, f"after {time.monotonic() - start:.0f} s: {err} {out[-2000:]}"
    job = json.loads(out[out.index("{"):])["jobs"][0]
    assert job["error"] == 0 and job["write"]["total_ios"] > 100 and job["read"]["total_ios"] > 100
    server.stop()


def test_mixed_operations_against_a_model(cluster):
    """Overlapping writes, trims, zeroes, FUA and flushes through libnbd against a model, a server killed in the middle."""
    cluster.volume("model", "128MiB")
    server = cluster.nbd("model")
    seconds = 120 if LONG else 20
    check = subprocess.Popen([f"{BIN}/ashlar-nbd-check", "--uri", server.uri, "--seconds", str(seconds), "--seed", "11"],
                             stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    goes_on(check, seconds / 4)
    lose_and_return(cluster, "sds1", check)
    out, _ = check.communicate(timeout=seconds * 4 + 60)
    assert check.returncode == 0, out[-3000:]
    server.stop()


def test_all_killed_at_once(make_cluster, tmp_path):
    """Every daemon dies at one moment under write load, again and again: each acknowledged write is there,
    two full reads are identical, and both copies of every block are equal."""
    c = make_cluster("--device-size", "1GiB", "--pgs", "256")
    c.volume("ack", "128MiB")
    for round_ in range(20 if LONG else 4):
        acks = str(tmp_path / f"acks{round_}")
        load = subprocess.Popen([f"{BIN}/ashlar-load", "--volume", "ack", "--rw", "randwrite", "--bs", "4k", "--qd", "32",
                                 "--runtime", "60", "--verify", "--ack-log", acks, "--seed", str(round_)],
                                env=c.env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        wait_until("the load to have some acknowledged writes", 30,
                   lambda: os.path.exists(acks) and os.path.getsize(acks) > 64 << 10)
        c.control("kill", "all")
        os.kill(load.pid, signal.SIGKILL)
        load.communicate()
        c.control("start", "all")
        c.wait_in_sync(120)
        p = c.run("--volume", "ack", "--check", acks, program="ashlar-load", timeout=300)
        assert p.returncode == 0, p.stdout + p.stderr
    first, second = read_all(c, "ack", tmp_path / "first"), read_all(c, "ack", tmp_path / "second")
    assert os.path.getsize(first) == 128 << 20
    assert filecmp.cmp(first, second, shallow=False), "two full reads differ"
    compare_copies(c, tmp_path)


def compare_copies(c, tmp_path):
    """Every block is read on every device: two copies, equal, in different fault sets."""
    c.wait_in_sync()
    c.control("stop", "sds")
    blocks, holders = {}, {}
    for name, node in c.data()["nodes"].items():
        for path in node.get("devices", []):
            copy = str(tmp_path / "copy")
            subprocess.run(["cp", "--sparse=always", path, copy], check=True, timeout=120)
            p = subprocess.run([f"{BIN}/ashlar-store-dump", copy], capture_output=True, text=True, timeout=300)
            assert p.returncode == 0, f"{name}: {p.stderr}"
            for line in p.stdout.splitlines():
                vnode, chunk, block, state, digest = line.split()
                holders.setdefault((vnode, chunk), set()).add(node["fault_set"])
                if state == DATA:  # the other states read as zeros
                    blocks.setdefault((vnode, chunk, block), []).append(digest)
    assert holders and blocks
    alone = [k for k, sets in holders.items() if len(sets) != 2]
    assert not alone, f"chunks that are not in two fault sets: {alone[:5]}"
    differ = [k for k, digests in blocks.items() if len(digests) != 2 or digests[0] != digests[1]]
    assert not differ, f"{len(differ)} blocks differ between the copies: {differ[:5]}"
    c.control("start", "sds")
    c.wait_in_sync()


def read_all(c, volume, path):
    """Into a file and not a pipe: nbdcopy then has many reads in flight, as the servers' users do."""
    server = c.nbd(volume)
    try:
        subprocess.run(["nbdcopy", server.uri, str(path)], check=True, timeout=120)
    finally:
        server.stop()
    return path


def test_io_goes_on_without_mdms(cluster):
    """All metadata managers are killed under load: not one I/O fails, and none hangs."""
    cluster.volume("nomdm", "128MiB")
    load = subprocess.Popen([f"{BIN}/ashlar-load", "--volume", "nomdm", "--rw", "randrw", "--bs", "4k", "--qd", "16",
                             "--runtime", "12", "--verify", "--json"], env=cluster.env, stdout=subprocess.PIPE,
                            stderr=subprocess.PIPE, text=True)
    timer = threading.Timer(3, lambda: cluster.control("kill", "mdm"))
    timer.start()
    out, err = load.communicate(timeout=120)
    timer.join()
    cluster.control("start", "mdm")
    assert load.returncode == 0, err + out
    result = json.loads(out)
    assert result["errors"] == 0 and result["mismatches"] == 0
    assert result["max_ms"] < 5000, "an I/O waited for the metadata managers"
    wait_until("the metadata managers to lead again", 60, lambda: cluster.run("status").returncode == 0)
