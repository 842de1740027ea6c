"""Resources of this machine for runs."""

from __future__ import annotations

import os
import re

from trio_cogment.trainer.dispatch.admission import Capacity

_GPU = re.compile(r"nvidia([0-9]+)")
_MIB = 1024 * 1024
#: Where the system does not say.
_MEMORY_MB = 4096


def this_machine(
    *, cpus: int | None = None, memory_mb: int | None = None, gpus: tuple[int, ...] | None = None, runs: int = 1000
) -> Capacity:
    """Return the capacity of this machine.

    Args:
        cpus: how many processors runs may have; None: all there are.
        memory_mb: how much memory; None: all there is.
        gpus: which GPUs; None: those of NVIDIA that the system shows.
        runs: how many run at a time.
    """
    return Capacity(
        cpus=cpus or os.cpu_count() or 1,
        memory_mb=memory_mb or _memory_mb(),
        gpus=_gpus() if gpus is None else gpus,
        runs=runs,
    )


def _memory_mb() -> int:
    try:
        return max(1, os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // _MIB)
    except (ValueError, OSError):
        return _MEMORY_MB


def _gpus() -> tuple[int, ...]:
    try:
        names = os.listdir("/dev")
    except OSError:
        return ()
    return tuple(sorted(int(found[1]) for found in map(_GPU.fullmatch, names) if found))
