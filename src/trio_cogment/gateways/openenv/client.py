"""`openenv_environment`: an OpenEnv server as the environment of trials."""

from __future__ import annotations

import dataclasses
import ssl
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import trio

from trio_cogment.api import rl_pb2, spaces_pb2
from trio_cogment.base.errors import InvalidArgumentError
from trio_cogment.base.host import Host
from trio_cogment.environments.errors import InvalidActionError, InvalidEnvironmentError
from trio_cogment.environments.trial_seeds import noted_seed
from trio_cogment.gateways.openenv.addresses import Address, LinkOptions, get_json
from trio_cogment.gateways.openenv.foreign_schemas import (
    DEFAULT_MAX_TEXT_CHARACTERS,
    Codec,
    GivenAction,
    GivenObservation,
    action_codec,
    observation_codec,
)
from trio_cogment.gateways.openenv.link import Link, Links
from trio_cogment.gateways.openenv.results import observation_of, parse_result
from trio_cogment.sdk import EnvironmentImplementation, EnvironmentSession, EventType, Reward
from trio_cogment.spaces import Observation, Space, SpaceError, decode_action, encode_observation
from trio_cogment.spaces.json_values import to_json_value
from trio_cogment.spaces.values import decode_fields

#: The agent of an environment that has only one.
AGENT = "player_0"
#: As OpenEnv's own client has them.
CONNECT_TIMEOUT_SECONDS = 10.0
MESSAGE_TIMEOUT_SECONDS = 60.0
MAX_MESSAGE_BYTES = 100 * 1024 * 1024
#: Sessions that are kept while no trial uses them.
MAX_KEPT_SESSIONS = 64


def openenv_environment(
    url: str,
    *,
    agent: str = AGENT,
    action_space: Space | None = None,
    observation_space: Space | None = None,
    to_fields: Callable[[Any], Mapping[str, Any]] | None = None,
    to_value: Callable[[Mapping[str, Any]], Any] | None = None,
    done: Literal["terminated", "truncated"] = "terminated",
    reset_arguments: Mapping[str, Any] = {},
    max_text_characters: int = DEFAULT_MAX_TEXT_CHARACTERS,
    connect_timeout_seconds: float = CONNECT_TIMEOUT_SECONDS,
    message_timeout_seconds: float = MESSAGE_TIMEOUT_SECONDS,
    max_message_bytes: int = MAX_MESSAGE_BYTES,
    tls: ssl.SSLContext | None = None,
    nursery: trio.Nursery | None = None,
    host: Host | None = None,
) -> EnvironmentImplementation:
    """Return the environment of trials whose one actor acts in an environment of an OpenEnv server.

    It is registered as any other: `participants.register_environment(openenv_environment("http://localhost:8000"))`.
    Each trial has a session of its own. A server that is lost, or answers with an error, ends that trial and no other.

    The spaces come from the server's schemas, as `foreign_schemas` says; where those do not
    tell them, actions and observations are JSON texts. Give the spaces to have others.

    Args:
        url: of the server: `http://host:port`, or https, ws or wss.
        agent: the name of the trial's actor.
        action_space: of the actions, together with `to_fields`.
        observation_space: of the observations, together with `to_value`.
        to_fields: makes the fields of an OpenEnv action of a value of `action_space`.
        to_value: makes a value of `observation_space` of the fields of an OpenEnv observation.
        done: what the end of an episode means where the server does not say it: OpenEnv knows no difference.
        reset_arguments: of every reset; those of the trial's `options` come on top.
        max_text_characters: the longest text, where a space is one of texts without a length.
        connect_timeout_seconds: how long it may take to connect.
        message_timeout_seconds: how long the server may take for an answer.
        max_message_bytes: the longest answer.
        tls: for https and wss; by default the system's certificates are trusted.
        nursery: keeps the session of an `EnvironmentConfig.instance` between its trials, so that a reset without a seed
            goes on with the generator that the server has; by default each trial begins again.
        host: connects; by default the system.

    Raises:
        EndpointError: the URL is none of a server.
        InvalidArgumentError: a space is given without its function, or the other way round.
    """
    action = observation = None
    if action_space is not None and to_fields is not None:
        action = GivenAction(action_space, to_fields)
    if observation_space is not None and to_value is not None:
        observation = GivenObservation(observation_space, to_value)
    for name, given, found in (
        ("action_space and to_fields", (action_space, to_fields), action),
        ("observation_space and to_value", (observation_space, to_value), observation),
    ):
        if found is None and given != (None, None):
            raise InvalidArgumentError(f"{name}: expected both or neither")
    if done not in ("terminated", "truncated"):
        raise InvalidArgumentError(f"done: expected 'terminated' or 'truncated', got {done!r}")
    address = Address.of(url)
    options = LinkOptions(
        connect_timeout_seconds=connect_timeout_seconds,
        message_timeout_seconds=message_timeout_seconds,
        max_message_bytes=max_message_bytes,
        tls=tls,
        connect=(host or Host()).connect,
    )
    return _Environment(
        address=address,
        options=options,
        links=Links(address, options, nursery, MAX_KEPT_SESSIONS),
        agent=agent,
        done_is_truncated=done == "truncated",
        reset_arguments=dict(reset_arguments),
        max_text_characters=max_text_characters,
        action=action,
        observation=observation,
    ).play


@dataclass(slots=True, kw_only=True)
class _Environment:
    """One server, for all trials that use it; what is None is asked for when the first trial needs it."""

    address: Address
    options: LinkOptions
    links: Links
    agent: str
    done_is_truncated: bool
    reset_arguments: Mapping[str, Any]
    max_text_characters: int
    action: Codec | GivenAction | None
    observation: Codec | GivenObservation | None

    async def play(self, session: EnvironmentSession[Any, Any, Any]) -> None:
        """Play one trial."""
        config = self._config_of(session)
        seed = config.seed if config.HasField("seed") else None
        with noted_seed(session.trial_id, seed):
            await self._play(session, config)

    async def _play(self, session: EnvironmentSession[Any, Any, Any], config: rl_pb2.EnvironmentConfig) -> None:
        action, observation = await self._codecs()
        async with self.links.borrow(config.instance) as link:
            play = _Play(self, link, action, observation)
            first = await play.reset(config)
            over = first.terminated or first.truncated
            described = dataclasses.replace(first, observation_space=observation.space, action_space=action.space)
            await session.start([(0, encode_observation(described))])
            async for event in session.all_events():
                if event.actions is None:
                    continue
                # An episode may be over with its first observation, which is told once more then.
                told = first if over else await play.step(event.actions[0].payload)
                ending = event.type is EventType.ENDING
                over = over or told.terminated or told.truncated
                if ending and not over:
                    # Somebody ends the trial, where the episode could go on.
                    told = dataclasses.replace(told, truncated=True)
                rewards = [] if told.reward is None else [Reward(self.agent, told.reward, 1.0)]
                send = session.end if over and not ending else session.produce_observations
                await send([(0, encode_observation(told))], rewards)

    def _config_of(self, session: EnvironmentSession[Any, Any, Any]) -> rl_pb2.EnvironmentConfig:
        actors = [actor.name for actor in session.actors]
        if actors != [self.agent]:
            found = ", ".join(map(repr, actors)) or "none"
            raise InvalidArgumentError(
                f"environment {self.address.url!r}: actors: expected {self.agent!r}, got {found}"
            )
        config: rl_pb2.EnvironmentConfig = session.config or rl_pb2.EnvironmentConfig()
        for name in ("id", "arguments"):
            if config.id if name == "id" else config.arguments.fields:
                text = "expected none, because the server makes its own environment"
                raise InvalidArgumentError(f"environment {self.address.url!r}: config: {name}: {text}")
        return config

    async def _codecs(self) -> tuple[Codec | GivenAction, Codec | GivenObservation]:
        if self.action is None or self.observation is None:
            schemas = await get_json(self.address, "/schema", self.options)
            found = schemas if isinstance(schemas, dict) else {}
            try:
                self.action = self.action or action_codec(found.get("action"), self.max_text_characters)
                self.observation = self.observation or observation_codec(
                    found.get("observation"), self.max_text_characters
                )
            except SpaceError as error:
                raise InvalidEnvironmentError(self.address.url, self.agent, f"schema: {error}") from None
        return self.action, self.observation


@dataclass(slots=True)
class _Play:
    """One episode."""

    environment: _Environment
    link: Link
    action: Codec | GivenAction
    observation: Codec | GivenObservation

    async def reset(self, config: rl_pb2.EnvironmentConfig) -> Observation:
        """Begin it.

        Raises:
            CogmentError: the server refuses, is gone, or answers with nonsense.
        """
        options = decode_fields(config.options)
        # A reset's arguments are the environment's own; servers of this package have those apart from theirs.
        ours = isinstance(self.observation, Codec) and self.observation.field
        arguments = {**self.environment.reset_arguments, **({"options": options} if ours and options else options)}
        if ours and config.frames_for:
            arguments["frames"] = True
        if config.HasField("seed"):
            arguments["seed"] = config.seed
        return self._observation(await self.link.ask("reset", to_json_value(arguments)))

    async def step(self, payload: spaces_pb2.Action | None) -> Observation:
        """Make a step.

        Raises:
            InvalidActionError: there is no action, or it is not in the space.
            CogmentError: as `reset`.
        """
        environment = self.environment
        try:
            if payload is None or not (payload.HasField("value") or payload.HasField("nested")):
                raise SpaceError("expected one, because it is the actor's turn; got none")
            fields = self.action.fields(decode_action(payload, self.action.space))
        except SpaceError as error:
            raise InvalidActionError(environment.address.url, environment.agent, error.of("action")) from None
        return self._observation(await self.link.ask("step", fields))

    def _observation(self, data: Any) -> Observation:
        environment = self.environment
        try:
            return observation_of(
                parse_result(data),
                self.observation,
                self.action.space,
                done_is_truncated=environment.done_is_truncated,
            )
        except SpaceError as error:
            raise InvalidEnvironmentError(environment.address.url, environment.agent, error) from None
