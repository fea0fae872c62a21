# SPDX-License-Identifier: MIT
"""Disks that come back as something else than they were."""
import os
import subprocess

import nbd

from lib.cluster import wait_until

MIB = 1 << 20


def connect(server):
    h = nbd.NBD()
    h.connect_uri(server.uri)
    return h


def restart(c, name):
    c.control("stop", name)
    c.control("start", name)
    c.wait_in_sync()


def copy(source, target):
    subprocess.run(["cp", "--sparse=always", source, target], check=True)


def test_a_disk_from_the_past_is_never_taken_for_the_present(make_cluster):
    """An image of a disk, as a backup or a snapshot of its host brings it back, lacks what was acknowledged since.
    It is refused however often it is tried, and its label does not get any newer by the tries."""
    c = make_cluster("--mdm", "1", "--sds", "2", "--device-size", "1GiB", "--pgs", "64")
    disk, past, log = (os.path.join(c.dir, "sds2", name) for name in ("dev1.img", "past", "log"))
    c.volume("v", "16MiB")
    server = c.nbd("v")
    h = connect(server)
    h.pwrite(b"old " * (4 * MIB), 0)
    h.flush()
    restart(c, "sds2")  # both copies are compared: nothing marks the chunks any more
    c.control("stop", "sds2")
    copy(disk, past)
    c.control("start", "sds2")
    c.wait_in_sync()
    h.pwrite(b"new " * (4 * MIB), 0)
    h.flush()
    restart(c, "sds2")
    c.control("stop", "sds2")
    def refused():
        with open(log, encoding="utf-8") as f:
            return sum("event=disk_ignored" in line and "rolled back" in line for line in f)

    def taken():
        return any(d["state"] == "up" for d in c.ashlar("device", "list")["devices"] if d["sds"] == "sds2")
    wait_until("the disk to be missed", 30, lambda: not taken())
    os.rename(disk, disk + ".away")  # no pattern finds it by that name
    os.rename(past, disk)
    c.control("start", "sds2")
    wait_until("the old disk to be refused again and again", 60, lambda: refused() >= 3 or taken())
    assert not taken()
    os.rename(disk + ".away", disk)
    c.wait_in_sync()
    c.control("kill", "sds1")
    assert h.pread(16 * MIB, 0) == b"new " * (4 * MIB)
    h.shutdown()
    server.stop()
