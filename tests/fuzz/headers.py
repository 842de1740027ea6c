"""Header blocks, requests, responses, trailers, metadata and timeouts: values, or the errors that each documents."""

from __future__ import annotations

import re

from tests.fuzz import _run

with _run.instrumented_imports():
    import hpack

    from trio_cogment.rpc import _grpc_headers
    from trio_cogment.rpc._control import ControlPlane, max_block_bytes
    from trio_cogment.rpc._frames import ConnectionFaultError
    from trio_cogment.rpc._hpack import _MAX_TABLE_UPDATES, RawHeaders

LONG_INTEGER = re.compile(rb"[\x80-\xff]{5}")


def check(data: bytes) -> None:
    if data[:1] == b"b":
        check_blocks(data[1:])
    else:
        check_list(listed(data))


def listed(data: bytes) -> RawHeaders:
    """Return the header list that lines of ``name=value`` make; NUL may stand in either."""
    pairs = (line.partition(b"=") for line in data.split(b"\n"))
    return [(name, value.replace(b"\\n", b"\n")) for name, _, value in pairs]


def check_blocks(data: bytes) -> None:
    """The decoder that remembers says the same as one that does not, each block twice."""
    ours = ControlPlane(client_side=False)
    plain = hpack.Decoder(max_header_list_size=max_block_bytes(0))
    for block in (one for one in data.split(b"//") for _ in range(2)):
        expected: object
        try:
            expected = [(bytes(name), bytes(value)) for name, value in plain.decode(block, raw=True)]
        except (hpack.HPACKError, IndexError, TypeError, ValueError):
            expected = None
        try:
            headers = ours.decode(block)
        except ConnectionFaultError:
            # Integers of more than 35 bits mean nothing, nor does a row of table size updates, though hpack reads them.
            assert expected is None or LONG_INTEGER.search(block) or may_have_many_updates(block)
            return
        assert headers == expected
        check_list(headers)


def may_have_many_updates(block: bytes) -> bool:
    return sum(byte & 0xE0 == 0x20 for byte in block) > _MAX_TABLE_UPDATES


def check_list(headers: RawHeaders) -> None:
    try:
        head = _grpc_headers.parse_request(headers, 4000)
    except _grpc_headers.RefusedRequest as refusal:
        _grpc_headers.trailer_headers(refusal.code, refusal.message, (), alone=refusal.http_status)
    else:
        assert head.timeout is None or 0 <= head.timeout < 4e11
        again = _grpc_headers.decode_metadata(_grpc_headers.encode_metadata(head.metadata))
        assert again == head.metadata
    _grpc_headers.parse_response(headers)
    trailers = _grpc_headers.parse_trailers(headers)
    back = _grpc_headers.parse_trailers(_grpc_headers.trailer_headers(trailers.code, trailers.message, ()))
    assert back.code == trailers.code
    try:
        _grpc_headers.decode_metadata(headers)
    except _grpc_headers.BadMetadataError:
        pass


if __name__ == "__main__":
    _run.run(check)
