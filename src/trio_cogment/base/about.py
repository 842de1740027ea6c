"""The answers of every server to `Version` and `Status`."""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Callable, Iterable

from trio_cogment._version import __version__
from trio_cogment.api.common_pb2 import StatusReply, StatusRequest, VersionInfo, VersionRequest

#: The release of the Cogment API that the messages in `protos/` follow.
API_VERSION = "2.22.0"
#: The transport is part of this package and has its version.
GRPC_VERSION = f"trio-cogment {__version__}"

_HIGHEST_LOAD = 100
#: The shortest interval over which the load is measured; within it, the answer stays the same.
_LOAD_SECONDS = 1.0


class LoadMeter:
    """The load of this server, from 0 to 100.

    It is the larger of two values. One is the share of one processor that this process has used since the previous
    query: a server runs in one thread and cannot use more. The other is the machine's one-minute load average divided
    by its number of processors: when it is high, the server may be waiting for a processor.

    Args:
        cpu_seconds: returns the processor time that this process has used.
        clock: returns monotonic time in seconds.
        machine: returns the machine's share, from 0 to 1 or more.
    """

    def __init__(
        self, cpu_seconds: Callable[[], float], clock: Callable[[], float], machine: Callable[[], float]
    ) -> None:
        self._cpu_seconds = cpu_seconds
        self._clock = clock
        self._machine = machine
        self._share = 0.0
        self._before = (clock(), cpu_seconds())

    def percent(self) -> int:
        """Return the load; cheap enough to be called often."""
        now = self._clock()
        began, used_before = self._before
        if now - began >= _LOAD_SECONDS:
            used = self._cpu_seconds()
            self._share = (used - used_before) / (now - began)
            self._before = (now, used)
        return max(0, min(_HIGHEST_LOAD, round(100 * max(self._share, self._machine()))))


def machine_share() -> float:
    """Return the one-minute load average divided by the number of processors; 0 where the system has none."""
    try:
        return os.getloadavg()[0] / (os.cpu_count() or 1)
    except OSError:
        return 0.0


_load = LoadMeter(time.process_time, time.monotonic, machine_share)


def overall_load() -> int:
    """Return the load of this process and its machine, from 0 to 100; see `LoadMeter`."""
    return _load.percent()


def version_info() -> VersionInfo:
    """Return the answer to `Version`.

    There is no entry `cogment`: the reference implementation reports its own version under that name.
    """
    entries = {
        "trio-cogment": __version__,
        "cogment-api": API_VERSION,
        "grpc": GRPC_VERSION,
        "python": platform.python_version(),
    }
    return VersionInfo(versions=[VersionInfo.Version(name=name, version=text) for name, text in entries.items()])


def status_reply(names: Iterable[str], statuses: dict[str, Callable[[], str]]) -> StatusReply:
    """Return the statuses with these names: `*` means all; unknown names are ignored; no names mean no statuses."""
    wanted = list(names)
    chosen = statuses if "*" in wanted else [name for name in wanted if name in statuses]
    return StatusReply(statuses={name: statuses[name]() for name in chosen})


class About:
    """Base class that gives the implementation of a service the methods `Version` and `Status`."""

    def statuses(self) -> dict[str, Callable[[], str]]:
        """Return the statuses of this service: for each name, the function that computes it."""
        return {"overall_load": lambda: str(overall_load())}

    async def Version(self, _request: VersionRequest, _call: object) -> VersionInfo:
        """Answer `Version`."""
        return version_info()

    async def Status(self, request: StatusRequest, _call: object) -> StatusReply:
        """Answer `Status`."""
        return status_reply(request.names, self.statuses())
