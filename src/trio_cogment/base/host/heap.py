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

#: A block of this size, of which the heap keeps twice as much once that was used. Larger blocks go back to the system.
KEPT_BLOCK_BYTES: Final = 8 * 1024 * 1024
#: The most that glibc follows is 32 MiB, with what a block needs beside its bytes (M_MMAP_THRESHOLD's maximum).
MOST_KEPT_BYTES: Final = 31 * 1024 * 1024


@cache
def keep_heap(message_bytes: int = 0) -> None:
    """Let the process keep free memory at the top of its heap, once it has used that much.

    Args:
        message_bytes: of the largest message. It is in memory about four times on its way: as pieces, whole, decoded,
            and encoded again. So four times as much is kept, but 16 MiB at least and 62 MiB at most.
    """
    bytes(min(max(2 * message_bytes, KEPT_BLOCK_BYTES), MOST_KEPT_BYTES))
