"""A fake directory: it keeps to the protocol, or breaks it as a test tells it to.

Serve `FakeDirectory().service()` in process, over memory streams or over sockets. It remembers registrations in memory
only; there are no health checks, except for one during `Register` if a test asks for it.
"""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

import trio
from purerpc import Service

from trio_cogment.api.common_pb2 import StatusRequest
from trio_cogment.api.directory_pb2 import (
    DeregisterReply,
    DeregisterRequest,
    FullServiceData,
    InquireReply,
    InquireRequest,
    RegisterReply,
    RegisterRequest,
    ServiceDetails,
    ServiceEndpoint,
    ServiceType,
)
from trio_cogment.base.about import About
from trio_cogment.base.errors import RpcError, StatusCode
from trio_cogment.base.services import AUTHENTICATION_TOKEN, SERVICES, ServiceKind, kind_of_type
from trio_cogment.rpc import Channel, ServerCall, bind, methods_of

#: What is remembered of who asked what.
MAX_REQUESTS = 10_000
#: What a registered service has to answer `Status`.
CHECK_SECONDS = 2.0

_PROTOCOLS = frozenset({ServiceEndpoint.GRPC, ServiceEndpoint.GRPC_SSL, ServiceEndpoint.COGMENT})


@dataclass(frozen=True, slots=True)
class Request:
    """One request that reached the directory: `method` and `token` of its call, and the message."""

    method: str
    token: str
    message: RegisterRequest | DeregisterRequest | InquireRequest


@dataclass(slots=True)
class Entry:
    """One registration; a hidden one is in no reply."""

    data: FullServiceData
    token: str
    secret: str
    hidden: bool = False


class FakeDirectory(About):
    """The directory service, and what tests may do with it.

    Attributes:
        entries: the registrations, by their ids, the oldest first.
        requests: the requests that came, the oldest first.
        hanging: names of methods that never answer.
        failing: what a method raises, by its name.
        refusing: the reason that `Register` and `Deregister` refuse with; empty for none.
        replies: what `Inquire` replies instead of the truth; None for the truth.
        check_services: `Register` calls the service's `Status`, and hides one that does not answer.
    """

    def __init__(self, *, check_services: bool = False) -> None:
        self.entries: dict[int, Entry] = {}
        self.requests: deque[Request] = deque(maxlen=MAX_REQUESTS)
        self.hanging: set[str] = set()
        self.failing: dict[str, RpcError] = {}
        self.refusing = ""
        self.replies: list[FullServiceData] | None = None
        self.check_services = check_services
        self._ids = itertools.count(1)
        self._secrets = itertools.count(1)
        self._changed = trio.lowlevel.ParkingLot()

    def service(self) -> Service:
        """Return `DirectorySP`, to be served."""
        return bind(SERVICES[ServiceKind.DIRECTORY].descriptor(), self)

    # What a test may do

    def forget(self) -> None:
        """Lose every registration, as a directory without a file does when it restarts; the ids begin again."""
        self.entries.clear()
        self._ids = itertools.count(1)
        self._changed.unpark_all()

    def add(
        self,
        kind: int,
        host: str,
        port: int = 0,
        properties: Mapping[str, str] | None = None,
        *,
        token: str = "",
        protocol: int = ServiceEndpoint.GRPC,
    ) -> int:
        """Register a service without a call; return its id."""
        endpoint = ServiceEndpoint(protocol=protocol, host=host, port=port)  # type: ignore[arg-type]  # an enum's value
        details = ServiceDetails(type=kind, properties=properties)  # type: ignore[arg-type]  # an enum's value
        return self._insert(RegisterRequest(endpoint=endpoint, details=details), token).data.service_id

    def of_type(self, kind: int) -> list[FullServiceData]:
        """Return what is registered as this, the oldest first."""
        return [entry.data for entry in self.entries.values() if entry.data.details.type == kind]

    def methods(self) -> list[str]:
        """Return the names of the methods that were called, the oldest first."""
        return [request.method for request in self.requests]

    async def wait_until(self, condition: Callable[[], bool]) -> None:
        """Wait until a condition on this directory holds; it is checked after each request and each change."""
        while not condition():
            await self._changed.park()

    # The service

    async def Register(self, call: ServerCall) -> None:
        """Answer each registration."""
        async for request in call:
            token = await self._begin("Register", call, request)
            problem = self.refusing or _problem(request)
            if problem:
                await call.send(RegisterReply(status=RegisterReply.FAILED, error_msg=problem))
                continue
            entry = self._update(request, token) if request.permanent else None
            entry = entry or self._insert(request, token)
            if self.check_services:
                entry.hidden = not await _answers(entry.data)
            number = entry.data.service_id
            await call.send(RegisterReply(status=RegisterReply.OK, service_id=number, secret=entry.secret))

    async def Deregister(self, call: ServerCall) -> None:
        """Answer each deregistration."""
        async for request in call:
            token = await self._begin("Deregister", call, request)
            entry = self.entries.get(request.service_id)
            problem = self.refusing
            if entry is None:
                problem = problem or f"unknown service {request.service_id}"
            elif (entry.token, entry.secret) != (token, request.secret):
                problem = problem or "wrong token or secret"
            if problem:
                await call.send(DeregisterReply(status=DeregisterReply.FAILED, error_msg=problem))
                continue
            del self.entries[request.service_id]
            self._changed.unpark_all()
            await call.send(DeregisterReply(status=DeregisterReply.OK))

    async def Inquire(self, request: InquireRequest, call: ServerCall) -> None:
        """Reply with everything that fits, the newest first."""
        token = await self._begin("Inquire", call, request)
        if request.WhichOneof("inquiry") is None:
            raise RpcError(StatusCode.UNKNOWN, "neither a service id nor details")
        for data in self._fitting(request, token) if self.replies is None else self.replies:
            await call.send(InquireReply(data=data))

    async def _begin(
        self, method: str, call: ServerCall, request: RegisterRequest | DeregisterRequest | InquireRequest
    ) -> str:
        token = next(iter(call.metadata.texts(AUTHENTICATION_TOKEN)), "")
        self.requests.append(Request(method, token, request))
        self._changed.unpark_all()
        if method in self.hanging:
            await trio.sleep_forever()
        if method in self.failing:
            raise self.failing[method]
        return token

    def _fitting(self, request: InquireRequest, token: str) -> Iterable[FullServiceData]:
        shown = [entry for entry in self.entries.values() if entry.token == token and not entry.hidden]
        if request.HasField("details"):
            return [entry.data for entry in reversed(shown) if _fits(entry.data.details, request.details)]
        return [entry.data for entry in shown if entry.data.service_id == request.service_id]

    def _update(self, request: RegisterRequest, token: str) -> Entry | None:
        for entry in self.entries.values():
            if entry.token == token and _fits(entry.data.details, request.details):
                entry.data.endpoint.CopyFrom(request.endpoint)
                entry.data.details.CopyFrom(request.details)
                return entry
        return None

    def _insert(self, request: RegisterRequest, token: str) -> Entry:
        number = next(self._ids)
        data = FullServiceData(
            endpoint=request.endpoint, service_id=number, details=request.details, permanent=request.permanent
        )
        entry = self.entries[number] = Entry(data, token, f"s{next(self._secrets):04}")
        self._changed.unpark_all()
        return entry


def _fits(details: ServiceDetails, wanted: ServiceDetails) -> bool:
    same_type = wanted.type in (ServiceType.UNKNOWN_SERVICE, details.type)
    return same_type and dict(wanted.properties).items() <= dict(details.properties).items()


def _problem(request: RegisterRequest) -> str:
    if not request.endpoint.host:
        return "no host"
    if request.endpoint.protocol not in _PROTOCOLS:
        return f"unknown protocol {request.endpoint.protocol}"
    if request.details.type not in ServiceType.values() or not request.details.type:
        return f"unknown service type {request.details.type}"
    return ""


async def _answers(data: FullServiceData) -> bool:
    # Every service's `Status` has the same messages; the path is the only difference.
    kind = kind_of_type(data.details.type)
    if kind not in (ServiceKind.LIFECYCLE, ServiceKind.CLIENT_ACTOR) or data.endpoint.protocol != ServiceEndpoint.GRPC:
        return True
    status = methods_of(SERVICES[kind].descriptor())["Status"]
    try:
        async with Channel(data.endpoint.host, data.endpoint.port) as channel:
            await channel.unary(status, StatusRequest(names=["overall_load"]), timeout=CHECK_SECONDS)
    except RpcError:
        return False
    return True
