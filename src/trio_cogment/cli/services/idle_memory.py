"""Gives memory back to the system when a server has become calm.

After a crowd has left, two things keep its memory: objects that refer to each other, which only a full collection finds
(`garbage` makes those rare), and pages of the C library's heap that are free but not given back. Neither is worth a
pause while there is work, so both wait until the process is calm, and rest afterwards for longer than they took. They
are never done together: each may take a tenth of a second after a crowd.
"""

from __future__ import annotations

import gc
import os
import sys
import time
from typing import TYPE_CHECKING, Final, Protocol

import trio

if TYPE_CHECKING:
    from collections.abc import Callable

_LOOK_SECONDS: Final = 1.0
#: A process is calm while it uses less than this part of a processor.
_CALM: Final = 0.5
#: A full collection is worth it when there are this many blocks of Python's memory fewer than at most since the last
#: one (who has left may have left some behind that know each other), and this part of what there was then. When there
#: are as many more it can wait for this many looks: it takes the longer the more there are, and a crowd that is still
#: there has left nothing.
_BLOCKS: Final = 20_000
_BLOCKS_PART: Final = 0.1
_GROWN_LOOKS: Final = 15
#: After this many further looks everything is collected once more: some were still leaving, and have changed no number.
_LOOKS_AFTER: Final = 3
#: The heap is trimmed when it has grown by so much, or so much of it has become free.
_TRIM_BYTES: Final = 8 * 1024 * 1024
#: The time between two tidyings, as a multiple of what the last one took, and at most.
_REST: Final = 15.0
_REST_SECONDS: Final = 5.0
#: The fields of `struct mallinfo2`.
_MALLINFO2: Final = (
    "arena", "ordblks", "smblks", "hblks", "hblkhd", "usmblks", "fsmblks", "uordblks", "fordblks", "keepcost",
)  # fmt: skip


class Heap(Protocol):
    """The heap of the C library."""

    def resident(self) -> int:
        """Return how many bytes of the process are in memory."""

    def used(self) -> int:
        """Return how many bytes of the heap are in use."""

    def trim(self) -> None:
        """Give what is free back to the system."""


class GlibcHeap:
    """That of glibc, on Linux.

    Raises:
        OSError, AttributeError, TypeError: it is another system, or another library.
    """

    def __init__(self) -> None:
        import ctypes  # not needed where it is of no use

        size = ctypes.c_size_t

        class _Mallinfo2(ctypes.Structure):
            _fields_ = tuple((name, size) for name in _MALLINFO2)

        library = ctypes.CDLL(None)
        self._info = library.mallinfo2  # glibc 2.33
        self._info.restype = _Mallinfo2
        self._trim = library.malloc_trim
        # Held open: descriptors may have run out just when memory is short, too.
        self._statm = os.open("/proc/self/statm", os.O_RDONLY | os.O_CLOEXEC)
        self._page_bytes = os.sysconf("SC_PAGE_SIZE")

    def resident(self) -> int:
        """See `Heap.resident`."""
        return int(os.pread(self._statm, 200, 0).split()[1]) * self._page_bytes

    def used(self) -> int:
        """See `Heap.used`."""
        info = self._info()
        return int(info.uordblks) + int(info.hblkhd)

    def trim(self) -> None:
        """See `Heap.trim`."""
        self._trim(0)


def heap_of_process() -> Heap | None:
    """Return the heap; None where it cannot be trimmed."""
    try:
        return GlibcHeap()
    except (OSError, AttributeError, TypeError):
        return None


class Tidying:
    """What is done, and when.

    Args:
        heap: None: it cannot be trimmed.
        busy_seconds: the time that the process has spent on processors.
        blocks: how many blocks of memory Python's objects take.
        collect: collects everything.
    """

    def __init__(
        self,
        heap: Heap | None,
        *,
        busy_seconds: Callable[[], float] = time.process_time,
        blocks: Callable[[], int] = sys.getallocatedblocks,
        collect: Callable[[], object] = gc.collect,
    ) -> None:
        self._heap = heap
        self._busy_seconds = busy_seconds
        self._blocks = blocks
        self._collect = collect
        self._left = self._most = blocks()
        self._looks_grown = self._looks_left = 0
        self._resident = self._used = 0
        if heap is not None:
            self._resident, self._used = heap.resident(), heap.used()

    async def run(self) -> None:
        """Look indefinitely."""
        busy, seconds = self._busy_seconds(), _LOOK_SECONDS
        while True:
            since = trio.current_time()
            await trio.sleep(seconds)
            before, busy = busy, self._busy_seconds()
            seconds = _LOOK_SECONDS
            self.look()
            if busy - before < _CALM * (trio.current_time() - since):
                self.tidy()
                before, busy = busy, self._busy_seconds()
                seconds = max(seconds, min(_REST_SECONDS, _REST * (busy - before)))

    def look(self) -> None:
        """See how much there is now."""
        blocks = self._blocks()
        self._most = max(self._most, blocks)
        self._looks_grown = self._looks_grown + 1 if blocks - self._left >= self._many(self._left) else 0

    def tidy(self) -> None:
        """Do one of the two, if it is worth it now."""
        gone = self._most - self._blocks() >= self._many(self._most)
        many = gone or self._looks_grown >= _GROWN_LOOKS
        if many or self._looks_left == 1:
            self._collect()
            self._left = self._most = self._blocks()
            self._looks_grown = 0
            self._looks_left = _LOOKS_AFTER if many else 0
            return
        self._looks_left = max(0, self._looks_left - 1)
        heap = self._heap
        if heap is not None and (
            heap.resident() - self._resident >= _TRIM_BYTES or self._used - heap.used() >= _TRIM_BYTES
        ):
            heap.trim()
            self._resident, self._used = heap.resident(), heap.used()

    @staticmethod
    def _many(blocks: int) -> float:
        return max(_BLOCKS, _BLOCKS_PART * blocks)
