"""`LegacyEnvironment`: a server of the legacy API's environments as the environment of trials."""

from __future__ import annotations

import logging
import ssl
from functools import partial
from typing import Any

from trio_cogment.base.errors import RemoteProtocolError
from trio_cogment.base.host import Host
from trio_cogment.gateways.legacy.actor_ids import ActorIds
from trio_cogment.gateways.legacy.call_line import CallLine
from trio_cogment.gateways.legacy.environment_part import EnvironmentPart, Outcome
from trio_cogment.gateways.legacy.old_server import ENVIRONMENT, OldServer, RefusedError, open_old_server
from trio_cogment.gateways.legacy.profile import LegacyProfile
from trio_cogment.gateways.legacy.trials import TrialSource
from trio_cogment.rpc import CallOpener, RpcConfig
from trio_cogment.sdk import EnvironmentSession, Event
from trio_cogment.sdk.spec import encode

_log = logging.getLogger(__name__)


class LegacyEnvironment:
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
        trial_config = None
        if self._trials is not None:
            params = await self._trials(session.trial_id)
            trial_config = params.trial_config.content if params.HasField("trial_config") else None
        part = EnvironmentPart(session.trial_id, ids, self._profile.deltas)
        opened = open_old_server(
            self._server,
            ENVIRONMENT,
            name=self._name,
            call_timeout_seconds=self._profile.call_timeout_seconds,
            tls=self._tls,
            config=self._config,
            host=self._host,
        )
        async with opened as server:
            try:
                await self._play(session, trial_config, part, server)
            except RemoteProtocolError as error:
                raise RemoteProtocolError(f"{server.name}: {error}") from error
            finally:
                call = part.stop()
                if call is not None:
                    await server.tell_end(call, self._profile.end_timeout_seconds)

    async def _play(
        self,
        session: EnvironmentSession[Any, Any, Any],
        trial_config: bytes | None,
        part: EnvironmentPart,
        server: OldServer,
    ) -> None:
        config = None if session.config is None else encode(session.config, None, "config")
        try:
            reply = await server.call(part.start(config, trial_config))
        except RefusedError:
            part.refused()
            raise
        first = part.started(reply)
        _note(session, first)
        await session.start(first.observations)
        line = CallLine(server)
        await line.run(partial(session.handle, _Playing(session, part, line).on_event))


class _Playing:
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
