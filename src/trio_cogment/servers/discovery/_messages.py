"""Conversion between endpoints and kinds and the messages of the directory."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field

from trio_cogment.api.directory_pb2 import (
    FullServiceData,
    InquireRequest,
    ServiceDetails,
    ServiceEndpoint,
    ServiceType,
)
from trio_cogment.base.endpoints import CLIENT_HOST, ClientEndpoint, DiscoverEndpoint, GrpcEndpoint
from trio_cogment.base.records import record
from trio_cogment.base.services import SERVICES, ServiceKind


@record(kw_only=True)
class Found:
    """A service as a directory describes it.

    Attributes:
        endpoint: where it is; `ClientEndpoint` for a client actor, which connects to the orchestrator.
        kind: what it is.
        ssl: whether it expects TLS.
        service_id: the id of its registration.
        properties: the properties of its registration.
    """

    endpoint: GrpcEndpoint | ClientEndpoint
    kind: ServiceKind
    ssl: bool = False
    service_id: int = 0
    properties: Mapping[str, str] = field(default_factory=dict)


def inquiry_for(wanted: DiscoverEndpoint) -> InquireRequest:
    """Return the request that looks for an endpoint."""
    if wanted.service_id:
        return InquireRequest(service_id=wanted.service_id)
    assert wanted.kind is not None
    return InquireRequest(details=details_of(wanted.kind, wanted.properties))


def details_of(kind: ServiceKind | None, properties: Mapping[str, str] | None) -> ServiceDetails:
    """Return a kind (None: any) and properties as a message."""
    name = ServiceType.Name(SERVICES[kind].directory_type) if kind else None
    return ServiceDetails(type=name, properties=properties)


def described(wanted: DiscoverEndpoint) -> str:
    """Return what an endpoint asks for, as part of a sentence."""
    if wanted.service_id:
        return f"service {wanted.service_id}"
    assert wanted.kind is not None
    properties = ", ".join(f"{name}={value}" for name, value in wanted.properties.items())
    return f"{wanted.kind.value} with {properties or 'any properties'}"


def wire_endpoint(endpoint: GrpcEndpoint | ClientEndpoint, ssl: bool) -> ServiceEndpoint:
    """Return an endpoint as it is registered."""
    if isinstance(endpoint, ClientEndpoint):
        return ServiceEndpoint(protocol=ServiceEndpoint.COGMENT, host=CLIENT_HOST)
    protocol = ServiceEndpoint.GRPC_SSL if ssl else ServiceEndpoint.GRPC
    return ServiceEndpoint(protocol=protocol, host=endpoint.host, port=endpoint.port)


class ReplyError(Exception):
    """A registration is invalid; the text continues a sentence that begins with the service."""


def checked(data: FullServiceData, kind: ServiceKind) -> Found:
    """Return the service that a reply describes, if it is valid and of this kind.

    Raises:
        ReplyError: it is not.
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
            raise ReplyError(f"has the endpoint cogment://{host}, where only cogment://{CLIENT_HOST} is allowed")
        endpoint = ClientEndpoint()
    elif protocol in (ServiceEndpoint.GRPC, ServiceEndpoint.GRPC_SSL):
        if not host or not 0 < port < 65536:
            raise ReplyError(f"has the invalid host {host!r} or port {port}")
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
