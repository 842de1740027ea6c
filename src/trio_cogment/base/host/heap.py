"""The heap of the C library: keeps the memory that large messages use again and again.

glibc gives the top of its heap back to the system when more than 128 KiB of it are free, and asks for blocks of that
size one by one. A message of a megabyte is copied some times on its way, so each one would have the system clear and
map thousands of pages, and take them back: three quarters of the processor time of the whole way.

The limits are not fixed: when a block that the system was asked for is freed, glibc concludes that blocks of its size
come and go, takes such ones from the heap from then on, and keeps twice as much of its top (mallopt(3),
M_MMAP_THRESHOLD). So it is enough to ask for one block. Its pages are never touched, so it costs nothing. Other C
libraries have rules of their own, and lose nothing by it.
"""

from __future__ import annotations

from functools import cache
from typing import Final

#: Of which the heap keeps twice as much, once it was used. Blocks that are larger than this one go back to the system.
KEPT_BLOCK_BYTES: Final = 8 * 1024 * 1024


@cache
def keep_heap() -> None:
    """Let the process keep up to 16 MiB of free memory at the top of its heap, once it has used that much."""
    bytes(KEPT_BLOCK_BYTES)
