"""The seats for people and the lobbies of one server, and their links."""

from __future__ import annotations

import enum
import logging
from collections import Counter, deque
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from urllib.parse import quote

import trio
from trio_util import AsyncValue, wait_any

from trio_cogment.access import Quotas, Sources
from trio_cogment.api.common_pb2 import ActorInitialInput, TrialParams
from trio_cogment.base.config import PlayConfig
from trio_cogment.base.endpoints import CLIENT
from trio_cogment.base.errors import FailedPreconditionError, NotFoundError, UnavailableError
from trio_cogment.base.host import Host
from trio_cogment.base.services import ACTOR_CLASS, IMPLEMENTATION, TRIAL_OWNER, TRIAL_QUOTAS, ServiceKind
from trio_cogment.platform import Platform
from trio_cogment.play.bots import Bot
from trio_cogment.play.games import Game, with_bots, with_fewer
from trio_cogment.play.lobby import Link, Lobby, Place, Start
from trio_cogment.play.seat import PageSeat
from trio_cogment.play.seat_parts import SeatSettings
from trio_cogment.rpc import CallOpener, OwnNursery, WithMetadata, open_in_process
from trio_cogment.sdk import LocalParticipants
from trio_cogment.sdk.spec import ActorClass
from trio_cogment.seats.presence import PresenceState
from trio_cogment.seats.round import Round

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class WatchedTrial:
    """A trial with people that ends when none of them is there any more.

    Attributes:
        trial_id: of the trial.
        properties: of the trial.
        seats: of the people, in the order of the trial's actors.
        over: waits until it is over.
        end: ends it at once.
    """

    trial_id: str
    properties: Mapping[str, str]
    seats: Sequence[PageSeat]
    over: Callable[[], Awaitable[None]]
    end: Callable[[], None]


#: The property of a trial that may go on at the next server: the name of its game.
GAME = "play.game"
#: How long a page waits for a seat whose trial may be about to go on.
_BACK_SECONDS = 2.0

#: Begins the account of a lobby, under which its trials count.
_LOBBY = "lobby"
#: Returns the link of a seat, of a trial's id, an actor's name, and what it ends with; see `lobby.Link`.
LinkOf = Callable[[str, str, Sources], str]


class PlayServer:
    """The seats and the lobbies of one server; made by `open_play`.

    Args:
        platform: has the trials.
        nursery: for what goes on.
        bots: finds implementations of bots.
        config: limits.
        host: makes tickets, and the ids of trials.
    """

    def __init__(
        self, platform: Platform, nursery: trio.Nursery, bots: LocalParticipants, config: PlayConfig, host: Host
    ) -> None:
        #: The link of a seat; pages have them set it.
        self.link_of: LinkOf = lambda trial_id, actor, sources: ""
        self.config = config
        self._platform = platform
        self._nursery = nursery
        self._bots = bots
        self._host = host
        self._seats: dict[tuple[str, str], PageSeat] = {}
        self._finished: deque[PageSeat] = deque()
        self._finished_bytes = 0
        self._lobbies: dict[str, Lobby] = {}
        self._renderers: dict[str, bytes] = {}
        self._taken = trio.lowlevel.ParkingLot()
        self._rng = host.random("seeds of games")
        #: Until then trials of the server before may go on here.
        self._until = trio.current_time() + platform.orchestrator.config.resume_patience_seconds
        platform.on_resumed(self._go_on)

    @property
    def games(self) -> list[Game]:
        """The games that have a lobby."""
        return [lobby.game for lobby in self._lobbies.values()]

    def figures(self) -> dict[str, dict[str, float]]:
        """Return what metrics show of it; see `trio_cogment.base.metrics.services`."""
        states = Counter(seat.state.value for seat in self.seats)
        seats = {state.value: float(states[state.value]) for state in PresenceState if state is not PresenceState.OVER}
        people = {name: float(lobby.people) for name, lobby in self._lobbies.items()}
        return {"seats": seats, "lobby_people": people}

    @property
    def seats(self) -> list[PageSeat]:
        """The seats in trials that have not ended."""
        return [seat for seat in self._seats.values() if seat.state is not PresenceState.OVER]

    def seat(self, trial_id: str, actor: str) -> PageSeat:
        """Return a seat.

        Raises:
            NotFoundError: there is none.
        """
        found = self._seats.get((trial_id, actor))
        if found is None:
            raise NotFoundError("there is no such seat, or its trial is long over")
        return found

    async def seat_in_time(self, trial_id: str, actor: str) -> PageSeat:
        """Return a seat, which may be that of a trial that is about to go on here.

        Raises:
            NotFoundError: there is none.
            UnavailableError: there is none yet.
        """
        if self._platform.resumes:
            with trio.move_on_after(_BACK_SECONDS):
                while (trial_id, actor) not in self._seats:
                    await self._taken.park()
            if (trial_id, actor) not in self._seats and trio.current_time() < self._until:
                raise UnavailableError("the game will be back in a moment")
        return self.seat(trial_id, actor)

    def lobby(self, name: str) -> Lobby:
        """Return the lobby of a game.

        Raises:
            NotFoundError: there is none.
        """
        found = self._lobbies.get(name)
        if found is None:
            raise NotFoundError("there is no such game")
        return found

    def renderer(self, trial_id: str) -> bytes:
        """Return the page that shows the observations of a trial; empty: there is none."""
        return self._renderers.get(trial_id, b"")

    async def open_lobby(self, game: Game, start: Start | None = None) -> Lobby:
        """Open the lobby of a game.

        Args:
            game: what people wait for.
            start: starts a trial, or finds one; by default one that belongs to the lobby.

        Raises:
            FailedPreconditionError: there is one of this name.
        """
        if game.name in self._lobbies:
            raise FailedPreconditionError(f"there is a game {game.name!r} already")
        recorded = bool(self._platform.orchestrator.datalog_of(game.params))
        lobby = Lobby(game, start or self._start_of_lobby, self.config, self._host, recorded=recorded)
        self._lobbies[game.name] = lobby
        await self._nursery.start(lobby.run)
        return lobby

    async def start(self, game: Game, people: int, bots: bool) -> tuple[list[Link], Callable[[], Awaitable[None]]]:
        """Start a trial of a game; return the links of its seats, and what waits for its end.

        Args:
            game: of which.
            people: how many there are.
            bots: take the other seats; else the trial has fewer actors.

        Raises:
            CogmentError: it could not be started.
        """
        round_, seats = await self._start(self._platform.channel, game, people, bots, self._new_id(game))

        async def over() -> None:
            await round_.controller.wait_trial_state(round_.trial_id)

        return [self._link(seat) for seat in seats], over

    async def _start_of_lobby(
        self, game: Game, people: int, bots: bool
    ) -> tuple[list[Place], Callable[[], Awaitable[None]]]:
        trial = await self.start_watched(game, people, bots, self._new_id(game))
        return [Place(self._link(seat), seat) for seat in trial.seats], trial.over

    def _new_id(self, game: Game) -> str:
        return f"{game.name}-{self._host.new_id()}"

    async def start_watched(self, game: Game, people: int, bots: bool, trial_id: str) -> WatchedTrial:
        """Start a trial that counts for the game's lobby, and ends when none of its people is there any more.

        Args:
            game: see `start`.
            people: see `start`.
            bots: see `start`.
            trial_id: of the trial.

        Raises:
            CogmentError: it could not be started.
        """
        metadata = (
            (TRIAL_OWNER, quote(f"{_LOBBY}:{game.name}")),
            (TRIAL_QUOTAS, Quotas(trials=game.lobby.most_trials).text()),
        )
        opener = WithMetadata(self._platform.channel, metadata)
        round_, seats = await self._start(opener, game, people, bots, trial_id)
        attendance = _Attendance(seats)

        async def over() -> None:
            async with OwnNursery() as nursery:
                nursery.start_soon(end)
                await round_.controller.wait_trial_state(round_.trial_id)
                nursery.cancel_scope.cancel()

        async def end() -> None:
            await attendance.wait_nobody(self.config.empty_seconds)
            round_.end(hard=True)

        return WatchedTrial(trial_id, game.params.properties, seats, over, partial(round_.end, hard=True))

    async def go_on_watched(self, game: Game, trial_id: str) -> WatchedTrial:
        """Go on with a trial that was claimed (`platform.resuming`), as with one of `start_watched`.

        Args:
            game: how its seats are held.
            trial_id: of the trial.

        Raises:
            CogmentError: it cannot go on.
        """
        resuming = self._platform.resuming
        assert resuming is not None, "nothing can have been claimed"
        params = await resuming.start(trial_id)
        seats = self._seats_again(game, trial_id, params)

        async def end() -> None:
            await self._platform.controller.terminate_trial(trial_id, hard=True)

        over, stop = partial(self._attend, trial_id, seats), partial(self._nursery.start_soon, end)
        return WatchedTrial(trial_id, params.properties, seats, over, stop)

    def link(self, seat: PageSeat, sources: Sources = ()) -> str:
        """Return the link of a seat: a path."""
        return self._link(seat)(sources)

    async def _start(
        self, opener: CallOpener, game: Game, people: int, bots: bool, trial_id: str
    ) -> tuple[Round, Sequence[PageSeat]]:
        params, actors = (with_bots if bots else with_fewer)(game, people)
        if self._platform.resumes:
            params.properties[GAME] = game.name
            if game.with_seed is not None:
                game.with_seed(params, self._rng.getrandbits(63))
        seats = [self._seat_of(game, params, trial_id, actor) for actor in actors]

        def on_started() -> None:
            if game.renderer:
                self._renderers[trial_id] = game.renderer
            for seat in seats:
                self._seats[trial_id, seat.actor] = seat

        spec = self._platform.participants.spec
        played = [seat.seat for seat in seats if seat.seat is not None]
        spawn = self._nursery.start_soon
        round_ = Round(opener, spawn, played, spec=spec, host=self._host, on_started=on_started)
        await round_.start(params, [trial_id])
        return round_, seats

    def _go_on(self, trial_id: str, params: TrialParams) -> None:
        """Take the seats of a trial of one of the games that goes on here: their people come back by their links."""
        lobby = self._lobbies.get(params.properties.get(GAME, ""))
        if lobby is None:
            return
        seats = self._seats_again(lobby.game, trial_id, params)
        self._nursery.start_soon(self._attend, trial_id, seats)

    def _seats_again(self, game: Game, trial_id: str, params: TrialParams) -> list[PageSeat]:
        """Take the seats of a trial that goes on."""
        if game.renderer:
            self._renderers[trial_id] = game.renderer
        people = [actor.name for actor in params.actors if actor.endpoint.strip() == CLIENT]
        seats = [self._seat_of(game, params, trial_id, actor) for actor in people]
        for seat in seats:
            self._seats[trial_id, seat.actor] = seat
            assert seat.seat is not None
            seat.seat.join(self._platform.channel, trial_id, self._nursery.start_soon, host=self._host)
        self._taken.unpark_all()
        return seats

    async def _attend(self, trial_id: str, seats: Sequence[PageSeat]) -> None:
        """End a trial that goes on when none of its people is there any more."""
        controller = self._platform.controller
        async with OwnNursery() as nursery:

            async def end() -> None:
                await _Attendance(seats).wait_nobody(self.config.empty_seconds)
                await controller.terminate_trial(trial_id, hard=True)

            nursery.start_soon(end)
            await controller.wait_trial_state(trial_id)
            nursery.cancel_scope.cancel()

    def _seat_of(self, game: Game, params: TrialParams, trial_id: str, actor: str) -> PageSeat:
        own = next(each for each in params.actors if each.name == actor)
        opener = self._bots.find(ServiceKind.ACTOR, {ACTOR_CLASS: own.actor_class, IMPLEMENTATION: game.bot})
        others = [each.name for each in params.actors if each.name != actor]
        settings = SeatSettings(
            rules=game.rules_of(actor),
            default=own.default_action.content if own.HasField("default_action") else None,
            bot=None if opener is None else partial(bot_of, opener, game.bot),
            title=game.title or game.name,
            labels=game.labels,
            receivers=[*others, params.environment.name or "env"] if game.feedback else [],
            renderer=bool(game.renderer),
            again=game.again,
            goes_on=self._platform.resumes,
        )
        return self._make(trial_id, actor, self._platform.participants.spec.actor_class(own.actor_class), settings)

    def take(self, trial_id: str, actor: str, actor_class: ActorClass, settings: SeatSettings) -> Link:
        """Take a seat of a trial that somebody else has started, for the person who comes; return its link.

        Args:
            trial_id: of the trial, which waits for the actor.
            actor: whose endpoint is `cogment://client`.
            actor_class: the types of its payloads.
            settings: how it is held.
        """
        seat = self._seats[trial_id, actor] = self._make(trial_id, actor, actor_class, settings)
        assert seat.seat is not None
        seat.seat.join(self._platform.channel, trial_id, self._nursery.start_soon, host=self._host)
        return self._link(seat)

    def _make(self, trial_id: str, actor: str, actor_class: ActorClass, settings: SeatSettings) -> PageSeat:
        return PageSeat(
            *(trial_id, actor, actor_class, settings, self.config),
            spawn=self._nursery.start_soon,
            on_over=self._seat_is_over,
        )

    def _link(self, seat: PageSeat) -> Link:
        return partial(self.link_of, seat.trial_id, seat.actor)

    def _seat_is_over(self, seat: PageSeat) -> None:
        """Keep a seat whose part is over for those who look again, and forget those of long ago."""
        if (seat.trial_id, seat.actor) not in self._seats:
            return  # its trial has not been started
        if seat.failure:
            _log.warning("trial %r, actor %r: the seat was lost: %s", seat.trial_id, seat.actor, seat.failure)
        self._finished.append(seat)
        self._finished_bytes += seat.kept_bytes
        config = self.config
        while len(self._finished) > config.max_finished_seats or self._finished_bytes > config.max_finished_bytes:
            forgotten = self._finished.popleft()
            self._finished_bytes -= forgotten.kept_bytes
            self._seats.pop((forgotten.trial_id, forgotten.actor), None)
            self._renderers.pop(forgotten.trial_id, None)

    def close(self) -> None:
        """Leave the trials that still run, at every seat."""
        for seat in list(self._seats.values()):
            seat.close()


class _Attendance:
    """How many of a trial's people are there.

    Args:
        seats: of the people; nobody else is told when their state is another one.
    """

    class _Count(enum.IntEnum):
        #: Somebody is there, or has time to come.
        SOME = 0
        #: Nobody is, and who has gone may come back.
        NONE = 1
        #: Nobody is, and nobody will be.
        OVER = 2

    def __init__(self, seats: Sequence[PageSeat]) -> None:
        self._seats = seats
        self._count = AsyncValue(self._Count.SOME)
        for seat in seats:
            seat.on_change = self._look
        self._look()

    def _look(self) -> None:
        if all(seat.is_given_up for seat in self._seats):
            self._count.value = self._Count.OVER
        elif all(seat.is_vacant for seat in self._seats):
            self._count.value = self._Count.NONE
        else:
            self._count.value = self._Count.SOME

    async def wait_nobody(self, seconds: float) -> None:
        """Wait until nobody is there, for so long if somebody may come back."""
        await wait_any(
            partial(self._count.wait_value, self._Count.OVER),
            partial(self._count.wait_value, lambda count: count is not self._Count.SOME, held_for=seconds),
        )


def bot_of(
    opener: CallOpener,
    implementation: str,
    trial_id: str,
    init: ActorInitialInput,
    on_action: Callable[[int, bytes], None],
) -> Bot:
    """Return a bot; without the first two arguments it is a `BotFor`.

    Args:
        opener: of the service that has the implementation.
        implementation: of actors, that plays.
        trial_id: see `Bot`.
        init: see `Bot`.
        on_action: see `Bot`.
    """
    init.impl_name = implementation
    return Bot(opener, trial_id, init, on_action)


@asynccontextmanager
async def open_play(
    platform: Platform, games: Sequence[Game] = (), *, config: PlayConfig | None = None, host: Host | None = None
) -> AsyncIterator[PlayServer]:
    """Have a platform's seats for people, and lobbies, for the time of an `async with` block.

    Leaving the block ends the parts of people in trials that still run.

    Args:
        platform: has the trials.
        games: whose lobbies are open from the beginning.
        config: limits.
        host: clock and ids; by default those of the platform's participants.
    """
    host = host or platform.participants.host
    async with (
        open_in_process(host, platform.participants.services()) as channel,
        trio.open_nursery() as nursery,
    ):
        bots = LocalParticipants(platform.participants, channel)
        play = PlayServer(platform, nursery, bots, config or PlayConfig(), host)
        try:
            for game in games:
                await play.open_lobby(game)
            yield play
        finally:
            play.close()
        nursery.cancel_scope.cancel()


#: The names of 0.2.0.
PlayHouse, open_house = PlayServer, open_play
