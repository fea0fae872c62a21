# SPDX-License-Identifier: MIT
"""tests/vm/run itself: exit status, output, results, and that it fails when it has to. Each case boots a guest."""
import os
import subprocess

RUN = os.path.join(os.path.dirname(os.path.abspath(__file__)), "run")


def run(*args, timeout="120", out=None):
    argv = [RUN, "--timeout", timeout, *(["--out", str(out)] if out else []), "--", *args]
    return subprocess.run(argv, capture_output=True, text=True, timeout=200)


def test_output_status_and_results_come_out(tmp_path):
    p = run("sh", "-c", "echo said by $(uname -r); echo kept >/tmp/vm/file; exit 7", out=tmp_path)
    assert p.returncode == 7
    assert "said by 6.1." in p.stdout
    assert (tmp_path / "file").read_text() == "kept\n"


def test_the_hosts_tree_is_there_and_cannot_be_written():
    p = run("sh", "-c", f"test -x {RUN} && ! touch {RUN}.x && touch /tmp/x /run/x /var/lib/x && modprobe brd")
    assert p.returncode == 0, p.stdout + p.stderr


def test_a_complaint_of_the_kernel_fails_the_run():
    p = run("sh", "-c", "echo 'BUG: planted' >/dev/kmsg; exit 0")
    assert p.returncode == 126
    assert "BUG: planted" in p.stderr


def test_a_guest_that_hangs_is_ended():
    p = run("sh", "-c", "tail -f /dev/null", timeout="20")
    assert p.returncode == 124


def test_an_unknown_kernel_is_refused_by_name():
    p = subprocess.run([RUN, "--kernel", "9.9.9-none", "--", "true"], capture_output=True, text=True, timeout=60)
    assert p.returncode == 125
    assert "9.9.9-none is not installed" in p.stderr
