"""The endpoint grammar."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trio_cogment.base.endpoints import (
    ClientEndpoint,
    DiscoverEndpoint,
    Endpoint,
    GrpcEndpoint,
    LegacyEndpoint,
    is_client_endpoint,
    parse_endpoint,
    parse_server_endpoint,
)
from trio_cogment.base.errors import EndpointError
from trio_cogment.base.services import ACTOR_CLASS, IMPLEMENTATION, ServiceKind

D = DiscoverEndpoint


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        # a host and a port
        ("grpc://host:1", GrpcEndpoint("host", 1)),
        ("grpc://h\N{LATIN SMALL LETTER O WITH DIAERESIS}st:1", GrpcEndpoint("h\xf6st", 1)),
        ("grpc://[::1]:9000", GrpcEndpoint("::1", 9000)),
        ("GRPC://Host:65535", GrpcEndpoint("Host", 65535)),
        # as the targets of gRPC are written, with an end that means nothing
        ("grpc://host:1/", GrpcEndpoint("host", 1)),
        ("grpc://dns:host:1", GrpcEndpoint("host", 1)),
        ("grpc://dns:///host:1", GrpcEndpoint("host", 1)),
        ("grpc://DNS:///[::1]:1/", GrpcEndpoint("::1", 1)),
        ("grpc://ipv4:10.0.0.1:1", GrpcEndpoint("10.0.0.1", 1)),
        ("grpc://ipv4:///10.0.0.1:1", GrpcEndpoint("10.0.0.1", 1)),
        ("grpc://ipv6:[::1]:1", GrpcEndpoint("::1", 1)),
        ("grpc://host:1?x=1", GrpcEndpoint("host", 1)),
        ("grpc://dns:///host:1/?x=1&y=a/b:c", GrpcEndpoint("host", 1)),
        ("grpc://dns:80", GrpcEndpoint("dns", 80)),
        ("grpc://ipv4:80", GrpcEndpoint("ipv4", 80)),
        ("legacy://dns:///host:1/", LegacyEndpoint("host", 1)),
        # a server of the legacy API
        ("legacy://host:9000", LegacyEndpoint("host", 9000)),
        ("Legacy://[::1]:1", LegacyEndpoint("::1", 1)),
        # blanks around
        (" \tgrpc://10.0.0.1:80\n", GrpcEndpoint("10.0.0.1", 80)),
        (" client ", ClientEndpoint()),
        ("   ", D()),
        # client actors
        ("cogment://client", ClientEndpoint()),
        ("Cogment://Client/", ClientEndpoint()),
        ("client", ClientEndpoint()),
        # discovery by context
        ("", D()),
        ("cogment://discover", D()),
        ("cogment://discover/", D()),
        ("cogment://discover?", D()),
        ("cogment://discover/?a=1", D(None, {"a": "1"})),
        ("COGMENT://DISCOVER?A=B", D(None, {"A": "B"})),
        # queries
        ("cogment://discover?a=1&b&c=&&", D(None, {"a": "1", "b": "", "c": ""})),
        ("cogment://discover?a=1&a=2&a", D(None, {"a": "1"})),
        ("cogment://discover?a=%20+%3D&b=x=y", D(None, {"a": "%20+%3D", "b": "x=y"})),
        ("cogment://discover?site=north wing&q=a?b#c/d", D(None, {"site": "north wing", "q": "a?b#c/d"})),
        ("cogment://discover?__implementation=i&__actor_class=", D(None, {IMPLEMENTATION: "i", ACTOR_CLASS: ""})),
        ("cogment://discover?id=12", D(None, {"id": "12"})),
        # explicit kinds
        *[(f"cogment://discover/{kind.value}", D(kind)) for kind in ServiceKind],
        ("COGMENT://DISCOVER/Actor?x=y", D(ServiceKind.ACTOR, {"x": "y"})),
        # one registration
        ("cogment://discover/service?__id=12", D(service_id=12)),
        (f"cogment://discover/SERVICE?__id={(1 << 64) - 1}", D(service_id=(1 << 64) - 1)),
        ("cogment://discover/service?__id=12&__id=13", D(service_id=12)),
        ("cogment://discover/service?__id=12&__authentication-token=t", D(service_id=12, token="t")),
        # tokens
        ("cogment://discover?__authentication-token=t&a=b", D(None, {"a": "b"}, token="t")),
        ("cogment://discover?__authentication-token=t&__authentication-token=u", D(token="t")),
        ("cogment://discover/actor?__authentication-token", D(ServiceKind.ACTOR, token="")),
    ],
)
def test_good_endpoints(text: str, expected: Endpoint) -> None:
    assert parse_endpoint(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        # no host, no port, no such port
        "grpc://",
        "grpc://host",
        "grpc://host:",
        "grpc://host:0",
        "grpc://host:65536",
        "grpc://host:-1",
        "grpc://host:\u0663",
        "grpc://host:" + "9" * 5000,
        "grpc://:80",
        "grpc://[]:80",
        "grpc://::1:9000",
        "legacy://",
        "legacy://host",
        "legacy://host:0",
        # more than a host and a port
        "legacy://host:1/path",
        "grpc://a b:1",
        "grpc://a\0b:1",
        "grpc://user@host:1",
        "grpc://host/path:1",
        "grpc://host:1/path",
        "grpc://host:1//",
        "grpc://host:1/path?a=b",
        "grpc://?host:1",
        # targets of gRPC with other resolvers, several addresses, or addresses of another kind
        "grpc://dns://8.8.8.8/host:1",
        "grpc://dns://host:1",
        "grpc://dns:///",
        "grpc://dns:///host",
        "grpc://dns:host:0",
        "grpc://dns:dns:host:1",
        "grpc://ipv4:host:1",
        "grpc://ipv4:[::1]:1",
        "grpc://ipv4:10.0.0.1:1,10.0.0.2:1",
        "grpc://ipv6:10.0.0.1:1",
        "grpc://ipv6:::1:1",
        "grpc://unix:/tmp/socket:1",
        "grpc://xds:///host:1",
        # no such scheme, or none
        "grpcs://host:1",
        "http://host:1",
        "host:1",
        "://host:1",
        "Client",
        "cli ent",
        # no such host
        "cogment://",
        "cogment://other",
        "cogment://discover:80",
        "cogment:// discover",
        "cogment://discover ?a",
        # cogment://client has nothing behind it
        "cogment://client/x",
        "cogment://client//",
        "cogment://client?x",
        "cogment://client/?",
        # no such path, or something behind it
        "cogment://discover/bogus",
        "cogment://discover/actor/",
        "cogment://discover//",
        "cogment://discover/act or",
        "cogment://discover/%61ctor",
        # not one registration
        "cogment://discover/service",
        "cogment://discover/service?__id",
        "cogment://discover/service?__id=0",
        "cogment://discover/service?__id=-1",
        "cogment://discover/service?__id=x",
        "cogment://discover/service?id=12",
        "cogment://discover/service?__id=1&x=y",
        "cogment://discover/service?__id=1&__implementation=y",
        f"cogment://discover/service?__id={1 << 64}",
        "cogment://discover/service?__id=" + "1" * 5000,
        # an id elsewhere, properties without names, tokens that cannot travel, bytes that are not text
        "cogment://discover?__id=1",
        "cogment://discover/actor?__id=1",
        "cogment://discover?=x",
        "cogment://discover?__authentication-token=a b",
        "cogment://discover?__authentication-token=\xe9",
        "cogment://discover?a=\udcff",
    ],
)
def test_bad_endpoints_are_refused_by_name(text: str) -> None:
    with pytest.raises(EndpointError, match=r"^environment\.endpoint: .*expected|takes no|belongs to"):
        parse_endpoint(text, field_name="environment.endpoint")


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("grpc://host", "the port is missing"),
        ("grpc://:80", "the host is missing"),
        ("grpc://dns:host:0", "the port is '0'"),
        ("grpc://host:1/path", "takes no path"),
        ("grpc://user@host:1", "takes no user"),
        ("grpc://host:1#x", "takes no fragment"),
        ("grpc://a b:1", "has a blank"),
        ("grpc://a\0b:1", "cannot be printed"),
        ("grpc://::1:9000", "needs brackets"),
        ("grpc://ipv4:10.0.0.1:1,10.0.0.2:1", "takes one address"),
        ("grpc://ipv4:host:1", "ipv4: takes an IPv4 address, not 'host'"),
        ("grpc://ipv6:[10.0.0.1]:1", "ipv6: takes an IPv6 address, not '10.0.0.1'"),
        ("legacy://dns://8.8.8.8/host:1", "legacy://dns:///host:port; it names no server to ask"),
    ],
)
def test_refusals_name_the_fault(text: str, fault: str) -> None:
    with pytest.raises(EndpointError) as caught:
        parse_endpoint(text)
    assert fault in str(caught.value)


def test_tokens_are_never_shown() -> None:
    text = "cogment://discover/bogus?__authentication-token=secret&a=b"
    with pytest.raises(EndpointError) as caught:
        parse_endpoint(text)
    assert "__authentication-token=***&a=b" in str(caught.value)
    endpoint = parse_endpoint(text.replace("bogus", "actor"))
    assert "secret" not in f"{caught.value} {endpoint} {endpoint!r}"


CONTEXT = {ACTOR_CLASS: "player", IMPLEMENTATION: "greedy"}


@pytest.mark.parametrize(
    ("text", "kind", "properties"),
    [
        ("", ServiceKind.ACTOR, CONTEXT),
        ("cogment://discover?a=b", ServiceKind.ACTOR, {**CONTEXT, "a": "b"}),
        ("cogment://discover?__implementation=mine", ServiceKind.ACTOR, {**CONTEXT, IMPLEMENTATION: "mine"}),
        ("cogment://discover?__actor_class", ServiceKind.ACTOR, {**CONTEXT, ACTOR_CLASS: ""}),
        ("cogment://discover/actor?a=b", ServiceKind.ACTOR, {"a": "b"}),
        ("cogment://discover/environment", ServiceKind.ENVIRONMENT, {}),
        ("cogment://discover/service?__id=7", ServiceKind.ACTOR, {}),
    ],
)
def test_the_context_completes_what_does_not_say_it_itself(
    text: str, kind: ServiceKind, properties: dict[str, str]
) -> None:
    endpoint = parse_endpoint(text)
    assert isinstance(endpoint, DiscoverEndpoint)
    found = endpoint.in_context(ServiceKind.ACTOR, CONTEXT)
    assert (found.kind, found.properties, found.service_id) == (kind, properties, endpoint.service_id)


@pytest.mark.parametrize(
    "text",
    [
        "cogment://discover",
        "cogment://discover/actor?a=b&c",
        "cogment://discover?a=b",
        "cogment://discover/service?__id=9",
    ],
)
def test_discoveries_are_shown_as_they_are_written(text: str) -> None:
    assert str(parse_endpoint(text)) == text


@given(st.text(max_size=60))
def test_any_text_is_read_or_refused(text: str) -> None:
    try:
        parse_endpoint(text)
    except EndpointError:
        pass


@given(st.sampled_from(["host", "10.1.2.3", "::1"]), st.integers(1, 65535))
def test_written_endpoints_read_back(host: str, port: int) -> None:
    endpoint = GrpcEndpoint(host, port)
    assert parse_endpoint(str(endpoint)) == endpoint
    assert parse_endpoint(str(ClientEndpoint())) == ClientEndpoint()
    assert parse_endpoint(str(DiscoverEndpoint(ServiceKind.ACTOR))) == DiscoverEndpoint(ServiceKind.ACTOR)


@pytest.mark.parametrize(
    ("endpoint", "client"),
    [
        ("cogment://client", True),
        (" Cogment://Client/ ", True),
        ("client", True),
        ("cogment://discover", False),
        ("", False),
        ("grpc://client", False),
        ("cogment://client/actor", False),
    ],
)
def test_client_endpoints(endpoint: str, client: bool) -> None:
    assert is_client_endpoint(endpoint) is client


def test_endpoints_of_servers() -> None:
    assert parse_server_endpoint("grpc://host:1") == GrpcEndpoint("host", 1)
    assert parse_server_endpoint("", discovery=True) == DiscoverEndpoint()


@pytest.mark.parametrize(
    "text",
    ["", "nowhere", "client", "cogment://client", "cogment://discover", "grpc://h:0", "legacy://h:1"],
)
def test_other_endpoints_are_none_of_a_server(text: str) -> None:
    with pytest.raises(EndpointError, match=r"^hook: .*: expected grpc://host:port"):
        parse_server_endpoint(text, field_name="hook")


def test_no_server_is_a_client() -> None:
    with pytest.raises(
        EndpointError, match=r"^'client': expected .*cogment://discover; cogment://client is for actors"
    ):
        parse_server_endpoint("client", discovery=True, field_name="")


def test_servers_of_the_legacy_api_only_where_they_may_be() -> None:
    with pytest.raises(EndpointError, match=r"^hook: .*cogment://discover; legacy://host:port is for participants"):
        parse_server_endpoint("legacy://h:1", discovery=True, field_name="hook")
    found = parse_server_endpoint("legacy://h:1", discovery=True, legacy=True)
    assert (found, str(found)) == (LegacyEndpoint("h", 1), "legacy://h:1")


def test_tokens_of_refused_discoveries_are_not_shown() -> None:
    with pytest.raises(EndpointError) as caught:
        parse_server_endpoint("cogment://discover?__authentication-token=secret")
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize("address", ["localhost:9000", "10.0.0.1:9000", "[::1]:9000", "dns:9000"])
def test_an_address_without_a_scheme_is_refused_with_what_was_meant(address: str) -> None:
    for discovery in (False, True):
        with pytest.raises(EndpointError, match=re.escape(f"; did you mean grpc://{address}?")):
            parse_server_endpoint(f" {address} ", discovery=discovery)
    with pytest.raises(EndpointError, match=re.escape(f"; did you mean grpc://{address}?")):
        parse_endpoint(address)


@pytest.mark.parametrize("text", ["http://localhost:9000", "localhost", "localhost:", ":9000", "a b:1", "h:99999"])
def test_nothing_is_suggested_for_what_would_be_refused_as_well(text: str) -> None:
    for discovery in (False, True):
        with pytest.raises(EndpointError) as caught:
            parse_server_endpoint(text, discovery=discovery)
        assert "did you mean" not in str(caught.value)
