"""The service `ModelRegistrySP` in front of a `ModelRegistry`: it checks requests and builds replies."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable, Sequence
from typing import Any

import trio
from google.protobuf.message import Message
from purerpc import Service
from typing_extensions import override

from trio_cogment.api.model_registry_pb2 import (
    CreateOrUpdateModelReply,
    CreateOrUpdateModelRequest,
    CreateVersionReply,
    CreateVersionRequestChunk,
    DeleteModelReply,
    DeleteModelRequest,
    ModelVersionInfo,
    RetrieveModelsReply,
    RetrieveModelsRequest,
    RetrieveVersionDataReplyChunk,
    RetrieveVersionDataRequest,
    RetrieveVersionInfosReply,
    RetrieveVersionInfosRequest,
    VersionUpdateReply,
    VersionUpdateRequest,
)
from trio_cogment.base.about import About
from trio_cogment.base.errors import InvalidArgumentError, NotFoundError, RpcError, StatusCode
from trio_cogment.base.services import SERVICES, ServiceKind
from trio_cogment.base.shared_message import SharedMessage, field_tag, varint
from trio_cogment.base.tracing import annotate
from trio_cogment.budget.transfer_slots import Transfer, transfer_of
from trio_cogment.rpc import ServerCall, bind
from trio_cogment.servers.model_registry._holdings import Caller
from trio_cogment.servers.model_registry._model import Model
from trio_cogment.servers.model_registry._model_registry import ModelRegistry

# Pages of lists, and the handles that lead from one page to the next. No I/O.
#
# A handle says where the next page begins, in terms that stay true when the list changes: a version's number, the id of
# the last model, or, where the request itself names what it wants, how many of these have been answered.

#: In front of the id of the last model of a page. The reference's handles are numbers, which are understood too.
AFTER = "after:"
#: Longer lists of ids or numbers in one request are refused.
MAX_NAMED = 10_000

_DATA_CHUNK = field_tag(RetrieveVersionDataReplyChunk, "data_chunk")
_DIGITS = re.compile(r"[0-9]{1,20}")


def position_of(handle: str, field: str) -> int:
    """Return the number that a handle is; nothing means 0.

    Raises:
        InvalidArgumentError: it is none.
    """
    if handle == "":
        return 0
    if not _DIGITS.fullmatch(handle):
        raise InvalidArgumentError(f"{field}: expected a handle from the page before, or nothing, got {handle[:80]!r}")
    return int(handle)


def start_among(ids: Sequence[str], handle: str, field: str) -> int:
    """Return where a page of sorted ids begins.

    Raises:
        InvalidArgumentError: the handle is none.
    """
    if handle.startswith(AFTER):
        return bisect_right(ids, handle.removeprefix(AFTER))
    return min(position_of(handle, field), len(ids))


def check_named(names: Sequence[object], field: str) -> None:
    """Raise InvalidArgumentError when a request names too many things."""
    if len(names) > MAX_NAMED:
        raise InvalidArgumentError(f"{field}: expected at most {MAX_NAMED}, got {len(names)}")


class Page:
    """Rows of a reply, until there are enough.

    Args:
        count: how many are wanted at most; 0 for all.
        max_bytes: how long they may be together; there is one row at least.
    """

    def __init__(self, count: int, max_bytes: int) -> None:
        self._count = count
        self._room = max_bytes
        self.rows = 0

    def takes(self, row: Message) -> bool:
        """Whether this row goes onto the page; once one does not, none does."""
        size = row.ByteSize()
        if (self._count and self.rows >= self._count) or (self.rows and size > self._room):
            self._room = -1
            return False
        self.rows += 1
        self._room -= size
        return True

    @property
    def wanted(self) -> int:
        """How many more rows may fit, by their count; more than anybody has, when all are wanted."""
        return self._count - self.rows if self._count else 1 << 62


#: Descriptions that are read from the storage in one step. Other calls get a thread between two steps.
_BATCH = 64


def model_registry_services(registry: ModelRegistry) -> list[Service]:
    """Return the services of a model registry: `ModelRegistrySP`."""
    return [bind(SERVICES[ServiceKind.MODEL_REGISTRY].descriptor(), RegistryService(registry))]


class RegistryService(About):
    """The service, in front of a registry."""

    def __init__(self, registry: ModelRegistry) -> None:
        self._registry = registry

    @override
    def statuses(self) -> dict[str, Callable[[], str]]:
        return super().statuses() | {"nb_models": lambda: str(len(self._registry.models))}

    # Models

    async def CreateOrUpdateModel(self, request: CreateOrUpdateModelRequest, call: ServerCall) -> Any:
        """Create a model, or replace its user data."""
        if not request.HasField("model_info"):
            raise InvalidArgumentError("model_info: expected a model, got nothing")
        await self._registry.create_or_update(request.model_info, Caller.of(call))
        return CreateOrUpdateModelReply()

    async def DeleteModel(self, request: DeleteModelRequest, call: ServerCall) -> DeleteModelReply:
        """Delete a model and all its versions."""
        await self._registry.delete(request.model_id, Caller.of(call))
        return DeleteModelReply()

    async def RetrieveModels(self, request: RetrieveModelsRequest, _call: ServerCall) -> RetrieveModelsReply:
        """Return models by their ids, or all by the order of their ids; page by page."""
        handle = request.model_handle
        if request.model_ids:
            check_named(request.model_ids, "model_ids")
            models = [self._registry.find(model_id) for model_id in request.model_ids]
            start = position_of(handle, "model_handle")
        else:
            ids = sorted(self._registry.models)
            models = [self._registry.models[model_id] for model_id in ids]
            start = start_among(ids, handle, "model_handle")
        page = Page(request.models_count, self._registry.config.max_page_bytes)
        reply = RetrieveModelsReply(next_model_handle=handle or "0")
        position, full = start, False
        while position < len(models) and page.wanted and not full:
            batch = models[position : position + min(_BATCH, page.wanted)]
            found = dict(await self._registry.model_infos(list(dict.fromkeys(batch))))
            for model in batch:
                info = found.get(model)
                if info is None and request.model_ids:
                    model.check()  # deleted in between
                if info is not None:
                    if not page.takes(info):
                        full = True
                        break
                    reply.model_infos.append(info)
                position += 1
                reply.next_model_handle = str(position) if request.model_ids else AFTER + model.model_id
        return reply

    # Versions

    async def CreateVersion(self, call: ServerCall) -> CreateVersionReply:
        """Take a version: the header first, then its bytes."""
        taken = 0
        transfer = transfer_of(call, lambda: taken)
        given = _header_of(await self._next_chunk(call, self._patience_ends(), transfer))
        async with self._registry.receiving(given, transfer, Caller.of(call)) as upload:
            deadline = self._patience_ends()
            # Chunks count against the limit while they are held: with many uploads they would add up.
            while (data := _data_of(await self._next_chunk(call, deadline, transfer))) is not None:
                taken += len(data)
                await upload.write(data)
                if data:  # who sends chunks with nothing in them sends nothing
                    deadline = self._patience_ends()
                del data
            info = await self._registry.add(upload)
            annotate(model_id=info.model_id, model_version=info.version_number)
            return CreateVersionReply(version_info=info)

    def _patience_ends(self) -> float:
        return trio.current_time() + self._registry.config.transfer_stall_seconds

    async def _next_chunk(
        self, call: ServerCall, deadline: float, transfer: Transfer
    ) -> CreateVersionRequestChunk | None:
        chunk: CreateVersionRequestChunk | None = None
        with trio.move_on_at(deadline) as scope, transfer.clients_turn(scope):
            chunk = await call.receive()
        self._registry.uploads.check(transfer)
        if scope.cancelled_caught:
            seconds = self._registry.config.transfer_stall_seconds
            raise RpcError(StatusCode.DEADLINE_EXCEEDED, f"no chunk came for {seconds:g} s")
        return chunk

    async def RetrieveVersionInfos(
        self, request: RetrieveVersionInfosRequest, _call: ServerCall
    ) -> RetrieveVersionInfosReply:
        """Return versions by their numbers, or all from a number on; page by page."""
        model = self._registry.find(request.model_id)
        if request.version_numbers:
            return await self._named_versions(model, request)
        handle = request.version_handle
        numbers = model.since(position_of(handle, "version_handle"))
        page = Page(request.versions_count, self._registry.config.max_page_bytes)
        reply = RetrieveVersionInfosReply(next_version_handle=handle or "0")
        position = 0
        while position < len(numbers) and page.wanted:
            batch = numbers[position : position + min(_BATCH, page.wanted)]
            position += len(batch)
            for info in await self._registry.version_infos(model, batch):
                if not page.takes(info):
                    return reply
                reply.version_infos.append(info)
                reply.next_version_handle = str(info.version_number + 1)
        return reply

    async def _named_versions(self, model: Model, request: RetrieveVersionInfosRequest) -> RetrieveVersionInfosReply:
        check_named(request.version_numbers, "version_numbers")
        start = position_of(request.version_handle, "version_handle")
        for wanted in set(request.version_numbers):
            if model.find(wanted) is None:
                raise model.missing(wanted)
        page = Page(request.versions_count, self._registry.config.max_page_bytes)
        reply = RetrieveVersionInfosReply(next_version_handle=request.version_handle)
        for position, wanted in enumerate(request.version_numbers[start:], start + 1):
            if not page.wanted:
                break
            info = await self._registry.version(model, wanted)
            if not page.takes(info):
                break
            reply.version_infos.append(info)
            reply.next_version_handle = str(position)
        return reply

    async def RetrieveVersionData(self, request: RetrieveVersionDataRequest, call: ServerCall) -> None:
        """Send a version's bytes; one empty chunk when there are none."""
        given = 0
        annotate(model_id=request.model_id, model_version=request.version_number)
        transfer = transfer_of(call, lambda: given)
        async with self._registry.sending(request.model_id, request.version_number, transfer) as version:
            if not version.info.data_size:
                await call.send(RetrieveVersionDataReplyChunk())
            while (data := await version.next_chunk()) is not None:
                await self._send_chunk(call, data, transfer)
                given += len(data)
                del data

    async def _send_chunk(self, call: ServerCall, data: bytes, transfer: Transfer) -> None:
        seconds = self._registry.config.transfer_stall_seconds
        # Two copies fewer than with a message of protobuf.
        chunk = SharedMessage(RetrieveVersionDataReplyChunk, _DATA_CHUNK + varint(len(data)), data)
        with trio.move_on_after(seconds) as scope, transfer.clients_turn(scope):
            await call.send_shared(chunk)
        self._registry.downloads.check(transfer)
        if scope.cancelled_caught:
            raise RpcError(StatusCode.DEADLINE_EXCEEDED, f"no chunk was taken for {seconds:g} s")

    async def VersionUpdate(self, request: VersionUpdateRequest, call: ServerCall) -> None:
        """Send the newest version there is, then each new one, until the client leaves or the model is deleted."""
        model = self._registry.find(request.model_id)
        with self._registry.watching(model) as watch:
            await call.send_initial_metadata()
            try:
                watch.offer_first(await self._registry.version(model, -1))
            except NotFoundError:
                model.check()  # else it has no versions yet
            async for info in watch:
                await call.send(VersionUpdateReply(version_info=info))


def _header_of(chunk: CreateVersionRequestChunk | None) -> ModelVersionInfo:
    if chunk is None:
        raise InvalidArgumentError("msg: expected a header, got nothing")
    if chunk.WhichOneof("msg") != "header":
        raise InvalidArgumentError("msg: expected the header first")
    if not chunk.header.HasField("version_info"):
        raise InvalidArgumentError("header.version_info: expected a version, got nothing")
    if not chunk.header.version_info.model_id:
        raise InvalidArgumentError("version_info.model_id: expected an id, got nothing")
    return chunk.header.version_info


def _data_of(chunk: CreateVersionRequestChunk | None) -> bytes | None:
    if chunk is not None and chunk.WhichOneof("msg") != "body":
        raise InvalidArgumentError("msg: expected a body after the header")
    return None if chunk is None else chunk.body.data_chunk
