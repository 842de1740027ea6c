"""`LegacyAgent` and `LegacyEnvironment`: servers of the legacy API as participants of trials."""

from __future__ import annotations

import logging
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, ClassVar

from google.protobuf.message import Message

from trio_cogment.api.common_pb2 import TrialParams
from trio_cogment.base.errors import CogmentError, FailedPreconditionError, RemoteProtocolError
from trio_cogment.base.host import Host
from trio_cogment.gateways.legacy.actor_ids import ActorIds, ids_in
from trio_cogment.gateways.legacy.call_line import CallLine
from trio_cogment.gateways.legacy.old_server import AGENT, ENVIRONMENT, OldServer, RefusedError, open_old_server
from trio_cogment.gateways.legacy.participant_parts import AgentPart, Decision, EnvironmentPart, Outcome
from trio_cogment.gateways.legacy.profile import LegacyProfile
from trio_cogment.gateways.legacy.trials import TrialSource
from trio_cogment.rpc import CallOpener, RpcConfig
from trio_cogment.sdk import ActorSession, EnvironmentSession, Event
from trio_cogment.sdk.spec import encode

_log = logging.getLogger(__name__)


class _LegacyParticipant:
    """An old server as an implementation: one object for many trials, each of which has a part in it.

    The calls for one part are made one after the other, in the order of the events. The server is told of the end of a
    trial in every case in which it may know of the trial, also when this is cancelled.
    """

    _SERVICE: ClassVar[Any]

    def __init__(
        self,
        server: str | CallOpener,
        profile: LegacyProfile,
        trials: TrialSource | None = None,
        *,
        name: str = "",
        tls: ssl.SSLContext | None = None,
        config: RpcConfig | None = None,
        host: Host | None = None,
    ) -> None:
        self._server = server
        self._profile = profile
        self._trials = trials
        self._name = name
        self._tls = tls
        self._config = config
        self._host = host

    @asynccontextmanager
    async def _opened(self, part: AgentPart | EnvironmentPart) -> AsyncIterator[OldServer]:
        """Open the server for a part; in the end, tell it of the end."""
        opened = open_old_server(
            self._server,
            self._SERVICE,
            name=self._name,
            call_timeout_seconds=self._profile.call_timeout_seconds,
            tls=self._tls,
            config=self._config,
            host=self._host,
        )
        async with opened as server:
            try:
                yield server
            finally:
                call = part.stop()
                if call is not None:
                    await server.tell_end(call, self._profile.end_timeout_seconds)


async def _start(server: OldServer, part: AgentPart | EnvironmentPart, config: Any, params: TrialParams | None) -> Any:
    """Tell a server that a trial begins; return its reply.

    Args:
        server: the server.
        part: its part in the trial.
        config: of the participant, as its session has it.
        params: of the trial; None: the server gets no configuration of it.
    """
    own = None if config is None else encode(config, None, "config")
    trial_config = None
    if params is not None and params.HasField("trial_config"):
        trial_config = params.trial_config.content
    try:
        reply: Message = await server.call(part.start(own, trial_config))
    except RefusedError:
        part.refused()
        raise
    return reply


class LegacyAgent(_LegacyParticipant):
    """An old server of agents, as an implementation of actors: one object for many actors of many trials.

    ```python
    participants.register_actor(LegacyAgent("grpc://localhost:9000", profile, trials), "old", ["player"])
    ```

    The calls for one actor are made one after the other, in the order of the events. The agent is told of the end of a
    trial in every case in which it may know of the trial, also when this is cancelled.

    Args:
        server: `grpc://host:port`, or a channel that is open.
        profile: the project.
        trials: tells all actors of a trial; see `trials.asking`.
        name: of the server, for errors; by default its address.
        tls: encrypt; old servers do not.
        config: limits and timeouts of the channel.
        host: connects; by default the system.
    """

    _SERVICE = AGENT

    def __init__(
        self,
        server: str | CallOpener,
        profile: LegacyProfile,
        trials: TrialSource,
        *,
        name: str = "",
        tls: ssl.SSLContext | None = None,
        config: RpcConfig | None = None,
        host: Host | None = None,
    ) -> None:
        super().__init__(server, profile, trials, name=name, tls=tls, config=config, host=host)
        self._params_of = trials

    async def __call__(self, session: ActorSession[Any, Any, Any]) -> None:
        """Play the actor's part in a trial.

        Raises:
            FailedPreconditionError: the server answers a call with an error.
            InvalidArgumentError: the trial has an actor class that the profile does not have.
            UnavailableError: the server cannot be reached, was lost, or does not answer in time.
        """
        profile = self._profile
        params = await self._params_of(session.trial_id)
        ids = ids_in(params, profile.classes, session.environment_name)
        member = ids.member(session.name)
        if member is None:
            raise FailedPreconditionError(f"actor {session.name!r}: expected it among the actors of the trial")
        part = AgentPart(session.trial_id, ids, member, reward_every_tick=profile.reward_every_tick)
        async with self._opened(part) as server:
            await _start(server, part, session.config, params)
            part.started()
            line = CallLine(server)
            playing = _PlayingAgent(session, part, line, empty_on_error=profile.on_agent_error == "empty")
            await line.run(partial(session.handle, playing.on_event))


class _PlayingAgent:
    """An agent that plays: events bring calls, and decisions become actions."""

    def __init__(
        self, session: ActorSession[Any, Any, Any], part: AgentPart, line: CallLine, *, empty_on_error: bool
    ) -> None:
        self._session = session
        self._part = part
        self._line = line
        self._otherwise = self._act_empty if empty_on_error else None

    def on_event(self, event: Event[Any, None]) -> None:
        for call in self._part.take(event):
            if call.method == "Decide":
                self._line.put(call, self._decided, self._otherwise)
            else:
                self._line.put(call, _nothing)

    def _decided(self, reply: Any) -> None:
        self._act(self._part.decided(reply))

    def _act_empty(self, error: CogmentError) -> None:
        session = self._session
        _log.warning("trial %r, actor %r: %s; an empty action is sent", session.trial_id, session.name, error)
        self._act(Decision(b"", [], [], []))

    def _act(self, decision: Decision) -> None:
        session = self._session
        for text in decision.ignored:
            _log.warning("trial %r, actor %r: the old agent: %s: ignored", session.trial_id, session.name, text)
        if session.is_over:
            return
        # First what belongs to the tick that the action ends.
        for reward in decision.rewards:
            session.add_reward_nowait(
                reward.value, reward.confidence, reward.to, tick_id=reward.tick_id, user_data=reward.user_data
            )
        for payload, receiver in decision.messages:
            session.send_message_nowait(payload, receiver)
        session.do_action_nowait(decision.action)


class LegacyEnvironment(_LegacyParticipant):
    """An old server of environments, as the implementation of environments: one object for many trials.

    ```python
    participants.register_environment(LegacyEnvironment("grpc://localhost:9001", profile))
    ```

    The environment is told of the end of a trial in every case in which it may know of the trial, also when this is
    cancelled.

    Args:
        server: `grpc://host:port`, or a channel that is open.
        profile: the project.
        trials: tells the configuration of a trial; without it the environment gets none.
        name: of the server, for errors; by default its address.
        tls: encrypt; old servers do not.
        config: limits and timeouts of the channel.
        host: connects; by default the system.
    """

    _SERVICE = ENVIRONMENT

    async def __call__(self, session: EnvironmentSession[Any, Any, Any]) -> None:
        """Play the environment's part in a trial.

        Raises:
            FailedPreconditionError: the server answers a call with an error.
            InvalidArgumentError: the trial has an actor class that the profile does not have.
            RemoteProtocolError: the server's observations do not fit the trial.
            UnavailableError: the server cannot be reached, was lost, or does not answer in time.
        """
        actors = ((actor.name, actor.actor_class) for actor in session.actors)
        ids = ActorIds(self._profile.classes, actors, session.name)
        params = None if self._trials is None else await self._trials(session.trial_id)
        part = EnvironmentPart(session.trial_id, ids, self._profile.deltas)
        async with self._opened(part) as server:
            try:
                first = part.started(await _start(server, part, session.config, params))
                _note(session, first)
                await session.start(first.observations)
                line = CallLine(server)
                await line.run(partial(session.handle, _PlayingEnvironment(session, part, line).on_event))
            except RemoteProtocolError as error:
                raise RemoteProtocolError(f"{server.name}: {error}") from error


class _PlayingEnvironment:
    """An environment that plays: events bring calls, and their replies become observations."""

    def __init__(self, session: EnvironmentSession[Any, Any, Any], part: EnvironmentPart, line: CallLine) -> None:
        self._session = session
        self._part = part
        self._line = line

    def on_event(self, event: Event[None, Any]) -> None:
        then = self._part.take(event)
        if isinstance(then, Outcome):
            # After the calls that are under way.
            self._line.put(None, partial(self._step, then))
        elif then is not None:
            self._line.put(then, self._updated if then.method == "Update" else _nothing)

    def _updated(self, reply: Any) -> None:
        self._step(self._part.updated(reply), None)

    def _step(self, outcome: Outcome, _reply: Any) -> None:
        session = self._session
        _note(session, outcome)
        if session.is_over:
            return
        for payload, receiver in outcome.messages:
            session.send_message_nowait(payload, receiver)
        if outcome.ends_trial:
            session.end_nowait(outcome.observations, outcome.rewards)
        else:
            session.produce_observations_nowait(outcome.observations, outcome.rewards)


def _note(session: EnvironmentSession[Any, Any, Any], outcome: Outcome) -> None:
    for text in outcome.ignored:
        _log.warning("trial %r: the old environment: %s: ignored", session.trial_id, text)


def _nothing(_reply: Any) -> None:
    pass
