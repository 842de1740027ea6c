"""Seats in simulated worlds: pages that attach, detach, are loaded again, stall and say nonsense, in any order."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
import trio

from tests.play.pages import SPEC, Counting, Socket, params, seven
from trio_cogment.play.games import Game
from trio_cogment.play.lobby_machine import LobbyRules, Shortage
from trio_cogment.play.server import PlayServer, open_play
from trio_cogment.seats.presence import Outcome, PresenceState, SeatRules
from trio_cogment.testing import World

pytestmark = pytest.mark.usefixtures("quiet")

TICKS = 12
PERSON, BOT, DEFAULT = 1, 7, 9
#: Longer than all times together that a trial of these seats may wait.
PATIENCE_SECONDS = 10_000


class Visitor:
    """Somebody at a seat, or in a lobby, who does anything at any time.

    Args:
        world: has the random numbers, and takes notes of what was reached.
        name: of the visitor.
    """

    def __init__(self, world: World, name: str) -> None:
        self._world = world
        self._random: Random = world.stream(name)
        self.link = ""

    async def visit(self, serve: Any, *, ticket: str = "") -> None:
        """Open a page again and again."""
        while True:
            await trio.sleep(self._random.choice([0, 0.1, 5, 45]))
            socket = Socket()
            with trio.move_on_after(self._random.choice([0, 0.5, 20, 200])) as window:
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(self._sit, socket, ticket)
                    await serve(socket)
                    nursery.cancel_scope.cancel()
            self._world.sometimes("a page is closed by itself" if window.cancelled_caught else "a page is told to go")
            ticket = socket.welcome.get("ticket", ticket)

    async def _sit(self, socket: Socket, ticket: str) -> None:
        await socket.say(type="hello", ticket=ticket)
        while True:
            state = await socket.read()
            if state["type"] == "lobby":
                self.link = state.get("link", self.link)
            what = self._random.random()
            if what < 0.05:
                self._world.sometimes("a page stalls")
                await trio.sleep(self._random.choice([1, 50]))
            elif what < 0.1:
                await socket.say_bytes(b"nonsense")
            elif what < 0.12:
                await socket.say(type="resign")
            elif what < 0.2:
                await socket.say(type="message", to="env", text="hello")
            elif state["type"] == "lobby":
                await socket.say(type="ready")
            elif state.get("asked") is not None:
                await socket.say(type="act", tick=state["asked"], action={"value": str(PERSON)})
            else:
                await socket.say(type="ping", sent=0)


def games(random: Random, people: list[str]) -> Game:
    rules = SeatRules(
        come_seconds=random.choice([1.0, 100.0]),
        grace_seconds=random.choice([1.0, 10.0, 60.0]),
        action_seconds=random.choice([0.5, 30.0, 300.0]),
        outcome=random.choice(list(Outcome)),
    )
    lobby = LobbyRules(seats=len(people), wait_seconds=40, away_seconds=20, shortage=random.choice(list(Shortage)))
    return Game(
        name="game", params=params(*people, agents=["agent"], optional=True), bot="seven", seat=rules, lobby=lobby
    )


def check(environment: Counting, server: PlayServer, game: Game) -> None:
    """A trial has all of its ticks, each actor acts once for each, and only what may act does."""
    outcome = game.seat.outcome
    allowed = {
        Outcome.BOT: {PERSON, BOT, DEFAULT},  # a bot that fails to come in time is the orchestrator's business
        Outcome.DEFAULT: {PERSON, DEFAULT},
        Outcome.LOSS: {PERSON, DEFAULT},  # the actors are optional, and have a default action
    }[outcome]
    for actions in environment.actions:
        *people, agent = actions
        assert agent == BOT
        assert set(people) <= allowed | ({BOT} if game.lobby.shortage is Shortage.BOTS else set())
    assert all(seat.state in (PresenceState.OVER, PresenceState.LEFT) for seat in server.seats)


async def seats(world: World) -> None:
    random, people = world.stream("game"), ["ann", "bob"]
    game, environment = games(random, people), Counting(TICKS)
    async with world.open_platform(SPEC) as platform, open_play(platform) as server:
        platform.participants.register_environment(environment)
        platform.participants.register_actor(seven, "seven", ["player"])
        with trio.fail_after(PATIENCE_SECONDS):
            server.link_of = lambda trial_id, actor, _sources: f"{trial_id}/{actor}"
            links, over = await server.start(game, 2, False)
            async with trio.open_nursery() as nursery:
                for link in (made(()) for made in links):
                    seat = server.seat(*link.split("/"))
                    for number in range(2):  # windows
                        visitor = Visitor(world, f"{link.split('/')[1]} {number}")
                        nursery.start_soon(visitor.visit, seat.serve_page)
                await over()
                await trio.sleep(1)
                nursery.cancel_scope.cancel()
        assert len(environment.actions) == TICKS
        check(environment, server, game)
        if any(seat.state is PresenceState.LEFT for seat in server.seats):
            world.sometimes("a seat is lost")


async def lobbies(world: World) -> None:
    random, people = world.stream("game"), ["ann", "bob"]
    game, environment = games(random, people), Counting(3)
    async with world.open_platform(SPEC) as platform, open_play(platform, [game]) as server:
        platform.participants.register_environment(environment)
        platform.participants.register_actor(seven, "seven", ["player"])
        server.link_of = lambda trial_id, actor, _sources: f"{trial_id}/{actor}"
        lobby = server.lobby("game")
        async with trio.open_nursery() as nursery:
            visitors = [Visitor(world, f"visitor {number}") for number in range(5)]
            for visitor in visitors:
                nursery.start_soon(visitor.visit, lobby.serve_page)
            await trio.sleep(300)
            nursery.cancel_scope.cancel()
        links = [visitor.link for visitor in visitors if visitor.link]
        assert len(links) == len(set(links))  # nobody has another's seat
        if links:
            world.sometimes("a lobby starts a trial")
        assert environment.began >= len({link.split("/")[0] for link in links})


@pytest.mark.sim(seeds=30)
def test_seats(sim: Any) -> None:
    """`nox -s soak` runs 300 seeds."""
    sim(seats)


@pytest.mark.sim(seeds=15)
def test_lobbies(sim: Any) -> None:
    """`nox -s soak` runs 300 seeds."""
    sim(lobbies)
