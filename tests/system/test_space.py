# SPDX-License-Identifier: MIT
"""Discard and write-zeroes: what was freed reads as zeros, and the space is back. A full pool says so and lives."""
import errno
import random

import nbd
import pytest

from lib.cluster import wait_until

MIB = 1 << 20


def connect(server):
    h = nbd.NBD()
    h.add_meta_context("base:allocation")
    h.connect_uri(server.uri)
    return h


def fill(h, size):
    for offset in range(0, size, MIB):
        h.pwrite(bytes([offset // MIB % 255 + 1]) * MIB, offset)


def test_freed_reads_as_zeros_and_space_returns(cluster):
    size = 64 * MIB
    cluster.volume("space", "64MiB")
    server = cluster.nbd("space")
    h = connect(server)
    fill(h, size)
    wait_until("the space of a full volume to be counted", 20, lambda: cluster.allocated("space") == size)
    model = bytearray(h.pread(size, 0) if size <= 32 * MIB else b"".join(h.pread(MIB, o) for o in range(0, size, MIB)))
    rng = random.Random(7)
    for i in range(200):
        whole = rng.random() < 0.3
        unit = MIB if whole else 512
        length = rng.randrange(1, 4 * MIB // unit) * unit
        offset = rng.randrange(0, (size - length) // unit + 1) * unit
        if i % 2:
            h.trim(length, offset)
        else:
            h.zero(length, offset, rng.choice([0, nbd.CMD_FLAG_NO_HOLE, nbd.CMD_FLAG_FAST_ZERO]))
        model[offset:offset + length] = bytes(length)
    for offset in range(0, size, MIB):
        assert h.pread(MIB, offset) == model[offset:offset + MIB], f"wrong data in the MiB at {offset}"
    h.trim(size, 0)
    wait_until("the space to be back", 20, lambda: cluster.allocated("space") == 0)
    assert not any(h.pread(MIB, size - MIB))
    h.shutdown()
    server.stop()


def test_full_pool_refuses_growth_and_lives(make_cluster):
    c = make_cluster("--mdm", "1", "--sds", "2", "--device-size", "256MiB", "--pgs", "64", "--spare", "0%")
    c.volume("big", "1GiB")
    h = connect(c.nbd("big"))
    written = 0
    with pytest.raises(nbd.Error) as e:
        for offset in range(0, 1 << 30, MIB):
            h.pwrite(b"x" * MIB, offset)
            written = offset + MIB
    assert e.value.errnum == errno.ENOSPC
    assert written >= 200 * MIB
    for offset in range(0, written, MIB):  # overwrites, reads and discards go on
        assert h.pread(4096, offset) == b"x" * 4096
    h.pwrite(b"y" * MIB, 0)
    h.trim(16 * MIB, MIB)
    h.flush()

    def again():
        try:
            h.pwrite(b"z" * MIB, written)
            return True
        except nbd.Error as err:
            assert err.errnum == errno.ENOSPC
            return False
    wait_until("freed space to be usable again", 20, again)
    assert h.pread(MIB, 0) == b"y" * MIB
    assert c.status()["failed_pgs"] == 0
