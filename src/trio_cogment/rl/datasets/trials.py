"""Rows of a data set about a trial and its actors, beside their steps. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from google.protobuf.message import DecodeError

from trio_cogment.api.common_pb2 import ActorParams
from trio_cogment.api.rl_pb2 import EnvironmentConfig
from trio_cogment.base.outcome import EndCause
from trio_cogment.environments.env_specs import id_in
from trio_cogment.environments.spec import HUMAN, PLAYER, POLICY_PROPERTY
from trio_cogment.rl.datasets.placing import Placement
from trio_cogment.rl.datasets.step_columns import StepColumns
from trio_cogment.rl.datasets.steps import Step
from trio_cogment.sdk import StoredTrial
from trio_cogment.spaces import SpaceError
from trio_cogment.spaces.values import decode_fields

#: What the endpoint of an actor that comes by itself begins with: a person's, as a rule.
_CLIENT = "cogment://client"


@dataclass(frozen=True, slots=True)
class ActorRecord:
    """An actor of a trial.

    Attributes:
        name: its name.
        actor_class: its class.
        implementation: who played it; of a person's seat `human`, or `human:` and the name.
        is_human: it came as a client, and not as a program of this package.
        policy: the model and its version, such as `rps@3`, as the trial's property `policy.<actor>` says; None without.
    """

    name: str
    actor_class: str
    implementation: str
    is_human: bool
    policy: str | None


@dataclass(frozen=True, slots=True)
class TrialRecord:
    """A trial of a data set.

    Attributes:
        stored: what the datastore says of it.
        episode_index: its number in the data set, from 0.
        environment: the environment's id, or else its implementation.
        seed: of the episode; None if the environment went on with its generator, or it is not known.
        options: of the episode.
        actors: by name, in order.
        arguments: with which the environment was made, as far as the trial's parameters say.
        spec: how Gymnasium makes it, see `env_specs.spec_text`.
    """

    stored: StoredTrial
    episode_index: int
    environment: str
    seed: int | None
    options: dict[str, Any]
    actors: Mapping[str, ActorRecord]
    arguments: dict[str, Any] = field(default_factory=dict)
    spec: str = ""

    @classmethod
    def of(cls, stored: StoredTrial, episode_index: int) -> TrialRecord:
        """Return what there is to know of a stored trial."""
        params = stored.params
        seed, options, arguments, spec = None, {}, {}, ""
        config = _config(stored)
        environment = _environment(stored, config)
        if config is not None:
            seed = config.seed if config.HasField("seed") else None
            options, arguments, spec = _fields(config, "options"), _fields(config, "arguments"), config.spec
        properties = params.properties
        actors = {
            actor.name: _actor_record(actor, properties.get(POLICY_PROPERTY + actor.name)) for actor in params.actors
        }
        return cls(stored, episode_index, environment, seed, options, actors, arguments, spec)

    @property
    def environment_ended(self) -> bool:
        """Whether it was the environment that ended the trial."""
        return self.stored.outcome is not None and self.stored.outcome.cause is EndCause.ENVIRONMENT


def environment_of(stored: StoredTrial) -> str:
    """Return `TrialRecord.environment` of a stored trial."""
    return _environment(stored, _config(stored))


def _environment(stored: StoredTrial, config: EnvironmentConfig | None) -> str:
    environment = stored.params.environment
    named = environment.implementation or environment.name
    return named if config is None else config.id or id_in(config.spec) or named


def _actor_record(actor: ActorParams, policy: str | None) -> ActorRecord:
    # Programs come as clients, too: their implementations have names, and those of people are theirs, if any.
    name = actor.implementation
    is_human = actor.endpoint.startswith(_CLIENT) and (not name or name.partition(":")[0] == HUMAN)
    return ActorRecord(actor.name, actor.actor_class, actor.implementation, is_human, policy or None)


def _config(stored: StoredTrial) -> EnvironmentConfig | None:
    params = stored.params
    # Another project's configuration is another message.
    if not params.environment.HasField("config") or any(actor.actor_class != PLAYER for actor in params.actors):
        return None
    try:
        return EnvironmentConfig.FromString(params.environment.config.content)
    except DecodeError:
        return None


def _fields(config: EnvironmentConfig, name: Literal["options", "arguments"]) -> dict[str, Any]:
    try:
        return decode_fields(getattr(config, name)) if config.HasField(name) else {}
    except SpaceError:
        return {}  # what was not an option of the environment is none of the data set


class Writer(Protocol):
    """What steps are written to. Its methods block, and are called one after the other, from any thread."""

    def begin(self, trial: TrialRecord) -> None:
        """Begin a trial."""

    def add(self, steps: list[Step]) -> None:
        """Add steps of the trial, in the order of their ticks.

        Raises:
            SpaceError: one cannot be written; the text names the actor and the part.
        """

    def add_columns(self, columns: Sequence[StepColumns]) -> None:
        """Add steps of the trial, of several ticks: those of each actor.

        Raises:
            SpaceError: as `add`.
        """

    def end(self) -> None:
        """End the trial: it has no more steps."""

    def finish(self) -> list[Placement]:
        """Complete the data set; return its folders, which are not in their places yet.

        Raises:
            OSError: the disk is full, or failed.
        """

    def close(self) -> None:
        """Remove what is not in its place. Never raises."""
