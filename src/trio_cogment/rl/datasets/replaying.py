"""A data set played again: its episodes as an environment, its actions as an actor."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

from trio_cogment.api import spaces_pb2
from trio_cogment.base.errors import FailedPreconditionError, InvalidArgumentError, NotFoundError
from trio_cogment.base.host import Host
from trio_cogment.base.object_store import is_object_url
from trio_cogment.environments.errors import InvalidActionError
from trio_cogment.rl.datasets.placing import put_right
from trio_cogment.rl.datasets.recordings import ParquetRecordings, Recording, Recordings
from trio_cogment.sdk import ActorImplementation, ActorSession, EventType
from trio_cogment.sdk.spec import decode
from trio_cogment.spaces import Frame, Observation, Space, encode_action

#: The folder of a data set of Parquet files, its address in a bucket, or the id of one of Minari.
Dataset: TypeAlias = str | os.PathLike[str]


def open_recordings(dataset: Dataset, *, trials: Sequence[str] | None = None) -> Recordings:
    """Open a data set. Blocks.

    What a killed export has left there is put right before.

    Args:
        dataset: the folder of a data set of Parquet files, or its address in a bucket (`s3://bucket/prefix`), or else
            the id of one of Minari.
        trials: the ids of the trials to take; None: all. For Parquet only.

    Raises:
        MissingExtraError: an extra is missing.
        NotFoundError: there is no such data set, it is empty, or a trial is not in it.
        InvalidArgumentError: it has no spaces, or the trials do not have the same agents and spaces.
    """
    if is_object_url(dataset):
        return ParquetRecordings(dataset, trials)
    put_right(Path(dataset))
    if isinstance(dataset, os.PathLike) or Path(dataset).is_dir():
        return ParquetRecordings(Path(dataset), trials)
    if trials is not None:
        raise InvalidArgumentError("trials: expected None for a data set of Minari")
    from trio_cogment.rl.datasets.minari_recordings import MinariRecordings

    return MinariRecordings(dataset)


class ReplayEnvironment:
    """Plays recorded episodes: observations, rewards and ends as they were, whatever the actions; see `Environment`.

    A reset without a seed begins the next episode, after the last one the first. One with a seed begins the episode
    with that number (modulo how many there are), so that equal seeds give equal episodes. The option `trial_id` names
    the episode.

    Attributes:
        name: of the environment that was recorded.
        agents: the actors of the trials.
        observation_spaces: by agent.
        action_spaces: by agent.
        metadata: nothing: no pictures are drawn.
        episodes: how many there are.
        trial_id: of the episode that is played; its number if it was not a trial; empty before the first.
    """

    def __init__(self, recordings: Recordings, *, check_actions: bool = False) -> None:
        self.name = recordings.name
        self.agents: Sequence[str] = list(recordings.observation_spaces)
        self.observation_spaces: Mapping[str, Space] = recordings.observation_spaces
        self.action_spaces: Mapping[str, Space] = recordings.action_spaces
        self.metadata: Mapping[str, Any] = {}
        self.episodes = len(recordings)
        self.trial_id = ""
        self._recordings = recordings
        self._check_actions = check_actions
        self._episode: Recording | None = None
        self._next = 0
        self._tick = 0

    def reset(self, seed: int | None, options: dict[str, Any] | None) -> Mapping[str, Observation]:
        """Begin an episode; see the class.

        Raises:
            NotFoundError: there is no trial with the id of the option `trial_id`.
        """
        index = self._next if seed is None else seed % self.episodes
        wanted = (options or {}).get("trial_id")
        if wanted is not None:
            found = self._recordings.find(str(wanted))
            if found is None:
                raise NotFoundError(f"environment {self.name!r}: options: trial_id: there is no trial {wanted!r}")
            index = found
        self._next = (index + 1) % self.episodes
        self._episode = self._recordings.episode(index)
        self._tick = 0
        self.trial_id = self._episode.name
        return self._observations(self._episode)

    def step(self, actions: Mapping[str, Any]) -> Mapping[str, Observation]:
        """Return what came next, whatever the actions.

        Raises:
            FailedPreconditionError: the episode is over, or none has begun.
            InvalidActionError: actions are checked, and one is not the recorded one.
        """
        episode = self._episode
        if episode is None or self.over:
            raise FailedPreconditionError(
                f"environment {self.name!r}: step: expected a reset first, because the episode is over, or none has "
                "begun"
            )
        if self._check_actions:
            for agent, action in actions.items():
                self._check(episode, agent, action)
        self._tick += 1
        return self._observations(episode)

    @property
    def over(self) -> bool:
        """Whether the episode has ended for all agents."""
        return self._episode is not None and self._tick >= self._episode.length - 1

    def frame(self) -> Frame | None:
        """Return None: no pictures are drawn."""
        return None

    def close(self) -> None:
        """Release the episode."""
        self._episode = None

    def _observations(self, episode: Recording) -> Mapping[str, Observation]:
        return {agent: _at(episode.told[agent], self._tick) for agent in self.agents}

    def _check(self, episode: Recording, agent: str, action: Any) -> None:
        recorded = episode.actions[agent].get(self._tick)
        if recorded is None:
            return  # nobody knows what it would have been
        space = self.action_spaces[agent]
        if encode_action(action, space) != encode_action(recorded, space):
            raise InvalidActionError(
                self.name,
                agent,
                f"action: expected that of step {self._tick} of the recorded trial {episode.name!r}, {recorded}; got "
                f"{action}",
            )


def _at(told: Mapping[int, Observation], tick: int) -> Observation:
    found = told.get(tick)
    if found is not None:
        return found
    # It is out, or has not come yet.
    nearest = max((known for known in told if known < tick), default=None)
    value = told[min(told) if nearest is None else nearest].value
    return Observation(value, active=False, alive=False)


def replay_environment(
    dataset: Dataset, *, trials: Sequence[str] | None = None, check_actions: bool = False
) -> ReplayEnvironment:
    """Return an environment that plays the episodes of a data set, for a trial or for a view.

    Args:
        dataset: the folder of a data set of Parquet files that `export` has written, or the id of one of Minari.
        trials: the ids of the trials to play, in this order; None: all. For Parquet only.
        check_actions: refuse actions that are not the recorded ones.

    Raises:
        MissingExtraError: the extra `export` or `minari` is missing.
        NotFoundError: there is no such data set or trial, or it is empty.
        InvalidArgumentError: the trials do not have the same agents and spaces, or have no spaces.
    """
    return ReplayEnvironment(open_recordings(dataset, trials=trials), check_actions=check_actions)


def replay_actor(
    dataset: Dataset, *, actor: str | None = None, trials: Sequence[str] | None = None, host: Host | None = None
) -> ActorImplementation:
    """Return an actor that does what was recorded: in its first trial what it did in the first episode, and so on.

    It acts where it is its turn, with the recorded actions one after the other; the observations do not matter. After
    the last episode comes the first one again.

    Args:
        dataset: as for `replay_environment`.
        actor: whose actions they are; by default those of the recorded actor with the same name.
        trials: as for `replay_environment`.
        host: runs what blocks; by default in a worker thread.

    Raises:
        MissingExtraError, NotFoundError, InvalidArgumentError: as `replay_environment`; and there is no such actor.
    """
    recordings = open_recordings(dataset, trials=trials)
    if actor is not None:
        _require_actor(recordings, actor, f"replay_actor: {dataset}")
    run = (host or Host()).runner(1)
    #: By name: an implementation may play several actors of one trial.
    begun: dict[str, int] = {}

    async def implementation(session: ActorSession) -> None:
        who = f"trial {session.trial_id!r}, actor {session.name!r}"
        name = session.name if actor is None else actor
        _require_actor(recordings, name, who)
        index = begun.get(session.name, 0)
        begun[session.name] = (index + 1) % len(recordings)
        episode = await run(recordings.episode, index)
        actions = iter([action for action in episode.actions[name].values() if action is not None])
        space = recordings.action_spaces[name]
        await session.start()
        async for event in session.all_events():
            if event.observation is None or event.type is not EventType.ACTIVE:
                continue
            told = _observation(event.observation.payload, who)
            message = spaces_pb2.Action()
            if told.active and told.alive:
                action = next(actions, None)
                if action is None:
                    raise FailedPreconditionError(
                        f"{who}: action: expected the end of the trial, because no more actions of {name!r} are "
                        f"recorded in the episode {episode.name!r}"
                    )
                message = encode_action(action, space)
            await session.do_action(message)

    return implementation


def _require_actor(recordings: Recordings, actor: str, where: str) -> None:
    if actor not in recordings.action_spaces:
        known = ", ".join(recordings.action_spaces)
        raise InvalidArgumentError(f"{where}: actor: expected one that was recorded, {known}; got {actor!r}")


def _observation(payload: Any, who: str) -> Any:
    if isinstance(payload, bytes):  # the participants were made without RL_SPEC
        return decode(payload, spaces_pb2.Observation, f"{who}: observation")
    return payload
