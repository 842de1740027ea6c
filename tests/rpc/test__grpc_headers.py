"""Header lists: timeouts, metadata and statuses there and back."""

from __future__ import annotations

import contextlib

import h2.errors
import hypothesis
import hypothesis.strategies as st
import pytest

from tests.rpc.raw_peer import request_headers
from trio_cogment.base.errors import StatusCode
from trio_cogment.rpc import _grpc_headers, _peer_statuses
from trio_cogment.rpc.metadata import Metadata


@pytest.mark.parametrize(
    ("seconds", "wire"),
    [
        (1e-9, b"1u"),
        (0, b"1u"),
        (-3, b"1u"),
        (0.2, b"200000u"),
        (99.0, b"99000000u"),
        (100.0, b"100000m"),
        (10**6, b"1000000S"),
        (10**9, b"16666667M"),
        (10**12, b"99999999H"),
    ],
)
def test_timeouts(seconds: float, wire: bytes) -> None:
    assert _grpc_headers.encode_timeout(seconds) == wire


@hypothesis.given(st.floats(1e-6, 1e8))
def test_timeouts_come_back_a_little_longer(seconds: float) -> None:
    headers = request_headers(grpc_timeout=_grpc_headers.encode_timeout(seconds))
    timeout = _grpc_headers.parse_request(headers, 10_000).timeout
    assert timeout is not None
    assert seconds * (1 - 1e-9) <= timeout <= seconds * 1.02 + 1e-5


@pytest.mark.parametrize("unit", ["H", "M", "S", "m", "u", "n"])
def test_every_unit_is_read(unit: str) -> None:
    assert _grpc_headers.parse_request(request_headers(grpc_timeout=b"7" + unit.encode()), 10_000).timeout


names = st.from_regex(r"[a-z0-9_.\-]{1,20}", fullmatch=True).filter(
    lambda n: not n.startswith("grpc-") and n not in ("te", "host")
)
texts = st.text(st.characters(min_codepoint=0x20, max_codepoint=0x7E))


@hypothesis.given(
    st.lists(
        st.one_of(
            st.tuples(names.filter(lambda n: not n.endswith("-bin")), texts),
            st.tuples(names.map(lambda n: n + "-bin"), st.binary()),
        ),
        max_size=8,
    )
)
def test_metadata_round_trip(pairs: list[tuple[str, str | bytes]]) -> None:
    metadata = Metadata(pairs)
    reserved = {"user-agent", "connection", "content-type", "content-length", "transfer-encoding"}
    hypothesis.assume(not reserved & {name for name, _ in pairs})
    assert _grpc_headers.decode_metadata(_grpc_headers.encode_metadata(metadata)) == metadata


def test_binary_metadata_may_be_joined_and_padded() -> None:
    decoded = _grpc_headers.decode_metadata([(b"a-bin", b"AP8=, AQ"), (b"a-bin", b"")])
    assert decoded.all("a-bin") == [b"\0\xff", b"\1", b""]


@hypothesis.given(st.sampled_from(list(StatusCode)), st.text(st.characters(exclude_categories=["Cs"])))
def test_statuses_round_trip(code: StatusCode, message: str) -> None:
    trailers = _grpc_headers.parse_trailers(_grpc_headers.trailer_headers(code, message, [("a", "b")], alone=b"200"))
    assert (trailers.code, trailers.message) == (code, message)
    assert trailers.metadata.first("a") == "b"


@hypothesis.given(st.lists(st.tuples(st.binary(max_size=20), st.binary(max_size=20)), max_size=8))
def test_any_headers_are_judged(headers: list[tuple[bytes, bytes]]) -> None:
    _grpc_headers.parse_trailers(headers)
    _grpc_headers.parse_response(headers)
    with contextlib.suppress(_grpc_headers.RefusedRequest):
        _grpc_headers.parse_request(headers, 10_000)


def test_a_refusal_is_read_as_what_is_told() -> None:
    refusal = _grpc_headers.RefusedRequest(StatusCode.UNIMPLEMENTED, "no such method", b"404", [(b"allow", b"POST")])
    assert str(refusal) == refusal.message == "no such method"
    assert (refusal.code, refusal.http_status) == (StatusCode.UNIMPLEMENTED, b"404")
    assert refusal.headers == [(b"allow", b"POST")]


@pytest.mark.parametrize(
    ("status", "message", "code", "text"),
    [
        (b"0", b"", StatusCode.OK, ""),
        (b"5", b"not%20here", StatusCode.NOT_FOUND, "not here"),
        (b"5", None, StatusCode.NOT_FOUND, ""),
        (b"99", b"new", StatusCode.UNKNOWN, "new"),
        (b"99", None, StatusCode.UNKNOWN, "the peer sent an unknown status"),
        (b"x", b"", StatusCode.UNKNOWN, "the peer sent an unknown status"),
        (b"", b"", StatusCode.UNKNOWN, "the peer sent an unknown status"),
        (b"05", None, StatusCode.NOT_FOUND, ""),
        (b"00", None, StatusCode.OK, ""),
    ],
)
def test_what_a_call_has_ended_with(status: bytes, message: bytes | None, code: StatusCode, text: str) -> None:
    fields = [(b"grpc-status", status), (b"x-more", b"1")]
    if message is not None:
        fields.append((b"grpc-message", message))
    trailers = _grpc_headers.parse_trailers(fields)
    assert (trailers.code, trailers.message) == (code, text)
    assert trailers.metadata == Metadata({"x-more": "1"})


def test_what_an_answer_without_a_status_means_is_what_grpc_says() -> None:
    """`http-grpc-status-mapping.md`; everything else is UNKNOWN."""
    expected = {
        **dict.fromkeys((400, 431), StatusCode.INTERNAL),
        401: StatusCode.UNAUTHENTICATED,
        403: StatusCode.PERMISSION_DENIED,
        404: StatusCode.UNIMPLEMENTED,
        **dict.fromkeys((429, 502, 503, 504), StatusCode.UNAVAILABLE),
    }
    for status in range(201, 600):
        found = _grpc_headers.parse_response([(b":status", b"%d" % status)])
        code = expected.get(status, StatusCode.UNKNOWN)
        assert found == _grpc_headers.Trailers(code, f"HTTP status {status}", Metadata())


@pytest.mark.parametrize("kind", [b"text/html", b"", None])
def test_an_answer_that_is_not_grpc_is_none(kind: bytes | None) -> None:
    headers = [(b":status", b"200"), *([] if kind is None else [(b"content-type", kind)])]
    found = _grpc_headers.parse_response(headers)
    assert isinstance(found, _grpc_headers.Trailers)
    assert (found.code, found.message) == (StatusCode.UNKNOWN, "the response is not application/grpc")


@pytest.mark.parametrize("value", [b"YWE", b"YWE=", b" YWE== ", b"YWE==="])
def test_binary_metadata_is_read_whatever_its_padding(value: bytes) -> None:
    assert _grpc_headers.decode_metadata([(b"a-bin", value)]).all("a-bin") == [b"aa"]


def test_what_a_reset_means_to_the_caller_is_what_grpc_says() -> None:
    """By the names of HTTP/2's codes."""
    others = {
        "REFUSED_STREAM": StatusCode.UNAVAILABLE,
        "CANCEL": StatusCode.CANCELLED,
        "ENHANCE_YOUR_CALM": StatusCode.RESOURCE_EXHAUSTED,
        "INADEQUATE_SECURITY": StatusCode.PERMISSION_DENIED,
    }
    expected = {
        int(code): others.get(code.name, StatusCode.INTERNAL)
        for code in h2.errors.ErrorCodes
        if code.name != "HTTP_1_1_REQUIRED"
    }
    assert {code: status for code, (status, _) in _peer_statuses.STATUS_OF_RESET.items()} == expected
    assert len({text for _, text in _peer_statuses.STATUS_OF_RESET.values()}) == len(expected)


@pytest.mark.parametrize(("fields", "remembered"), [(2, True), (4, True), (5, False)])
def test_what_usual_responses_say_is_found_out_once(fields: int, remembered: bool) -> None:
    """Metadata make them different from each other."""
    headers = [*_grpc_headers.RESPONSE_HEADERS, (b"a", b"1"), (b"b", b"2")][:fields]
    first, again = (_grpc_headers.examine_response(list(headers), ended=False) for _ in range(2))
    assert first == again
    assert (first is again) is remembered


@pytest.mark.parametrize(
    ("changes", "http_status", "text"),
    [
        ({"method": b"GET"}, b"405", "expected the method POST"),
        ({"method": None}, b"400", "expected the method POST"),
        ({"content_type": b"text/plain"}, b"415", "expected the content-type application/grpc"),
        ({"content_type": None}, b"415", "expected the content-type application/grpc"),
        ({"scheme": b"ftp"}, b"400", "expected the scheme http or https"),
        ({"scheme": None}, b"400", "expected the scheme http or https"),
        ({":protocol": b"websocket"}, b"400", "malformed pseudo-header fields"),
        ({"te": None}, b"400", "expected 'te: trailers'; is there an incompatible proxy?"),
        ({"te": b"gzip"}, b"400", "expected 'te: trailers'; is there an incompatible proxy?"),
    ],
)
def test_what_is_no_call_is_refused_with_what_was_expected(
    changes: dict[str, bytes | None], http_status: bytes, text: str
) -> None:
    headers = sorted(request_headers(b"/a.B/C", **changes), key=lambda field: not field[0].startswith(b":"))
    with pytest.raises(_grpc_headers.RefusedRequest) as raised:
        _grpc_headers.parse_request(headers, 10_000)
    assert (raised.value.code, raised.value.http_status) == (StatusCode.INTERNAL, http_status)
    assert raised.value.message == text


def test_the_headers_of_a_request_may_be_as_large_as_the_limit() -> None:
    """With 32 bytes more for each field, as HTTP/2 counts them (RFC 9113, 10.5.1)."""
    headers = request_headers(x=b"value", a_bin=b"AQ")
    size = sum(len(name) + len(value) + 32 for name, value in headers)
    assert _grpc_headers.parse_request(headers, size).metadata.first("x") == "value"
    with pytest.raises(_grpc_headers.RefusedRequest, match=f"larger than {size - 1} bytes") as raised:
        _grpc_headers.parse_request(headers, size - 1)
    assert (raised.value.code, raised.value.http_status) == (StatusCode.RESOURCE_EXHAUSTED, b"431")


@pytest.mark.parametrize("path", [b"", b"x.Y/Z"])
def test_a_call_to_no_path_is_to_nothing_that_is_served(path: bytes) -> None:
    with pytest.raises(_grpc_headers.RefusedRequest, match="expected the path /<service>/<method>") as raised:
        _grpc_headers.parse_request(request_headers(path), 10_000)
    assert raised.value.code is StatusCode.UNIMPLEMENTED
