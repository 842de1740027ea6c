"""The telemetry of a run's trials: their samples, followed in the datastore while they are stored."""

from __future__ import annotations

import base64
import json
import logging
from collections.abc import Mapping
from typing import Any

import trio
from google.protobuf.json_format import MessageToJson
from google.protobuf.message import DecodeError, Message

from trio_cogment.api.common_pb2 import TrialParams
from trio_cogment.api.trainer.trainer_pb2 import RunEpisode, RunStep
from trio_cogment.base.errors import CogmentError, NotFoundError
from trio_cogment.base.outcome import EndCause, TrialOutcome
from trio_cogment.sdk import ActorSample, DatastoreClient, StoredSample
from trio_cogment.sdk.spec import Spec
from trio_cogment.trainer.dispatching import RunSink
from trio_cogment.trainer.trials.naming import Place

# The samples of a trial as steps and episodes. Pure.
#
# A tick is a step of each actor, with the actor's name as its agent. The last tick of a trial is known by what follows
# it, so each is held back until the next one comes, or the end.

#: `RunStep.payload_version`: 1 is this mapping.
_PAYLOAD_VERSION = 1


class EpisodeMaker:
    """Makes the steps and episodes of one trial.

    Args:
        run_id: of which run.
        trial_id: of which trial.
        place: where it belongs in the run.
        steps: whether there are to be steps.
    """

    def __init__(self, run_id: str, trial_id: str, place: Place, *, steps: bool = True) -> None:
        self._run_id = run_id
        self._trial_id = trial_id
        self._place = place
        self._steps = steps
        self._held: StoredSample | None = None
        self._params = TrialParams()
        self._seed = 0
        self._began = self._ended = 0
        self._ticks = 0
        self._returns: dict[str, float] = {}
        self._flags: dict[str, tuple[bool, bool]] = {}

    def feed(self, sample: StoredSample) -> list[RunStep]:
        """Take a sample; return the steps of the one before."""
        found = self._steps_of_held()
        if not self._ticks:
            self._params = sample.trial.params
            self._seed = _seed(self._params, sample.spec)
            self._began = sample.timestamp
        self._held = sample
        self._ended = sample.timestamp
        self._ticks += 1
        for name, actor in sample.actors.items():
            observation = _observation(actor)
            self._returns[name] = self._returns.get(name, 0.0) + (actor.reward or 0.0)
            before, now = self._flags.get(name, (False, False)), _flags(observation)
            self._flags[name] = before[0] or now[0], before[1] or now[1]
        return found

    def end(self, outcome: TrialOutcome | None) -> tuple[list[RunStep], list[RunEpisode]]:
        """Return the steps of the last tick, and an episode of each actor.

        Args:
            outcome: how the trial ended; None: that is not known.
        """
        for name, flags in self._flags.items():
            self._flags[name] = flags if any(flags) else _ended_by(outcome)
        steps = self._steps_of_held(last=True)
        return steps, [self._episode(name, total, outcome) for name, total in self._returns.items()]

    def _steps_of_held(self, *, last: bool = False) -> list[RunStep]:
        held, self._held = self._held, None
        if held is None or not self._steps:
            return []
        return [self._step(held, actor, last=last) for actor in held.actors.values()]

    def _step(self, sample: StoredSample, actor: ActorSample, *, last: bool) -> RunStep:
        observation = _observation(actor)
        terminated, truncated = self._flags[actor.name] if last else _flags(observation)
        step = RunStep(
            run_id=self._run_id,
            episode_index=self._place.index,
            step_index=sample.tick_id,
            action_json=_json(_action(actor)),
            observation_json=_json(observation),
            reward=actor.reward or 0.0,
            terminated=terminated,
            truncated=truncated,
            policy_label=self._implementations.get(actor.name, ""),
            backend=self._backend,
            agent_id=actor.name,
            frame_ref=f"trial://{self._trial_id}/{sample.tick_id}",
            payload_version=_PAYLOAD_VERSION,
            episode_seed=self._seed,
            worker_id=self._place.worker_id,
        )
        step.timestamp.FromNanoseconds(sample.timestamp)
        return step

    def _episode(self, name: str, total: float, outcome: TrialOutcome | None) -> RunEpisode:
        terminated, truncated = self._flags[name]
        metadata = {
            "trial_id": self._trial_id,
            "environment": self._backend,
            "actors": self._implementations,
            "duration_ns": self._ended - self._began,
            "seed": self._seed or None,
            "cause": EndCause.UNKNOWN.label if outcome is None else outcome.cause.label,
            "reason": "" if outcome is None else outcome.reason,
        }
        episode = RunEpisode(
            run_id=self._run_id,
            episode_index=self._place.index,
            total_reward=total,
            steps=max(0, self._ticks - 1),
            terminated=terminated,
            truncated=truncated,
            metadata_json=json.dumps(metadata, separators=(",", ":")),
            agent_id=name,
            worker_id=self._place.worker_id,
        )
        episode.timestamp.FromNanoseconds(self._ended)
        return episode

    @property
    def _implementations(self) -> Mapping[str, str]:
        return {actor.name: actor.implementation for actor in self._params.actors}

    @property
    def _backend(self) -> str:
        environment = self._params.environment
        return environment.implementation or environment.name or environment.endpoint


def _ended_by(outcome: TrialOutcome | None) -> tuple[bool, bool]:
    """Return whether an episode terminated and was truncated whose observations do not say."""
    if outcome is None or outcome.cause is EndCause.UNKNOWN:
        return False, False
    terminated = outcome.cause is EndCause.ENVIRONMENT
    return terminated, not terminated


def _observation(actor: ActorSample) -> Message | bytes | None:
    try:
        found: Message | bytes | None = actor.observation
    except CogmentError:
        return actor.observation_bytes
    return found


def _action(actor: ActorSample) -> Message | bytes | None:
    try:
        found: Message | bytes | None = actor.action
    except CogmentError:
        return actor.action_bytes
    return found


def _flags(observation: Message | bytes | None) -> tuple[bool, bool]:
    return getattr(observation, "terminated", False) is True, getattr(observation, "truncated", False) is True


def _json(payload: Message | bytes | None) -> str:
    if payload is None:
        return ""
    if isinstance(payload, bytes):
        return json.dumps(base64.b64encode(payload).decode())
    text: str = MessageToJson(payload, preserving_proto_field_name=True, indent=None)
    return text


def _seed(params: TrialParams, spec: Spec) -> int:
    """Return the seed of the environment; 0: it has none, or nobody knows where."""
    kind = spec.environment_config
    if kind is None or "seed" not in kind.DESCRIPTOR.fields_by_name:
        return 0
    try:
        seed: Any = getattr(kind.FromString(params.environment.config.content), "seed")  # noqa: B009  a field's name
    except DecodeError:
        return 0
    return seed if isinstance(seed, int) and seed > 0 else 0


_log = logging.getLogger(__name__)

_FIELDS = ("observation", "action", "reward")
#: A trial that has just been started may not be in the datastore yet: pauses between looks for it.
_PAUSES = (0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0)


class TrialFollower:
    """Publishes what happens in the trials of one run.

    Args:
        run_id: which run.
        sink: where it goes.
        datastore: has the samples.
        telemetry: `all`, `sample:N` (the steps of every Nth episode) or `episodes` (no steps).
    """

    def __init__(self, run_id: str, sink: RunSink, datastore: DatastoreClient, telemetry: str = "all") -> None:
        self._run_id = run_id
        self._sink = sink
        self._datastore = datastore
        self._every = 0 if telemetry == "episodes" else int(telemetry.partition(":")[2] or 1)

    async def follow(self, trial_id: str, place: Place) -> None:
        """Publish a trial, from its first sample to its end. It never fails: what cannot be read is logged."""
        for pause in (*_PAUSES, 0):
            try:
                await self._publish(trial_id, place)
            except NotFoundError as error:
                if pause:
                    await trio.sleep(pause)
                    continue
                _log.warning("run %s: trial %s has no telemetry: %s", self._run_id, trial_id, error)
            except CogmentError as error:
                _log.warning("run %s: trial %s: its telemetry ends here: %s", self._run_id, trial_id, error)
            return

    async def _publish(self, trial_id: str, place: Place) -> None:
        with_steps = bool(self._every) and place.index % self._every == 0
        maker = EpisodeMaker(self._run_id, trial_id, place, steps=with_steps)
        outcome: TrialOutcome | None = None
        async with self._datastore.samples(trial_id, follow=True, fields=_FIELDS) as samples:
            async for sample in samples:
                for step in maker.feed(sample):
                    await self._sink.publish(self._run_id, step)
                if sample.message.HasField("end"):
                    outcome = TrialOutcome.of(trial_id, sample.message.end)
        steps, episodes = maker.end(outcome)
        for step in steps:
            await self._sink.publish(self._run_id, step)
        for episode in episodes:
            await self._sink.publish(self._run_id, episode)
