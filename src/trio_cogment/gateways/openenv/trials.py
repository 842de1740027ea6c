"""The trials whose seats are sockets: gathered, started, played and ended."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import trio

from trio_cogment.api.common_pb2 import ActorParams, TrialParams
from trio_cogment.api.rl_pb2 import EnvironmentConfig
from trio_cogment.api.spaces_pb2 import Action
from trio_cogment.base.config import OpenEnvConfig
from trio_cogment.base.endpoints import DISCOVER
from trio_cogment.base.errors import CogmentError, UnavailableError
from trio_cogment.base.outcome import TrialOutcome
from trio_cogment.environments.spec import PLAYER, RL_SPEC
from trio_cogment.gateways.openenv.gathering import Gathering, Lobby
from trio_cogment.gateways.openenv.messages import ErrorCode, RefusedError, Reset, Turn
from trio_cogment.gateways.openenv.parts import Part
from trio_cogment.platform import Platform
from trio_cogment.sdk import ActorSession, EventType, actor_params, trial_params
from trio_cogment.spaces import Space, SpaceError, encode_action
from trio_cogment.spaces.values import fill_fields

#: Where a socket's actor comes from: it joins the trial by itself.
CLIENT = "cogment://client"
#: What is answered by who is not asked.
NO_ACTION = Action()
#: How long to wait for the words about how a trial ended, which nobody needs to go on.
_OUTCOME_SECONDS = 2.0

_logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Game:
    """The trials of a server.

    Attributes:
        name: of the environment, for people.
        description: for people, too.
        agents: the actors of every trial.
        observation_spaces: by actor.
        action_spaces: by actor.
        implementation: of the environment, as the platform finds it.
        endpoint: of the environment.
        config: of the environment, without what an episode adds to it.
        others: the parameters of the actors whom the server gives somebody, if no socket is there.
        default_actions: by actor, what is done there after its socket has gone; without one the trial ends.
    """

    name: str
    description: str
    agents: Sequence[str]
    observation_spaces: Mapping[str, Space]
    action_spaces: Mapping[str, Space]
    implementation: str
    endpoint: str = DISCOVER
    config: EnvironmentConfig = field(default_factory=EnvironmentConfig)
    others: Mapping[str, ActorParams] = field(default_factory=dict)
    default_actions: Mapping[str, Any] = field(default_factory=dict)


class Player(Protocol):
    """Who has a seat: it is told what happens there, and does not wait long."""

    async def joined(self, *, trial: str, trial_id: str, seat: str, action_space: Space) -> None:
        """Take note of the trial."""

    async def observed(self, turn: Turn) -> None:
        """Take a turn, or the end of the part."""

    async def lost(self, reason: CogmentError) -> None:
        """Take note that there is no part any more."""


@dataclass(eq=False, slots=True)
class _Table:
    """A trial that sockets play: while they gather, and while it runs.

    Attributes:
        gathering: who plays.
        ready: the trial runs, or could not be started.
        trial_id: set when it is ready, unless there is a failure.
        failure: why it could not be started.
        leaving: it is to end, or has never begun.
        seated: the sockets that have not left.
    """

    gathering: Gathering
    ready: trio.Event = field(default_factory=trio.Event)
    trial_id: str = ""
    failure: CogmentError | None = None
    leaving: bool = False
    seated: set[str] = field(default_factory=set)


class Seat:
    """One socket's seat in one trial; `Trials.take` makes it."""

    def __init__(self, trials: Trials, player: Player, reset: Reset, instance: str) -> None:
        """Prepare a seat for a player."""
        self._trials = trials
        self._player = player
        self._reset = reset
        self._instance = instance
        self._scope = trio.CancelScope()
        self._session: ActorSession[Any, Any, Any] | None = None
        self._part: Part | None = None
        self._table: _Table | None = None
        self._name = ""
        self._trial_over = False

    async def act(self, action: Any) -> None:
        """Send an action, which is a value of the seat's action space, for the newest observation."""
        assert self._session is not None  # a turn has come from it
        try:
            await self._session.do_action(encode_action(action))
        except CogmentError as error:
            # The trial is over; the player is told how it ended by whoever reads the trial's events.
            _logger.debug("seat %r: the action came too late: %s", self._name, error)

    def leave(self) -> None:
        """Give up the seat.

        If its part is over, the actor stays until the end of the trial, unless no socket is left there. Otherwise the
        trial ends, or does without the actor if it has a default action.
        """
        part_over = self._part is not None and self._part.over
        if not part_over:
            self._scope.cancel()
        if self._table is not None:
            self._trials.unseat(self._table, self._name, part_over=part_over, trial_over=self._trial_over)
            self._table = None

    async def run(self) -> None:
        """Gather, join and play, until the trial is over or the seat is given up."""
        with self._scope:
            try:
                # It may have been given up before it began.
                await trio.lowlevel.checkpoint_if_cancelled()
                await self._play()
            except CogmentError as error:
                await self._player.lost(error)
            except Exception as error:  # the boundary of a trial: others go on
                _logger.exception("seat %r: the server failed", self._name)
                await self._player.lost(UnavailableError(f"the server failed: {type(error).__name__}"))

    async def _play(self) -> None:
        table, self._name = self._trials.seat(self, self._reset)
        self._table = table
        await self._trials.wait_ready(table, self._instance)
        await self._trials.platform.join_trial(table.trial_id, self._act_part, actor_name=self._name)
        self._trial_over = True
        if self._part is None or not self._part.over:
            raise UnavailableError(await self._trials.how_it_ended(table.trial_id))

    async def _act_part(self, session: ActorSession[Any, Any, Any]) -> None:
        game = self._trials.game
        assert self._table is not None  # it is left only together with this task
        self._session = session
        part = self._part = Part(self._name, game.observation_spaces[self._name])
        await self._player.joined(
            trial=self._table.gathering.name,
            trial_id=session.trial_id,
            seat=self._name,
            action_space=game.action_spaces[self._name],
        )
        async for event in session.all_events():
            if event.observation is None:
                continue
            final = event.type is EventType.ENDING
            turn = part.observe(event.observation.payload, final=final)
            if not final and (turn is None or turn.done):
                await session.do_action(NO_ACTION)
            if turn is not None:
                await self._player.observed(turn)


class Trials:
    """Starts and ends the trials of a server.

    Attributes:
        platform: that runs them.
        game: what they are.
    """

    def __init__(self, nursery: trio.Nursery, platform: Platform, game: Game, config: OpenEnvConfig) -> None:
        """Prepare trials, whose tasks run in a nursery."""
        self.platform = platform
        self.game = game
        self._nursery = nursery
        self._config = config
        self._lobby = Lobby(game.agents, game.others)
        self._tables: dict[Gathering, _Table] = {}

    def take(self, player: Player, reset: Reset, instance: str) -> Seat:
        """Give a player a seat, as soon as there is one.

        Args:
            player: is told what happens.
            reset: what it wants.
            instance: of the environment, for the player's own trials.
        """
        seat = Seat(self, player, reset, instance)
        self._nursery.start_soon(self._guarded, seat.run)
        return seat

    def seat(self, who: object, reset: Reset) -> tuple[_Table, str]:
        """Return a table and the name of a seat there.

        Raises:
            RefusedError: see `Lobby.join`.
        """
        gathering, name = self._lobby.join(who, reset)
        table = self._tables.setdefault(gathering, _Table(gathering))
        table.seated.add(name)
        return table, name

    def unseat(self, table: _Table, name: str, *, part_over: bool, trial_over: bool) -> None:
        """Take note that a socket has left a table."""
        table.seated.discard(name)
        if not table.gathering.complete:
            self._lobby.leave(table.gathering, name)
            if not table.seated:
                self._tables.pop(table.gathering, None)
            return
        needed = not part_over and name not in self.game.default_actions
        if (needed or not table.seated) and not table.leaving and not trial_over:
            table.leaving = True
            self._nursery.start_soon(self._guarded, self._end, table, not part_over)

    async def wait_ready(self, table: _Table, instance: str) -> None:
        """Wait until a table's trial runs; the socket that completes it starts the trial.

        Raises:
            RefusedError: some socket did not come in time.
            CogmentError: the trial could not be started.
        """
        gathering = table.gathering
        if gathering.complete:
            self._tables.pop(gathering, None)
            # In a task of its own, because its socket may leave, which is not to stop a trial between two states.
            self._nursery.start_soon(self._guarded, self._start, table, instance)
        with trio.move_on_after(self._config.gather_seconds):
            await table.ready.wait()
        if not gathering.complete:
            missing = ", ".join(map(repr, gathering.free))
            text = f"waited {self._config.gather_seconds:g} s, and nobody came for {missing}"
            raise RefusedError(ErrorCode.EXECUTION_ERROR, f"reset: trial {gathering.name!r}: {text}")
        await table.ready.wait()
        if table.failure is not None:
            raise table.failure

    async def _guarded(self, task: Callable[..., Awaitable[None]], *args: Any) -> None:
        """Do something for one trial: what fails in it is logged, and ends no other."""
        try:
            await task(*args)
        except Exception:
            _logger.exception("the server of OpenEnv failed in one trial")

    async def how_it_ended(self, trial_id: str) -> str:
        """Return words about the end of a trial in which a part was not over."""
        info = None
        with trio.move_on_after(_OUTCOME_SECONDS):
            info = await self.platform.controller.wait_trial_state(trial_id)
        if info is None or not info.HasField("end"):
            return f"trial {trial_id!r}: it has ended before its environment ended it"
        return str(TrialOutcome.of(trial_id, info.end))

    async def _start(self, table: _Table, instance: str) -> None:
        wanted = table.gathering
        try:
            params = self._params(wanted, instance)
            table.trial_id = await self.platform.controller.start_trial(params, trial_id=wanted.episode_id)
            if not table.trial_id:
                text = f"reset: episode_id: expected an id that no trial has, got {wanted.episode_id!r}"
                table.failure = RefusedError(ErrorCode.EXECUTION_ERROR, text)
        except CogmentError as error:
            table.failure = error
        except Exception as error:
            table.failure = UnavailableError(f"the server failed: {type(error).__name__}")
            raise
        finally:
            table.ready.set()

    async def _end(self, table: _Table, hard: bool) -> None:
        await table.ready.wait()
        if table.failure is not None:
            return
        try:
            await self.platform.controller.terminate_trial(table.trial_id, hard=hard)
        except CogmentError as error:
            _logger.warning("trial %r: it could not be ended: %s", table.trial_id, error)

    def _params(self, wanted: Gathering, instance: str) -> TrialParams:
        game = self.game
        config = EnvironmentConfig()
        config.CopyFrom(game.config)
        config.instance = f"openenv/{wanted.name}" if wanted.name else instance
        if wanted.seed is not None:
            config.seed = wanted.seed
        # Whoever would watch from a seat that a socket has taken is not there.
        config.frames_for[:] = sorted(wanted.frames_for | set(config.frames_for).difference(wanted.taken))
        if wanted.options is not None:
            try:
                fill_fields(config.options, dict(wanted.options))
            except SpaceError as error:
                raise RefusedError(ErrorCode.VALIDATION_ERROR, f"reset: {error.of('options')}") from None
        return trial_params(
            [self._socket(agent) if agent in wanted.taken else game.others[agent] for agent in game.agents],
            environment=game.implementation,
            environment_endpoint=game.endpoint,
            environment_config=config,
            spec=RL_SPEC,
        )

    def _socket(self, agent: str) -> ActorParams:
        default = self.game.default_actions.get(agent)
        return actor_params(
            agent,
            PLAYER,
            implementation="openenv",  # for who reads the trial: nobody looks that of a client up
            endpoint=CLIENT,
            optional=agent in self.game.default_actions,
            default_action=None if default is None else encode_action(default),
            spec=RL_SPEC,
        )
