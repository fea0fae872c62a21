# SPDX-License-Identifier: MIT
"""Judges what a guest's kernel said."""
import re

# What no kernel says on a good day.
BAD = re.compile(
    r"\bWARNING: |\bBUG: |\bOops\b|general protection fault|Kernel panic|kernel BUG at|"
    r"INFO: task .* blocked for more than|INFO: .*self-detected stall|INFO: .*detected stalls|"
    r"possible (circular locking|recursive locking|irq lock inversion)|inconsistent lock state|"
    r"suspicious RCU usage|sleeping function called|scheduling while atomic|"
    r"soft lockup|hard LOCKUP|refcount_t: |list_(add|del) corruption|slab-\S+ .*corrupt|"
    r"page allocation failure|Out of memory|invoked oom-killer|unreferenced object|"
    r"Call Trace:|KASAN: |KCSAN: |UBSAN: |DEBUG_LOCKS_WARN_ON|stack-protector|"
    r"leaked? .*object|Objects remaining in")

# Lines that fit and mean nothing here; each with its reason.
HARMLESS = (
    # TCG is no such CPU.
    re.compile(r"unchecked MSR access|Spectre|TAA|MMIO Stale Data|Gather Data|RETBleed"),
    # An own module is meant to be loaded.
    re.compile(r"taints kernel|tainting kernel"),
)


def findings(text):
    """The lines that make a run fail, in order."""
    bad = []
    for line in text.replace("\r", "").split("\n"):
        if BAD.search(line) and not any(h.search(line) for h in HARMLESS):
            bad.append(line.strip())
    return bad
