"""The endpoint grammar, shared by parameters, hooks, command lines and clients.

* ``grpc://host:port``: connect there. A target of gRPC may stand behind ``grpc://``: ``dns:host:port``,
  ``dns:///host:port``, ``ipv4:address:port``, ``ipv6:[address]:port``. One slash at the end and a query mean nothing.
* ``legacy://host:port``: a server of the legacy API there; for participants of trials only.
* ``cogment://client``: the actor connects to the orchestrator; for actors only. The bare word ``client`` is the
  deprecated spelling.
* ``cogment://discover``, or an empty text: any service of the required kind, actor class and implementation. The
  platform's own registrations are searched first, then the directory. A path (``/actor``, ``/environment``...) names
  the kind explicitly, a query adds properties, and ``/service?__id=N`` names one registration.

Scheme, host and path are case-insensitive; nothing is percent-decoded. Blanks around an endpoint are ignored, those
within a query are not. Values of properties are optional; of repeated properties the first is used. (The reference has
two parsers: the orchestrator's takes the first, the other refuses repetitions. This one follows the orchestrator's.)
"""

from __future__ import annotations

import dataclasses
import functools
import ipaddress
import re
from collections.abc import Mapping
from dataclasses import field
from typing import Literal, TypeAlias, overload

from trio_cogment.base.errors import EndpointError
from trio_cogment.base.records import record
from trio_cogment.base.services import AUTHENTICATION_TOKEN, ServiceKind

#: A client actor; and a service that is found by what the context needs.
CLIENT = "cogment://client"
DISCOVER = "cogment://discover"
#: The host with which a client actor is registered.
CLIENT_HOST = "client"

_ID = "__id"
_TOKEN = f"__{AUTHENTICATION_TOKEN}"
_TOKEN_VALUE = re.compile(rf"({_TOKEN}=)[^&]*")
#: No number in an endpoint has more digits, and Python refuses to parse very long ones.
_MOST_DIGITS = 20
#: What may stand before an address in a target of gRPC, and the version of IP that the address then has.
_IP_VERSIONS = {"ipv4": 4, "ipv6": 6}
_RESOLVERS = frozenset(_IP_VERSIONS) | {"dns"}
_NOT_IN_ADDRESSES = {
    "/": "it takes no path",
    "#": "it takes no fragment",
    "@": "it takes no user",
    ",": "it takes one address",
    " ": "it has a blank",
}


@record()
class GrpcEndpoint:
    """A host and a port to connect to."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"grpc://{_address(self.host, self.port)}"


@record()
class LegacyEndpoint:
    """A host and a port where a server of the legacy API is."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"legacy://{_address(self.host, self.port)}"


def _address(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


@record()
class ClientEndpoint:
    """The actor connects to the orchestrator."""

    def __str__(self) -> str:
        return CLIENT


@record()
class DiscoverEndpoint:
    """A service to be found by its kind and properties.

    Attributes:
        kind: the kind of service; None: determined by the context.
        properties: properties that the registration must have, in the order given.
        service_id: the id of one registration; 0 for any.
        token: used for this inquiry instead of the general authentication token (empty: no token); never sent as a
            property, and never shown.
    """

    kind: ServiceKind | None = None
    properties: dict[str, str] = field(default_factory=dict)
    service_id: int = 0
    token: str | None = field(default=None, repr=False)

    def in_context(self, kind: ServiceKind, properties: Mapping[str, str]) -> DiscoverEndpoint:
        """Return the endpoint completed for a context that needs a `kind` with these properties.

        An endpoint that names a kind or a registration takes no properties from the context. Otherwise its own
        properties override those of the context.
        """
        if self.kind is not None:
            return self
        if self.service_id:
            return dataclasses.replace(self, kind=kind)
        return DiscoverEndpoint(kind, {**properties, **self.properties}, token=self.token)

    def __str__(self) -> str:
        if self.service_id:
            return f"{DISCOVER}/service?{_ID}={self.service_id}"
        path = f"/{self.kind.value}" if self.kind else ""
        query = "&".join(f"{name}={value}" if value else name for name, value in self.properties.items())
        return f"{DISCOVER}{path}?{query}" if query else f"{DISCOVER}{path}"


Endpoint: TypeAlias = GrpcEndpoint | LegacyEndpoint | ClientEndpoint | DiscoverEndpoint


def parse_endpoint(text: str, *, field_name: str = "endpoint") -> Endpoint:
    """Parse an endpoint; an empty text means ``cogment://discover``.

    Raises:
        EndpointError: the text does not follow the grammar; the message names `field_name` and what was expected.
            A token in the text is masked in the message.
    """
    usual = _USUAL.get(text)  # each start of a trial reads several
    if usual is not None:
        return usual()
    trimmed = text.strip()
    if not trimmed:
        return DiscoverEndpoint()
    if trimmed == "client":
        return ClientEndpoint()
    try:
        return _remembered(trimmed) if len(trimmed) <= _LONGEST_REMEMBERED else _parse(trimmed)
    except _GrammarError as refusal:
        raise _refusal(text, field_name, str(refusal)) from None


#: Endpoints that are not parsed again, and how long each may be.
_MOST_REMEMBERED, _LONGEST_REMEMBERED = 256, 200
_USUAL: dict[str, type[ClientEndpoint | DiscoverEndpoint]] = {
    "": DiscoverEndpoint,
    DISCOVER: DiscoverEndpoint,
    CLIENT: ClientEndpoint,
}


@overload
def parse_server_endpoint(text: str, *, discovery: Literal[False] = ..., field_name: str = ...) -> GrpcEndpoint: ...


@overload
def parse_server_endpoint(
    text: str, *, discovery: Literal[True], legacy: Literal[False] = ..., field_name: str = ...
) -> GrpcEndpoint | DiscoverEndpoint: ...


@overload
def parse_server_endpoint(
    text: str, *, discovery: Literal[True], legacy: Literal[True], field_name: str = ...
) -> GrpcEndpoint | LegacyEndpoint | DiscoverEndpoint: ...


def parse_server_endpoint(
    text: str, *, discovery: bool = False, legacy: bool = False, field_name: str = "endpoint"
) -> GrpcEndpoint | LegacyEndpoint | DiscoverEndpoint:
    """Parse the endpoint of a server: never ``cogment://client``.

    Args:
        text: the endpoint.
        discovery: whether the server may be discovered; an empty text then means ``cogment://discover``.
        legacy: whether it may be one of the legacy API.
        field_name: named in errors; nothing is named if it is empty.

    Raises:
        EndpointError: as with `parse_endpoint`, or another kind of endpoint.
    """
    if not discovery and not text.strip().lower().startswith("grpc://"):
        raise _refusal(text, field_name, "expected grpc://host:port" + _meant(text.strip()))
    endpoint = parse_endpoint(text, field_name=field_name)
    if isinstance(endpoint, ClientEndpoint):
        raise _refusal(text, field_name, f"expected grpc://host:port or {DISCOVER}; {CLIENT} is for actors only")
    if isinstance(endpoint, LegacyEndpoint) and not legacy:
        expected = "expected grpc://host:port" + (f" or {DISCOVER}" if discovery else "")
        raise _refusal(text, field_name, f"{expected}; legacy://host:port is for participants of trials only")
    return endpoint


def _refusal(text: str, field_name: str, reason: str) -> EndpointError:
    shown = _TOKEN_VALUE.sub(r"\1***", text)
    return EndpointError(f"{field_name}: {shown!r}: {reason}" if field_name else f"{shown!r}: {reason}")


def is_client_endpoint(text: str) -> bool:
    """Return whether an actor with this endpoint connects to the orchestrator; False for an invalid endpoint."""
    try:
        return isinstance(parse_endpoint(text), ClientEndpoint)
    except EndpointError:
        return False


class _GrammarError(Exception):
    """The text says what was expected."""


@functools.lru_cache(_MOST_REMEMBERED)
def _remembered(text: str) -> Endpoint:
    # Each start of a trial reads the endpoint of each participant several times, and most trials have the same ones.
    return _parse(text)


def _parse(text: str) -> Endpoint:
    if any("\ud800" <= character <= "\udfff" for character in text):
        raise _GrammarError("expected UTF-8")  # how Python decodes invalid bytes in arguments and variables
    scheme, separator, rest = text.partition("://")
    if separator and scheme.lower() == "grpc":
        return GrpcEndpoint(*_parse_address("grpc", rest))
    if separator and scheme.lower() == "legacy":
        return LegacyEndpoint(*_parse_address("legacy", rest))
    if separator and scheme.lower() == "cogment":
        return _parse_cogment(rest)
    raise _GrammarError(f"expected grpc://host:port, cogment://client or cogment://discover{_meant(text)}")


def _meant(text: str) -> str:
    """Return the endpoint that an address without a scheme was meant for, as part of a sentence."""
    return "" if _fault_of_address("", text) else f"; did you mean grpc://{text}?"


def _parse_address(scheme: str, rest: str) -> tuple[str, int]:
    resolver, address = _without_resolver(scheme, rest.partition("?")[0])
    fault = _fault_of_address(resolver, address := address.removesuffix("/"))
    if fault:
        raise _GrammarError(f"expected {scheme}://host:port with a port from 1 to 65535; {fault}")
    host, _, port = address.rpartition(":")
    return host.removeprefix("[").removesuffix("]"), int(port)


def _fault_of_address(resolver: str, address: str) -> str:
    """Return what is wrong with a host and a port; empty if nothing is."""
    host, separator, port = address.rpartition(":")
    bracketed = host.startswith("[") and host.endswith("]")
    name = host[1:-1] if bracketed else host
    for character, fault in _NOT_IN_ADDRESSES.items():
        if character in address:
            return fault
    if not address.isprintable():
        return "a character of it cannot be printed"
    if not separator or (":" in name and not bracketed):
        return "an IPv6 address needs brackets" if address.count(":") > 1 else "the port is missing"
    if not name:
        return "the host is missing"
    if not 0 < _number(port) < 65536:
        return f"the port is {port[:_MOST_DIGITS]!r}"
    version = _IP_VERSIONS.get(resolver)
    if version and not _is_ip_address(name, version):
        return f"{resolver}: takes an IPv{version} address, not {name!r}"
    return ""


def _without_resolver(scheme: str, address: str) -> tuple[str, str]:
    """Split an address as gRPC's targets are written into the name of its resolver, which may be empty, and the rest.

    ``dns:80`` and ``ipv4:80`` are hosts with ports.
    """
    resolver, separator, rest = address.partition(":")
    resolver = resolver.lower()
    if not separator or resolver not in _RESOLVERS or ":" not in rest:
        return "", address
    if rest.startswith("//"):
        authority, separator, rest = rest[2:].partition("/")
        if authority or not separator:
            raise _GrammarError(f"expected {scheme}://{resolver}:///host:port; it names no server to ask")
    return resolver, rest


def _is_ip_address(host: str, version: int) -> bool:
    try:
        return ipaddress.ip_address(host).version == version
    except ValueError:
        return False


def _parse_cogment(rest: str) -> Endpoint:
    address, has_query, query = rest.partition("?")
    host, has_path, path = address.partition("/")
    if host.lower() == "client":
        if path or has_query:
            raise _GrammarError("cogment://client takes no path and no query")
        return ClientEndpoint()
    if host.lower() != "discover":
        raise _GrammarError("expected cogment://client or cogment://discover")
    properties = _parse_query(query)
    token = properties.pop(_TOKEN, None)
    if token is not None and not all("!" <= character <= "~" for character in token):
        raise _GrammarError(f"expected printable ASCII without blanks as {_TOKEN}")
    if has_path and path.lower() == "service":
        return DiscoverEndpoint(None, {}, _service_id(properties), token)
    if _ID in properties:
        raise _GrammarError(f"{_ID} belongs to cogment://discover/service?{_ID}=<number>")
    if not path:
        return DiscoverEndpoint(None, properties, token=token)
    kind = next((kind for kind in ServiceKind if kind.value == path.lower()), None)
    if kind is None:
        expected = ", ".join(kind.value for kind in ServiceKind)
        raise _GrammarError(f"expected a path among {expected}, service")
    return DiscoverEndpoint(kind, properties, token=token)


def _parse_query(query: str) -> dict[str, str]:
    properties: dict[str, str] = {}
    for item in filter(None, query.split("&")):
        name, _, value = item.partition("=")
        if not name:
            raise _GrammarError("expected a name before each '=' of the query")
        properties.setdefault(name, value)
    return properties


def _service_id(properties: dict[str, str]) -> int:
    number = _number(properties.pop(_ID, ""))
    if properties or not 0 < number < 1 << 64:
        raise _GrammarError(f"expected cogment://discover/service?{_ID}=<number>, and no property but {_TOKEN}")
    return number


def _number(text: str) -> int:
    """Return a number; 0 for a text that is not one."""
    return int(text) if text.isascii() and text.isdigit() and len(text) <= _MOST_DIGITS else 0
