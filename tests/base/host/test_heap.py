"""Large blocks come from the heap once it was told to keep them: no page is cleared for one that was used before."""

from __future__ import annotations

import platform
import subprocess
import sys

import pytest

PROGRAM = """
import resource
import sys
from trio_cogment.base.host.heap import keep_heap

block = int(sys.argv[1])

def faults():
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt

def copies():
    before = faults()
    for _ in range(20):
        kept = [bytes(bytearray(block)) for _ in range(6 if block <= 1 << 20 else 2)]
        del kept
    return faults() - before

without = copies()
keep_heap(4 * block)
copies()
print(without, copies())
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="other C libraries have rules of their own")
@pytest.mark.parametrize("mebibytes", [1, 16])
def test_blocks_of_large_messages_are_used_again(mebibytes: int) -> None:
    command = [sys.executable, "-c", PROGRAM, str(mebibytes << 20)]
    ran = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    without, with_it = map(int, ran.stdout.split())
    assert with_it < 0.1 * without
