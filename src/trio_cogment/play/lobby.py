"""A lobby of a server: the Trio shell around `lobby_machine`, with the pages of those who wait."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import cache, partial
from typing import Any, TypeAlias

import trio

from trio_cogment.access import Sources
from trio_cogment.base.config import PlayConfig
from trio_cogment.base.errors import CogmentError, FailedPreconditionError, InvalidArgumentError
from trio_cogment.base.host import Host
from trio_cogment.play import lobby_machine as machine
from trio_cogment.play.effects import EffectQueue
from trio_cogment.play.games import Game
from trio_cogment.play.lobby_machine import LobbyEffect, LobbyMachine
from trio_cogment.play.lobby_table import MemberState
from trio_cogment.play.page import Page, PageSocket
from trio_cogment.play.page_messages import Hello, PageMessage, Ready, Resign
from trio_cogment.play.seat import PageSeat
from trio_cogment.play.views import page_message

_log = logging.getLogger(__name__)

#: Returns the link of a seat for somebody: it counts as long as what that one came by, which is given.
Link: TypeAlias = Callable[[Sources], str]


@dataclass(frozen=True, slots=True)
class Place:
    """The seat of a trial, as a lobby gives it away.

    Attributes:
        link: leads there.
        seat: itself, to be given up when nobody comes; None: the trial is not the lobby's, and waits by itself.
    """

    link: Link
    seat: PageSeat | None = None


#: Starts a trial with this many people, and bots for the other seats if there are to be bots; returns the seats, and
#: what waits until the trial is over.
Start = Callable[[Game, int, bool], Awaitable[tuple[list[Place], Callable[[], Awaitable[None]]]]]
_TICKET_BYTES = 24


class Lobby:
    """One lobby.

    Args:
        game: what people wait for.
        start: starts a trial.
        config: limits of pages.
        host: makes tickets.
        recorded: the trials are stored, which people are told.
    """

    def __init__(self, game: Game, start: Start, config: PlayConfig, host: Host, *, recorded: bool) -> None:
        self.game = game
        self._recorded = recorded
        self._start = start
        self._config = config
        self._host = host
        self._machine = LobbyMachine(game.lobby)
        self._perform = EffectQueue(self._perform_one)
        self._pages: dict[str, Page] = {}
        #: By what those came who have a page.
        self._sources: dict[str, Sources] = {}
        self._places: dict[str, Place] = {}
        #: Of whom those went whose trial is being started.
        self._vacated: set[str] = set()
        self._counts = machine.Counts(0, 0, 0, 0, game.lobby.seats)
        self._wait_ends: float | None = None
        self._wait_scope = trio.CancelScope()
        self._nursery: trio.Nursery | None = None

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Have the lobby be open until cancelled."""
        async with trio.open_nursery() as self._nursery:
            try:
                task_status.started()
                await trio.sleep_forever()
            finally:
                self._nursery = None

    @property
    def people(self) -> int:
        """How many wait in it."""
        return self._machine.waiting

    def state_of(self, ticket: str) -> MemberState | None:
        """Return where somebody is."""
        return self._machine.state_of(ticket)

    # --- pages ---

    async def serve_page(self, socket: PageSocket, sources: Sources = ()) -> None:
        """Have the page of somebody who waits until it is gone.

        Args:
            socket: to it.
            sources: the link by which it came, and what that was derived from: the links of seats are, too.
        """
        page = Page(self._config)
        visitor = _Visitor(sources)
        try:
            await page.serve(socket, partial(self._on_page, page, visitor))
        finally:
            # A page that was opened again with the same ticket has taken its place.
            if visitor.ticket and self._pages.get(visitor.ticket) is page:
                del self._pages[visitor.ticket], self._sources[visitor.ticket]
                self._perform(self._machine.detach(visitor.ticket))

    def _on_page(self, page: Page, visitor: _Visitor, message: PageMessage) -> None:
        if isinstance(message, Hello):
            if visitor.ticket:
                raise InvalidArgumentError("hello: expected it once")
            self._welcome(page, visitor, message)
        elif not visitor.ticket:
            raise FailedPreconditionError("expected hello first")
        elif isinstance(message, Ready):
            self._perform(self._machine.ready(visitor.ticket))
        elif isinstance(message, Resign):
            self._perform(self._machine.leave(visitor.ticket))
        else:
            raise InvalidArgumentError("expected what a page of a lobby says")

    def _welcome(self, page: Page, visitor: _Visitor, message: Hello) -> None:
        known = bool(message.ticket) and self._machine.state_of(message.ticket) is not None
        visitor.ticket = message.ticket if known else self._host.secret_bytes(_TICKET_BYTES).hex()
        before = self._pages.get(visitor.ticket)
        self._pages[visitor.ticket], self._sources[visitor.ticket] = page, visitor.sources
        if before is not None:
            before.notify({"type": "dismissed", "reason": "taken over", "failure": ""})
            before.close()
        page.greeting = {
            "title": self.game.title or self.game.name,
            "text": self.game.text,
            "recorded": self._recorded,
            "again": self.game.again,
            "ticket": visitor.ticket,
        }
        if known:
            self._perform(self._machine.attach(visitor.ticket))
        else:
            self._perform(self._machine.come(visitor.ticket, automated=message.automated))
        page.refresh(partial(self._render, visitor.ticket))

    def _render(self, ticket: str, page: Page) -> bytes:
        counts, state = self._counts, self._machine.state_of(ticket)
        header: dict[str, Any] = {
            "type": "lobby",
            "state": "turned away" if state is None else state.value,
            "ready": counts.ready,
            "reading": counts.reading,
            "away": counts.away,
            "bots": counts.bots,
            "seats": counts.seats,
            "shortage": self.game.lobby.shortage.value,
            "seconds": None if self._wait_ends is None else max(self._wait_ends - trio.current_time(), 0.0),
        }
        if page.greeting is not None:
            header["welcome"], page.greeting = page.greeting, None
        place = self._places.get(ticket)
        if place and state is MemberState.SEATED:
            header["link"] = place.link(self._sources.get(ticket, ()))
        return page_message(header)

    # --- what the machine wants ---

    def _perform_one(self, effect: LobbyEffect) -> None:
        _PERFORM[type(effect)](self, effect)

    def _tell(self, effect: machine.Tell | machine.TurnAway) -> None:
        page = self._pages.get(str(effect.member))
        if page is not None:
            page.refresh(partial(self._render, str(effect.member)))

    def _start_trial(self, effect: machine.StartTrial) -> None:
        if self._nursery is not None:
            self._nursery.start_soon(self._run_trial, effect)

    async def _run_trial(self, effect: machine.StartTrial) -> None:
        """Start a trial and wait for its end. What fails here harms nobody but those who were to be in it."""
        tickets = [str(member) for member in effect.members]
        try:
            places, over = await self._start(self.game, len(tickets), effect.bots > 0)
        except CogmentError as error:
            _log.warning("game %r: no trial could be started: %s", self.game.name, error)
            self._perform(self._machine.start_failed(effect.members))
            return
        except Exception:  # noqa: BLE001  the boundary of a trial
            _log.exception("game %r: no trial could be started", self.game.name)
            self._perform(self._machine.start_failed(effect.members))
            return
        for ticket, place in zip(tickets, places, strict=True):
            self._places[ticket] = Place(cache(place.link), place.seat)  # a page that asks again is told the same
            if place.seat is None:
                self._perform(self._machine.taken(ticket))
            else:
                place.seat.on_taken = partial(self._taken, ticket)
                if ticket in self._vacated:
                    place.seat.give_up()
            page = self._pages.get(ticket)
            if page is not None:
                page.refresh(partial(self._render, ticket))
        try:
            await over()
        except CogmentError as error:
            _log.warning("game %r: a trial was lost: %s", self.game.name, error)
        except Exception:  # noqa: BLE001  as above
            _log.exception("game %r: a trial was lost", self.game.name)
        for ticket in tickets:
            self._places.pop(ticket, None)
        self._vacated.difference_update(tickets)
        self._perform(self._machine.trial_over(effect.members))

    def _vacate(self, effect: machine.Vacate) -> None:
        ticket = str(effect.member)
        place = self._places.get(ticket)
        if place is None:
            self._vacated.add(ticket)
        elif place.seat is not None:
            place.seat.give_up()

    def _taken(self, ticket: str) -> None:
        self._perform(self._machine.taken(ticket))

    def _arm_away(self, effect: machine.ArmAway) -> None:
        if self._nursery is not None:
            self._nursery.start_soon(self._sleep_away, effect)

    async def _sleep_away(self, effect: machine.ArmAway) -> None:
        await trio.sleep(effect.seconds)
        self._perform(self._machine.away_over(effect.member, effect.number))

    def _arm_wait(self, effect: machine.ArmWait) -> None:
        self._wait_scope.cancel()
        if self._nursery is not None:
            scope = self._wait_scope = trio.CancelScope()
            self._wait_ends = trio.current_time() + effect.seconds
            self._nursery.start_soon(self._sleep_wait, scope, effect)

    async def _sleep_wait(self, scope: trio.CancelScope, effect: machine.ArmWait) -> None:
        with scope:
            await trio.sleep(effect.seconds)
            self._wait_ends = None
            self._perform(self._machine.wait_over(effect.number))

    def _disarm_wait(self, _effect: machine.DisarmWait) -> None:
        self._wait_scope.cancel()
        self._wait_ends = None

    def _tell_counts(self, effect: machine.Counts) -> None:
        self._counts = effect
        for ticket, page in self._pages.items():
            page.refresh(partial(self._render, ticket))


class _Visitor:
    """Who sits at a page: nobody, until it has said so."""

    def __init__(self, sources: Sources) -> None:
        self.sources = sources
        self.ticket = ""


_PERFORM: dict[type[Any], Callable[[Lobby, Any], None]] = {
    machine.Tell: Lobby._tell,
    machine.TurnAway: Lobby._tell,
    machine.StartTrial: Lobby._start_trial,
    machine.Vacate: Lobby._vacate,
    machine.ArmAway: Lobby._arm_away,
    machine.ArmWait: Lobby._arm_wait,
    machine.DisarmWait: Lobby._disarm_wait,
    machine.Counts: Lobby._tell_counts,
}
