"""Melting Pot in small: what `meltingpot.substrate` has of its 2.4.1, with three substrates of a few lines.

Kept from the package: names and roles of a substrate are asked for first, and `build` takes roles and nothing else;
what a substrate is, is drawn from Python's generator when it is built, and each reset plays the next; specs and
observations are those of a player, in a sequence; a first step has rewards and a discount of zero; an episode that its
limit of steps ends has the discount of an end.
"""

from __future__ import annotations

import random
from collections.abc import Collection, Sequence
from types import ModuleType, SimpleNamespace
from typing import Any

import dm_env
import numpy as np
from dm_env import specs

#: The moves of an agent by its number: no move, and the four sides.
MOVES = np.array([(0, 0), (-1, 0), (1, 0), (0, -1), (0, 1)])


class Substrate(dm_env.Environment):  # type: ignore[misc]  # dm_env has no types
    """Players walk in a field; what they find there is up to the substrate."""

    size = 6
    limit = 12
    roles: Collection[str] = ("default",)
    default_player_roles: Sequence[str] = ("default", "default")
    #: Actions beside the moves.
    more = 1

    def __init__(self, roles: Sequence[str]) -> None:
        self.number = len(roles)
        self.playing = tuple(roles)
        self._seed = random.randint(1, 2**32 - 1)
        self._fresh = True

    def observation_spec(self) -> Any:
        of_one = {
            "RGB": specs.Array((3, 3, 3), np.uint8, "RGB"),
            "READY_TO_SHOOT": specs.Array((), np.float64, "READY_TO_SHOOT"),
            "WORLD.RGB": specs.Array((self.size, self.size, 3), np.uint8, "WORLD.RGB"),
            "COLLECTIVE_REWARD": specs.Array((), np.float64, "COLLECTIVE_REWARD"),
        }
        return [of_one] * self.number

    def action_spec(self) -> Any:
        return [specs.DiscreteArray(len(MOVES) + self.more, name="action")] * self.number

    def reward_spec(self) -> Any:
        return [specs.Array((), np.float64, "REWARD")] * self.number

    def discount_spec(self) -> Any:
        return specs.BoundedArray((), np.float64, 0, 1, "discount")

    def reset(self) -> Any:
        if not self._fresh:
            self._seed += 1
        self._fresh = False
        self.drawn = np.random.default_rng(self._seed)
        self.count = 0
        self.places = self.drawn.integers(0, self.size, (self.number, 2))
        self.ground = self.drawn.integers(0, 2, (self.size, self.size))
        self.ready = np.ones(self.number)
        return self._told(dm_env.StepType.FIRST, np.zeros(self.number), 0.0)

    def step(self, actions: Any) -> Any:
        for spec, action in zip(self.action_spec(), actions, strict=True):
            spec.validate(np.asarray(action, spec.dtype))
        self.count += 1
        self.ready = np.minimum(self.ready + 0.5, 1)
        for player, action in enumerate(actions):
            if action < len(MOVES):
                self.places[player] = (self.places[player] + MOVES[action]) % self.size
        rewards = self.gained([int(action) for action in actions])
        over = self.count == self.limit
        return self._told(dm_env.StepType.LAST if over else dm_env.StepType.MID, rewards, 0.0 if over else 1.0)

    def gained(self, actions: list[int]) -> Any:
        raise NotImplementedError

    def _told(self, kind: dm_env.StepType, rewards: Any, discount: float) -> Any:
        world = np.zeros((self.size, self.size, 3), np.uint8)
        world[..., 1] = self.ground * 100
        for player, (row, column) in enumerate(self.places):
            world[row, column] = 255, 20 * player, 0
        seen = [
            {
                "RGB": np.roll(world, (1 - row, 1 - column), (0, 1))[:3, :3],
                "READY_TO_SHOOT": np.array(self.ready[player]),
                "WORLD.RGB": world,
                "COLLECTIVE_REWARD": np.array(rewards.sum()),
            }
            for player, (row, column) in enumerate(self.places)
        ]
        return dm_env.TimeStep(kind, [np.array(reward) for reward in rewards], discount, seen)

    def close(self) -> None:
        self.places = np.zeros((0, 2), int)


class Commons(Substrate):
    """Apples are eaten where a player stands, and grow again by chance, where there are others left."""

    default_player_roles = ("default",) * 3

    def gained(self, actions: list[int]) -> Any:
        rewards = np.zeros(self.number)
        for player, (row, column) in enumerate(self.places):
            rewards[player] = self.ground[row, column]
            self.ground[row, column] = 0
        grown = self.drawn.random(self.ground.shape) < 0.05 * (self.ground.mean() > 0)
        self.ground = np.maximum(self.ground, grown)
        return rewards


class CleanUp(Substrate):
    """Who cleans gets nothing, and everybody gets what is clean; it becomes dirty again by chance."""

    default_player_roles = ("default",) * 4
    size = 5

    def gained(self, actions: list[int]) -> Any:
        for player, (row, column) in enumerate(self.places):
            if actions[player] == len(MOVES) and self.ready[player] == 1:
                self.ready[player] = 0
                self.ground[row, column] = 0
        self.ground = np.maximum(self.ground, self.drawn.random(self.ground.shape) < 0.1)
        return np.full(self.number, 1 - self.ground.mean()) - [action == len(MOVES) for action in actions]


class PredatorPrey(Substrate):
    """Of two roles: a predator gains by each prey where it stands, and the prey loses; chance moves prey."""

    roles = ("predator", "prey")
    default_player_roles = ("predator", "prey", "prey")
    more = 0

    def gained(self, actions: list[int]) -> Any:
        rewards = np.zeros(self.number)
        for player, role in enumerate(self.playing):
            if role == "prey" and self.drawn.random() < 0.3:
                self.places[player] = (self.places[player] + MOVES[self.drawn.integers(len(MOVES))]) % self.size
        for hunter, role in enumerate(self.playing):
            for prey, other in enumerate(self.playing):
                if (role, other) == ("predator", "prey") and (self.places[hunter] == self.places[prey]).all():
                    rewards[hunter] += 1
                    rewards[prey] -= 1
        return rewards


KINDS: dict[str, type[Substrate]] = {
    "commons_harvest__open": Commons,
    "clean_up": CleanUp,
    "predator_prey__open": PredatorPrey,
}


def package() -> ModuleType:
    """Return what stands for the package `meltingpot`."""

    def build(name: str, *, roles: Sequence[str]) -> Substrate:
        wrong = set(roles) - set(KINDS[name].roles)
        if wrong:
            raise ValueError(f"Invalid roles {sorted(wrong)}; valid roles are {sorted(KINDS[name].roles)}.")
        return KINDS[name](roles)

    def get_config(name: str) -> Any:
        kind = KINDS[name]
        return SimpleNamespace(default_player_roles=kind.default_player_roles, valid_roles=frozenset(kind.roles))

    found = ModuleType("meltingpot")
    substrate = ModuleType("meltingpot.substrate")
    vars(substrate).update(SUBSTRATES=frozenset(KINDS), get_config=get_config, build=build)
    vars(found)["substrate"] = substrate
    return found
