# SPDX-License-Identifier: MIT
"""In the guest: the module comes and goes, and what /dev/ashlar-ctl takes and refuses."""
import ctypes
import errno
import fcntl
import os
import subprocess
import sys
import unittest

CTL = "/dev/ashlar-ctl"
MODULE = sys.argv.pop(1)


class Info(ctypes.Structure):
    _fields_ = [("version", ctypes.c_uint32), ("wire_version", ctypes.c_uint32)]


class System(ctypes.Structure):
    _fields_ = [("system", ctypes.c_uint8 * 16), ("sdc", ctypes.c_uint64), ("dr_epoch", ctypes.c_uint32),
                ("reserved", ctypes.c_uint32)]


def ioc(direction, number, kind):
    return direction << 30 | ctypes.sizeof(kind) << 16 | 0xA5 << 8 | number


INFO = ioc(2, 1, Info)
SYSTEM = ioc(1, 2, System)


def run(*argv):
    return subprocess.run(argv, capture_output=True, text=True, timeout=60, check=False)


def loaded():
    with open("/proc/modules", encoding="ascii") as f:
        return any(line.startswith("ashlar_sdc ") for line in f)


class Control(unittest.TestCase):
    def setUp(self):
        if not loaded():
            run("modprobe", "libcrc32c")
            p = run("insmod", MODULE)
            self.assertEqual(p.returncode, 0, p.stderr)

    def tearDown(self):
        p = run("rmmod", "ashlar_sdc")
        self.assertEqual(p.returncode, 0, p.stderr)
        self.assertFalse(os.path.exists(CTL))

    def refused(self, code, what, *args):
        with self.assertRaises(OSError) as e:
            what(*args)
        self.assertEqual(errno.errorcode[e.exception.errno], errno.errorcode[code])

    def test_it_says_its_versions(self):
        info = Info()
        with open(CTL, "rb", buffering=0) as ctl:
            fcntl.ioctl(ctl, INFO, info)
        self.assertEqual((info.version, info.wire_version), (1, 1))

    def test_two_agents_at_once(self):
        with open(CTL, "rb", buffering=0):
            self.refused(errno.EBUSY, os.open, CTL, os.O_RDONLY)
        os.close(os.open(CTL, os.O_RDONLY))

    def test_it_stays_while_an_agent_has_it(self):
        with open(CTL, "rb", buffering=0):
            p = run("rmmod", "ashlar_sdc")
            self.assertNotEqual(p.returncode, 0)
            self.assertIn("in use", p.stderr)

    def test_the_system_is_told_once(self):
        good = System((ctypes.c_uint8 * 16)(*range(16)), 7, 1, 0)
        with open(CTL, "rb", buffering=0) as ctl:
            fcntl.ioctl(ctl, SYSTEM, good)
            fcntl.ioctl(ctl, SYSTEM, good)
            self.refused(errno.EBUSY, fcntl.ioctl, ctl, SYSTEM, System(good.system, 8, 1, 0))
        with open(CTL, "rb", buffering=0) as ctl:  # another agent cannot change it either
            self.refused(errno.EBUSY, fcntl.ioctl, ctl, SYSTEM, System(good.system, 8, 1, 0))

    def test_malformed_commands(self):
        some = (ctypes.c_uint8 * 16)(1)
        with open(CTL, "rb", buffering=0) as ctl:
            for bad in (System(some, 0, 1, 0), System(some, 7, 1, 9), System((ctypes.c_uint8 * 16)(), 7, 1, 0)):
                self.refused(errno.EINVAL, fcntl.ioctl, ctl, SYSTEM, bad)
            for number in (0, INFO ^ 0xFF, SYSTEM + (1 << 16)):
                self.refused(errno.ENOTTY, fcntl.ioctl, ctl, number, System())
            libc = ctypes.CDLL(None, use_errno=True)
            self.assertEqual(libc.ioctl(ctl.fileno(), ctypes.c_ulong(SYSTEM), ctypes.c_void_p(8)), -1)
            self.assertEqual(ctypes.get_errno(), errno.EFAULT)

    def test_not_for_ordinary_users(self):
        os.chmod(CTL, 0o666)
        p = run("setpriv", "--reuid", "65534", "--clear-groups", "--inh-caps=-all", "cat", CTL)
        self.assertIn("Operation not permitted", p.stderr)

    def test_load_and_unload_again_and_again(self):
        for _ in range(20):
            self.assertEqual(run("rmmod", "ashlar_sdc").returncode, 0)
            self.assertEqual(run("insmod", MODULE).returncode, 0)


if __name__ == "__main__":
    unittest.main(verbosity=2)
