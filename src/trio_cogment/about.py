"""What every server of ours answers to `Version` and `Status`."""

from __future__ import annotations

import os
import platform
from collections.abc import Callable, Iterable

from trio_cogment._version import __version__
from trio_cogment.api.common_pb2 import StatusReply, StatusRequest, VersionInfo, VersionRequest

#: The release of the Cogment API that the messages in `protos/` follow.
API_VERSION = "2.22.0"
#: The transport is our own, so its version is ours.
GRPC_VERSION = f"trio-cogment {__version__}"

#: The highest load a Cogment directory understands as "loaded"; 255 means "do not use".
_HIGHEST_LOAD = 254


def overall_load() -> int:
    """Return the machine's load in percent of its processors (one-minute average), from 0 to 254."""
    try:
        load = os.getloadavg()[0]
    except OSError:  # not every system keeps one
        return 0
    return max(0, min(_HIGHEST_LOAD, round(100 * load / (os.cpu_count() or 1))))


def version_info() -> VersionInfo:
    """Return the versions a peer may want to know."""
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
