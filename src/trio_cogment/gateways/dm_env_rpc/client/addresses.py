"""Addresses of dm_env_rpc servers: written as elsewhere, or as the published library takes them."""

from __future__ import annotations

from trio_cogment.base.endpoints import GrpcEndpoint, parse_server_endpoint


def parse_address(text: str, *, field_name: str = "server") -> GrpcEndpoint:
    """Parse `grpc://host:port` or `host:port`.

    Args:
        text: the address.
        field_name: named in errors.

    Raises:
        EndpointError: it is neither.
    """
    return parse_server_endpoint(with_scheme(text), field_name=field_name)


def with_scheme(text: str) -> str:
    """Return an address with `grpc://` before it, if it is `host:port`; any other text as it is."""
    trimmed = text.strip()
    return f"grpc://{trimmed}" if ":" in trimmed and "://" not in trimmed else text
