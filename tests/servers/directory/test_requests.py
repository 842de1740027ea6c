"""Requests to a directory: everything unforeseen is refused, naming the field."""

from __future__ import annotations

from typing import Any

import pytest
from google.protobuf.message import DecodeError
from hypothesis import given
from hypothesis import strategies as st

from trio_cogment.api.directory_pb2 import InquireRequest, RegisterRequest, ServiceDetails, ServiceEndpoint, ServiceType
from trio_cogment.base.errors import InvalidArgumentError
from trio_cogment.servers.directory import Inquiry, Service
from trio_cogment.servers.directory._requests import inquiry_of, service_of

ENVIRONMENT = ServiceType.ENVIRONMENT_SERVICE


def request(kind: int = ENVIRONMENT, properties: Any = None, **endpoint: Any) -> RegisterRequest:
    endpoint = {"protocol": ServiceEndpoint.GRPC, "host": "here", "port": 9000, **endpoint}
    details = ServiceDetails(type=kind, properties=properties)  # type: ignore[arg-type]  # also what is none
    return RegisterRequest(endpoint=ServiceEndpoint(**endpoint), details=details)


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, Service(kind=4, protocol=1, host="here", port=9000)),
        ({"protocol": 2, "port": 65535}, Service(kind=4, protocol=2, host="here", port=65535)),
        ({"protocol": 3, "host": "client", "port": 0}, Service(kind=4, protocol=3, host="client", port=0)),
        ({"kind": 100, "host": "::1"}, Service(kind=100, protocol=1, host="::1", port=9000)),
        ({"host": "h" * 255, "port": 1}, Service(kind=4, protocol=1, host="h" * 255, port=1)),
        (
            {"properties": {"a": "", "": "b", "ü": "ß"}},
            Service(kind=4, protocol=1, host="here", port=9000, properties={"a": "", "": "b", "ü": "ß"}),
        ),
    ],
)
def test_what_may_be_registered(changes: dict[str, Any], expected: Service) -> None:
    assert service_of(request(**changes), max_bytes=1000) == expected


@pytest.mark.parametrize("kind", [*range(1, 10), 100])
def test_every_type_may_be_registered(kind: int) -> None:
    assert service_of(request(kind), max_bytes=1000).kind == kind


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"protocol": 0}, "endpoint.protocol: expected GRPC (1), GRPC_SSL (2) or COGMENT (3), got 0"),
        ({"protocol": 4}, "endpoint.protocol: expected GRPC (1), GRPC_SSL (2) or COGMENT (3), got 4"),
        ({"host": ""}, "endpoint.host: expected a name or an address, got nothing"),
        ({"host": "h" * 256}, "endpoint.host: expected at most 255 printable characters without blanks"),
        ({"host": "a b"}, "endpoint.host: expected at most 255 printable characters without blanks"),
        ({"host": "a\nb"}, "endpoint.host: expected at most 255 printable characters without blanks"),
        ({"host": "a\0b"}, "endpoint.host: expected at most 255 printable characters without blanks"),
        ({"port": 0}, "endpoint.port: expected 1 to 65535, got 0"),
        ({"protocol": 2, "port": 0}, "endpoint.port: expected 1 to 65535, got 0"),
        ({"port": 65536}, "endpoint.port: expected 1 to 65535, got 65536"),
        ({"port": 2**32 - 1}, "endpoint.port: expected 1 to 65535, got 4294967295"),
        ({"protocol": 3, "port": 65536}, "endpoint.port: expected 0 to 65535, got 65536"),
        ({"kind": 0}, "details.type: expected the type of a service, got 0"),
        ({"kind": 10}, "details.type: expected the type of a service, got 10"),
        ({"kind": -1}, "details.type: expected the type of a service, got -1"),
        (
            {"properties": {"ü": "x" * 95}},
            "endpoint.host, details.properties: expected at most 100 bytes together, got 101",
        ),
    ],
)
def test_what_may_not_be_registered(changes: dict[str, Any], text: str) -> None:
    max_bytes = 100 if "properties" in changes else 1000
    with pytest.raises(InvalidArgumentError) as caught:
        service_of(request(**changes), max_bytes=max_bytes)
    assert str(caught.value) == text


@pytest.mark.parametrize("missing", ["endpoint", "details"])
def test_missing_parts(missing: str) -> None:
    message = request()
    message.ClearField(missing)
    with pytest.raises(InvalidArgumentError, match=f"^{missing}: expected a value, got none$"):
        service_of(message, max_bytes=1000)


def test_a_registration_of_exactly_the_limit_fits() -> None:
    assert service_of(request(properties={"ü": "x" * 94}), max_bytes=100).size == 100


@given(st.binary(max_size=200))
def test_whatever_parses_is_taken_or_refused(data: bytes) -> None:
    try:
        message = RegisterRequest.FromString(data)
    except DecodeError:
        return
    try:
        service_of(message, max_bytes=1000)
    except InvalidArgumentError:
        pass


def test_inquiries() -> None:
    assert inquiry_of(InquireRequest(service_id=0)) == Inquiry(service_id=0)  # as the reference's WaitForReady asks
    assert inquiry_of(InquireRequest(service_id=2**64 - 1)) == Inquiry(service_id=2**64 - 1)
    assert inquiry_of(InquireRequest(details=ServiceDetails())) == Inquiry()
    details = ServiceDetails(type=ENVIRONMENT, properties={"a": "1"})
    assert inquiry_of(InquireRequest(details=details)) == Inquiry(kind=ENVIRONMENT, properties={"a": "1"})


def test_what_may_not_be_asked() -> None:
    with pytest.raises(InvalidArgumentError, match=r"^inquiry: expected service_id or details, got neither$"):
        inquiry_of(InquireRequest())
    details = ServiceDetails(type=42)  # type: ignore[arg-type]  # that is the point
    with pytest.raises(InvalidArgumentError, match=r"^details.type: expected .* or 0 for any, got 42$"):
        inquiry_of(InquireRequest(details=details))


@pytest.mark.parametrize(
    ("kind", "properties", "fits"),
    [
        (0, {}, True),
        (4, {}, True),
        (3, {}, False),
        (0, {"a": "1"}, True),
        (4, {"a": "1", "empty": ""}, True),
        (4, {"a": ""}, False),
        (4, {"a": "2"}, False),
        (4, {"empty": "x"}, False),
        (4, {"b": ""}, False),
        (4, {"__id": "1"}, False),  # no name means anything here
    ],
)
def test_what_fits(kind: int, properties: dict[str, str], fits: bool) -> None:
    service = Service(kind=4, protocol=1, host="h", port=1, properties={"a": "1", "empty": ""})
    assert Inquiry(kind=kind, properties=properties).fits(service) is fits
