"""Uploads and downloads of versions: chunk by chunk, with a hash over all of them."""

from __future__ import annotations

import base64
import errno
import hashlib
import logging
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

import trio

from trio_cogment.api.model_registry_pb2 import ModelVersionInfo
from trio_cogment.base.errors import (
    InvalidArgumentError,
    ResourceExhaustedError,
    RpcError,
    StatusCode,
    UnavailableError,
)
from trio_cogment.base.host.blocking import Runner
from trio_cogment.base.recount import Count
from trio_cogment.servers.model_registry._holdings import Reservation
from trio_cogment.servers.model_registry._model import Model, shown
from trio_cogment.servers.model_registry._version_cache import Payload
from trio_cogment.servers.model_registry.blobs import Blob, Upload

# The errors of the storage, and what callers get for them.

logger = logging.getLogger(__name__)

_NO_ROOM = frozenset([errno.ENOSPC, errno.EDQUOT])


@contextmanager
def storage_errors(doing: str, *, log: bool = True) -> Iterator[None]:
    """Translate the errors of the storage for a caller. Details are logged; without `log` they are in the error.

    Raises:
        ResourceExhaustedError: the storage is full.
        UnavailableError: it failed in another way.
        FileExistsError: passed through, as callers that can get one handle it.
    """
    try:
        yield
    except FileExistsError:
        raise
    except OSError as error:
        if log:
            logger.error("model registry: %s: %s", doing, error)
        if error.errno in _NO_ROOM:
            raise ResourceExhaustedError(f"{doing}: there is no room left in the storage") from error
        reason = os.strerror(error.errno) if error.errno else "unknown error"
        if error.filename and not log:
            reason = f"{error.strerror or reason} ({error.filename})"  # whoever starts the registry may see the path
        raise UnavailableError(f"{doing}: the storage failed: {reason}") from error


T = TypeVar("T")

#: Small chunks are collected until there is this much to write.
_WRITE_BYTES = 256 * 1024
#: How long a call that was cancelled may wait until its unfinished upload is removed.
_CLEANUP_SECONDS = 10.0


def hash_text(digest: bytes) -> str:
    """Return a hash in the form of the API."""
    return base64.b64encode(digest).decode()


class UploadMemory:
    """Limits the bytes that all uploads together hold in memory.

    Args:
        limit: how many bytes.
    """

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.used = 0

    def recount(self) -> Iterator[Count]:
        """See `trio_cogment.base.recount`."""
        yield Count("bytes of uploads to memory", self.used, self.used)

    def check(self, size: int) -> None:
        """Raise ResourceExhaustedError if this many bytes can never fit."""
        if size > self.limit:
            raise ResourceExhaustedError(
                f"data_size: {size} bytes are too many for a version that is not archived; cache_max_bytes is "
                f"{self.limit}. Archive it"
            )

    def take(self, size: int) -> None:
        """Reserve bytes, or raise ResourceExhaustedError."""
        if self.used + size > self.limit:
            raise ResourceExhaustedError(
                f"versions that are not archived are being uploaded with more than {self.limit} bytes together "
                "(cache_max_bytes); try again later"
            )
        self.used += size

    def give_back(self, size: int) -> None:
        """Undo `take`."""
        self.used -= size


class AnnouncedUploads:
    """What the uploads to the storage that are under way will still write."""

    def __init__(self) -> None:
        self._uploads: list[IncomingVersion] = []

    def check(self, size: int, free: int | None) -> None:
        """Raise ResourceExhaustedError if this many bytes have no room beside them in what is free."""
        announced = sum(upload.missing for upload in self._uploads)
        if free is not None and size + announced > free:
            raise ResourceExhaustedError(
                f"data_size: {size} bytes are announced, and {announced} more of other uploads; the storage has room "
                f"for {free}"
            )

    def recount(self) -> Iterator[Count]:
        """See `trio_cogment.base.recount`."""
        yield Count("uploads to the storage", len(self._uploads), len(self._uploads))

    @contextmanager
    def coming(self, upload: IncomingVersion) -> Iterator[None]:
        """Count an upload, for the time of the block."""
        self._uploads.append(upload)
        try:
            yield
        finally:
            self._uploads.remove(upload)


class ToMemory:
    """The destination of a version that is kept in memory.

    Attributes:
        payload: the bytes.
    """

    def __init__(self, memory: UploadMemory, size: int) -> None:
        memory.check(size)
        self.payload = Payload()
        self._memory = memory
        self._taken = 0

    def admit(self, size: int) -> None:
        """Reserve memory for more bytes."""
        self._memory.take(size)
        self._taken += size

    def write(self, data: bytes) -> None:
        """Append."""
        self.payload.append(data)

    def finish(self) -> None:
        """Take note that the bytes are complete."""
        self.payload.finish()

    async def discard(self, run: Runner) -> None:
        """Release the reserved memory: the bytes are dropped, or the cache counts them. Nothing may follow."""
        self._memory.give_back(self._taken)


class ToStore:
    """The destination of a version that goes into the storage.

    Attributes:
        upload: the upload to the storage; None before the first byte.
    """

    def __init__(self, begin: Callable[[], Upload]) -> None:
        self.upload: Upload | None = None
        self._begin = begin

    def admit(self, size: int) -> None:
        """Accept any number of bytes."""

    def write(self, data: bytes) -> None:
        """Append."""
        if self.upload is None:
            self.upload = self._begin()
        self.upload.write(data)

    def finish(self) -> None:
        """Make it durable."""
        if self.upload is None:
            self.upload = self._begin()
        self.upload.finish()

    async def discard(self, run: Runner) -> None:
        """Remove it, unless it was committed."""
        if self.upload is not None:
            with trio.CancelScope(shield=True, deadline=trio.current_time() + _CLEANUP_SECONDS):
                await run(self.upload.abort)


class IncomingVersion:
    """A version that is being uploaded.

    Args:
        run: runs what blocks.

    Attributes:
        model: whose.
        info: what the client says about it.
        target: where its bytes go.
        digest: the hash of what came, after `finish`.
        reservation: the room that was made for it.
    """

    def __init__(
        self,
        model: Model,
        info: ModelVersionInfo,
        target: ToMemory | ToStore,
        run: Runner,
        reservation: Reservation,
    ) -> None:
        self.reservation = reservation
        self.model = model
        self.info = info
        self.digest = ""
        self.target = target
        self._run = run
        self._hash = hashlib.sha256()
        self._size = 0
        self._pending: list[bytes] = []
        self._pending_bytes = 0

    @property
    def missing(self) -> int:
        """How many of the announced bytes have not come."""
        return max(0, self.info.data_size - self._size)

    async def write(self, data: bytes) -> None:
        """Append.

        Raises:
            InvalidArgumentError: it is more than was announced.
            NotFoundError: the model was deleted.
            ResourceExhaustedError: memory or storage is full.
            UnavailableError: the storage failed.
        """
        self.model.check()
        if not data:
            return  # however many come, there is nothing to keep
        self._size += len(data)
        if self._size > self.info.data_size:
            raise InvalidArgumentError(
                f"data_size: expected {self.info.data_size} bytes as announced, got {self._size} or more"
            )
        self.target.admit(len(data))
        self._pending.append(data)
        self._pending_bytes += len(data)
        if self._pending_bytes >= _WRITE_BYTES:
            await self._flush()

    async def _flush(self) -> None:
        data = self._pending[0] if len(self._pending) == 1 else b"".join(self._pending)
        self._pending.clear()
        self._pending_bytes = 0
        await self._blocking(self._take, data)

    def _take(self, data: bytes) -> None:
        self._hash.update(data)
        self.target.write(data)

    async def finish(self) -> None:
        """Check what was received and make it durable; `digest` is its hash then.

        Raises:
            InvalidArgumentError: it is not what was announced.
            NotFoundError, ResourceExhaustedError, UnavailableError: as `write`.
        """
        if self._size != self.info.data_size:
            raise InvalidArgumentError(
                f"data_size: expected {self.info.data_size} bytes as announced, got {self._size}"
            )
        await self._flush()
        self.digest = hash_text(self._hash.digest())
        if self.info.data_hash and self.info.data_hash != self.digest:
            raise InvalidArgumentError(
                f"data_hash: expected that of the bytes that came, {self.digest}, got {self.info.data_hash[:80]!r}"
            )
        await self._blocking(self.target.finish)

    async def _blocking(self, function: Callable[..., T], *args: object) -> T:
        with storage_errors(f"storing a version of model {shown(self.model.model_id)}"):
            return await self._run(function, *args)

    async def discard(self) -> None:
        """Remove everything that was not committed."""
        await self.target.discard(self._run)


class OutgoingVersion:
    """A version that is being downloaded; `async with` closes it.

    Attributes:
        info: what is said about it.
    """

    def __init__(self, model: Model, info: ModelVersionInfo, source: Blob | Payload, chunk: int, run: Runner) -> None:
        self.info = info
        self._model = model
        self._source = source
        self._chunk = chunk
        self._run = run
        self._offset = 0
        self._hash = hashlib.sha256()
        self._pieces: Iterator[bytes] = iter(()) if not isinstance(source, Payload) else source.chunks(chunk)

    async def next_chunk(self) -> bytes | None:
        """Return the next bytes; None at the end.

        Raises:
            NotFoundError: the model was deleted.
            RpcError: DATA_LOSS, the bytes are not those that were stored. Comes instead of the last chunk.
            UnavailableError: the storage failed.
        """
        self._model.check()
        if isinstance(self._source, Payload):
            return next(self._pieces, None)
        if self._offset >= self.info.data_size:
            return None
        with storage_errors(f"reading a version of model {shown(self._model.model_id)}"):
            data = await self._run(self._read, self._source)
        self._offset += len(data)
        lost = not data
        if self._offset >= self.info.data_size and self.info.data_hash:
            lost = hash_text(self._hash.digest()) != self.info.data_hash
        if lost:
            text = f"model {shown(self._model.model_id)}: version {self.info.version_number} is damaged in the storage"
            raise RpcError(StatusCode.DATA_LOSS, text)
        return data

    def _read(self, blob: Blob) -> bytes:
        data = blob.read(self._offset, min(self._chunk, self.info.data_size - self._offset))
        self._hash.update(data)
        return data

    async def __aenter__(self) -> OutgoingVersion:
        return self

    async def __aexit__(self, *_: object) -> None:
        if not isinstance(self._source, Payload):
            self._source.close()  # a descriptor that was only read from closes at once
