"""The sharp cases of a directory, by the numbers of the list they come from; with the better outcome."""

from __future__ import annotations

import pytest
import trio

from tests.servers.directory.bench import ENVIRONMENT, OTHER, Told, directory, registration, service_of
from trio_cogment.api.directory_pb2 import RegisterReply
from trio_cogment.base.config import DirectoryServerConfig

Clock = trio.testing.MockClock


@pytest.mark.parametrize("how", ["refuses", "dead", "silent"])
async def test_case_18_a_service_that_cannot_be_reached(how: str, autojump_clock: Clock) -> None:
    """The reference replies after 21 s. Here: after 2 s, hidden until healthy, forgotten in the end."""
    async with directory() as at:
        if how != "refuses":
            getattr(at.net, how).add("it")
        [reply] = await at.register(registration("it"))
        assert reply.status == RegisterReply.OK
        assert trio.current_time() == pytest.approx(2, abs=0.1)
        assert await at.hosts() == []
        assert at.server.count == 1
        await trio.sleep(30)
        at.net.dead.clear()
        at.net.silent.clear()
        at.net.host("it")
        # A look that hangs in the silence has to end first: 10 s, and 10 s to the next.
        await trio.sleep(21.5)
        assert await at.hosts() == ["it"]
        at.net.hosts.clear()
        await trio.sleep(12)
        assert await at.hosts() == []
        assert at.server.count == 1
        await trio.sleep(150)
        assert at.server.count == 0


async def test_case_18_a_silent_foreign_service(autojump_clock: Clock) -> None:
    """The reference never replies, and looks at nobody any more. Here a connection is life enough."""
    async with directory() as at:
        at.net.silent.add("it")
        at.net.host("other", other := Told())
        [reply] = await at.register(registration("it", kind=OTHER))
        assert reply.status == RegisterReply.OK
        assert trio.current_time() == 0
        await at.register(registration("other"))
        assert await at.hosts() == ["other", "it"]
        await trio.sleep(300)
        assert await at.hosts() == ["other", "it"]
        assert other.asked > 20


async def test_case_19_load_balancing(autojump_clock: Clock) -> None:
    """The reference returns both services that want nobody. Here they are never returned."""
    async with directory(DirectoryServerConfig(load_balancing=True)) as at:

        async def add(name: str, load: str) -> set[str]:
            at.net.hosts[name] = [service_of(Told(load), ENVIRONMENT)]
            await at.register(registration(name), token="t")
            return set(await at.hosts("t"))

        assert await add("full", "255") == set()
        assert await add("full-too", "255") == set()
        assert await add("50", "50") == {"50"}
        assert await add("60", "60") == {"50", "60"}
        assert await add("61", "61") == {"50", "60"}
        orders = {tuple(await at.hosts("t")) for _ in range(50)}
        assert orders == {("50", "60"), ("60", "50")}
        assert await add("abc", "abc") == {"abc"}
        assert await at.hosts() == []
        assert await at.hosts("wrong") == []
