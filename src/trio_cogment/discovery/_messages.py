"""What goes to a directory and what comes from it, as messages."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from trio_cogment.api.directory_pb2 import (
    FullServiceData,
    InquireRequest,
    ServiceDetails,
    ServiceEndpoint,
    ServiceType,
)
from trio_cogment.endpoints import CLIENT_HOST, ClientEndpoint, DiscoverEndpoint, GrpcEndpoint
from trio_cogment.services import SERVICES, ServiceKind


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """What a directory says about a service.

    Attributes:
        endpoint: where it is; a `ClientEndpoint` comes to us.
        kind: what it is.
        ssl: it expects TLS.
        service_id: of its registration.
        properties: what it was registered with.
    """

    endpoint: GrpcEndpoint | ClientEndpoint
    kind: ServiceKind
    ssl: bool = False
    service_id: int = 0
    properties: Mapping[str, str] = field(default_factory=dict)


def inquiry_for(wanted: DiscoverEndpoint) -> InquireRequest:
    """Return what to ask a directory."""
    if wanted.service_id:
        return InquireRequest(service_id=wanted.service_id)
    assert wanted.kind is not None
    return InquireRequest(details=details_of(wanted.kind, wanted.properties))


def details_of(kind: ServiceKind | None, properties: Mapping[str, str] | None) -> ServiceDetails:
    """Return a kind, None for any, and properties as a message."""
    name = ServiceType.Name(SERVICES[kind].directory_type) if kind else None
    return ServiceDetails(type=name, properties=properties)


def described(wanted: DiscoverEndpoint) -> str:
    """Return what is looked for, for a sentence."""
    if wanted.service_id:
        return f"service {wanted.service_id}"
    assert wanted.kind is not None
    properties = ", ".join(f"{name}={value}" for name, value in wanted.properties.items())
    return f"{wanted.kind.value} with {properties or 'any properties'}"


def wire_endpoint(endpoint: GrpcEndpoint | ClientEndpoint, ssl: bool) -> ServiceEndpoint:
    """Return where a service is, as it is registered."""
    if isinstance(endpoint, ClientEndpoint):
        return ServiceEndpoint(protocol=ServiceEndpoint.COGMENT, host=CLIENT_HOST)
    protocol = ServiceEndpoint.GRPC_SSL if ssl else ServiceEndpoint.GRPC
    return ServiceEndpoint(protocol=protocol, host=endpoint.host, port=endpoint.port)


class ReplyError(Exception):
    """Says what is wrong with a registration."""


def checked(data: FullServiceData, kind: ServiceKind) -> Found:
    """Return what a reply says, if it can be of use where `kind` is wanted.

    Raises:
        ReplyError: it cannot.
    """
    if not data.HasField("endpoint"):
        raise ReplyError("has no endpoint")
    if data.details.type != SERVICES[kind].directory_type:
        raise ReplyError(
            f"is of type {_type_name(data.details.type)} and not {_type_name(SERVICES[kind].directory_type)}"
        )
    protocol, host, port = data.endpoint.protocol, data.endpoint.host, data.endpoint.port
    endpoint: GrpcEndpoint | ClientEndpoint
    if protocol == ServiceEndpoint.COGMENT:
        if host != CLIENT_HOST:
            raise ReplyError(f"has the endpoint cogment://{host}, where only cogment://{CLIENT_HOST} can be")
        endpoint = ClientEndpoint()
    elif protocol in (ServiceEndpoint.GRPC, ServiceEndpoint.GRPC_SSL):
        if not host or not 0 < port < 65536:
            raise ReplyError(f"has host {host!r} and port {port}, where nobody can be")
        endpoint = GrpcEndpoint(host, port)
    else:
        raise ReplyError(f"has the unknown protocol {protocol}")
    return Found(
        endpoint=endpoint,
        kind=kind,
        ssl=protocol == ServiceEndpoint.GRPC_SSL,
        service_id=data.service_id,
        properties=dict(data.details.properties),
    )


def _type_name(number: int) -> str:
    return ServiceType.Name(number) if number in ServiceType.values() else str(number)
