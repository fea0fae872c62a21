# SPDX-License-Identifier: MIT
"""A real file system image in and out through NBD, by tools that are not ours."""
import filecmp
import json
import os
import subprocess

import pytest

from conftest import LONG

SOURCE = "/usr/lib" if LONG else "/usr/include"


def run(*argv, timeout=600):
    p = subprocess.run(argv, capture_output=True, text=True, timeout=timeout)
    assert p.returncode == 0, f"{' '.join(argv)}: {p.stderr}"
    return p.stdout


@pytest.fixture(scope="module")
def image(tmp_path_factory):
    path = str(tmp_path_factory.mktemp("image") / "fs.img")
    tree_mib = int(run("du", "-sm", SOURCE).split()[0])
    with open(path, "wb") as f:
        f.truncate(max(2304 if LONG else 512, tree_mib * 5 // 4 + 256) << 20)
    run("/sbin/mke2fs", "-q", "-t", "ext4", "-E", "lazy_itable_init=0", "-d", SOURCE, path)
    run("fallocate", "--dig-holes", path)
    return path


def chunks_of(path):
    """MiB pieces of the file that hold anything but zeros."""
    zero, n = bytes(1 << 20), 0
    with open(path, "rb") as f:
        while piece := f.read(1 << 20):
            n += piece != zero[:len(piece)]
    return n


@pytest.mark.parametrize("tool", ["nbdcopy", "qemu-img"])
def test_image_survives(cluster, image, tmp_path, tool):
    name = f"img-{tool}"
    cluster.volume(name, str(os.path.getsize(image)))
    server = cluster.nbd(name)
    back = str(tmp_path / "back")
    if tool == "nbdcopy":
        run("nbdcopy", "--flush", image, server.uri)
        run("nbdcopy", server.uri, back)
    else:
        run("qemu-img", "convert", "-n", "-f", "raw", "-O", "raw", image, server.uri)
        run("qemu-img", "convert", "-f", "raw", "-O", "raw", server.uri, back)
    assert filecmp.cmp(image, back, shallow=False), "what was read back differs"
    run("/sbin/e2fsck", "-fn", back)
    # Only what was written takes space, and holes are shown as holes.
    expected = chunks_of(image) << 20
    assert expected <= cluster.allocated(name) <= expected * 1.02 + (8 << 20)
    parts = json.loads(run("qemu-img", "map", "--output=json", "-f", "raw", server.uri))
    holes = sum(p["length"] for p in parts if p["zero"])
    assert holes >= os.path.getsize(image) - expected - (8 << 20)
    assert sum(p["length"] for p in parts) == os.path.getsize(image)
    server.stop()
