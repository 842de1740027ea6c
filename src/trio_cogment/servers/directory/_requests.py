"""Validation of requests: what may be registered, and what may be inquired for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field

from trio_cogment.api.directory_pb2 import InquireRequest, RegisterRequest, ServiceEndpoint, ServiceType
from trio_cogment.base.errors import InvalidArgumentError
from trio_cogment.base.records import record
from trio_cogment.base.services import SERVICES

#: The longest name in the DNS.
MAX_HOST_CHARACTERS = 255
MAX_PORT = 65535
#: The protocols that need a port other than 0.
DIALLED = frozenset({ServiceEndpoint.GRPC, ServiceEndpoint.GRPC_SSL})
#: The protocol of client actors, which cannot be called. (A constant, as looking up an enum's value is slow.)
COGMENT: int = ServiceEndpoint.COGMENT
_PROTOCOLS = frozenset({*DIALLED, COGMENT})
_TYPES = frozenset(info.directory_type for info in SERVICES.values())


@record(kw_only=True)
class Service:
    """A service as its registration describes it.

    Attributes:
        kind: a `ServiceType`.
        protocol: a `ServiceEndpoint.Protocol`.
        host: a name or an address.
        port: the TCP port; meaningless for a client actor (COGMENT), which connects to the orchestrator.
        properties: names and values that inquiries can ask for.
    """

    kind: int
    protocol: int
    host: str
    port: int
    properties: Mapping[str, str] = field(default_factory=dict)

    @property
    def size(self) -> int:
        """The size of the host and the properties, in bytes."""
        return len(self.host.encode()) + sum(
            len(name.encode()) + len(value.encode()) for name, value in self.properties.items()
        )


@record(kw_only=True)
class Inquiry:
    """What an inquiry asks for.

    Attributes:
        service_id: the id of one registration, never 0; None for an inquiry by type and properties.
        kind: a `ServiceType`; 0 for any.
        properties: properties that a service must have, with these values.
    """

    service_id: int | None = None
    kind: int = ServiceType.UNKNOWN_SERVICE
    properties: Mapping[str, str] = field(default_factory=dict)

    def fits(self, service: Service) -> bool:
        """Return whether a service is of this kind and has all of these properties."""
        if self.kind and self.kind != service.kind:  # the fast path: this runs for every registration at every inquiry
            return False
        return self.properties.items() <= service.properties.items()


def checked_service(service: Service, *, max_bytes: int) -> Service:
    """Return the service if it is valid.

    Raises:
        InvalidArgumentError: a field is invalid; the text names it.
    """
    if service.protocol not in _PROTOCOLS:
        raise InvalidArgumentError(
            f"endpoint.protocol: expected GRPC (1), GRPC_SSL (2) or COGMENT (3), got {service.protocol}"
        )
    if not service.host:
        raise InvalidArgumentError("endpoint.host: expected a name or an address, got nothing")
    if len(service.host) > MAX_HOST_CHARACTERS or not service.host.isprintable() or " " in service.host:
        raise InvalidArgumentError(
            f"endpoint.host: expected at most {MAX_HOST_CHARACTERS} printable characters without blanks"
        )
    least = 1 if service.protocol in DIALLED else 0
    if not least <= service.port <= MAX_PORT:
        raise InvalidArgumentError(f"endpoint.port: expected {least} to {MAX_PORT}, got {service.port}")
    if service.kind not in _TYPES:
        raise InvalidArgumentError(f"details.type: expected the type of a service, got {service.kind}")
    if service.size > max_bytes:
        raise InvalidArgumentError(
            f"endpoint.host, details.properties: expected at most {max_bytes} bytes together, got {service.size}"
        )
    return service


def service_of(request: RegisterRequest, *, max_bytes: int) -> Service:
    """Return the service that a request registers.

    Raises:
        InvalidArgumentError: a field is missing or invalid; the text names it.
    """
    for name in ("endpoint", "details"):
        if not request.HasField(name):
            raise InvalidArgumentError(f"{name}: expected a value, got none")
    return checked_service(
        Service(
            kind=request.details.type,
            protocol=request.endpoint.protocol,
            host=request.endpoint.host,
            port=request.endpoint.port,
            properties=dict(request.details.properties),
        ),
        max_bytes=max_bytes,
    )


def inquiry_of(request: InquireRequest) -> Inquiry:
    """Return what a request asks for.

    Raises:
        InvalidArgumentError: the inquiry is empty, or its type does not exist.
    """
    given = request.WhichOneof("inquiry")
    if given is None:
        raise InvalidArgumentError("inquiry: expected service_id or details, got neither")
    if given == "service_id":
        return Inquiry(service_id=request.service_id)
    kind = request.details.type
    if kind not in _TYPES | {ServiceType.UNKNOWN_SERVICE}:
        raise InvalidArgumentError(f"details.type: expected the type of a service, or 0 for any, got {kind}")
    return Inquiry(kind=kind, properties=dict(request.details.properties))
