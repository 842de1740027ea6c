"""`PlayHouse`: the seats and the lobbies of one server, and their links."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from functools import partial
from urllib.parse import quote

import trio

from trio_cogment.access import Quotas, Sources
from trio_cogment.api.common_pb2 import ActorInitialInput, TrialParams
from trio_cogment.base.config import PlayConfig
from trio_cogment.base.errors import CogmentError, FailedPreconditionError, NotFoundError
from trio_cogment.base.host import Host
from trio_cogment.base.services import ACTOR_CLASS, IMPLEMENTATION, TRIAL_OWNER, TRIAL_QUOTAS, ServiceKind
from trio_cogment.platform import Platform
from trio_cogment.play.codec_choice import codec_for
from trio_cogment.play.codecs import Codec
from trio_cogment.play.company import Company
from trio_cogment.play.games import Game, with_bots, with_fewer
from trio_cogment.play.lobby import Link, Lobby, Place, Start
from trio_cogment.play.seat import Seat
from trio_cogment.play.seat_parts import SeatSettings
from trio_cogment.play.seat_table import SeatState
from trio_cogment.play.stand_in import Bot
from trio_cogment.rpc import CallOpener, OwnNursery, WithMetadata, open_in_process
from trio_cogment.sdk import Controller, LocalParticipants

_log = logging.getLogger(__name__)

#: Begins the account of a lobby, under which its trials count.
_LOBBY = "lobby"
#: Returns the link of a seat, of a trial's id, an actor's name, and what it ends with; see `lobby.Link`.
LinkOf = Callable[[str, str, Sources], str]


class PlayHouse:
    """The seats and the lobbies of one server; made by `open_house`.

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
        self._seats: dict[tuple[str, str], Seat] = {}
        self._finished: deque[Seat] = deque()
        self._finished_bytes = 0
        self._lobbies: dict[str, Lobby] = {}
        self._renderers: dict[str, bytes] = {}

    @property
    def games(self) -> list[Game]:
        """The games that have a lobby."""
        return [lobby.game for lobby in self._lobbies.values()]

    @property
    def seats(self) -> list[Seat]:
        """The seats in trials that have not ended."""
        return [seat for seat in self._seats.values() if seat.state is not SeatState.OVER]

    def seat(self, trial_id: str, actor: str) -> Seat:
        """Return a seat.

        Raises:
            NotFoundError: there is none.
        """
        found = self._seats.get((trial_id, actor))
        if found is None:
            raise NotFoundError("there is no such seat, or its trial is long over")
        return found

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
        seats = await self._start(self._platform.controller, game, people, bots)
        links: list[Link] = [partial(self.link_of, seat.trial_id, seat.actor) for seat in seats]

        async def over() -> None:
            await self._platform.controller.wait_trial_state(seats[0].trial_id)

        return links, over

    async def _start_of_lobby(
        self, game: Game, people: int, bots: bool
    ) -> tuple[list[Place], Callable[[], Awaitable[None]]]:
        """Start a trial that is a lobby's: it counts for that, and ends when none of its people is there any more."""
        metadata = (
            (TRIAL_OWNER, quote(f"{_LOBBY}:{game.name}")),
            (TRIAL_QUOTAS, Quotas(trials=game.lobby.most_trials).text()),
        )
        platform = self._platform
        controller = Controller(WithMetadata(platform.channel, metadata), spec=platform.participants.spec)
        seats = await self._start(controller, game, people, bots)
        company = Company(seats)

        async def over() -> None:
            async with OwnNursery() as nursery:
                nursery.start_soon(end)
                await controller.wait_trial_state(seats[0].trial_id)
                nursery.cancel_scope.cancel()

        async def end() -> None:
            await company.gone(self.config.empty_seconds)
            await controller.terminate_trial(seats[0].trial_id, hard=True)

        places = [Place(partial(self.link_of, seat.trial_id, seat.actor), seat) for seat in seats]
        return places, over

    async def _start(self, controller: Controller, game: Game, people: int, bots: bool) -> list[Seat]:
        params, actors = (with_bots if bots else with_fewer)(game, people)
        trial_id = f"{game.name}-{self._host.new_id()}"
        await controller.start_trial(params=params, trial_id=trial_id)
        if game.renderer:
            self._renderers[trial_id] = game.renderer
        for actor in actors:
            await self.hold(game, params, trial_id, actor)
        return [self._seats[trial_id, actor] for actor in actors]

    async def hold(self, game: Game, params: TrialParams, trial_id: str, actor: str) -> Link:
        """Take a seat of a trial for the person who comes; return its link.

        Args:
            game: how it is held.
            params: of the trial.
            trial_id: of the trial, which waits for the actor.
            actor: whose endpoint is `cogment://client`.
        """
        own = next(each for each in params.actors if each.name == actor)
        opener = self._bots.find(ServiceKind.ACTOR, {ACTOR_CLASS: own.actor_class, IMPLEMENTATION: game.bot})
        others = [each.name for each in params.actors if each.name != actor]
        settings = SeatSettings(
            rules=game.seat,
            default=own.default_action.content if own.HasField("default_action") else None,
            bot=None if opener is None else partial(bot_of, opener, game.bot),
            title=game.title or game.name,
            receivers=[*others, params.environment.name or "env"],
            renderer=bool(game.renderer),
            again=game.again,
        )
        actor_class = self._platform.participants.spec.actor_class(own.actor_class)
        return self.take(trial_id, actor, codec_for(actor_class, game.labels), settings)

    def take(self, trial_id: str, actor: str, codec: Codec, settings: SeatSettings) -> Link:
        """Take a seat of a trial, as `hold` does, with settings of its own; return its link.

        Args:
            trial_id: of the trial, which waits for the actor.
            actor: whose endpoint is `cogment://client`.
            codec: its payloads.
            settings: how it is held.
        """
        seat = Seat(trial_id, actor, codec, settings, self.config)
        self._seats[trial_id, actor] = seat
        self._nursery.start_soon(self._run_seat, seat)
        return partial(self.link_of, trial_id, actor)

    async def _run_seat(self, seat: Seat) -> None:
        """Have a seat take part. What fails here ends this seat and no other."""
        try:
            await self._platform.join_trial(seat.trial_id, seat.play, actor_name=seat.actor)
        except* CogmentError as group:
            _log.warning("trial %r, actor %r: the seat was lost: %s", seat.trial_id, seat.actor, _first(group))
            seat.fail(_first(group))
        except* Exception:  # noqa: BLE001  the boundary of a seat
            _log.exception("trial %r, actor %r: the seat failed", seat.trial_id, seat.actor)
            seat.fail("unexpected failure; the server's log has the details")
        self._finished.append(seat)
        self._finished_bytes += seat.kept_bytes
        config = self.config
        while len(self._finished) > config.max_finished_seats or self._finished_bytes > config.max_finished_bytes:
            forgotten = self._finished.popleft()
            self._finished_bytes -= forgotten.kept_bytes
            self._seats.pop((forgotten.trial_id, forgotten.actor), None)
            self._renderers.pop(forgotten.trial_id, None)


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


def _first(group: BaseExceptionGroup[BaseException]) -> str:
    found: BaseException = group
    while isinstance(found, BaseExceptionGroup):
        found = found.exceptions[0]
    return str(found)


@asynccontextmanager
async def open_house(
    platform: Platform, games: Sequence[Game] = (), *, config: PlayConfig | None = None, host: Host | None = None
) -> AsyncIterator[PlayHouse]:
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
        house = PlayHouse(platform, nursery, bots, config or PlayConfig(), host)
        for game in games:
            await house.open_lobby(game)
        yield house
        nursery.cancel_scope.cancel()
