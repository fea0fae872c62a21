# SPDX-License-Identifier: MIT
"""Builds the kernel client, and runs its tests in a guest."""
import glob
import os
import subprocess

from . import guest

TOP = os.path.dirname(os.path.dirname(guest.HERE))
RUN = os.path.join(guest.HERE, "run")


def kernels():
    """Versions whose headers are installed."""
    found = sorted(os.path.basename(os.path.dirname(p)) for p in glob.glob("/lib/modules/*/build")
                   if os.path.exists(os.path.join(p, "Makefile")))
    if not found:
        raise guest.Refused("no kernel headers are installed; run: deploy/packages/install vm")
    return found


def build(kernel, out, *make_args):
    """Return: what the compiler said. The module is out/ashlar_sdc.ko."""
    p = subprocess.run([os.path.join(TOP, "sdc-kmod", "build"), "--kernel", kernel, out, *make_args],
                       stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False, timeout=300)
    if p.returncode:
        raise RuntimeError(f"sdc-kmod does not compile for {kernel}:\n{p.stdout}")
    return p.stdout


def module():
    """The module for the guest's kernel, at a path that is the same in the guest (its /tmp is another)."""
    kernel = guest.default_kernel()
    out = os.path.join(TOP, "build", f"kmod-{kernel}")
    build(kernel, out)
    return os.path.join(out, "ashlar_sdc.ko")


def run_inside(script, *args, timeout=240, options=()):
    """Runs tests/vm/inside/SCRIPT in a guest; its arguments are the module and ARGS."""
    argv = [RUN, "--timeout", str(timeout), *options, "--", "/usr/bin/python3",
            os.path.join(guest.HERE, "inside", script), module(), *args]
    return subprocess.run(argv, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False,
                          timeout=timeout + 60)
