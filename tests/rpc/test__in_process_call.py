"""The two ends of a call within a process, and how it ends."""

from __future__ import annotations

import math

import pytest

from trio_cogment.base.config import RpcConfig
from trio_cogment.base.errors import RpcError, StatusCode
from trio_cogment.rpc._grpc_headers import metadata_bytes
from trio_cogment.rpc._in_process_call import Exchange, fits
from trio_cogment.rpc.metadata import Metadata
from trio_cogment.testing.conformance.channel import ECHO

REFUSED = RpcError(StatusCode.NOT_FOUND, "not here", Metadata({"why": "gone"}))


def exchange() -> Exchange:
    return Exchange(ECHO, Metadata(), math.inf, RpcConfig())


async def test_what_was_cancelled_does_not_end_well_afterwards() -> None:
    call = exchange()
    call.cancel(REFUSED)
    call.trailing_metadata = Metadata({"of": "the handler"})
    call.finish(None)
    assert call.responses.end is REFUSED
    assert call.trailing_metadata == Metadata({"of": "the handler"})
    assert call.without_headers


@pytest.mark.parametrize(
    "metadata", [{}, {"a": ""}, {"name": "value"}, {"a-bin": bytes(100)}, {"a": "x" * 50, "b-bin": b"\xff" * 7}]
)
def test_metadata_fit_to_the_byte(metadata: dict[str, str | bytes]) -> None:
    size = metadata_bytes(Metadata(metadata))
    assert fits(Metadata(metadata), size)
    assert fits(Metadata(metadata), size + 1000)
    assert not fits(Metadata(metadata), size - 1)
