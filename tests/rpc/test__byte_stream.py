"""How much a connection reads at once."""

from __future__ import annotations

import trio
import trio.testing

from trio_cogment.rpc._byte_stream import SocketByteStream

KIB = 1024


async def test_more_is_read_at_once_while_that_is_quickly_worked_through() -> None:
    """A peer whose bytes take long (the smallest frames do) must not hold up everybody else by the megabyte."""
    now = 0.0
    ours, theirs = trio.socket.socketpair()
    byte_stream, peer = SocketByteStream(trio.SocketStream(ours), lambda: now), trio.SocketStream(theirs)

    async def read_after(seconds: float) -> int:
        nonlocal now
        now += seconds
        await trio.testing.wait_all_tasks_blocked()  # as much has come as there is room for
        return len(await byte_stream.receive_some())

    async with trio.open_nursery() as nursery:
        nursery.start_soon(peer.send_all, bytes(1024 * KIB))
        took = (0, 0.001, 0.03, 0.01, 0.001, 0.1)  # what was read before, to be worked through
        assert [await read_after(seconds) // KIB for seconds in took] == [16, 64, 16, 16, 64, 16]
        nursery.cancel_scope.cancel()
    await byte_stream.aclose()
    await peer.aclose()
