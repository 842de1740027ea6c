"""The newest version of a model, kept up to date while a block runs."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import trio

from trio_cogment.api.model_registry_pb2 import ModelVersionInfo, VersionUpdateRequest
from trio_cogment.errors import RpcError, StatusCode
from trio_cogment.rpc import CallOpener, methods_of
from trio_cogment.services import SERVICES, ServiceKind

_VERSION_UPDATE = methods_of(SERVICES[ServiceKind.MODEL_REGISTRY].descriptor())["VersionUpdate"]

#: The pause before a registry that is away is asked again; each further one is twice as long, up to the second.
FIRST_PAUSE_SECONDS = 0.25
LONGEST_PAUSE_SECONDS = 5.0


class LatestVersion:
    """The newest version of a model; `ModelRegistryClient.track_latest` makes it.

    `async for info in latest` gives the version there is, if there is one, and then each newer one; who takes long gets
    the newest then, and not those between.

    Attributes:
        info: what is said about it; None as long as there is none.

    While the registry is away, `info` stays what it was. Waiting and iterating raise `RpcError` when there will be no
    more: with NOT_FOUND if there is no such model, or not any more.
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
        """Its number; 0 as long as there is none."""
        return 0 if self.info is None else self.info.version_number

    async def wait_available(self) -> ModelVersionInfo:
        """Wait until there is a version; return what is said about the newest."""
        await self._wait_beyond(0)
        assert self.info is not None
        return self.info

    async def wait_newer(self) -> ModelVersionInfo:
        """Wait for a version newer than the one there is now; return what is said about the newest."""
        await self._wait_beyond(self._count)
        assert self.info is not None
        return self.info

    async def retrieve(self) -> tuple[ModelVersionInfo, bytes]:
        """Wait until there is a version; return the newest with its bytes.

        Raises:
            RpcError: as above; NOT_FOUND also when it is there no more, which a version that is not archived may be.
        """
        info = await self.wait_available()
        return info, await self._fetch(info.version_number)

    def __aiter__(self) -> LatestVersions:
        return LatestVersions(self)

    async def _wait_beyond(self, count: int) -> int:
        """Wait until something has changed since `count`; return the new count."""
        await trio.lowlevel.checkpoint()
        while self._count <= count:
            if self._end is not None:
                raise RpcError(self._end.code, self._end.message, self._end.trailing_metadata)
            await self._changed.park()
        return self._count

    async def run(self) -> None:
        """Follow the model until that is over."""
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
        # A registry that is back may have lost its newest version, and tell of an older one. A model that was deleted
        # and made again has lower numbers, too, but what it has is newer.
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
