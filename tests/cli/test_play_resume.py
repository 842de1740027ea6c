"""`play --resume`, as in docs/resuming.md: people whose server was killed are back in their game by themselves."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import trio

from tests.cli.process import PATIENCE_SECONDS, run, server
from tests.cli.test_play_process import _LINK
from tests.play.pages import read_message
from tests.ports import free_port
from tests.web.peers import HOST, Tab
from trio_cogment.sdk import connect

#: A person thinks; none has reached the end of an episode when the server is killed.
_THINKS_SECONDS = 0.05


class Person:
    """Somebody with a page, which opens its socket again when that breaks, as that in a browser does.

    Attributes:
        acted: the ticks in which it has acted, in the order of time.
        has_acted: set when it has acted in five ticks.
        over: what it is told of the end.
    """

    def __init__(self, port: int) -> None:
        self.port = port
        self.acted: list[int] = []
        self.has_acted = trio.Event()
        self.over: dict[str, Any] | None = None
        self.is_over = trio.Event()

    async def play(self, lobby: str) -> None:
        seat = await self._seat_by(lobby)
        while self.over is None:
            try:
                await self._at(seat)
            except (OSError, EOFError, AssertionError, trio.BrokenResourceError, trio.ClosedResourceError):
                await trio.sleep(0.2)
        self.is_over.set()

    async def _seat_by(self, lobby: str) -> str:
        async with await trio.open_tcp_stream("127.0.0.1", self.port) as stream:
            page = Tab(stream)
            await page.open(f"{urlsplit(lobby).path}socket", origin=f"http://{HOST}")
            await page.send(b'{"type": "hello", "ticket": ""}')
            await page.send(b'{"type": "ready"}')
            while not (seat := read_message(await page.message()).get("link")):
                pass
            return str(seat)

    async def _at(self, seat: str) -> None:
        async with await trio.open_tcp_stream("127.0.0.1", self.port) as stream:
            page = Tab(stream)
            await page.open(f"{seat}socket", origin=f"http://{HOST}")
            while True:
                state = read_message(await page.message())
                if state.get("over"):
                    self.over = state["over"]
                    return
                tick = state.get("asked")
                if tick is not None:
                    await trio.sleep(_THINKS_SECONDS)
                    await page.send(b'{"type": "act", "tick": %d, "action": %d}' % (tick, tick % 2))
                    self.acted.append(tick)
                    if len(self.acted) >= 5:
                        self.has_acted.set()


async def interrupted(folder: Path, people: int, number: signal.Signals = signal.SIGKILL) -> None:
    port, secret = free_port(), folder / "secret"
    assert (await run("token", "init", f"--auth_secret_file={secret}")).code == 0
    flags = ["play", "CartPole-v1", f"--port={port}", "--resume", f"--auth_secret_file={secret}"]
    flags += [f"--storage=sqlite:{folder}/trials.db"]
    persons = [Person(port) for _ in range(people)]
    async with trio.open_nursery() as nursery:
        async with server(*flags) as first:
            lobby = (await first.said(_LINK))[1]
            for person in persons:
                nursery.start_soon(person.play, lobby)
            for person in persons:
                await person.has_acted.wait()
            first.process.send_signal(number)
            await first.process.wait()
        async with server(*flags) as second:
            await second.said(_LINK)
            with trio.fail_after(PATIENCE_SECONDS):
                for person in persons:
                    await person.is_over.wait()
            async with connect(f"grpc://127.0.0.1:{port}", variables={}) as client:
                datastore = await client.datastore()
                found = await datastore.trials(wait_seconds=0)
                names = [trial.trial_id for trial in found]
                # A page may hear of the end before it is stored.
                ended = {name: [one.tick_id async for one in datastore.samples([name], follow=True)] for name in names}
    assert len(ended) == people
    for trial in found:
        assert trial.params.properties["resume.attempt"] == "2"
        assert ended[trial.trial_id] == list(range(len(ended[trial.trial_id])))
    for person in persons:
        assert person.over is not None
        assert person.over["cause"] == "environment"


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
async def test_people_are_back_in_their_game_by_themselves(number: signal.Signals, tmp_path: Path) -> None:
    with trio.fail_after(4 * PATIENCE_SECONDS):
        await interrupted(tmp_path, 2, number)


@pytest.mark.soak
async def test_many_people_are_back(tmp_path: Path) -> None:
    await interrupted(tmp_path, 10)


async def test_without_a_secret_links_would_not_last(tmp_path: Path) -> None:
    done = await run("play", "CartPole-v1", "--resume", "--port=0", folder=tmp_path)
    assert done.code != 0
    assert "expected --auth_secret_file" in done.err
