"""Trials to make data sets of: small games, played in process and stored."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import numpy as np

from trio_cogment import ActorSession, EnvironmentSession, Participants, Platform, actor_params, open_platform
from trio_cogment.api.common_pb2 import TrialParams, TrialState
from trio_cogment.api.rl_pb2 import EnvironmentConfig
from trio_cogment.api.spaces_pb2 import Action
from trio_cogment.api.trial_datastore_pb2 import StoredTrialActorSample, StoredTrialSample
from trio_cogment.environments.base import Environment
from trio_cogment.environments.episode import Episode, Turn
from trio_cogment.rl import RL_SPEC
from trio_cogment.sdk import ActorImplementation, EventType, trial_params
from trio_cogment.spaces import (
    Box,
    Dict,
    Discrete,
    Observation,
    Space,
    decode_observation,
    encode_action,
    encode_observation,
)
from trio_cogment.spaces.values import decode_fields, fill_fields

IMAGE = Box(0, 255, (40, 32, 3), np.uint8)


class Duel:
    """Two players with images, rewards of all 64 bits, and masks; `player_1` is out at `out_at`, if that is set.

    With `turns`, they act one after the other.
    """

    name = "Duel-v0"
    metadata: Mapping[str, Any] = {}

    def __init__(self, length: int = 6, *, turns: bool = False, image: Space = IMAGE, out_at: int | None = 3) -> None:
        self.agents: Sequence[str] = ["player_0", "player_1"]
        self.observation_spaces: Mapping[str, Space] = dict.fromkeys(
            self.agents, Dict({"image": image, "position": Box(-1, 1, (2,), np.float64)})
        )
        self.action_spaces: Mapping[str, Space] = dict.fromkeys(self.agents, Discrete(3))
        self.length, self.turns, self.out_at = length, turns, length + 1 if out_at is None else out_at
        self.count = 0
        self.generator = np.random.default_rng(0)
        #: All that the agents were told, and what they did, by episode and tick.
        self.told: list[list[Mapping[str, Observation]]] = []
        self.actions: list[list[Mapping[str, Any]]] = []

    def reset(self, seed: int | None, options: dict[str, Any] | None) -> Mapping[str, Observation]:
        if seed is not None:
            self.generator = np.random.default_rng(seed)
        self.count = 0
        self.told.append([])
        self.actions.append([])
        return self._observations()

    def step(self, actions: Mapping[str, Any]) -> Mapping[str, Observation]:
        self.count += 1
        self.actions[-1].append(dict(actions))
        return self._observations()

    @property
    def over(self) -> bool:
        return self.count == self.length

    def frame(self) -> None:
        return None

    def close(self) -> None:
        pass

    def _observations(self) -> Mapping[str, Observation]:
        told = {}
        for index, agent in enumerate(self.agents):
            end = self.out_at if index else self.length + 1
            value = self.observation_spaces[agent].sample(self.generator)
            told[agent] = Observation(
                self.told[-1][end][agent].value if self.count > end else value,
                reward=None if not self.count or self.count > end else 0.1 * self.count * (1 - 2 * index),
                terminated=self.count == end or (self.over and self.count < end),
                action_mask=np.array([1, self.count % 2, 1], np.int8),
                info={"count": self.count} if self.count else {},
                active=self.count < min(end, self.length) and (not self.turns or self.count % 2 == index),
                alive=self.count <= end,
            )
        self.told[-1].append(told)
        return told


def environment_of(game: Environment) -> Any:
    """Return the implementation of a trial's environment that plays a game."""

    async def implementation(session: EnvironmentSession) -> None:
        given = session.config or EnvironmentConfig()
        episode = Episode(game, [actor.name for actor in session.actors])
        options = decode_fields(given.options) if given.HasField("options") else None
        turn = episode.begin(given.seed if given.HasField("seed") else None, options)
        await session.start(_payloads(session, turn))
        async for event in session.all_events():
            if event.type is not EventType.ACTIVE or not event.actions:
                continue
            turn = episode.advance([action.payload.SerializeToString() for action in event.actions])
            for actor, reward in zip(session.actors, turn.rewards, strict=True):
                if reward is not None:
                    await session.add_reward(reward, 1.0, [actor.name])
            if turn.over:
                await session.end(_payloads(session, turn))
            else:
                await session.produce_observations(_payloads(session, turn))

    return implementation


def _payloads(session: EnvironmentSession, turn: Turn) -> list[tuple[str | int, Any]]:
    return [(actor.name, data) for actor, data in zip(session.actors, turn.observations, strict=True)]


async def player(session: ActorSession) -> None:
    """Act with the tick modulo 3, where it is its turn."""
    await session.start()
    async for event in session.all_events():
        if event.observation is None or event.type is not EventType.ACTIVE:
            continue
        told = decode_observation(event.observation.payload)
        action = encode_action(np.int64(event.tick_id % 3)) if told.active else Action()
        await session.do_action(action)


@asynccontextmanager
async def recording(
    game: Environment, *, actor: ActorImplementation = player, store: str = "memory:"
) -> AsyncIterator[Platform]:
    """Yield a platform with a store, on which a game can be played."""
    participants = Participants(RL_SPEC)
    participants.register_environment(environment_of(game), "duel")
    participants.register_actor(actor, "player")
    async with open_platform(participants, store=store) as platform:
        yield platform


def params_of(
    game: Environment, *, seed: int | None = None, options: dict[str, Any] | None = None, **given: Any
) -> TrialParams:
    """Return the parameters of a trial of a game."""
    config = EnvironmentConfig(id=game.name, seed=seed)
    if options:
        fill_fields(config.options, options)
    actors = [actor_params(name, "player", implementation="player") for name in game.agents]
    return trial_params(
        actors, environment="duel", environment_config=config, datalog_endpoint="cogment://discover", **given
    )


async def play(platform: Platform, game: Environment, trial_id: str = "", **given: Any) -> str:
    """Play one trial to its end; return its id."""
    trial_id = await platform.controller.start_trial(params_of(game, **given), trial_id=trial_id)
    await platform.controller.wait_trial(trial_id)
    return trial_id


async def fill(address: str, *, trials: int, ticks: int) -> None:
    """Store trials of one actor, without playing them."""
    observations, actions = Box(-1, 1, (4,), np.float32), Discrete(2)
    told = Observation(np.zeros(4, np.float32), reward=1.0)
    params = TrialParams(actors=[actor_params("player_0", "player")])
    first = encode_observation(replace(told, observation_space=observations, action_space=actions))
    end = encode_observation(replace(told, truncated=True, active=False))
    payloads = [message.SerializeToString() for message in (first, encode_observation(told), end)]
    action = encode_action(np.int64(1), actions).SerializeToString()
    async with open_platform(RL_SPEC, store=address) as platform:
        client = platform.datastore_client()
        for trial in range(trials):
            trial_id = f"trial-{trial:05d}"
            await client.add_trial(trial_id, params)
            async with client.adding(trial_id) as adder:
                for tick in range(ticks):
                    last = tick == ticks - 1
                    told_now = payloads[2 if last else bool(tick)]
                    actor = StoredTrialActorSample(actor=0, observation=0, action=None if last else 1)
                    await adder.add(
                        StoredTrialSample(
                            tick_id=tick,
                            timestamp=1_000 + tick,
                            state=TrialState.ENDED if last else TrialState.RUNNING,
                            actor_samples=[actor],
                            payloads=[told_now] if last else [told_now, action],
                        )
                    )
