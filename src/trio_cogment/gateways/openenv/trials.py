"""The trials whose seats are sockets: gathered, started, played and ended.

A socket's seat is a seat of others (`trio_cogment.seats.seat`), whose observations are read as OpenEnv's turns.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import trio
from google.protobuf.message import DecodeError

from trio_cogment.api import spaces_pb2 as pb
from trio_cogment.api.common_pb2 import ActorParams, TrialParams
from trio_cogment.api.rl_pb2 import EnvironmentConfig
from trio_cogment.base.config import OpenEnvConfig
from trio_cogment.base.endpoints import DISCOVER
from trio_cogment.base.errors import AlreadyExistsError, CogmentError, UnavailableError
from trio_cogment.base.outcome import TrialOutcome
from trio_cogment.environments.spec import PLAYER, RL_SPEC
from trio_cogment.gateways.openenv.gathering import Gathering, Lobby
from trio_cogment.gateways.openenv.messages import ErrorCode, RefusedError, Reset, Turn
from trio_cogment.gateways.openenv.session import Effect, Session
from trio_cogment.platform import Platform
from trio_cogment.sdk import ActorSession, actor_params, trial_params
from trio_cogment.seats.mailbox import MailboxState
from trio_cogment.seats.round import Round
from trio_cogment.seats.seat import Seat
from trio_cogment.spaces import Space, SpaceError, decode_observation, encode_action
from trio_cogment.spaces.values import fill_fields

#: Where a socket's actor comes from: it joins the trial by itself.
CLIENT = "cogment://client"
#: What is answered by who is not asked.
NO_ACTION = pb.Action().SerializeToString()
#: How long to wait for the words about how a trial ended, which nobody needs to go on.
_OUTCOME_SECONDS = 2.0

#: States of a mailbox in which its newest observation has just come.
_AWAITED = (MailboxState.TURN, MailboxState.FINAL_TURN)

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


@dataclass(eq=False, slots=True)
class _Table:
    """A trial that sockets play: while they gather, and while it runs.

    Attributes:
        gathering: who plays.
        ready: everybody is there.
        round: the trial, when it is ready, unless there is a failure.
        failure: why it cannot be started.
        seated: the sockets that have not left, by seat.
    """

    gathering: Gathering
    ready: trio.Event = field(default_factory=trio.Event)
    round: Round | None = None
    failure: Exception | None = None
    seated: dict[str, Episode] = field(default_factory=dict)


class Episode:
    """One socket's seat in one trial, from a reset to the next; `Trials.take` makes it.

    Observations are read where they arrive. The session is told of those that ask its client to act, and of the last.

    Args:
        trials: where the seat is.
        session: is told what happens.
        number: of the episode, in the session.
        perform: does what the session asks for.
    """

    def __init__(
        self, trials: Trials, session: Session, number: int, perform: Callable[[Sequence[Effect]], None]
    ) -> None:
        self._trials = trials
        self._session = session
        self._number = number
        self._perform = perform
        self._gathering = trio.CancelScope()
        self._table: _Table | None = None
        self._reward: float | None = None
        #: It has been given up: nothing of it is told any more.
        self._left = False
        self.seat = Seat(
            "", self._on_news, on_begun=self._on_begun, on_over=self._on_over, aside=lambda _reward_or_message: True
        )
        #: The actor has had its last turn, though its trial may go on.
        self.part_over = False

    async def gather(self, reset: Reset, instance: str) -> None:
        """Take a seat of a trial, and start that if nobody else is missing; otherwise wait until somebody does."""
        with self._gathering:
            try:
                # It may have been given up before it began.
                await trio.lowlevel.checkpoint_if_cancelled()
                self._table, self.seat.name = self._trials.seat(self, reset)
                await self._trials.wait_ready(self._table, instance)
            except CogmentError as error:
                self._lost(error)
            except Exception as error:  # the boundary of a trial: others go on
                _logger.exception("seat %r: the server failed", self.seat.name)
                self._lost(_server_failed(error))

    def act(self, action: Any) -> None:
        """Send an action, which is a value of the seat's action space, for the newest observation."""
        try:
            # One that is not sent comes too late: the session is about to be told how the trial has ended.
            self.seat.act(encode_action(action).SerializeToString())
        except CogmentError as error:
            self._lost(error)

    def leave(self) -> None:
        """Give up the seat.

        If its part is over, the actor stays until the end of the trial, unless no socket is left there. Otherwise the
        trial ends, or does without the actor if it has a default action.
        """
        self._left = True
        self._gathering.cancel()
        if self._table is not None:
            self._trials.unseat(self._table, self)
            self._table = None

    def _lost(self, reason: CogmentError) -> None:
        self._perform(self._session.lost(self._number, reason))

    # The trial

    def _on_begun(self, session: ActorSession[Any, Any, Any]) -> None:
        if self._table is not None:
            effects = self._session.joined(
                self._number,
                trial=self._table.gathering.name,
                trial_id=session.trial_id,
                seat=self.seat.name,
                action_space=self._trials.game.action_spaces[self.seat.name],
            )
            self._perform(effects)

    def _on_news(self) -> None:
        mailbox = self.seat.mailbox
        # `_on_over` tells of the end.
        if mailbox.observation is None or mailbox.state not in _AWAITED:
            return
        turn = self._turn(mailbox.observation.payload, final=mailbox.final)
        if turn is not None:
            self._perform(self._session.observed(self._number, turn))
        if turn is None or turn.done:
            self.seat.act(NO_ACTION)

    def _turn(self, content: bytes, *, final: bool) -> Turn | None:
        """Return what the client is told of an observation, or None if it is not asked to act.

        Raises:
            SpaceError: it makes no sense, or its value is not in the space.
        """
        if self.part_over:
            return None
        try:
            message = pb.Observation.FromString(content)
        except DecodeError:
            raise SpaceError("expected an Observation, got bytes that are none", root="observation") from None
        observation = decode_observation(message, self._trials.game.observation_spaces[self.seat.name])
        if observation.reward is not None:
            self._reward = observation.reward + (self._reward or 0.0)
        ended = observation.terminated or observation.truncated
        self.part_over = ended or final or not observation.alive
        if not self.part_over and not observation.active:
            return None
        # A trial that somebody else has ended: for the task it was not an end.
        truncated = observation.truncated or (self.part_over and not ended)
        told = replace(observation, reward=self._reward, truncated=truncated)
        self._reward = None
        return Turn(told, self.part_over, self.seat.name)

    def _on_over(self) -> None:
        error, table = self.seat.error, self._table
        if self._left or self.part_over or table is None or table.round is None:
            return
        if error is None:
            self._trials.spawn(self._tell_how_it_ended, table.round.trial_id)
        elif isinstance(error, AlreadyExistsError) and error is table.round.failure:
            wanted = table.gathering.episode_id
            text = f"reset: episode_id: expected an id that no trial has, got {wanted!r}"
            self._lost(RefusedError(ErrorCode.EXECUTION_ERROR, text))
        else:
            self._lost(error if isinstance(error, CogmentError) else _server_failed(error))

    async def _tell_how_it_ended(self, trial_id: str) -> None:
        self._lost(UnavailableError(await self._trials.how_it_ended(trial_id)))


def _server_failed(error: Exception) -> CogmentError:
    return UnavailableError(f"the server failed: {type(error).__name__}")


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
        self._rounds: set[Round] = set()

    def take(
        self,
        session: Session,
        number: int,
        perform: Callable[[Sequence[Effect]], None],
        reset: Reset,
        instance: str,
    ) -> Episode:
        """Give a client a seat, as soon as there is one.

        Args:
            session: the client's, which is told what happens.
            number: of the episode.
            perform: does what the session asks for.
            reset: what it wants.
            instance: of the environment, for the client's own trials.
        """
        episode = Episode(self, session, number, perform)
        self.spawn(episode.gather, reset, instance)
        return episode

    def seat(self, episode: Episode, reset: Reset) -> tuple[_Table, str]:
        """Return a table and the name of a seat there.

        Raises:
            RefusedError: see `Lobby.join`.
        """
        gathering, name = self._lobby.join(episode, reset)
        table = self._tables.setdefault(gathering, _Table(gathering))
        table.seated[name] = episode
        return table, name

    def unseat(self, table: _Table, episode: Episode) -> None:
        """Take note that a socket has left a table."""
        name = episode.seat.name
        del table.seated[name]
        if not table.gathering.complete:
            self._lobby.leave(table.gathering, name)
            if not table.seated:
                self._tables.pop(table.gathering, None)
        elif table.round is None:
            pass  # it cannot be started
        elif not (episode.part_over or name in self.game.default_actions):
            table.round.end(hard=True)
            episode.seat.leave()  # at once, before the trial is asked to end: so it has failed, and was not just ended
        elif not table.seated:
            table.round.end(hard=not episode.part_over)
        elif not episode.part_over:
            episode.seat.leave()

    async def wait_ready(self, table: _Table, instance: str) -> None:
        """Wait until everybody is at a table; the socket that completes it starts the trial.

        Raises:
            RefusedError: some socket did not come in time, or the trial's options make no sense.
        """
        gathering = table.gathering
        if gathering.complete:
            self._tables.pop(gathering, None)
            self._start(table, instance)
        with trio.move_on_after(self._config.gather_seconds):
            await table.ready.wait()
        if not gathering.complete:
            missing = ", ".join(map(repr, gathering.free))
            text = f"waited {self._config.gather_seconds:g} s, and nobody came for {missing}"
            raise RefusedError(ErrorCode.EXECUTION_ERROR, f"reset: trial {gathering.name!r}: {text}")
        if table.failure is not None:
            raise table.failure

    def _start(self, table: _Table, instance: str) -> None:
        wanted = table.gathering
        table.ready.set()
        try:
            params = self._params(wanted, instance)
        except Exception as error:  # noqa: BLE001  each of its sockets is told
            table.failure = error
            return
        seats = [table.seated[agent].seat for agent in wanted.seats]
        host = self.platform.participants.host

        def forget() -> None:
            self._rounds.discard(round_)

        round_ = table.round = Round(self.platform.channel, self.spawn, seats, host=host, on_over=forget)
        self._rounds.add(round_)
        round_.start_nowait(params, [wanted.episode_id])

    def spawn(self, task: Callable[..., Awaitable[None]], *args: Any, name: object = None) -> None:
        """Do something for one trial in a task: what fails in it is logged, and ends no other."""
        self._nursery.start_soon(self._guarded, task, *args, name=name)

    @staticmethod
    async def _guarded(task: Callable[..., Awaitable[None]], *args: Any) -> None:
        try:
            await task(*args)
        except Exception:
            _logger.exception("the server of OpenEnv failed in one trial")

    def abandon(self) -> None:
        """Leave all trials: the server ends."""
        for round_ in tuple(self._rounds):
            round_.abandon()

    async def how_it_ended(self, trial_id: str) -> str:
        """Return words about the end of a trial in which a part was not over."""
        info = None
        with trio.move_on_after(_OUTCOME_SECONDS):
            info = await self.platform.controller.wait_trial_state(trial_id)
        if info is None or not info.HasField("end"):
            return f"trial {trial_id!r}: it has ended before its environment ended it"
        return str(TrialOutcome.of(trial_id, info.end))

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
