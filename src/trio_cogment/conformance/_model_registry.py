"""Cases of a model registry."""

from __future__ import annotations

import base64
import hashlib
from typing import Any

import trio

from trio_cogment.api.model_registry_pb2 import (
    CreateOrUpdateModelRequest,
    CreateVersionRequestChunk,
    DeleteModelRequest,
    ModelInfo,
    ModelVersionInfo,
    RetrieveModelsRequest,
    RetrieveVersionDataRequest,
    RetrieveVersionInfosRequest,
    VersionUpdateRequest,
)
from trio_cogment.base.errors import RpcError
from trio_cogment.base.services import ServiceKind
from trio_cogment.conformance._case import Cases
from trio_cogment.conformance._server import Server

_CASES = Cases("model_registry")
CASES = _CASES.all
_case = _CASES.case
_REGISTRY = ServiceKind.MODEL_REGISTRY
_DATA = bytes(range(256)) * 40


def _hash(data: bytes) -> str:
    return base64.b64encode(hashlib.sha256(data).digest()).decode()


def _header(model_id: str, data: bytes, **changes: Any) -> CreateVersionRequestChunk:
    fields = {"model_id": model_id, "data_size": len(data), "data_hash": _hash(data), **changes}
    return CreateVersionRequestChunk(header=CreateVersionRequestChunk.Header(version_info=ModelVersionInfo(**fields)))


def _body(data: bytes) -> CreateVersionRequestChunk:
    return CreateVersionRequestChunk(body=CreateVersionRequestChunk.Body(data_chunk=data))


async def _model(server: Server, model_id: str = "", **user_data: str) -> str:
    model_id = model_id or server.new_id()
    request = CreateOrUpdateModelRequest(model_info=ModelInfo(model_id=model_id, user_data=user_data))
    await server.ask(_REGISTRY, "CreateOrUpdateModel", request)
    return model_id


async def _version(server: Server, model_id: str, data: bytes = _DATA, **changes: Any) -> Any:
    chunks = [_header(model_id, data, **changes), *([_body(data[:1000]), _body(data[1000:])] if data else [])]
    (reply,) = await server.read(_REGISTRY, "CreateVersion", *chunks)
    return reply.version_info


async def _infos(server: Server, model_id: str, *numbers: int, **options: Any) -> list[int]:
    request = RetrieveVersionInfosRequest(model_id=model_id, version_numbers=numbers, **options)
    reply = await server.ask(_REGISTRY, "RetrieveVersionInfos", request)
    return [info.version_number for info in reply.version_infos]


async def _status_of(server: Server, model_id: str, number: int) -> str:
    try:
        return " ".join(map(str, await _infos(server, model_id, number)))
    except RpcError as error:
        return error.code.name


@_case("CreateOrUpdateModel", documented="{'b': '2'}")
async def updated_model(server: Server) -> str:
    """A model that is updated has the new user data, and nothing of the old."""
    model_id = await _model(server, a="1")
    await _model(server, model_id, b="2")
    reply = await server.ask(_REGISTRY, "RetrieveModels", RetrieveModelsRequest(model_ids=[model_id]))
    return str(dict(sorted(reply.model_infos[0].user_data.items())))  # a map has no order on the wire


@_case("CreateVersion", documented="versions 1, 2; hash and size as sent; data as sent, version 2 by -1")
async def versions_of_a_model(server: Server) -> str:
    """Versions are numbered from 1; what was sent is read back, by number or from the end."""
    model_id = await _model(server)
    first = await _version(server, model_id, b"first")
    second = await _version(server, model_id)
    right = (second.data_hash, second.data_size) == (_hash(_DATA), len(_DATA))
    request = RetrieveVersionDataRequest(model_id=model_id, version_number=-1)
    data = b"".join(chunk.data_chunk for chunk in await server.read(_REGISTRY, "RetrieveVersionData", request))
    return (
        f"versions {first.version_number}, {second.version_number}; hash and size {'as sent' if right else 'others'}; "
        f"data {'as sent' if data == _DATA else 'others'}, version 2 by -1"
    )


@_case("CreateVersion", documented="OK; hash of nothing; chunks [0]", reference="OK; hash of nothing; chunks [0]")
async def version_without_data(server: Server) -> str:
    """A version may have no data, which are one empty chunk."""
    model_id = await _model(server)
    info = await _version(server, model_id, b"")
    request = RetrieveVersionDataRequest(model_id=model_id, version_number=1)
    chunks = [len(chunk.data_chunk) for chunk in await server.read(_REGISTRY, "RetrieveVersionData", request)]
    return f"OK; {'hash of nothing' if info.data_hash == _hash(b'') else info.data_hash}; chunks {chunks}"


@_case("CreateVersionRequestChunk", documented=", ".join(["INVALID_ARGUMENT"] * 5))
async def versions_that_are_wrong(server: Server) -> str:
    """A version is refused if its size or hash is another one, or if its header is missing, late or there twice."""
    model_id = await _model(server)
    bad: tuple[list[CreateVersionRequestChunk], ...] = (
        [_header(model_id, _DATA, data_size=1), _body(_DATA)],
        [_header(model_id, _DATA, data_hash=_hash(b"")), _body(_DATA)],
        [_body(_DATA), _header(model_id, _DATA)],
        [_header(model_id, _DATA), _header(model_id, _DATA), _body(_DATA)],
        [],
    )
    said = []
    for chunks in bad:
        try:
            await server.read(_REGISTRY, "CreateVersion", *chunks)
            said.append("OK")
        except RpcError as error:
            said.append(error.code.name)
    return ", ".join(said)


@_case("CreateVersion", reference="INTERNAL", ours="NOT_FOUND", row="failures of every kind")
async def version_of_no_model(server: Server) -> str:
    """A version is of a model that is there."""
    await _version(server, server.new_id())
    return "OK"


@_case(
    "RetrieveVersionInfosRequest.version_numbers",
    documented="3, 2, 1; 0: NOT_FOUND, 4: NOT_FOUND, -4: NOT_FOUND, -5: NOT_FOUND",
    reference="3, 2, 1; 0: NOT_FOUND, 4: NOT_FOUND, -4: NOT_FOUND, -5: 3",
)
async def numbers_of_versions(server: Server) -> str:
    """Negative numbers count from the latest version; a number of no version is not found."""
    model_id = await _model(server)
    for _ in range(3):
        await _version(server, model_id, archived=True)
    right = ", ".join([await _status_of(server, model_id, number) for number in (-1, -2, -3)])
    wrong = ", ".join([f"{number}: {await _status_of(server, model_id, number)}" for number in (0, 4, -4, -5)])
    return f"{right}; {wrong}"


@_case("RetrieveVersionInfosRequest.versions_count", documented="[1, 2] [3]")
async def pages_of_versions(server: Server) -> str:
    """Versions are listed in pages, in order."""
    model_id = await _model(server)
    for _ in range(3):
        await _version(server, model_id)
    request = RetrieveVersionInfosRequest(model_id=model_id, versions_count=2)
    one = await server.ask(_REGISTRY, "RetrieveVersionInfos", request)
    request.version_handle = one.next_version_handle
    two = await server.ask(_REGISTRY, "RetrieveVersionInfos", request)
    return " ".join(str([info.version_number for info in page.version_infos]) for page in (one, two))


@_case("RetrieveModelsRequest.models_count", documented="1 model", may_end=True)
async def more_models_than_asked_for(server: Server) -> str:
    """A count beyond the ids that are asked for is no mistake."""
    request = RetrieveModelsRequest(model_ids=[await _model(server)], models_count=10)
    return f"{len((await server.ask(_REGISTRY, 'RetrieveModels', request)).model_infos)} model"


@_case("RetrieveModels, DeleteModel", documented="NOT_FOUND, NOT_FOUND", reference="NOT_FOUND, NOT_FOUND")
async def models_that_are_not_there(server: Server) -> str:
    """A model that is not there is neither found nor deleted."""
    said = []
    model_id = server.new_id()
    requests = (
        ("RetrieveModels", RetrieveModelsRequest(model_ids=[model_id])),
        ("DeleteModel", DeleteModelRequest(model_id=model_id)),
    )
    for method, request in requests:
        try:
            await server.ask(_REGISTRY, method, request)
            said.append("OK")
        except RpcError as error:
            said.append(error.code.name)
    return ", ".join(said)


@_case("DeleteModel", reference="versions [], next is 1", documented="versions [], next is 1")
async def model_made_again(server: Server) -> str:
    """A model that was deleted and made again has no versions, and begins with 1."""
    model_id = await _model(server)
    for _ in range(2):
        await _version(server, model_id)
    await server.ask(_REGISTRY, "DeleteModel", DeleteModelRequest(model_id=model_id))
    await _model(server, model_id)
    return f"versions {await _infos(server, model_id)}, next is {(await _version(server, model_id)).version_number}"


@_case(
    "ModelInfo.model_id",
    documented="each refused or kept",
)
async def names_of_models(server: Server) -> str:
    """An id that would be another place on a disk is refused, or it is an id like any other: its versions come back."""
    prefix = server.new_id()
    for name in ("", f"../{prefix}", f"{prefix}/b", f"{prefix}-v1", f"{prefix}-v000001"):
        try:
            await _model(server, name) if name else await server.ask(
                _REGISTRY, "CreateOrUpdateModel", CreateOrUpdateModelRequest(model_info=ModelInfo())
            )
        except RpcError as error:
            if error.code.name != "INVALID_ARGUMENT":
                return f"{name.replace(prefix, 'ID')!r}: {error.code.name}"
            continue
        number = (await _version(server, name, archived=True)).version_number
        listed = await server.ask(_REGISTRY, "RetrieveModels", RetrieveModelsRequest(model_ids=[name]))
        if number != 1 or not listed.model_infos:
            return f"{name.replace(prefix, 'ID')!r}: not kept"
    return "each refused or kept"


@_case("VersionUpdate", documented="1, 2")
async def news_of_versions(server: Server) -> str:
    """Who waits for versions of a model gets the latest at once, and each that is made; none of other models."""
    model_id, other = await _model(server), await _model(server)
    await _version(server, model_id)
    got = []
    with trio.move_on_after(server.patience_seconds):
        async with server.call(_REGISTRY, "VersionUpdate") as news:
            await news.send(VersionUpdateRequest(model_id=model_id))
            await news.done_sending()
            got.append((await news.receive()).version_info)
            await _version(server, other)
            await _version(server, model_id)
            got.append((await news.receive()).version_info)
    mine = [info for info in got if info.model_id == model_id]
    return ", ".join(str(info.version_number) for info in mine)


@_case("VersionUpdate", reference="INVALID_ARGUMENT", ours="NOT_FOUND", row="failures of every kind")
async def news_of_no_model(server: Server) -> str:
    """There are no news of a model that is not there."""
    await server.read(_REGISTRY, "VersionUpdate", VersionUpdateRequest(model_id=server.new_id()))
    return "OK"


@_case("VersionUpdate", reference=("UNKNOWN", "DEADLINE_EXCEEDED"), ours="NOT_FOUND", row="failures of every kind")
async def news_of_a_deleted_model(server: Server) -> str:
    """Who waits for versions of a model that is deleted learns it."""
    model_id = await _model(server)
    await _version(server, model_id)
    with trio.move_on_after(server.patience_seconds):
        async with server.call(_REGISTRY, "VersionUpdate") as news:
            await news.send(VersionUpdateRequest(model_id=model_id))
            await news.done_sending()
            await news.receive()
            await server.ask(_REGISTRY, "DeleteModel", DeleteModelRequest(model_id=model_id))
            return "an end" if await news.receive() is None else "a version"
    return "DEADLINE_EXCEEDED"


@_case(
    "CreateOrUpdateModelRequest.model_info",
    reference="UNAVAILABLE",
    ours="INVALID_ARGUMENT",
    row="a request that makes no sense",
    may_end=True,
)
async def model_of_nothing(server: Server) -> str:
    """A request that makes a model says which."""
    await server.ask(_REGISTRY, "CreateOrUpdateModel", CreateOrUpdateModelRequest())
    return "OK"


@_case("VersionInfo", documented="cogment-api, grpc", reference="none")
async def versions(server: Server) -> str:
    """A service tells at least the versions of the API and of gRPC."""
    return await server.versions(_REGISTRY)
