"""`LegacyAgent`: a server of the legacy API's agents as actors of trials."""

from __future__ import annotations

import logging
import ssl
from functools import partial
from typing import Any

from trio_cogment.api.common_pb2 import TrialParams
from trio_cogment.base.errors import CogmentError, FailedPreconditionError
from trio_cogment.base.host import Host
from trio_cogment.gateways.legacy.actor_ids import ids_in
from trio_cogment.gateways.legacy.agent_part import AgentPart, Decision
from trio_cogment.gateways.legacy.call_line import CallLine
from trio_cogment.gateways.legacy.old_server import AGENT, OldServer, RefusedError, open_old_server
from trio_cogment.gateways.legacy.profile import LegacyProfile
from trio_cogment.gateways.legacy.trials import TrialSource
from trio_cogment.rpc import CallOpener, RpcConfig
from trio_cogment.sdk import ActorSession, Event
from trio_cogment.sdk.spec import encode

_log = logging.getLogger(__name__)


class LegacyAgent:
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
        self._server = server
        self._profile = profile
        self._trials = trials
        self._name = name
        self._tls = tls
        self._config = config
        self._host = host

    async def __call__(self, session: ActorSession[Any, Any, Any]) -> None:
        """Play the actor's part in a trial.

        Raises:
            FailedPreconditionError: the server answers a call with an error.
            InvalidArgumentError: the trial has an actor class that the profile does not have.
            UnavailableError: the server cannot be reached, was lost, or does not answer in time.
        """
        params = await self._trials(session.trial_id)
        part = self._part(session, params)
        opened = open_old_server(
            self._server,
            AGENT,
            name=self._name,
            call_timeout_seconds=self._profile.call_timeout_seconds,
            tls=self._tls,
            config=self._config,
            host=self._host,
        )
        async with opened as server:
            try:
                await self._play(session, params, part, server)
            finally:
                call = part.stop()
                if call is not None:
                    await server.tell_end(call, self._profile.end_timeout_seconds)

    def _part(self, session: ActorSession[Any, Any, Any], params: TrialParams) -> AgentPart:
        ids = ids_in(params, self._profile.classes, session.environment_name)
        member = ids.member(session.name)
        if member is None:
            raise FailedPreconditionError(f"actor {session.name!r}: expected it among the actors of the trial")
        return AgentPart(session.trial_id, ids, member, reward_every_tick=self._profile.reward_every_tick)

    async def _play(
        self, session: ActorSession[Any, Any, Any], params: TrialParams, part: AgentPart, server: OldServer
    ) -> None:
        config = None if session.config is None else encode(session.config, None, "config")
        trial_config = params.trial_config.content if params.HasField("trial_config") else None
        try:
            await server.call(part.start(config, trial_config))
        except RefusedError:
            part.refused()
            raise
        part.started()
        line = CallLine(server)
        playing = _Playing(session, part, line, empty_on_error=self._profile.on_agent_error == "empty")
        await line.run(partial(session.handle, playing.on_event))


class _Playing:
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


def _nothing(_reply: Any) -> None:
    pass
