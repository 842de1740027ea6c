"""The page of a `human` seat: one link, and one trial after the other."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import trio
from trio.testing import MockClock

from tests.play.pages import Socket, page
from tests.ports import free_port
from tests.seats.games import Duel, playing, start
from trio_cogment import rl
from trio_cogment.base.errors import FailedPreconditionError, InvalidArgumentError
from trio_cogment.platform import Platform
from trio_cogment.play.human_pages import _absent, _Door, _game, page_doors
from trio_cogment.play.server import open_play
from trio_cogment.seats.presence import Outcome
from trio_cogment.seats.remote import HumanSeat
from trio_cogment.spaces import encode_action


@asynccontextmanager
async def door(human: HumanSeat, game: Duel) -> AsyncIterator[tuple[Platform, Any, dict[str, Any]]]:
    seats: dict[str, Any] = {"player_0": rl.random(1), "player_1": human}
    async with (
        playing(game, seats) as platform,
        open_play(platform) as server,
        _absent(platform, human) as bot,
    ):
        server.link_of = lambda trial_id, actor, _sources: f"{trial_id}/{actor}"
        await server.open_lobby(_game("seat-1", human), _Door(platform, server, human, bot).start)
        yield platform, server, seats


async def play_one(socket: Socket, server: Any, number: int) -> None:
    """Go from the lobby to the seat, and play to the end of the trial."""
    await socket.say(type="ready")
    link = (await socket.read_until(lambda message: message.get("link")))["link"]
    async with page(server.seat(*link.split("/")).serve_page) as seat:
        while not (seat.state.get("over") or (await seat.read()).get("over")):
            if seat.state.get("asked") is not None and seat.state["asked"] > seat.acted:
                seat.acted = seat.state["asked"]
                await seat.say(type="act", tick=seat.acted, action=number)
    await socket.read_until(lambda message: message.get("state") == "played")


async def test_one_trial_after_the_other(autojump_clock: MockClock) -> None:
    game, human = Duel(), rl.human("ann", port=0, page=lambda link: None)
    with trio.fail_after(10_000):
        async with (
            door(human, game) as (platform, server, seats),
            page(server.lobby("seat-1").serve_page) as socket,
        ):
            await socket.say(type="hello", ticket="")
            await socket.read()
            assert socket.welcome["again"]
            for number in (1, 1):
                trial_id = await start(platform, seats)
                await play_one(socket, server, number)
                assert not (await platform.controller.wait_trial(trial_id)).failed
    assert [taken["player_1"] for taken in game.taken] == [[1] * 5] * 2


async def test_a_person_who_goes_is_replaced_by_the_default(autojump_clock: MockClock) -> None:
    game = Duel()
    human = rl.human(port=0, page=lambda link: None, default=np.int64(1), grace_seconds=5)
    with trio.fail_after(10_000):
        async with door(human, game) as (platform, server, seats):
            trial_id = await start(platform, seats)
            async with page(server.lobby("seat-1").serve_page) as socket:
                await socket.say(type="hello", ticket="")
                await socket.say(type="ready")
                link = (await socket.read_until(lambda message: message.get("link")))["link"]
                async with page(server.seat(*link.split("/")).serve_page) as seat:
                    await seat.read_until(lambda message: message.get("asked") is not None)
                    assert seat.welcome["receivers"] == ["player_0", "env"]
                    assert seat.welcome["again"]
                assert not (await platform.controller.wait_trial(trial_id)).failed
    assert game.taken[0]["player_1"] == [1] * 5


async def test_a_person_who_goes_is_replaced_until_somebody_is_back(autojump_clock: MockClock) -> None:
    game = Duel()
    human = rl.human(port=0, page=lambda link: None, absent=rl.policy(lambda observation: 2), grace_seconds=5)
    with trio.fail_after(10_000):
        async with door(human, game) as (platform, server, seats):
            trial_id = await start(platform, seats)
            async with page(server.lobby("seat-1").serve_page) as socket:
                await socket.say(type="hello", ticket="")
                await socket.say(type="ready")
                link = (await socket.read_until(lambda message: message.get("link")))["link"]
                async with page(server.seat(*link.split("/")).serve_page) as seat:
                    tick = (await seat.read_until(lambda message: message.get("asked") is not None))["asked"]
                    await seat.say(type="act", tick=tick, action=1)
                    await seat.read_until(lambda message: message.get("tick") == 1)
                assert not (await platform.controller.wait_trial(trial_id)).failed
    assert game.taken[0]["player_1"] == [1, 2, 2, 2, 2]


async def test_the_link_is_told() -> None:
    links: list[str] = []
    human = rl.human(port=0, page=links.append)
    async with playing(Duel(), {"player_0": rl.random(1), "player_1": human}) as platform:
        async with rl.serve_clients(platform, [human, rl.human(port=0)]):
            [link] = links
            port = human.endpoint.rpartition(":")[2]
            assert link.startswith(f"http://localhost:{port}/~")
            assert link.endswith("/play/")
        async with page_doors(platform, [rl.human()]) as nothing:
            assert nothing is None


@pytest.mark.parametrize(
    "options",
    [
        {"page": print},
        {"page": print, "port": 0, "grace_seconds": 0},
        {"absent": rl.random()},  # nobody is away from no page
        {"absent": rl.human(), "page": print, "port": 0},
        {"absent": rl.random(), "page": print, "port": 0, "optional": True, "default": 1},
        {"secret_file": "secret", "port": 8080},  # of no page
        {"secret_file": "secret", "port": 0, "page": print},  # the link is another one each time
    ],
)
def test_options_that_make_no_sense(options: dict[str, Any]) -> None:
    with pytest.raises(InvalidArgumentError):
        rl.human(**options)


def test_how_a_seat_is_held() -> None:
    options: dict[str, Any] = {"port": 0, "page": print, "grace_seconds": 5}
    named = _game("seat-1", rl.human("ann", **options))
    assert (named.name, named.title, named.again, named.bot) == ("seat-1", "ann", True, "")
    assert (named.seat.grace_seconds, named.seat.outcome) == (5, Outcome.LOSS)
    (who,) = named.params.actors
    assert (who.name, who.actor_class, who.endpoint) == ("ann", "player", "cogment://client")
    assert not who.HasField("default_action")
    nobody = _game("seat-2", rl.human(**options, default=1))
    assert (nobody.title, nobody.seat.outcome) == ("Play", Outcome.DEFAULT)
    (who,) = nobody.params.actors
    assert (who.name, who.default_action.content) == ("person", encode_action(1).SerializeToString())
    optional = _game("seat-3", rl.human(**options, default=1, optional=True))
    assert optional.seat.outcome is Outcome.LOSS
    absent = _game("seat-4", rl.human(**options, default=1, absent=rl.random()))
    assert (absent.seat.outcome, absent.bot) == (Outcome.BOT, "absent")


async def test_the_link_outlives_the_process_with_a_secret(tmp_path: Path) -> None:
    """Each time other tokens, which the next process knows; nobody else can read the file that is made."""
    port, path, links = free_port(), tmp_path / "secret", list[str]()
    for _ in range(2):
        human = rl.human(port=port, page=links.append, secret_file=path)
        async with (
            playing(Duel(), {"player_0": rl.random(1), "player_1": human}) as platform,
            page_doors(platform, [human]) as doors,
        ):
            assert doors is not None
            doors.tell("http://here")
            for link in links:
                token = link.split("/")[3].removeprefix("~")
                assert doors._access.identify(token, local=True).grant.trials == ("=lobby:seat-1",)
    assert len(set(links)) == 2
    assert path.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize(
    ("content", "mode", "error"),
    [
        ("00" * 32, 0o644, "others than its owner can read it; chmod 600"),
        ("none", 0o600, "line 1: expected a key as hexadecimal digits"),
    ],
)
async def test_a_secret_that_is_none(content: str, mode: int, error: str, tmp_path: Path) -> None:
    path = tmp_path / "secret"
    path.write_text(content)
    path.chmod(mode)
    human = rl.human(port=8080, page=print, secret_file=path)
    async with playing(Duel(), {"player_0": rl.random(1), "player_1": human}) as platform:
        with pytest.raises((FailedPreconditionError, InvalidArgumentError), match=error):
            async with page_doors(platform, [human]):
                pass
        other = rl.human(port=8080, page=print)
        with pytest.raises(InvalidArgumentError, match="expected one for the seats on port 8080"):
            async with page_doors(platform, [human, other]):
                pass
