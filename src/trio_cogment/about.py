"""What every server of ours answers to `Version` and `Status`."""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Callable, Iterable

from trio_cogment._version import __version__
from trio_cogment.api.common_pb2 import StatusReply, StatusRequest, VersionInfo, VersionRequest

#: The release of the Cogment API that the messages in `protos/` follow.
API_VERSION = "2.22.0"
#: The transport is our own, so its version is ours.
GRPC_VERSION = f"trio-cogment {__version__}"

_HIGHEST_LOAD = 100
#: The load is measured over this long at least; who asks more often gets the same answer.
_LOAD_SECONDS = 1.0


class LoadMeter:
    """How near to its limit this server is, from 0 to 100.

    That is the larger of two shares. One is this process's use of one processor since somebody asked before: a server
    runs in one thread, so it can do no more than that. The other is the machine's one-minute load average by its number
    of processors: with nobody else on it the server may still be waiting for its turn.

    Args:
        cpu_seconds: the processor time this process has used.
        clock: seconds that never go back, nor jump with the time of day.
        machine: the machine's share, from 0 to 1 or more.
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
        """Return the load; cheap enough for whoever asks, however often."""
        now = self._clock()
        began, used_before = self._before
        if now - began >= _LOAD_SECONDS:
            used = self._cpu_seconds()
            self._share = (used - used_before) / (now - began)
            self._before = (now, used)
        return max(0, min(_HIGHEST_LOAD, round(100 * max(self._share, self._machine()))))


def machine_share() -> float:
    """Return the machine's one-minute load average by its number of processors; 0 where none is kept."""
    try:
        return os.getloadavg()[0] / (os.cpu_count() or 1)
    except OSError:
        return 0.0


_load = LoadMeter(time.process_time, time.monotonic, machine_share)


def overall_load() -> int:
    """Return the load of this process and its machine, from 0 to 100; see `LoadMeter`."""
    return _load.percent()


def version_info() -> VersionInfo:
    """Return the versions a peer may want to know.

    There is no entry `cogment`: the reference's own has its version there, and we are another program.
    """
    entries = {
        "trio-cogment": __version__,
        "cogment-api": API_VERSION,
        "grpc": GRPC_VERSION,
        "python": platform.python_version(),
    }
    return VersionInfo(versions=[VersionInfo.Version(name=name, version=text) for name, text in entries.items()])


def status_reply(names: Iterable[str], statuses: dict[str, Callable[[], str]]) -> StatusReply:
    """Return the asked-for statuses: `*` means all, unknown names are ignored, none asked means none."""
    wanted = list(names)
    chosen = statuses if "*" in wanted else [name for name in wanted if name in statuses]
    return StatusReply(statuses={name: statuses[name]() for name in chosen})


class About:
    """`Version` and `Status`, to be inherited by the implementation of a service."""

    def statuses(self) -> dict[str, Callable[[], str]]:
        """Return the standard statuses of this service, each with what computes it."""
        return {"overall_load": lambda: str(overall_load())}

    async def Version(self, _request: VersionRequest, _call: object) -> VersionInfo:
        """Answer `Version`."""
        return version_info()

    async def Status(self, request: StatusRequest, _call: object) -> StatusReply:
        """Answer `Status`."""
        return status_reply(request.names, self.statuses())
