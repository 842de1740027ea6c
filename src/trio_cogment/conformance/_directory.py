"""Cases of a directory."""

from __future__ import annotations

from typing import Any

from trio_cogment.api.directory_pb2 import (
    DeregisterReply,
    DeregisterRequest,
    InquireRequest,
    RegisterReply,
    RegisterRequest,
    ServiceDetails,
    ServiceEndpoint,
    ServiceType,
)
from trio_cogment.base.endpoints import GrpcEndpoint, parse_endpoint
from trio_cogment.base.errors import RpcError
from trio_cogment.base.services import ServiceKind
from trio_cogment.conformance._case import Cases
from trio_cogment.conformance._server import Server
from trio_cogment.rpc import open_listeners

_CASES = Cases("directory")
CASES = _CASES.all
_case = _CASES.case
_DIRECTORY = ServiceKind.DIRECTORY
#: Whoever connects to an orchestrator by itself: nobody looks whether it answers.
_CLIENT = ServiceEndpoint(protocol=ServiceEndpoint.COGMENT, host="client")


def _request(properties: dict[str, str], endpoint: ServiceEndpoint = _CLIENT, **options: Any) -> RegisterRequest:
    kind = options.pop("type", ServiceType.ACTOR_SERVICE)
    return RegisterRequest(endpoint=endpoint, details=ServiceDetails(type=kind, properties=properties), **options)


async def _register(server: Server, *requests: RegisterRequest, token: str = "") -> list[RegisterReply]:
    metadata = {"authentication_token": token} if token else {}
    return await server.read(_DIRECTORY, "Register", *requests, **metadata)


async def _found(server: Server, properties: dict[str, str], *, token: str = "", kind: int = 0) -> list[int]:
    metadata = {"authentication_token": token} if token else {}
    request = InquireRequest(details=ServiceDetails(type=kind, properties=properties))  # type: ignore[arg-type]  # a number of the enum
    replies = await server.read(_DIRECTORY, "Inquire", request, **metadata)
    return [reply.data.service_id for reply in replies]


async def _deregister(server: Server, service_id: int, secret: str, *, token: str = "") -> str:
    metadata = {"authentication_token": token} if token else {}
    request = DeregisterRequest(service_id=service_id, secret=secret)
    (reply,) = await server.read(_DIRECTORY, "Deregister", request, **metadata)
    return DeregisterReply.Status.Name(reply.status)


def _statuses(replies: list[RegisterReply]) -> str:
    return ", ".join(RegisterReply.Status.Name(reply.status) for reply in replies)


@_case("Register, Inquire", documented="OK, OK; found by all: 1, by some: 2, by another value: 0")
async def found_by_properties(server: Server) -> str:
    """A service is found by properties that it has, with equal values; it may have more."""
    mark = {"kit": server.new_id()}
    replies = await _register(server, _request({**mark, "x": "1"}), _request(mark))
    numbers = [len(await _found(server, {**mark, **more})) for more in ({"x": "1"}, {}, {"x": "2"})]
    return f"{_statuses(replies)}; found by all: {numbers[0]}, by some: {numbers[1]}, by another value: {numbers[2]}"


@_case("InquireRequest.service_id", documented="client of type ACTOR_SERVICE; unknown: 0")
async def found_by_id(server: Server) -> str:
    """A service is found by its id, with its endpoint and details; an unknown id yields nothing."""
    (registered,) = await _register(server, _request({"kit": server.new_id()}))
    (reply,) = await server.read(_DIRECTORY, "Inquire", InquireRequest(service_id=registered.service_id))
    none = await server.read(_DIRECTORY, "Inquire", InquireRequest(service_id=registered.service_id ^ 1))
    kind = ServiceType.Name(reply.data.details.type)
    return f"{reply.data.endpoint.host} of type {kind}; unknown: {len(none)}"


@_case("ServiceDetails.type", documented="of its type: 1, of another: 0, of any: 1")
async def found_by_type(server: Server) -> str:
    """A service is found by its type; UNKNOWN_SERVICE stands for any."""
    mark = {"kit": server.new_id()}
    await _register(server, _request(mark))
    kinds = (ServiceType.ACTOR_SERVICE, ServiceType.ENVIRONMENT_SERVICE, ServiceType.UNKNOWN_SERVICE)
    numbers = [len(await _found(server, mark, kind=kind)) for kind in kinds]
    return f"of its type: {numbers[0]}, of another: {numbers[1]}, of any: {numbers[2]}"


@_case("Register: authentication-token", documented="with it: 1, with another: 0, with none: 0; removed: FAILED, OK")
async def tokens(server: Server) -> str:
    """A service that was registered with a token is found, and removed, with that token."""
    mark = {"kit": server.new_id()}
    (reply,) = await _register(server, _request(mark), token="mine")
    numbers = [len(await _found(server, mark, token=token)) for token in ("mine", "other", "")]
    removed = [await _deregister(server, reply.service_id, reply.secret, token=token) for token in ("other", "mine")]
    return f"with it: {numbers[0]}, with another: {numbers[1]}, with none: {numbers[2]}; removed: {', '.join(removed)}"


@_case("DeregisterRequest.secret", documented="FAILED, OK, FAILED; left: 0")
async def secrets(server: Server) -> str:
    """A service is removed with its secret, once."""
    mark = {"kit": server.new_id()}
    (reply,) = await _register(server, _request(mark))
    said = [await _deregister(server, reply.service_id, secret) for secret in ("no", reply.secret, reply.secret)]
    return f"{', '.join(said)}; left: {len(await _found(server, mark))}"


@_case("RegisterReply.status", documented="FAILED, FAILED, FAILED, OK")
async def registrations_that_are_wrong(server: Server) -> str:
    """A registration without a host, a protocol or a type fails by itself; the others of the call do not."""
    mark = {"kit": server.new_id()}
    replies = await _register(
        server,
        _request(mark, ServiceEndpoint(protocol=ServiceEndpoint.GRPC)),
        _request(mark, ServiceEndpoint(host="client")),
        _request(mark, type=ServiceType.UNKNOWN_SERVICE),
        _request(mark),
    )
    return _statuses(replies)


@_case("RegisterRequest", documented="2 entries", reference="2 entries")
async def registered_twice(server: Server) -> str:
    """A service that is registered twice has two entries."""
    mark = {"kit": server.new_id()}
    await _register(server, _request(mark), _request(mark))
    return f"{len(await _found(server, mark))} entries"


@_case("RegisterRequest.permanent", documented="1 entry, of the first id", reference="1 entry, of the first id")
async def registered_for_good(server: Server) -> str:
    """A permanent registration that is made again replaces the first one, and keeps its id."""
    mark = {"kit": server.new_id()}
    one, two = await _register(server, _request(mark, permanent=True), _request(mark, permanent=True))
    found = await _found(server, mark)
    which = "the first" if found == [one.service_id] and two.service_id == one.service_id else "another"
    return f"{len(found)} entry, of {which} id"


@_case("Inquire", reference="the latest first")
async def order_of_entries(server: Server) -> str:
    """Who was registered last is found first."""
    mark = {"kit": server.new_id()}
    made = [(await _register(server, _request(mark)))[0].service_id for _ in range(3)]
    found = await _found(server, mark)
    return "the latest first" if found == made[::-1] else f"as {[made.index(each) for each in found]}"


@_case("InquireRequest", reference="UNKNOWN", ours="INVALID_ARGUMENT", row="failures of every kind")
async def inquiry_for_nothing(server: Server) -> str:
    """An inquiry says by what: an id, or details."""
    await server.read(_DIRECTORY, "Inquire", InquireRequest())
    return "OK"


@_case("ServiceType: health", documented="OK, found")
async def service_that_answers(server: Server) -> str:
    """A service that answers is found when its registration is answered."""
    return await _registered_at(server, server.reached_at)


@_case(
    "ServiceType: health",
    reference="DEADLINE_EXCEEDED",
    ours="OK, hidden",
    row="a service that does not answer",
)
async def service_that_does_not_answer(server: Server) -> str:
    """A registration is answered soon, also of a service that cannot be reached; it is not found."""
    (listener,) = await open_listeners("127.0.0.1", 0)
    port = listener.socket.getsockname()[1]
    await listener.aclose()
    return await _registered_at(server, f"grpc://127.0.0.1:{port}")


async def _registered_at(server: Server, endpoint: str) -> str:
    place = parse_endpoint(endpoint)
    assert isinstance(place, GrpcEndpoint)  # as the kit serves it
    mark = {"kit": server.new_id()}
    where = ServiceEndpoint(protocol=ServiceEndpoint.GRPC, host=place.host, port=place.port)
    try:
        replies = await _register(server, _request(mark, where))
        return f"{_statuses(replies)}, {'found' if await _found(server, mark) else 'hidden'}"
    except RpcError as error:
        return error.code.name


@_case(
    "RegisterRequest",
    reference="UNAVAILABLE",
    ours="FAILED",
    row="a request that makes no sense",
    may_end=True,
)
async def registration_of_nothing(server: Server) -> str:
    """A registration has an endpoint and details."""
    return _statuses(await _register(server, RegisterRequest()))


@_case("VersionInfo", documented="cogment-api, grpc", reference="none")
async def versions(server: Server) -> str:
    """A service tells at least the versions of the API and of gRPC."""
    return await server.versions(_DIRECTORY)
