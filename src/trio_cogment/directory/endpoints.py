"""The endpoint grammar, shared by parameters, hooks, command lines and clients.

* ``grpc://host:port``: dial there.
* ``cogment://client``: the actor comes to us; actors only. The bare word ``client`` is the deprecated spelling.
* ``cogment://discover``, or nothing at all: whoever serves this kind, class and implementation: the platform's own
  registrations are asked first, then the directory. A path (``/actor``, ``/environment``...) names the kind explicitly,
  a query adds properties, ``/service?__id=N`` names one registration.

Scheme, host and path are case-insensitive; the first of repeated properties counts; values are optional.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, field
from typing import TypeAlias

from trio_cogment.errors import EndpointError

#: Properties that a context adds to a discovery, and that registrations of actors and environments have.
ACTOR_CLASS = "__actor_class"
IMPLEMENTATION = "__implementation"

_ID = "__id"
_TOKEN = "__authentication-token"


class ServiceKind(enum.Enum):
    """What an endpoint leads to; the values are the paths of ``cogment://discover/...``."""

    ACTOR = "actor"
    ENVIRONMENT = "environment"
    DATALOG = "datalog"
    PRE_TRIAL_HOOK = "prehook"
    LIFECYCLE = "lifecycle"
    CLIENT_ACTOR = "actservice"
    DATASTORE = "datastore"
    MODEL_REGISTRY = "modelregistry"
    DIRECTORY = "directory"


@dataclass(frozen=True, slots=True)
class GrpcEndpoint:
    """A host and a port to dial."""

    host: str
    port: int

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"grpc://{host}:{self.port}"


@dataclass(frozen=True, slots=True)
class ClientEndpoint:
    """The actor will come to the orchestrator."""

    def __str__(self) -> str:
        return "cogment://client"


@dataclass(frozen=True, slots=True)
class DiscoverEndpoint:
    """To be found by what it is.

    Attributes:
        kind: None when the context tells it.
        properties: what the registration must have, in the order given.
        service_id: one registration, 0 for any.
        token: replaces the general authentication token for this inquiry; never sent as a property.
    """

    kind: ServiceKind | None = None
    properties: dict[str, str] = field(default_factory=dict)
    service_id: int = 0
    token: str | None = None

    def __str__(self) -> str:
        path = "/service" if self.service_id else f"/{self.kind.value}" if self.kind else ""
        return f"cogment://discover{path}"


Endpoint: TypeAlias = GrpcEndpoint | ClientEndpoint | DiscoverEndpoint


def parse_endpoint(text: str, *, field_name: str = "endpoint") -> Endpoint:
    """Read an endpoint; an empty text means ``cogment://discover``.

    Raises:
        EndpointError: the text does not follow the grammar; the message names `field_name` and what was expected.
    """
    trimmed = text.strip()
    if not trimmed:
        return DiscoverEndpoint()
    if trimmed == "client":
        return ClientEndpoint()
    if any(character.isspace() for character in trimmed):
        raise EndpointError(f"{field_name}: {text!r} contains blanks")
    scheme, separator, rest = trimmed.partition("://")
    if separator and scheme.lower() == "grpc":
        return _parse_grpc(rest, text, field_name)
    if separator and scheme.lower() == "cogment":
        return _parse_cogment(rest, text, field_name)
    raise EndpointError(f"{field_name}: {text!r}: expected grpc://host:port, cogment://client or cogment://discover")


def _parse_grpc(rest: str, text: str, field_name: str) -> GrpcEndpoint:
    host, separator, port = rest.rpartition(":")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    elif ":" in host:
        separator = ""
    usable = separator and host and not set("/?#@") & set(host)
    if not (usable and port.isascii() and port.isdigit() and 0 < int(port) < 65536):
        raise EndpointError(f"{field_name}: {text!r}: expected grpc://host:port with a port from 1 to 65535")
    return GrpcEndpoint(host, int(port))


def _parse_cogment(rest: str, text: str, field_name: str) -> Endpoint:
    address, has_query, query = rest.partition("?")
    host, has_path, path = address.partition("/")
    if host.lower() == "client":
        if path or has_query:
            raise EndpointError(f"{field_name}: {text!r}: cogment://client takes no path and no query")
        return ClientEndpoint()
    if host.lower() != "discover":
        raise EndpointError(f"{field_name}: {text!r}: expected cogment://client or cogment://discover")
    properties = _parse_query(query)
    token = properties.pop(_TOKEN, None)
    if not has_path or not path:
        return DiscoverEndpoint(None, properties, token=token)
    if path.lower() == "service":
        return DiscoverEndpoint(None, {}, _service_id(properties, text, field_name), token)
    kind = next((kind for kind in ServiceKind if kind.value == path.lower()), None)
    if kind is None:
        expected = ", ".join(kind.value for kind in ServiceKind)
        raise EndpointError(f"{field_name}: {text!r}: expected a path among {expected}, service")
    return DiscoverEndpoint(kind, properties, token=token)


def _parse_query(query: str) -> dict[str, str]:
    properties: dict[str, str] = {}
    for item in filter(None, query.split("&")):
        name, _, value = item.partition("=")
        properties.setdefault(name, value)
    return properties


def _service_id(properties: dict[str, str], text: str, field_name: str) -> int:
    given = properties.pop(_ID, "")
    if properties or not (given.isascii() and given.isdigit() and 0 < int(given) < 1 << 64):
        raise EndpointError(f"{field_name}: {text!r}: expected cogment://discover/service?__id=<number>")
    return int(given)
