# SPDX-License-Identifier: MIT
"""A server is lost for good: what it held is made anew on the others, under load, and nothing is left of it when it returns."""
import os
import subprocess
import threading

from conftest import BIN, LONG
from lib.cluster import wait_until
from test_crash import compare_copies


def used(cluster, sds):
    """Bytes that the devices of a server hold."""
    return sum(d["used_bytes"] or 0 for d in cluster.ashlar("device", "list")["devices"] if d["sds"] == sds)


def test_a_server_is_lost_for_good(make_cluster, tmp_path):
    c = make_cluster("--device-size", "1GiB", "--pgs", "64")
    c.ashlar("pool", "set", "--pool", "pool1", "--rebuild-grace", "2")
    c.volume("lost", "128MiB")
    acks = str(tmp_path / "acks")
    load = subprocess.Popen([f"{BIN}/ashlar-load", "--volume", "lost", "--rw", "randwrite", "--bs", "64k", "--qd", "8",
                             "--runtime", "60" if LONG else "20", "--verify", "--ack-log", acks],
                            env=c.env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    out = []
    reader = threading.Thread(target=lambda: out.append(load.communicate()[0]))
    reader.start()
    wait_until("some acknowledged writes", 30, lambda: os.path.exists(acks) and os.path.getsize(acks) > 16 << 10)
    c.control("kill", "sds2")
    wait_until("the loss to be noticed", 10, lambda: c.status()["degraded_pgs"] > 0)
    c.wait_in_sync(60)
    assert used(c, "sds2") > 0  # by its last report: it is still away, and all is in sync without it
    reader.join(120)
    assert load.returncode == 0, out
    c.wait_in_sync(60)
    c.control("start", "sds2")
    wait_until("the returned server to be emptied", 60, lambda: used(c, "sds2") == 0)
    c.wait_in_sync(60)
    p = c.run("--volume", "lost", "--check", acks, program="ashlar-load", timeout=300)
    assert p.returncode == 0, p.stdout + p.stderr
    compare_copies(c, tmp_path)
