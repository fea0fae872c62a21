# SPDX-License-Identifier: MIT
"""What in a guest's kernel messages makes a run fail, and what does not."""
import os
import sys
import unittest

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

from lib import console  # noqa: E402

BAD = (
    "[    5.1] WARNING: CPU: 1 PID: 77 at block/blk-mq.c:1 blk_mq_x+0x1/0x2",
    "[    5.1] BUG: kernel NULL pointer dereference, address: 0000000000000010",
    "[    5.1] Oops: 0000 [#1] PREEMPT SMP",
    "[    5.1] general protection fault, probably for non-canonical address",
    "[    5.1] INFO: task fio:120 blocked for more than 120 seconds.",
    "[    5.1] rcu: INFO: rcu_preempt detected stalls on CPUs/tasks:",
    "[    5.1] watchdog: BUG: soft lockup - CPU#0 stuck for 22s! [kworker]",
    "[    5.1] WARNING: possible circular locking dependency detected",
    "[    5.1] WARNING: possible recursive locking detected",
    "[    5.1] BUG: sleeping function called from invalid context at x.c:1",
    "[    5.1] refcount_t: underflow; use-after-free.",
    "[    5.1] kworker/0:1: page allocation failure: order:0",
    "[    5.1] BUG: KASAN: slab-use-after-free in x",
    "[    5.1] Kernel panic - not syncing: x",
    "[    5.1] =============\n[    5.1] BUG kmalloc-64 (Tainted: G): Objects remaining in kmalloc-64",
)
FINE = (
    "[    0.2] Linux version 6.1.0-57-amd64 (debian-kernel@lists.debian.org)",
    "[    0.4] unchecked MSR access error: WRMSR to 0x1 at rIP: 0x2 (Call Trace: x)",
    "[    4.0] ashlar_sdc: loading out-of-tree module taints kernel.",
    "[    4.1] ashlar0: event=io_waits volume=v1 for_ms=5000",
    "[    4.2] EXT4-fs (ashlar0): mounted filesystem with ordered data mode.",
)


class Console(unittest.TestCase):
    def test_complaints_are_found(self):
        for text in BAD:
            self.assertTrue(console.findings(FINE[0] + "\r\n" + text + "\r\n"), text)

    def test_ordinary_lines_are_not(self):
        self.assertEqual(console.findings("\r\n".join(FINE)), [])


if __name__ == "__main__":
    unittest.main()
