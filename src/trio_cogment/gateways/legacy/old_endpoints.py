"""Endpoints as the legacy API writes them: `human` for a client, and the address of an old server without a scheme."""

from __future__ import annotations

from trio_cogment.base.endpoints import CLIENT, ClientEndpoint, GrpcEndpoint, LegacyEndpoint, parse_endpoint
from trio_cogment.base.errors import EndpointError

HUMAN = "human"


def todays_server(text: str, field_name: str) -> str:
    """Return the endpoint of today for that of an old server: `host:port`, or with `grpc://` before it.

    Endpoints that only today's API has stay as they are.

    Raises:
        EndpointError: it is none.
    """
    trimmed = text.strip()
    if not trimmed:
        raise EndpointError(f"{field_name}: expected host:port, got nothing")
    if "://" not in trimmed:
        trimmed = f"grpc://{trimmed}"
    try:
        endpoint = parse_endpoint(trimmed)
    except EndpointError:
        raise EndpointError(f"{field_name}: expected host:port, got {text!r}") from None
    if isinstance(endpoint, ClientEndpoint):
        raise EndpointError(f"{field_name}: expected host:port, got {text!r}")
    return str(LegacyEndpoint(endpoint.host, endpoint.port)) if isinstance(endpoint, GrpcEndpoint) else text


def todays_actor(text: str, field_name: str) -> str:
    """Return the endpoint of today for that of an old actor: `human`, or as `todays_server`.

    Raises:
        EndpointError: it is none.
    """
    if text.strip() in (HUMAN, CLIENT):
        return CLIENT
    try:
        return todays_server(text, field_name)
    except EndpointError as error:
        raise EndpointError(str(error).replace("expected host:port", f"expected {HUMAN} or host:port", 1)) from None


def old_endpoint(text: str) -> str:
    """Return the endpoint that an old participant would know: that of an old server without a scheme."""
    try:
        endpoint = parse_endpoint(text)
    except EndpointError:
        return text
    if isinstance(endpoint, ClientEndpoint):
        return HUMAN
    return str(endpoint).partition("://")[2] if isinstance(endpoint, LegacyEndpoint) else text
