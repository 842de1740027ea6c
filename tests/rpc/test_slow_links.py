"""A PING behind much data arrives late: whoever takes that data is there, and whoever takes nothing is given up."""

from __future__ import annotations

import ssl
import sys

import pytest
import trio
import trio.testing

from tests.rpc.raw_peer import DATA, END_STREAM, PING, frame, message, request_headers
from tests.rpc.test__lingering_close import LARGE, Answering, connected, contexts, gone, served
from trio_cogment.base.config import RpcConfig

__all__ = ["contexts"]  # a fixture

CONFIG = RpcConfig(keepalive_seconds=0.05, keepalive_timeout_seconds=0.3)

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="elsewhere nobody knows what has arrived")


@pytest.mark.parametrize("secure", [False, True], ids=["plaintext", "TLS"])
@pytest.mark.parametrize("stops", [False, True], ids=["goes on", "stops"])
async def test_a_peer_that_takes_what_is_sent_lives(
    secure: bool, stops: bool, contexts: tuple[ssl.SSLContext, ssl.SSLContext]
) -> None:
    """It says nothing for several times the patience, as the PING is behind three MiB that it takes slowly."""
    ours, theirs = contexts if secure else (None, None)
    whole = len(message(LARGE.SerializeToString()))
    async with served([Answering().service()], CONFIG, ours) as serving, connected(serving, theirs) as peer:
        await peer.send(peer.headers(1, request_headers(path=b"/t.T/M")), frame(DATA, END_STREAM, 1, message(b"")))
        answer = peer.answer(1)
        began = trio.current_time()
        while not peer.eof and not answer.ended:
            await peer.pump()
            if stops and len(answer.data) > whole // 8:
                break
            await trio.testing.wait_all_tasks_blocked(0.01 if secure else 0.03)  # slow; TLS reads less at a time
        if stops:
            stopped = trio.current_time()
            await gone(serving)
            # Its last interval of progress, one without, and the farewell.
            assert trio.current_time() - stopped < 10
            return
        assert trio.current_time() - began > 3 * CONFIG.keepalive_timeout_seconds
        assert answer.status == 0
        assert len(answer.data) == whole
        while not any(kind == PING for kind, _, _, _ in peer.frames):
            await peer.pump()
        await peer.until(lambda: False)  # it has not answered
        assert peer.eof
