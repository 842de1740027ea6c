"""The model registry: models, their versions, and the watches that follow them."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, nullcontext
from types import TracebackType
from typing import TypeVar

import trio

from trio_cogment.api.model_registry_pb2 import ModelInfo, ModelVersionInfo
from trio_cogment.base.config import ModelRegistryConfig
from trio_cogment.base.errors import (
    FailedPreconditionError,
    InvalidArgumentError,
    NotFoundError,
    UnavailableError,
)
from trio_cogment.base.host import Host, Runner
from trio_cogment.base.host.files import LockedError
from trio_cogment.base.object_store import is_object_url
from trio_cogment.budget.transfer_slots import Transfer, TransferSlots
from trio_cogment.servers.model_registry._archive import Archive
from trio_cogment.servers.model_registry._holdings import THIS_PROGRAM, Caller, Holdings
from trio_cogment.servers.model_registry._local_blobs import LocalBlobs
from trio_cogment.servers.model_registry._model import Model, VersionWatch, shown
from trio_cogment.servers.model_registry._object_blobs import ObjectBlobs
from trio_cogment.servers.model_registry._transfers import (
    AnnouncedUploads,
    IncomingVersion,
    OutgoingVersion,
    ToMemory,
    ToStore,
    UploadMemory,
    storage_errors,
)
from trio_cogment.servers.model_registry._version_cache import Payload, Transient, TransientCache
from trio_cogment.servers.model_registry.blobs import Blob, BlobStore

T = TypeVar("T")

#: How long closing the store may take after a cancellation.
_CLOSE_SECONDS = 10.0
#: How many numbers are tried if another program takes them first.
_ATTEMPTS = 16

#: The chunks of all downloads together, as long as that leaves enough for each.
_CHUNKS_BYTES = 16 * 1024 * 1024
_LEAST_CHUNK_BYTES = 256 * 1024


def _account_of(model: object) -> str:
    return model.owner if isinstance(model, Model) else ""


class ModelRegistry:
    """Keeps models and their versions; use it as `async with ModelRegistry(...) as registry`, and serve
    its `model_registry_services` within the block.

    Entering opens the storage and finishes what was interrupted. Leaving ends all watches with UnavailableError and
    closes the storage; later calls raise UnavailableError. The same holds after a cancellation: what was being written
    is there completely, or only as a temporary file, which the next start removes.

    Args:
        store: keeps what is archived: a folder, which is made if need be (see `LocalBlobs`), a prefix of a bucket such
            as `s3://bucket/prefix` (see `ObjectBlobs`; needs the extra `s3`), or another storage.
        config: limits.
        host: gives the time of the day, the files of a folder, and the threads for what blocks.

    Entering raises FailedPreconditionError where another process uses the storage, or where it is a bucket whose server
    overwrites what is only to be created; InvalidArgumentError and MissingExtraError where the address of a bucket is
    wrong, or an extra is missing; ResourceExhaustedError and UnavailableError where it failed.

    Every method that takes an id raises InvalidArgumentError for an empty one, and NotFoundError where there is no such
    model; and every one, ResourceExhaustedError when the storage has no room and UnavailableError when it fails. Then
    nothing has changed.
    """

    def __init__(
        self,
        store: BlobStore | str | os.PathLike[str],
        *,
        config: ModelRegistryConfig | None = None,
        host: Host | None = None,
    ) -> None:
        self.config = config or ModelRegistryConfig()
        self.models: dict[str, Model] = {}
        self._host = host or Host()
        if isinstance(store, str | os.PathLike):
            store = ObjectBlobs(store) if is_object_url(store) else LocalBlobs(store, files=self._host.files)
        self._archive = Archive(store)
        self._run: Runner | None = None
        self._cache = TransientCache(self.config.cache_max_items, self.config.cache_max_bytes, _account_of)
        self._receiving = UploadMemory(self.config.cache_max_bytes)
        self._announced = AnnouncedUploads()
        self._changing = trio.Lock()
        self.holdings = Holdings(self._measure)
        self.uploads = TransferSlots(self.config.max_uploads, self.config)
        self.downloads = TransferSlots(self.config.max_downloads, self.config)
        self._stopping = False

    async def __aenter__(self) -> ModelRegistry:
        run = self._host.runner(self.config.storage_threads)
        try:
            with storage_errors("opening the archive", log=False):
                found = await run(self._archive.open)
        except UnavailableError as error:
            if isinstance(error.__cause__, BlockingIOError):
                who = error.__cause__.who if isinstance(error.__cause__, LockedError) else ""
                raise FailedPreconditionError(f"the archive is in use by another model registry{who}") from None
            raise
        for one in found:
            model = self.models[one.model_id] = Model(one.model_id, one.folder, one.numbers, one.last, one.owner)
            if model.owner:
                self.holdings.counts.take(model.owner, 1, None)
            self.holdings.add(model)
        self._run = run
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.stop()
        run, self._run = self._run, None
        assert run is not None
        with trio.CancelScope(shield=True, deadline=trio.current_time() + _CLOSE_SECONDS):
            await run(self._archive.close)

    def stop(self) -> None:
        """End all watches, and new ones, with UNAVAILABLE: the registry is stopping."""
        self._stopping = True
        for model in self.models.values():
            model.end(UnavailableError("the model registry is stopping"))

    async def blocking(self, doing: str, function: Callable[..., T], *args: object) -> T:
        """Run a blocking function; see `storage_errors`."""
        with storage_errors(doing):
            return await self._runner()(function, *args)

    def _runner(self) -> Runner:
        if self._run is None:
            raise UnavailableError("the model registry is not running")
        return self._run

    # Models

    def find(self, model_id: str) -> Model:
        """Return a model."""
        if not model_id:
            raise InvalidArgumentError("model_id: expected an id, got nothing")
        model = self.models.get(model_id)
        if model is None:
            raise NotFoundError(f"model_id: there is no model {shown(model_id)}")
        return model

    async def create_or_update(self, info: ModelInfo, by: Caller = THIS_PROGRAM) -> None:
        """Create a model, or replace its user data; durable when this returns.

        Raises:
            PermissionDeniedError: it is somebody else's.
            QuotaError: the caller has too much already.
        """
        if not info.model_id:
            raise InvalidArgumentError("model_info.model_id: expected an id, got nothing")
        self.check_metadata("model_info", info)
        doing = f"storing model {shown(info.model_id)}"
        async with self._changing:
            model = self.models.get(info.model_id)
            if model is not None:
                by.check_model(model)
                with await self.holdings.reserve(model.owner, info, by.quota_for(model.owner)):
                    async with model.lock:
                        model.grow(await self.blocking(doing, self._archive.update, model.folder, info))
                return
            with await self.holdings.reserve(by.account, info, by.quotas.stored_bytes):
                await self._create(doing, info, by)

    async def _create(self, doing: str, info: ModelInfo, by: Caller) -> None:
        owner, created = by.account, False
        if owner:
            self.holdings.counts.take(owner, 1, by.quotas.models)
        try:
            taken = {one.folder for one in self.models.values()}
            folder, size = await self.blocking(doing, self._archive.create, info, taken, owner)
            created = True
        finally:
            if owner and not created:
                self.holdings.counts.give_back(owner, 1)
        model = self.models[info.model_id] = Model(info.model_id, folder, owner=owner)
        model.bytes = size
        self.holdings.add(model)

    async def _measure(self, model: Model) -> int:
        archived = [number for number in model.numbers if number not in model.transients]
        doing = f"measuring model {shown(model.model_id)}"
        size = await self.blocking(doing, self._archive.measure, model.folder, archived)
        return size + sum(version.counted_bytes for version in model.transients.values())

    async def delete(self, model_id: str, by: Caller = THIS_PROGRAM) -> None:
        """Delete a model with all its versions; durable when this returns.

        A new model of the same id begins with number 1.

        Raises:
            PermissionDeniedError: it is somebody else's.
        """
        async with self._changing:
            model = self.find(model_id)
            by.check_model(model)
            async with model.lock:
                await self.blocking(f"deleting model {shown(model_id)}", self._archive.delete, model.folder)
                model.deleted = True
                del self.models[model_id]
                self.holdings.remove(model)
        for version in model.transients.values():
            self._cache.remove(version)
        model.end(NotFoundError(f"model_id: model {shown(model_id)} was deleted"))

    def check_metadata(self, field: str, info: ModelInfo | ModelVersionInfo) -> None:
        """Raise InvalidArgumentError for an id and user data that are too long together."""
        size = len(info.model_id.encode())
        size += sum(len(name.encode()) + len(value.encode()) for name, value in info.user_data.items())
        if size > self.config.max_metadata_bytes:
            raise InvalidArgumentError(
                f"{field}: expected model_id and user_data of at most {self.config.max_metadata_bytes} bytes "
                f"together, got {size}"
            )

    async def model_infos(self, models: list[Model]) -> list[tuple[Model, ModelInfo]]:
        """Return the descriptions of models; those that are deleted meanwhile are left out."""

        def read() -> list[ModelInfo]:
            return [self._archive.read_model(model.model_id, model.folder) for model in models]

        infos = await self.blocking("reading models", read)
        return [(model, info) for model, info in zip(models, infos, strict=True) if not model.deleted]

    # Versions

    async def version_infos(self, model: Model, numbers: list[int]) -> list[ModelVersionInfo]:
        """Return the descriptions of versions, in the same order; versions that do not exist (any more) are left out.

        Raises:
            NotFoundError: the model was deleted.
        """
        known = {number: version.info for number in numbers if (version := model.transients.get(number))}
        wanted = [number for number in numbers if number not in known and model.find(number)]

        def read() -> dict[int, ModelVersionInfo | None]:
            return {number: self._read_info(model, number) for number in wanted}

        found = await self.blocking(f"reading versions of model {shown(model.model_id)}", read) if wanted else {}
        model.check()
        for number, info in found.items():
            if info is None:
                model.drop(number)
            else:
                known[number] = info
        return [known[number] for number in numbers if number in known]

    def _read_info(self, model: Model, number: int) -> ModelVersionInfo | None:
        try:
            return self._archive.read_info(model.model_id, model.folder, number)
        except FileNotFoundError:
            return None

    async def version(self, model: Model, wanted: int) -> ModelVersionInfo:
        """Return the description of a version: by its number, or the k-th newest one for -k.

        Raises:
            NotFoundError: there is none.
        """
        while (number := model.find(wanted)) is not None:
            infos = await self.version_infos(model, [number])
            if infos:
                return infos[0]
        model.check()
        raise model.missing(wanted)

    @asynccontextmanager
    async def receiving(
        self, info: ModelVersionInfo, transfer: Transfer, by: Caller = THIS_PROGRAM
    ) -> AsyncIterator[IncomingVersion]:
        """Take a new version: write its bytes in the block, then `add` it; otherwise it leaves nothing.

        Waits for a slot while too many are being received.

        Raises:
            PermissionDeniedError: the model is somebody else's.
            QuotaError: its owner has too much already.
        """
        self.check_metadata("version_info", info)
        model = self.find(info.model_id)
        by.check_model(model)
        run = self._runner()
        target = ToStore(self._archive.store.upload) if info.archived else ToMemory(self._receiving, info.data_size)
        async with self.uploads.slot(transfer):
            with await self.holdings.reserve(model.owner, info, by.quota_for(model.owner)) as reservation:
                upload = IncomingVersion(model, info, target, run, reservation)
                if info.archived:
                    self._announced.check(info.data_size, await self._free_bytes())
                try:
                    with self._announced.coming(upload) if info.archived else nullcontext():
                        yield upload
                finally:
                    await upload.discard()

    async def _free_bytes(self) -> int | None:
        free = getattr(self._archive.store, "free_bytes", None)
        found: int | None = None if free is None else await self.blocking("looking for free space", free)
        return found

    async def add(self, upload: IncomingVersion) -> ModelVersionInfo:
        """Give a version its number and make it visible, in one step. If it is archived it is durable before.

        Raises:
            InvalidArgumentError: it is not what was announced.
            NotFoundError: the model was deleted.

        After `Cancelled` it is either there or not; if this returns, it is there.
        """
        await upload.finish()
        model = upload.model
        async with model.lock:
            model.check()
            for _ in range(_ATTEMPTS):
                info = self._numbered(upload)
                try:
                    size = await self._store(upload, info)
                    break
                except FileExistsError:
                    continue
            else:
                raise UnavailableError("another program writes to the archive")
            # No checkpoint from here on, so that a cancellation cannot hide a version that is durable.
            model.add(info)
            model.grow(size)
            upload.reservation.release()
        return info

    def _numbered(self, upload: IncomingVersion) -> ModelVersionInfo:
        given = upload.info
        return ModelVersionInfo(
            model_id=given.model_id,
            version_number=upload.model.next_number(),
            creation_timestamp=given.creation_timestamp or self._host.wall_clock(),
            archived=given.archived,
            data_hash=upload.digest,
            data_size=given.data_size,
            user_data=given.user_data,
        )

    async def _store(self, upload: IncomingVersion, info: ModelVersionInfo) -> int:
        """Store a version; return what it takes."""
        model, target = upload.model, upload.target
        doing = f"storing a version of model {shown(model.model_id)}"
        if isinstance(target, ToStore):
            assert target.upload is not None
            return await self.blocking(doing, self._archive.add, model.folder, info, target.upload)
        await self.blocking(doing, self._archive.keep_last, model.folder, info.version_number)
        version = Transient(model, info, target.payload)
        model.transients[info.version_number] = version
        for evicted in self._cache.add(version):
            assert isinstance(evicted.owner, Model)
            evicted.owner.drop(evicted.info.version_number)
        return version.counted_bytes

    @asynccontextmanager
    async def sending(self, model_id: str, wanted: int, transfer: Transfer) -> AsyncIterator[OutgoingVersion]:
        """Hand out a version's bytes; see `version` for the number. Waits while too many versions are being sent.

        Raises:
            NotFoundError: there is none.
        """
        model = self.find(model_id)
        run = self._runner()
        async with self.downloads.slot(transfer):
            info = await self.version(model, wanted)
            source = await self._source(model, info)
            # A chunk is held several times over until its client takes it: many of them are smaller.
            chunk = min(
                self.config.sent_version_chunk_bytes, max(_LEAST_CHUNK_BYTES, _CHUNKS_BYTES // self.downloads.crowd)
            )
            async with OutgoingVersion(model, info, source, chunk, run) as sending:
                yield sending

    async def _source(self, model: Model, info: ModelVersionInfo) -> Blob | Payload:
        if not info.archived:
            version = model.transients[info.version_number]  # which has just been found; no checkpoint lies between
            self._cache.touch(version)
            return version.payload
        doing = f"opening a version of model {shown(model.model_id)}"
        try:
            return await self.blocking(doing, self._archive.open_data, model.folder, info.version_number)
        except UnavailableError:
            model.check()  # that is why, then
            raise

    @contextmanager
    def watching(self, model: Model) -> Iterator[VersionWatch]:
        """Follow a model: every version from now on. The watch ends with NotFoundError when the model is deleted.

        Raises:
            UnavailableError: the registry is stopping.
        """
        if self._stopping:
            raise UnavailableError("the model registry is stopping")
        model.check()
        watch = VersionWatch(self.config.watch_queue_versions)
        model.watches[watch] = None
        try:
            yield watch
        finally:
            del model.watches[watch]
