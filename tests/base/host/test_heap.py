"""Large blocks come from the heap once it was told to keep them: no page is cleared for one that was used before."""

from __future__ import annotations

import platform
import subprocess
import sys

import pytest

PROGRAM = """
import resource
from trio_cogment.base.host.heap import keep_heap

def faults():
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt

def copies():
    before = faults()
    for _ in range(20):
        kept = [bytes(bytearray(1 << 20)) for _ in range(6)]
        del kept
    return faults() - before

without = copies()
keep_heap()
copies()
print(without, copies())
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="other C libraries have rules of their own")
def test_blocks_of_a_megabyte_are_used_again() -> None:
    ran = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True, timeout=60)
    without, with_it = map(int, ran.stdout.split())
    assert with_it < 0.1 * without
