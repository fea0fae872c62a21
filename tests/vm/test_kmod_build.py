# SPDX-License-Identifier: MIT
"""The kernel client compiles against every kernel whose headers are installed: no word from the compiler's
extra warnings (W=1) nor from sparse (C=2)."""
import os
import sys
import tempfile
import unittest

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

from lib import kmod  # noqa: E402


class Build(unittest.TestCase):
    def test_compiles_without_a_warning(self):
        for kernel in kmod.kernels():
            with self.subTest(kernel=kernel), tempfile.TemporaryDirectory() as out:
                said = kmod.build(kernel, out, "W=1", "C=2")
                self.assertIn("CHECK", said)
                self.assertEqual([line for line in said.splitlines() if "warning" in line or "error" in line], [])


if __name__ == "__main__":
    unittest.main()
