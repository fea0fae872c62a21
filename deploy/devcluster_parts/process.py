# SPDX-License-Identifier: MIT
"""Start, find and end the daemons of a dev cluster. A pid is only ever signalled if it still is
the process that was started: its start time is kept next to it."""
import os
import select
import signal
import subprocess


def start_time(pid):
    """Clock ticks after boot at which the process started; None when there is none."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8") as f:
            fields = f.read().rsplit(")", 1)[1].split()
    except (FileNotFoundError, ProcessLookupError, IndexError):
        return None
    return None if fields[0] in "ZX" else int(fields[19])


def state_of(node):
    """'up', 'paused' or 'down'."""
    pid = node.get("pid")
    if not pid or start_time(pid) != node.get("started"):
        return "down"
    with open(f"/proc/{pid}/stat", encoding="utf-8") as f:
        return "paused" if f.read().rsplit(")", 1)[1].split()[0] == "T" else "up"


def launch(node, argv, prefix=()):
    """Starts the daemon detached from this terminal; its log is appended to."""
    os.makedirs(node["dir"], exist_ok=True)
    with open(node["log"], "ab") as log, open(os.devnull, "rb") as null:
        p = subprocess.Popen([*prefix, *argv], stdin=null, stdout=log, stderr=log, start_new_session=True)
    node["pid"] = p.pid
    node["started"] = start_time(p.pid)
    return p


def send(node, sig):
    if state_of(node) == "down":
        return False
    os.kill(node["pid"], sig)
    return True


def wait_gone(node, seconds):
    """True once the process has ended, False after that long."""
    try:
        fd = os.pidfd_open(node["pid"])
    except ProcessLookupError:
        return True
    try:
        # Readable means ended. A pid that somebody else has by now is not waited for.
        gone = state_of(node) == "down" or bool(select.select([fd], [], [], seconds)[0])
    finally:
        os.close(fd)
    try:  # a child of this very command has to be reaped
        os.waitpid(node["pid"], os.WNOHANG)
    except ChildProcessError:
        pass
    return gone


def pause(nodes, seconds):
    """Waits that long, less if one of the processes ends."""
    fds = []
    try:
        for node in nodes:
            if state_of(node) != "down":
                fds.append(os.pidfd_open(node["pid"]))
        select.select(fds, [], [], seconds)
    except ProcessLookupError:
        pass
    finally:
        for fd in fds:
            os.close(fd)


def stop(node, seconds=15):
    """Gracefully, then not."""
    send(node, signal.SIGCONT)
    if not send(node, signal.SIGTERM):
        return
    if not wait_gone(node, seconds):
        send(node, signal.SIGKILL)
        wait_gone(node, 5)


def last_lines(path, count=8):
    try:
        with open(path, encoding="utf-8", errors="replace") as f:
            return "".join(f.readlines()[-count:])
    except FileNotFoundError:
        return ""
