# SPDX-License-Identifier: MIT
"""Bad input from every side: a clear refusal that names the object, the limit and the way out; the daemons go on."""
import errno
import os
import random
import socket
import subprocess

import nbd
import pytest

from lib.cluster import wait_until

MIB = 1 << 20


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    """1 MDM, 2 SDSs; nothing in this file breaks it."""
    from conftest import DevCluster
    c = DevCluster(tmp_path_factory.mktemp("bad") / "cluster", "--mdm", "1", "--sds", "2", "--device-size", "512MiB",
                   "--pgs", "64")
    c.volume("taken", "16MiB")
    yield c
    c.down()


def refused(c, argv, code, *words):
    p = c.run(*argv)
    assert p.returncode == code, f"{argv}: exit {p.returncode}: {p.stdout}{p.stderr}"
    for word in words:
        assert word in p.stderr, f"{argv}: no {word!r} in: {p.stderr}"


COMMANDS = [
    ("volume frobnicate", 2, ["frobnicate", "verbs of volume", "create"]),
    ("volume create --bogus 1", 2, ["--bogus", "--help"]),
    ("volume create --pool pool1 --name taken --size 16MiB", 1, ['"taken"', "another name"]),
    ("volume create --pool none --name v --size 16MiB", 1, ['"none"']),
    ("volume create --pool pool1 --name v --size 1000000", 1, ['"v"', "1000000", "1 MiB"]),
    ("volume create --pool pool1 --name v --size 0", 1, ['"v"']),
    ("volume create --pool pool1 --name v --size -5", 2, ["-5", "16GiB"]),
    ("volume create --pool pool1 --name v --size 1ZiB", 2, ["1ZiB", "1.5TiB"]),
    ("volume create --pool pool1 --name v --size 99999999999999999999", 2, ["99999999999999999999"]),
    ("volume create --pool pool1 --name v --size 100GiB --thick", 1, ['"v"', "100 GiB", "usable", "add devices"]),
    ("volume create --pool pool1 --name v/1 --size 16MiB", 2, ["v/1", "1 to 63"]),
    (["volume", "create", "--pool", "pool1", "--name", "ü\n", "--size", "16MiB"], 2, ["1 to 63"]),
    ("volume create --pool pool1 --size 16MiB --name " + "n" * 64, 2, ["1 to 63"]),
    (["volume", "create", "--pool", "pool1", "--name", "", "--size", "16MiB"], 2, ["--name", "is empty"]),
    ("volume delete --volume none", 1, ['"none"']),
    ("volume delete --volume taken", 1, ['"taken"', "sdc1", "unmap"]),
    ("volume map --volume taken --sdc none", 1, ['"none"']),
    ("pool create --protection-domain pd1 --name p2 --pg-count 100", 1, ["100", "power of two", "65536"]),
    ("pool create --protection-domain pd1 --name p2 --pg-count 131072", 2, ["131072", "65536"]),
    ("pool create --protection-domain pd1 --name p2 --spare 120%", 2, ["120%", "100%"]),
    ("protection-domain delete --name pd1", 1, ['"pd1"', "remove that first"]),
    ("sds remove --name sds1", 1, ['"sds1"', "remove that first"]),
    ("sdc add --name x --guid 123", 2, ["123", "GUID"]),
    ("device add --sds sds1 --pool pool1 --path relative", 1, ['"relative"', "begin with /"]),
    ("device add --sds sds1 --pool pool1 --path /" + "d" * 255, 1, ["255"]),
]


@pytest.mark.parametrize("line,code,words", COMMANDS, ids=[f"{i}" for i in range(len(COMMANDS))])
def test_a_command_is_refused(plain, line, code, words):
    refused(plain, line if isinstance(line, list) else line.split(), code, *words)


def add_device(c, path, *words, remove=True):
    """It is refused with these words, and its entry can be cleared."""
    refused(c, ["device", "add", "--sds", "sds1", "--pool", "pool1", "--path", str(path)], 1, str(path), *words)
    for d in c.ashlar("device", "list")["devices"]:
        if d["path"] == str(path) and remove:
            c.ashlar("device", "remove", "--device", d["name"])


def test_a_path_without_a_device(plain, tmp_path):
    add_device(plain, tmp_path / "none.img", "No such file")


def test_a_device_below_the_minimum(plain, tmp_path):
    path = tmp_path / "small.img"
    with open(path, "wb") as f:
        f.truncate(255 * MIB)
    add_device(plain, path, "256 MiB", "larger")


def test_a_directory_and_a_pipe_as_device(plain, tmp_path):
    os.mkfifo(tmp_path / "pipe")
    add_device(plain, tmp_path, "neither a block device nor a file")
    add_device(plain, tmp_path / "pipe", "neither a block device nor a file")


def test_a_device_with_a_file_system(plain, tmp_path):
    path = tmp_path / "ext4.img"
    with open(path, "wb") as f:
        f.truncate(300 * MIB)
    subprocess.run(["mke2fs", "-q", "-F", str(path)], check=True, timeout=60)
    add_device(plain, path, "ext", "--force")
    plain.ashlar("device", "add", "--sds", "sds1", "--pool", "pool1", "--path", str(path), "--force")


def test_an_nbd_server_started_twice(plain):
    """The second one finds its address taken, and leaves the volume to the first."""
    server = plain.nbd("taken")
    h = nbd.NBD()
    h.connect_uri(server.uri)
    h.pwrite(b"1" * 4096, 0)
    refused(plain, ["nbd", "--volume", "taken", "--socket", server.socket], 1, server.socket, "in use", "another")
    h.pwrite(b"2" * 4096, 0)
    assert h.pread(4096, 0) == b"2" * 4096
    h.shutdown()
    server.stop()
    assert not os.path.exists(server.socket)


def test_a_device_of_another_system(plain, make_cluster):
    other = make_cluster("--mdm", "1", "--sds", "2", "--device-size", "256MiB", "--pgs", "16", "--base-port", "9200")
    path = other.ashlar("device", "list")["devices"][0]["path"]
    other.control("kill", "sds1")
    other.control("kill", "sds2")
    add_device(plain, path, "another Ashlar system", "--force")


def test_a_pool_with_one_fault_unit(make_cluster):
    c = make_cluster("--mdm", "1", "--sds", "2", "--fault-sets", "1", "--device-size", "256MiB", "--pgs", "16")
    refused(c, ["volume", "create", "--pool", "pool1", "--name", "v", "--size", "16MiB"], 1, '"pool1"', "1 fault unit", "need two", "add devices")


@pytest.mark.parametrize("frame", ["random", "zeros", "ones", "cut", "huge", "http"])
def test_garbage_on_every_port(plain, frame):
    """Whatever comes in on a port: the connection ends, the daemon goes on, good clients notice nothing."""
    rng = random.Random(frame)
    text = {"random": rng.randbytes(65536), "zeros": bytes(65536), "ones": b"\xff" * 65536, "cut": rng.randbytes(7),
            "huge": b"\xff\xff\xff\x7f" + bytes(60), "http": b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"}[frame]
    before = plain.control("ps")
    for port in listening_ports(plain):
        for _ in range(3):
            with socket.create_connection(("127.0.0.1", port), timeout=10) as s:
                try:
                    s.sendall(text)
                    s.shutdown(socket.SHUT_WR)
                    s.settimeout(30)
                    while s.recv(65536):  # it may answer first; then it must end
                        pass
                except socket.timeout:
                    pytest.fail(f"port {port} holds a connection that sent garbage and said goodbye")
                except OSError as e:
                    assert e.errno in (errno.EPIPE, errno.ECONNRESET, errno.ENOTCONN), e
    assert pids(plain.control("ps")) == pids(before)
    assert plain.status()["degraded_pgs"] == 0
    h = nbd.NBD()
    server = plain.nbd("taken")
    h.connect_uri(server.uri)
    h.pwrite(frame.encode().ljust(512), 0)
    assert h.pread(512, 0).startswith(frame.encode())
    h.shutdown()
    server.stop()


def test_silence_on_the_data_ports(plain):
    """Who connects and never says a word does not keep his place: places are limited by descriptors."""
    ports = [n["port"] for n in plain.data()["nodes"].values() if n["kind"] == "sds"]
    silent = [socket.create_connection(("127.0.0.1", p)) for p in ports for _ in range(3)]
    half = socket.create_connection(("127.0.0.1", ports[0]))
    half.sendall(b"\0" * 30)  # half a header
    for s in silent + [half]:
        s.settimeout(100)
        assert s.recv(1) == b""
        s.close()
    assert plain.status()["degraded_pgs"] == 0


def listening_ports(c):
    """Of this cluster's daemons, as the kernel tells."""
    inodes = set()
    for pid in pids(c.control("ps")):
        for fd in os.listdir(f"/proc/{pid}/fd"):
            try:
                inodes.add(os.readlink(f"/proc/{pid}/fd/{fd}").removeprefix("socket:[").removesuffix("]"))
            except FileNotFoundError:
                pass
    with open("/proc/net/tcp", encoding="ascii") as f:
        rows = [line.split() for line in f.readlines()[1:]]
    ports = sorted(int(r[1].split(":")[1], 16) for r in rows if r[3] == "0A" and r[9] in inodes)
    assert len(ports) >= 4, f"two ports of the MDM and one of each SDS: {ports}"
    return ports


def pids(ps):
    return sorted(int(w) for line in ps.splitlines()[1:] for w in line.split()[:4] if w.isdigit() and int(w) > 100)


def test_a_full_disk_under_file_devices(make_cluster, tmp_path):
    """The file system below a device is full: what needs space says so or waits for a copy, nothing is lost."""
    small = tmp_path / "cluster0" / "sds1"  # where the first cluster of this test keeps that server's files
    small.mkdir(parents=True)
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=200M", "ashlar-test", str(small)], check=True)
    try:
        c = make_cluster("--mdm", "1", "--sds", "2", "--device-size", "1GiB", "--pgs", "64")
        c.volume("v", "512MiB")
        server = c.nbd("v")
        h = nbd.NBD()
        h.connect_uri(server.uri)
        written = {}
        for i in range(300):
            data = bytes([i % 251 + 1]) * MIB
            try:
                h.pwrite(data, i * MIB)
                written[i] = data
            except nbd.Error as e:
                assert e.errnum in (errno.ENOSPC, errno.EIO), e
        for i, data in written.items():
            assert h.pread(MIB, i * MIB) == data, f"MiB {i}"
        h.shutdown()
        server.stop()
        texts = [e["message"] for e in c.ashlar("event", "list")["events"]]
        assert any("No space" in t or "full" in t for t in texts), texts
    finally:
        subprocess.run(["umount", "-l", str(small)], check=True)


def test_an_mdm_directory_that_cannot_be_written(tmp_path):
    from conftest import BIN
    ro = tmp_path / "ro"
    ro.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "ro,size=1M", "ashlar-test", str(ro)], check=True)
    try:
        p = subprocess.run([f"{BIN}/ashlar-mdm", "--name", "m", "--state-dir", str(ro / "state"), "--listen",
                            "127.0.0.1:29900", "--raft", "127.0.0.1:29901"], capture_output=True, text=True, timeout=30)
        assert p.returncode == 1
        assert str(ro / "state") in p.stderr and "Read-only" in p.stderr and "--state-dir" in p.stderr
    finally:
        subprocess.run(["umount", "-l", str(ro)], check=True)
