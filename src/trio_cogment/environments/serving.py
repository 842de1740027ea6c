"""`environment`: an environment of the field as the implementation of a trial's environment."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Literal, TypeAlias

import trio
from google.protobuf.message import DecodeError

from trio_cogment.api import rl_pb2
from trio_cogment.api.common_pb2 import TakenUp
from trio_cogment.base.errors import InvalidArgumentError
from trio_cogment.environments.hosts import DescribedHost, InlineHost, ThreadHost
from trio_cogment.environments.making import Again, Recipe, Target, repeatable
from trio_cogment.environments.part import Part
from trio_cogment.environments.pool import Key, Pool, close_all
from trio_cogment.environments.process_host import ProcessHost
from trio_cogment.environments.stage import Description, Opening
from trio_cogment.environments.trial_seeds import noted_seed
from trio_cogment.sdk import EnvironmentSession
from trio_cogment.spaces import SpaceError
from trio_cogment.spaces.values import decode_fields

#: Where an environment runs: on Trio's thread, on a thread of its own, in a process of its own.
Hosting: TypeAlias = Literal["inline", "thread", "process"]

DEFAULT_MAX_IDLE = 16
DEFAULT_IDLE_SECONDS = 300.0


async def _inline(recipe: Recipe) -> DescribedHost:
    await trio.lowlevel.checkpoint()
    return InlineHost(recipe)


_OPENERS: dict[str, Callable[[Recipe], Awaitable[DescribedHost]]] = {
    "inline": _inline,
    "thread": ThreadHost.open,
    "process": ProcessHost.open,
}


def environment(
    target: Target | None = None,
    *,
    hosting: Hosting = "inline",
    arguments: Mapping[str, Any] | None = None,
    max_idle: int = DEFAULT_MAX_IDLE,
    idle_seconds: float = DEFAULT_IDLE_SECONDS,
) -> ServedEnvironment:
    """Return an implementation for `Participants.register_environment`.

    Each trial has an environment object for itself, and gives it back at its end. One that raised, or was in the middle
    of a call when its trial was cancelled, is closed, and the next trial gets a new one.

    Args:
        target: what `trio_cogment.environments.making.make_environment` takes; None: each trial's configuration
            names one by its id.
        hosting: where the environment runs. `inline` is the fastest, and right for environments whose steps take less
            than about a millisecond: while one makes a step, nothing else on Trio's thread runs. `thread` gives each
            object a thread of its own, on which it is made, too. `process` gives it a process, whose end ends its trial
            alone; its target is an id, or a function of a module.
        arguments: with which it is made; those of a trial's configuration take precedence.
        max_idle: the maximum number of objects that are kept while no trial uses them.
        idle_seconds: so long each of them is kept.

    Raises:
        InvalidArgumentError: there is no such hosting.
    """
    return ServedEnvironment(
        target, hosting=hosting, arguments=arguments or {}, pool=Pool(max_idle=max_idle, idle_seconds=idle_seconds)
    )


class ServedEnvironment:
    """An environment of the field that serves trials; `environment` makes it.

    `aclose` closes the objects that no trial uses, as the end of the Trio run does.

    Attributes:
        name: what a trial's configuration may call the environment, beside the target; empty: nothing.
    """

    def __init__(self, target: Target | None, *, hosting: str, arguments: Mapping[str, Any], pool: Pool) -> None:
        """Serve an environment; see `environment`."""
        if hosting not in _OPENERS:
            raise InvalidArgumentError(f"hosting: expected {', '.join(map(repr, _OPENERS))}; got {hosting!r}")
        self.name = ""
        self._target = None if target is None else repeatable(target)
        self._inline = hosting == "inline"
        self._open = _OPENERS[hosting]
        self._arguments = dict(arguments)
        self._pool = pool

    async def __call__(self, session: EnvironmentSession[Any, Any, Any]) -> None:
        """Play the environment's part in a trial.

        Raises:
            InvalidArgumentError: the trial's configuration makes no sense, or its actors are not the agents.
            InvalidActionError: an actor's action is missing, or not in its space.
            InvalidEnvironmentError: the environment returned what makes no sense.
            EnvironmentLostError: its process has ended.
            Exception: what the environment raised.
        """
        config = _config_of(session)
        recipe = self._recipe(config)
        key = Key(
            config.id if self._target is None else "",
            config.arguments.SerializeToString(deterministic=True),
            bool(config.frames_for),
            config.instance,
        )
        opening = _opening_of(config, session, session.take_up())
        part = Part(session, opening)
        with noted_seed(session.trial_id, opening.seed):
            if self._inline and not self._pool.is_taken(key):
                host = await self._pool.acquire(key, lambda: self._open(recipe))
                assert isinstance(host, InlineHost)
                try:
                    await part.play_inline(host)
                finally:
                    await self._pool.release(key, host)
            else:
                await part.play_hosted(self._pool, key, lambda: self._open(recipe))

    async def describe(self) -> Description:
        """Make an environment where those of trials are made, close it, and return what it said of itself.

        Raises:
            InvalidArgumentError: there is no target, or it is made already.
            CogmentError: see `Recipe.make`.
        """
        if isinstance(self._target, Again):
            raise InvalidArgumentError("environment: expected an id or a function, got one that is made already")
        host = await self._open(self._recipe(rl_pb2.EnvironmentConfig()))
        await close_all([host])
        return host.description

    async def prepare(self) -> None:
        """Make an environment for the first trial, unless there is one.

        Raises:
            InvalidArgumentError: there is no target.
            CogmentError: see `Recipe.make`.
        """
        recipe = self._recipe(rl_pb2.EnvironmentConfig())
        await self._pool.release(Key(), await self._pool.acquire(Key(), lambda: self._open(recipe)))

    async def aclose(self) -> None:
        """Close the environments that no trial uses."""
        await self._pool.aclose()

    def _recipe(self, config: rl_pb2.EnvironmentConfig) -> Recipe:
        arguments = {**self._arguments, **_decoded(config, "arguments")}
        if self._target is not None:
            if config.id and config.id not in (self.name, self._target):
                own = repr(self._target) if isinstance(self._target, str) else "none, because there is one environment"
                raise InvalidArgumentError(f"environment config: id: expected {own}; got {config.id!r}")
            return Recipe(self._target, arguments, bool(config.frames_for))
        if not config.id or ":" in config.id or "." in config.id:
            # Those with a module's name would import whatever a trial's parameters say.
            raise InvalidArgumentError(
                "environment config: id: expected the id of an environment, without a module, such as CartPole-v1; got "
                f"{config.id!r}"
            )
        return Recipe(config.id, arguments, bool(config.frames_for))


def _config_of(session: EnvironmentSession[Any, Any, Any]) -> rl_pb2.EnvironmentConfig:
    config = session.config
    if config is None:
        return rl_pb2.EnvironmentConfig()
    if isinstance(config, rl_pb2.EnvironmentConfig):
        return config
    if isinstance(config, bytes):
        try:
            return rl_pb2.EnvironmentConfig.FromString(config)
        except DecodeError:
            raise InvalidArgumentError("environment config: expected an EnvironmentConfig, got other bytes") from None
    raise InvalidArgumentError(f"environment config: expected an EnvironmentConfig, got {type(config).__name__}")


def _opening_of(
    config: rl_pb2.EnvironmentConfig, session: EnvironmentSession[Any, Any, Any], taken_up: TakenUp | None
) -> Opening:
    actors: Sequence[str] = [actor.name for actor in session.actors]
    return Opening(
        actors=tuple(actors),
        frames_for=frozenset(config.frames_for),
        seed=config.seed if config.HasField("seed") else None,
        options=_decoded(config, "options") or None,
        taken_up=taken_up,
    )


def _decoded(config: rl_pb2.EnvironmentConfig, field: str) -> dict[str, Any]:
    if not config.HasField(field):
        return {}
    try:
        # A copy, because environments may change what they get.
        return decode_fields(getattr(config, field), copy=True)
    except SpaceError as error:
        raise InvalidArgumentError(f"environment config: {error.of(field)}") from None
