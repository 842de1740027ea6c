"""A lobby with pages and trials of a test's own: what pages are told, and who gives up which seat."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, cast

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from tests.play.pages import Socket, page, params
from trio_cogment.access import Source, Sources
from trio_cogment.base.config import PlayConfig
from trio_cogment.base.errors import UnavailableError
from trio_cogment.base.host import Host
from trio_cogment.play.games import Game
from trio_cogment.play.lobby import Lobby, Place
from trio_cogment.play.lobby_machine import LobbyRules, Shortage
from trio_cogment.play.lobby_table import MemberState
from trio_cogment.play.seat import PageSeat


class Seat:
    """A seat that nobody sits at."""

    def __init__(self) -> None:
        self.given_up = 0
        self.on_taken: Callable[[], None] = lambda: None

    def give_up(self) -> None:
        self.given_up += 1


class House:
    """Starts trials when a test lets it, and ends them so."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, int, bool]] = []
        self.seats: list[Seat] = []
        self.links: list[Sources] = []
        self.may_start, self.may_end = trio.Event(), trio.Event()
        self.may_start.set()
        self.fails: Exception | None = None
        self.breaks: Exception | None = None

    async def start(self, game: Game, people: int, bots: bool) -> tuple[list[Place], Callable[[], Awaitable[None]]]:
        self.asked.append((game.name, people, bots))
        await self.may_start.wait()
        if self.fails is not None:
            raise self.fails

        async def over() -> None:
            await self.may_end.wait()
            if self.breaks is not None:
                raise self.breaks

        places = []
        for number in range(people):
            seat = Seat()
            self.seats.append(seat)
            places.append(Place(self._link(len(self.seats) + number), cast("PageSeat", seat)))
        return places, over

    def _link(self, number: int) -> Callable[[Sources], str]:
        def link(sources: Sources) -> str:
            self.links.append(sources)
            return f"/seat-{number}"

        return link


@asynccontextmanager
async def lobby(
    *people: str, config: PlayConfig | None = None, recorded: bool = False, **options: Any
) -> AsyncIterator[tuple[Lobby, House]]:
    options = {"name": "chess", "bot": "seven", "lobby": LobbyRules(seats=len(people)), **options}
    house = House()
    game = Game(params=params(*people), **options)
    opened = Lobby(game, house.start, config or PlayConfig(), Host(), recorded=recorded)
    async with trio.open_nursery() as nursery:
        await nursery.start(opened.run)
        with trio.fail_after(100_000):
            yield opened, house
        nursery.cancel_scope.cancel()


async def hello(socket: Socket, ticket: str = "") -> dict[str, Any]:
    await socket.say(type="hello", ticket=ticket)
    return await socket.read_until(lambda message: message["type"] == "lobby")


async def state(socket: Socket, wanted: str) -> dict[str, Any]:
    return await socket.read_until(lambda message: message.get("state") == wanted)


async def refused(socket: Socket, **message: Any) -> str:
    await socket.say(**message)
    return str((await socket.read_until(lambda told: told["type"] == "refused"))["reason"])


async def test_a_page_is_greeted_and_told_how_many_there_are(autojump_clock: MockClock) -> None:
    rules = LobbyRules(seats=2, shortage=Shortage.BOTS)
    options: dict[str, Any] = {"title": "Chess", "text": "Read me", "again": True, "lobby": rules}
    async with lobby("ann", "bob", recorded=True, **options) as (opened, _), _page_of(opened) as socket:
        first = await hello(socket)
        ticket = socket.welcome["ticket"]
        assert len(bytes.fromhex(ticket)) == 24
        assert socket.welcome == {
            "title": "Chess",
            "text": "Read me",
            "recorded": True,
            "again": True,
            "ticket": ticket,
        }
        told = {name: first[name] for name in ("state", "ready", "reading", "away", "bots", "seats", "shortage")}
        assert told == {
            "state": "reading",
            "ready": 0,
            "reading": 1,
            "away": 0,
            "bots": 0,
            "seats": 2,
            "shortage": Shortage.BOTS.value,
        }
        assert "link" not in first
        async with _page_of(opened) as other:
            await hello(other)
            assert (await socket.read_until(lambda message: message.get("reading") == 2))["ready"] == 0


def _page_of(of: Lobby, sources: Sources = ()) -> Any:
    return page(lambda socket: of.serve_page(socket, sources))


async def test_a_game_without_a_title_has_its_name(autojump_clock: MockClock) -> None:
    async with lobby("ann") as (opened, _), _page_of(opened) as socket:
        await hello(socket)
        assert (socket.welcome["title"], socket.welcome["recorded"], socket.welcome["again"]) == ("chess", False, False)


async def test_what_pages_of_lobbies_say(autojump_clock: MockClock) -> None:
    async with lobby("ann") as (opened, _), _page_of(opened) as socket:
        for early in ("ready", "resign"):
            assert await refused(socket, type=early) == "expected hello first"
        await hello(socket)
        assert await refused(socket, type="hello", ticket="") == "hello: expected it once"
        assert await refused(socket, type="message", to="env", text="x") == "expected what a page of a lobby says"


async def test_the_link_of_a_seat_is_made_once_and_from_that_of_the_page(autojump_clock: MockClock) -> None:
    mine = (Source("t1", "ann"),)
    async with lobby("ann", "bob") as (opened, house):
        async with _page_of(opened, mine) as ann, _page_of(opened) as bob:
            for socket in (ann, bob):
                await hello(socket)
                await socket.say(type="ready")
            links = [(await socket.read_until(lambda told: told.get("link")))["link"] for socket in (ann, bob)]
            assert len(set(links)) == 2
            assert house.asked == [("chess", 2, False)]
            ticket = ann.welcome["ticket"]
            assert opened.state_of(ticket) is MemberState.SEATED
            async with _page_of(opened, mine) as again:
                assert (await hello(again, ticket))["link"] == links[0]
                dismissed = await ann.read_until(lambda told: told["type"] == "dismissed")
                assert (dismissed["reason"], dismissed["failure"]) == ("taken over", "")
        assert sorted(house.links) == [(), mine]
        for seat in house.seats:
            seat.on_taken()


async def test_the_time_of_a_group_is_told_while_it_runs(autojump_clock: MockClock) -> None:
    rules = LobbyRules(seats=2, wait_seconds=100)
    async with lobby("ann", "bob", lobby=rules) as (opened, _), _page_of(opened) as ann, _page_of(opened) as bob:
        await hello(ann)
        assert (await hello(bob))["seconds"] is None
        await ann.say(type="ready")
        assert (await bob.read_until(lambda told: told.get("ready") == 1))["seconds"] == 100
        await trio.sleep(30)
        await ann.say(type="resign")
        assert (await bob.read_until(lambda told: told.get("ready") == 0))["seconds"] is None


async def test_who_leaves_while_the_trial_starts_gives_up_its_seat(autojump_clock: MockClock) -> None:
    async with lobby("ann", "bob") as (opened, house):
        house.may_start = trio.Event()
        async with _page_of(opened) as ann, _page_of(opened) as bob:
            for socket in (ann, bob):
                await hello(socket)
                await socket.say(type="ready")
            await wait_all_tasks_blocked()
            await ann.say(type="resign")
            await wait_all_tasks_blocked()
            assert house.seats == []
            house.may_start.set()
            await bob.read_until(lambda told: told.get("link"))
            assert [seat.given_up for seat in house.seats] == [1, 0]
            await bob.say(type="resign")
            await wait_all_tasks_blocked()
            assert [seat.given_up for seat in house.seats] == [1, 1]


@pytest.mark.parametrize("error", [UnavailableError("no room"), ZeroDivisionError()])
async def test_a_trial_that_fails_is_over_for_its_people_alone(error: Exception, autojump_clock: MockClock) -> None:
    async with lobby("ann") as (opened, house):
        house.breaks = error
        async with _page_of(opened) as ann, _page_of(opened) as bob:
            await hello(ann)
            await ann.say(type="ready")
            await ann.read_until(lambda told: told.get("link"))
            house.seats[0].on_taken()
            await hello(bob)
            house.may_end.set()
            over = await state(ann, "played")
            assert "link" not in over
            house.breaks, house.may_end = None, trio.Event()
            await bob.say(type="ready")
            assert (await bob.read_until(lambda told: told.get("link")))["link"]
        assert len(house.asked) == 2


async def test_a_page_that_goes_is_away_and_a_newer_one_keeps_its_place(autojump_clock: MockClock) -> None:
    async with lobby("ann", "bob") as (opened, _), _page_of(opened) as watching:
        await hello(watching)
        async with _page_of(opened) as socket:
            await hello(socket)
            await socket.say(type="ready")
            await state(socket, "ready")
            ticket = socket.welcome["ticket"]
            async with _page_of(opened) as newer:
                await hello(newer, ticket)
                await socket.read_until(lambda told: told["type"] == "dismissed")
                await wait_all_tasks_blocked()
                assert opened.state_of(ticket) is MemberState.READY
        await watching.read_until(lambda told: told.get("away") == 1)


def test_where_somebody_is_in_the_words_of_pages() -> None:
    assert [each.value for each in MemberState] == [
        *("reading", "ready", "reading, away", "away", "seated", "played", "timed out", "left", "failed"),
    ]
