"""The byte streams for the streams of Trio: TLS over a socket, and what is told of the other end."""

from __future__ import annotations

import ssl
from pathlib import Path

import pytest
import trio
import trio.testing

from tests.rpc.test__byte_stream import Held, tcp_pair
from tests.rpc.tls_files import make_party
from trio_cogment.budget.turns import _turns
from trio_cogment.rpc import server_tls
from trio_cogment.rpc._byte_stream_over import TlsByteStream, byte_stream_over, peer_name

KIB = 1024


async def test_what_is_discarded_below_tls_takes_turns(tmp_path: Path) -> None:
    """A thousand connections may end at once, each with megabytes that nobody is interested in any more."""
    turns = Held()
    _turns.set(turns)
    party = make_party(tmp_path, "server", "127.0.0.1")
    context = ssl.create_default_context(cafile=party.roots)
    with trio.fail_after(30):
        near, far = await tcp_pair()
        client = trio.SSLStream(near, context, server_hostname="127.0.0.1", https_compatible=True)
        server = trio.SSLStream(far, server_tls(party.chain, party.key), server_side=True, https_compatible=True)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(server.do_handshake)
            await client.do_handshake()
        byte_stream = byte_stream_over(server)
        assert isinstance(byte_stream, TlsByteStream)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(byte_stream.linger, KIB * KIB)
            await near.send_all(bytes(200 * KIB))  # which is not TLS
            await trio.testing.wait_all_tasks_blocked()
            assert turns.waiting == 1
            turns.let_go.set()
            await near.send_eof()
        assert turns.waiting >= 2
        await byte_stream.aclose()
        await near.aclose()


@pytest.mark.parametrize("encrypted", [False, True])
async def test_the_peer_is_named_by_its_address_as_long_as_it_is_there(encrypted: bool) -> None:
    near, far = await tcp_pair()
    port = far.socket.getsockname()[1]
    stream: trio.abc.Stream = near
    if encrypted:
        stream = trio.SSLStream(near, ssl.create_default_context(), server_hostname="here")
    assert peer_name(stream) == f"ipv4:127.0.0.1:{port}"
    await trio.aclose_forcefully(near)
    assert peer_name(stream) == "unknown"
    await far.aclose()
    memory, _ = trio.testing.memory_stream_pair()
    assert peer_name(memory) == "stream"
