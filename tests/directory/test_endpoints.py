"""The endpoint grammar."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trio_cogment.directory import (
    ClientEndpoint,
    DiscoverEndpoint,
    Endpoint,
    GrpcEndpoint,
    ServiceKind,
    parse_endpoint,
)
from trio_cogment.errors import EndpointError


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("grpc://host:1", GrpcEndpoint("host", 1)),
        (" GRPC://10.0.0.1:65535 ", GrpcEndpoint("10.0.0.1", 65535)),
        ("grpc://[::1]:9000", GrpcEndpoint("::1", 9000)),
        ("cogment://client", ClientEndpoint()),
        ("Cogment://Client/", ClientEndpoint()),
        ("client", ClientEndpoint()),
        ("", DiscoverEndpoint()),
        ("cogment://discover", DiscoverEndpoint()),
        ("cogment://discover/", DiscoverEndpoint()),
        ("cogment://discover?a=1&b&a=2", DiscoverEndpoint(None, {"a": "1", "b": ""})),
        ("cogment://discover/?a=1", DiscoverEndpoint(None, {"a": "1"})),
        ("COGMENT://DISCOVER/Actor?x=y", DiscoverEndpoint(ServiceKind.ACTOR, {"x": "y"})),
        ("cogment://discover/environment", DiscoverEndpoint(ServiceKind.ENVIRONMENT)),
        ("cogment://discover/service?__id=12", DiscoverEndpoint(service_id=12)),
        (
            "cogment://discover/service?__id=12&__authentication-token=t",
            DiscoverEndpoint(service_id=12, token="t"),
        ),
        ("cogment://discover?__authentication-token=t&a=b", DiscoverEndpoint(None, {"a": "b"}, token="t")),
    ],
)
def test_good_endpoints(text: str, expected: Endpoint) -> None:
    assert parse_endpoint(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        "grpc://",
        "grpc://host",
        "grpc://host:",
        "grpc://host:0",
        "grpc://host:65536",
        "grpc://host:٣",
        "grpc://:80",
        "grpc://a b:1",
        "grpc://::1:9000",
        "grpc://user@host:1",
        "grpc://host/path:1",
        "grpcs://host:1",
        "http://host:1",
        "host:1",
        "cogment://",
        "cogment://other",
        "cogment://client/x",
        "cogment://client?x",
        "cogment://discover/bogus",
        "cogment://discover/actor/",
        "cogment://discover/service",
        "cogment://discover/service?__id=0",
        "cogment://discover/service?__id=x",
        "cogment://discover/service?__id=1&x=y",
        f"cogment://discover/service?__id={1 << 64}",
        "Client",
    ],
)
def test_bad_endpoints_are_refused_by_name(text: str) -> None:
    with pytest.raises(EndpointError, match="environment"):
        parse_endpoint(text, field_name="environment.endpoint")


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
