# SPDX-License-Identifier: MIT
"""The kernel client in a guest. Each case boots one and runs a script of tests/vm/inside there."""
import os
import sys

import pytest

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

from lib import kmod  # noqa: E402


@pytest.mark.parametrize("script", ["control.py"])
def test_in_the_guest(script):
    p = kmod.run_inside(script)
    assert p.returncode == 0, p.stdout
    assert "\nOK" in p.stdout, p.stdout
