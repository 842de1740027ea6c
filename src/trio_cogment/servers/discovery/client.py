"""The directory's client: finding services and registering them.

An inquiry uses the first reply only: load balancing, and waiting for services that start later, are left to the
directory. Nothing is cached between inquiries. A reply is validated, including its type, before its endpoint is used.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import field
from typing import Any

import trio

from trio_cogment.api.common_pb2 import StatusRequest, VersionRequest
from trio_cogment.api.directory_pb2 import (
    DeregisterReply,
    DeregisterRequest,
    FullServiceData,
    InquireReply,
    InquireRequest,
    RegisterReply,
    RegisterRequest,
)
from trio_cogment.base.config import DirectoryConfig
from trio_cogment.base.endpoints import ClientEndpoint, DiscoverEndpoint, GrpcEndpoint, parse_endpoint
from trio_cogment.base.errors import (
    CogmentError,
    EndpointError,
    FailedPreconditionError,
    InvalidArgumentError,
    RpcError,
    StatusCode,
    UnavailableError,
)
from trio_cogment.base.records import record
from trio_cogment.base.services import ACTOR_CLASS, AUTHENTICATION_TOKEN, SERVICES, ServiceKind
from trio_cogment.rpc import CallOpener, methods_of
from trio_cogment.servers.discovery._messages import (
    Found,
    ReplyError,
    checked,
    described,
    details_of,
    inquiry_for,
    wire_endpoint,
)

_METHODS = methods_of(SERVICES[ServiceKind.DIRECTORY].descriptor())
_OK = RegisterReply.OK  # the same number in both replies


#: Failures that a retry of the same request will not cure; all others may be temporary.
_LASTING = frozenset(
    {
        StatusCode.INVALID_ARGUMENT,
        StatusCode.NOT_FOUND,
        StatusCode.PERMISSION_DENIED,
        StatusCode.FAILED_PRECONDITION,
        StatusCode.UNIMPLEMENTED,
        StatusCode.UNAUTHENTICATED,
    }
)


@record()
class Registration:
    """What a directory returns for a registration; deregistering needs both."""

    service_id: int
    secret: str = field(repr=False)


class DirectoryClient:
    """A client of one directory; any number of tasks may use it at the same time.

    Args:
        opener: a channel to the directory; `open_directory` makes one that reconnects quickly.
        token: the authentication token: only registrations with the same token are found, and can be removed.
        config: timeouts.
        name: the directory's name in errors.

    Every method raises:
        UnavailableError: the directory cannot be reached, failed, or did not answer in time; trying again may help.
        FailedPreconditionError: the directory refused.

    Raises:
        InvalidArgumentError: the token is not printable ASCII.
    """

    def __init__(
        self,
        opener: CallOpener,
        *,
        token: str = "",
        config: DirectoryConfig | None = None,
        name: str = "the directory",
    ) -> None:
        if not all("!" <= character <= "~" for character in token):
            raise InvalidArgumentError(f"{AUTHENTICATION_TOKEN}: expected printable ASCII without blanks")
        self.config = config or DirectoryConfig()
        self.name = name
        self._opener = opener
        self._token = token

    # Finding

    async def find(
        self,
        endpoint: DiscoverEndpoint | str,
        kind: ServiceKind,
        *,
        field_name: str = "endpoint",
        context: Mapping[str, str] | None = None,
    ) -> Found:
        """Return the service that an endpoint leads to.

        If several registrations match, the directory orders them, and the first is taken. An actor that is registered
        without a class serves all classes; it is taken if none of the wanted class is registered.

        Args:
            endpoint: a `cogment://discover` endpoint, parsed or as text.
            kind: the kind to look for if the endpoint does not name one.
            field_name: the name of the field in errors.
            context: properties to look for if the endpoint names neither a kind nor a registration.

        Raises:
            EndpointError: the text is not an endpoint, or not a `cogment://discover` endpoint.
            FailedPreconditionError: no registered service matches, or the registration is invalid.
        """
        if isinstance(endpoint, str):
            parsed = parse_endpoint(endpoint, field_name=field_name)
            if not isinstance(parsed, DiscoverEndpoint):
                raise EndpointError(f"{field_name}: {endpoint!r}: expected cogment://discover, or an empty text")
            endpoint = parsed
        wanted = endpoint.in_context(kind, context or {})
        assert wanted.kind is not None
        data = await self._inquire(inquiry_for(wanted), wanted.token, f"{field_name}: {wanted}")
        if data is None and ACTOR_CLASS in wanted.properties:
            data = await self._of_any_class(wanted)
        if data is None:
            hint = "Start it, or register it there with the same authentication token"
            raise FailedPreconditionError(f"{field_name}: {self.name} knows no {described(wanted)}. {hint}")
        try:
            return checked(data, wanted.kind)
        except ReplyError as error:
            raise FailedPreconditionError(
                f"{field_name}: {wanted}: {self.name} returned service {data.service_id}, which {error}. "
                "Register it again"
            ) from None

    async def _of_any_class(self, wanted: DiscoverEndpoint) -> FullServiceData | None:
        """Return an actor that matches and is registered without a class."""
        properties = {name: value for name, value in wanted.properties.items() if name != ACTOR_CLASS}
        found = await self.inquire(wanted.kind, properties, token=wanted.token)
        return next((data for data in found if ACTOR_CLASS not in data.details.properties), None)

    async def find_all(self, kind: ServiceKind) -> list[Found]:
        """Return all services of a kind that are servers, in the directory's order, without those that are invalid."""
        found = []
        for data in await self.inquire(kind):
            try:
                service = checked(data, kind)
            except ReplyError:
                continue
            if isinstance(service.endpoint, GrpcEndpoint):
                found.append(service)
        return found

    async def look_up(self, service_id: int) -> FullServiceData | None:
        """Return one registration without validating it; None if the directory does not show it."""
        request = InquireRequest(service_id=service_id)
        timeout = self.config.registration_timeout_seconds
        return await self._inquire(request, None, f"looking up service {service_id}", timeout)

    async def inquire(
        self,
        kind: ServiceKind | None = None,
        properties: Mapping[str, str] | None = None,
        *,
        service_id: int = 0,
        token: str | None = None,
    ) -> list[FullServiceData]:
        """Return all registrations that match, in the directory's order, without validating them.

        Args:
            kind: the kind of service; None for any.
            properties: properties that a service must have.
            service_id: the id of one registration; if given, `kind` and `properties` are ignored.
            token: an authentication token to use instead of the client's.
        """
        details = details_of(kind, properties)
        request = InquireRequest(service_id=service_id) if service_id else InquireRequest(details=details)
        timeout = self.config.inquiry_timeout_seconds
        with self._reporting("inquiring for services"):
            async with self._opener.call(_METHODS["Inquire"], metadata=self._metadata(token), timeout=timeout) as call:
                await call.send(request)
                await call.done_sending()
                return [reply.data async for reply in call]

    async def _inquire(
        self, request: InquireRequest, token: str | None, doing: str, timeout: float | None = None
    ) -> FullServiceData | None:
        timeout = self.config.inquiry_timeout_seconds if timeout is None else timeout
        deadline = trio.current_time() + timeout
        with self._reporting(doing):
            try:
                return await self._first_reply(request, token, timeout)
            except RpcError as error:
                if error.code is not StatusCode.UNAVAILABLE:
                    raise
            # The call was cut off, for example by a restart. An inquiry can be repeated; the channel reconnects.
            return await self._first_reply(request, token, max(0.0, deadline - trio.current_time()))

    async def _first_reply(self, request: InquireRequest, token: str | None, timeout: float) -> FullServiceData | None:
        async with self._opener.call(
            _METHODS["Inquire"], metadata=self._metadata(token), timeout=timeout, wait_for_ready=True
        ) as call:
            await call.send(request)
            await call.done_sending()
            reply: InquireReply | None = await call.receive()
        return None if reply is None else reply.data

    # Registering

    async def register(
        self,
        kind: ServiceKind,
        endpoint: GrpcEndpoint | ClientEndpoint,
        properties: Mapping[str, str] | None = None,
        *,
        ssl: bool = False,
        permanent: bool = False,
        wait_for_ready: bool = False,
    ) -> Registration:
        """Register a service. It must be serving already: the directory checks it before it answers.

        Args:
            kind: what it is.
            endpoint: where others reach it.
            properties: properties that inquiries can ask for.
            ssl: whether the service expects TLS.
            permanent: register it without health checks; it replaces an earlier registration of the same service.
            wait_for_ready: wait, up to the timeout, for a directory that cannot be reached.

        After `Cancelled` the service may be registered nevertheless; the directory removes services that do not answer.
        """
        request = RegisterRequest(
            endpoint=wire_endpoint(endpoint, ssl),
            details=details_of(kind, properties),
            permanent=permanent,
        )
        doing = f"registering {kind.value} {endpoint}"
        reply = await self._exchange("Register", request, doing, wait_for_ready)
        return Registration(reply.service_id, reply.secret)

    async def deregister(self, registration: Registration) -> None:
        """Remove a registration."""
        request = DeregisterRequest(service_id=registration.service_id, secret=registration.secret)
        await self._exchange("Deregister", request, f"deregistering service {registration.service_id}")

    async def _exchange(
        self, method: str, request: RegisterRequest | DeregisterRequest, doing: str, wait_for_ready: bool = False
    ) -> Any:
        """Send one request on a stream of its own; return the reply if its status is OK."""
        timeout = self.config.registration_timeout_seconds
        with self._reporting(doing):
            async with self._opener.call(
                _METHODS[method], metadata=self._metadata(None), timeout=timeout, wait_for_ready=wait_for_ready
            ) as call:
                await call.send(request)
                await call.done_sending()
                reply: RegisterReply | DeregisterReply | None = await call.receive()
        if reply is None:
            raise UnavailableError(f"{doing}: {self.name} ended without a reply")
        if reply.status != _OK:
            raise FailedPreconditionError(f"{doing}: {self.name} refused: {reply.error_msg or 'no reason given'}")
        return reply

    # The directory itself

    async def version(self) -> dict[str, str]:
        """Return the directory's answer to `Version`."""
        timeout = self.config.inquiry_timeout_seconds
        with self._reporting("asking for the version"):
            reply = await self._opener.unary(_METHODS["Version"], VersionRequest(), timeout=timeout)
        return {entry.name: entry.version for entry in reply.versions}

    async def status(self, names: Iterable[str] = ("*",)) -> dict[str, str]:
        """Return statuses of the directory by name; all of them by default."""
        timeout = self.config.inquiry_timeout_seconds
        with self._reporting("asking for the status"):
            reply = await self._opener.unary(_METHODS["Status"], StatusRequest(names=names), timeout=timeout)
        return dict(reply.statuses)

    def _metadata(self, token: str | None) -> dict[str, str | bytes]:
        chosen = self._token if token is None else token
        return {AUTHENTICATION_TOKEN: chosen} if chosen else {}

    @contextmanager
    def _reporting(self, doing: str) -> Iterator[None]:
        try:
            yield
        except RpcError as error:
            raise self._failure(doing, error) from error

    def _failure(self, doing: str, error: RpcError) -> CogmentError:
        if error.code is StatusCode.DEADLINE_EXCEEDED:
            return UnavailableError(f"{doing}: {self.name} did not answer in time ({error.message})")
        if error.code is StatusCode.UNAVAILABLE:
            return UnavailableError(f"{doing}: {self.name} cannot be reached: {error.message}")
        if error.code in _LASTING:
            return FailedPreconditionError(f"{doing}: {self.name} refused: {error}")
        return UnavailableError(f"{doing}: {self.name} failed: {error}")
