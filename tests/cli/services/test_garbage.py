"""Garbage collection of a server process: its modules are left out, and collections are rare."""

from __future__ import annotations

import subprocess
import sys

PROGRAM = """
import gc
from trio_cogment.cli.services.garbage import leave, settle

before = gc.get_threshold()
settle()
frozen = gc.get_freeze_count()
assert frozen > 1000, frozen
assert gc.get_threshold()[0] > before[0]
assert gc.isenabled()
kept = [[] for _ in range(1000)]
leave()
assert gc.get_freeze_count() >= frozen + 1000
"""


def test_modules_are_left_out_and_so_is_everything_at_the_end() -> None:
    subprocess.run([sys.executable, "-c", PROGRAM], check=True, timeout=60)
