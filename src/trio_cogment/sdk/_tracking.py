"""The newest version of a model, kept up to date while a block runs."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import trio

from trio_cogment.api.model_registry_pb2 import ModelVersionInfo, VersionUpdateRequest
from trio_cogment.base.errors import RpcError, StatusCode
from trio_cogment.base.services import SERVICES, ServiceKind
from trio_cogment.rpc import CallOpener, methods_of

_VERSION_UPDATE = methods_of(SERVICES[ServiceKind.MODEL_REGISTRY].descriptor())["VersionUpdate"]

#: The pause before reconnecting to a registry; each further pause is twice as long, up to the longest.
FIRST_PAUSE_SECONDS = 0.25
LONGEST_PAUSE_SECONDS = 5.0


class LatestVersion:
    """The newest version of a model; made by `ModelRegistryClient.track_latest`.

    `async for info in latest` yields the current version, if there is one, and then each newer one. A slow loop skips
    versions and gets the newest.

    Attributes:
        info: the description of the newest version; None if there is none yet.

    While the registry cannot be reached, `info` stays the same. Waiting and iterating raise `RpcError` when there will
    be no more versions: with NOT_FOUND if the model does not exist, or has been deleted.
    """

    def __init__(self, opener: CallOpener, name: str, fetch: Callable[[int], Awaitable[bytes]]) -> None:
        self.name = name
        self.info: ModelVersionInfo | None = None
        self._opener = opener
        self._fetch = fetch
        self._count = 0
        self._end: RpcError | None = None
        self._changed = trio.lowlevel.ParkingLot()

    @property
    def number(self) -> int:
        """The number of the newest version; 0 if there is none yet."""
        return 0 if self.info is None else self.info.version_number

    async def wait_available(self) -> ModelVersionInfo:
        """Wait until there is a version; return the description of the newest."""
        await self._wait_beyond(0)
        assert self.info is not None
        return self.info

    async def wait_newer(self) -> ModelVersionInfo:
        """Wait for a version newer than the current one; return the description of the newest."""
        await self._wait_beyond(self._count)
        assert self.info is not None
        return self.info

    async def retrieve(self) -> tuple[ModelVersionInfo, bytes]:
        """Wait until there is a version; return the description and the bytes of the newest.

        Raises:
            RpcError: as above; NOT_FOUND also when the version is gone, which can happen if it is not archived.
        """
        info = await self.wait_available()
        return info, await self._fetch(info.version_number)

    def __aiter__(self) -> LatestVersions:
        return LatestVersions(self)

    async def _wait_beyond(self, count: int) -> int:
        """Wait until there are more than `count` updates; return their number."""
        await trio.lowlevel.checkpoint()
        while self._count <= count:
            if self._end is not None:
                raise RpcError(self._end.code, self._end.message, self._end.trailing_metadata)
            await self._changed.park()
        return self._count

    async def run(self) -> None:
        """Follow the model, reconnecting as needed, until an error says that there will be no more versions."""
        pause = FIRST_PAUSE_SECONDS
        while self._end is None:
            before = self._count
            try:
                await self._follow()
            except RpcError as error:
                if error.code is not StatusCode.UNAVAILABLE:
                    self._end = error
                    self._changed.unpark_all()
                    return
            pause = FIRST_PAUSE_SECONDS if self._count > before else min(2 * pause, LONGEST_PAUSE_SECONDS)
            await trio.sleep(pause)

    async def _follow(self) -> None:
        async with self._opener.call(_VERSION_UPDATE, wait_for_ready=True) as call:
            await call.send(VersionUpdateRequest(model_id=self.name))
            await call.done_sending()
            async for update in call:
                self._take(update.version_info)

    def _take(self, info: ModelVersionInfo) -> None:
        # A registry that restarted may have lost its newest version and report an older one. A model that was deleted
        # and created again has lower numbers too, but its versions are newer.
        held = self.info
        if held and info.version_number <= held.version_number and info.creation_timestamp <= held.creation_timestamp:
            return
        self.info = info
        self._count += 1
        self._changed.unpark_all()


class LatestVersions:
    """An iteration over a `LatestVersion`."""

    def __init__(self, latest: LatestVersion) -> None:
        self._latest = latest
        self._seen = 0

    def __aiter__(self) -> LatestVersions:
        return self

    async def __anext__(self) -> ModelVersionInfo:
        self._seen = await self._latest._wait_beyond(self._seen)
        assert self._latest.info is not None
        return self._latest.info
