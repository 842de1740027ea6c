"""Policy gradient (REINFORCE with a baseline) on CartPole: NumPy, and an environment whose episodes are trials.

Run it: `python policy_gradient.py`. The learner sees an ordinary Gymnasium environment. With `--grpc` the
orchestrator and the environment are two other processes, reached over sockets; equal seeds give equal episodes.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

import trio_cogment.rl as tc

EPISODES = 400
EPISODES_PER_UPDATE = 5
DISCOUNT = 0.99
STEP_SIZE = 0.015
HIDDEN = 16


class Policy:
    """A small network: the observation, a hidden layer, and the preference for "right" over "left"."""

    def __init__(self, rng: np.random.Generator) -> None:
        self.rng = rng
        self.weights = [rng.normal(0, 0.5, (4, HIDDEN)), rng.normal(0, 0.1, HIDDEN)]
        self.momentum = [[np.zeros_like(weight) for weight in self.weights] for _ in range(2)]
        self.updates = 0

    def hidden(self, observations: np.ndarray) -> np.ndarray:
        return np.tanh(observations @ self.weights[0])

    def probability(self, observations: np.ndarray) -> Any:
        """Of going right."""
        return 1 / (1 + np.exp(-self.hidden(observations) @ self.weights[1]))

    def act(self, observation: np.ndarray) -> int:
        return int(self.rng.random() < self.probability(observation))

    def improve(self, observations: np.ndarray, actions: np.ndarray, advantages: np.ndarray) -> None:
        """Make actions with an advantage more likely: one step of Adam along the policy gradient."""
        surprise = (actions - self.probability(observations)) * advantages / len(actions)
        hidden = self.hidden(observations)
        back = np.outer(surprise, self.weights[1]) * (1 - hidden**2)
        self.updates += 1
        for weight, gradient, first, second in zip(
            self.weights, (observations.T @ back, hidden.T @ surprise), *self.momentum, strict=True
        ):
            first += 0.1 * (gradient - first)
            second += 0.001 * (gradient**2 - second)
            mean, square = first / (1 - 0.9**self.updates), second / (1 - 0.999**self.updates)
            weight += STEP_SIZE * mean / (np.sqrt(square) + 1e-8)


def play(env: Any, policy: Policy, seed: int | None) -> tuple[list[np.ndarray], list[int], list[float]]:
    """Play an episode; return its observations, actions and rewards."""
    observations, actions, rewards = [], [], []
    observation, _ = env.reset(seed=seed)
    over = False
    while not over:
        action = policy.act(observation)
        observations.append(observation)
        actions.append(action)
        observation, reward, terminated, truncated, _ = env.step(action)
        rewards.append(float(reward))
        over = terminated or truncated
    return observations, actions, rewards


def to_go(rewards: list[float]) -> list[float]:
    """Return the discounted sum of the rewards from each step on."""
    sums, total = [], 0.0
    for reward in reversed(rewards):
        total = reward + DISCOUNT * total
        sums.append(total)
    return sums[::-1]


def learn(env: Any, seed: int, episodes: int = EPISODES) -> list[float]:
    """Learn for this many episodes; return the return of each."""
    policy = Policy(np.random.default_rng(seed))
    returns: list[float] = []
    batch: list[tuple[list[np.ndarray], list[int], list[float]]] = []
    for episode in range(episodes):
        # The first reset seeds the environment; the others go on with its generator.
        observations, actions, rewards = play(env, policy, seed if episode == 0 else None)
        returns.append(sum(rewards))
        batch.append((observations, actions, to_go(rewards)))
        if len(batch) == EPISODES_PER_UPDATE:
            gains = np.concatenate([gain for _, _, gain in batch])
            policy.improve(
                np.concatenate([seen for seen, _, _ in batch]),
                np.concatenate([done for _, done, _ in batch]),
                (gains - gains.mean()) / (gains.std() + 1e-8),
            )
            batch.clear()
        if (episode + 1) % 50 == 0:
            print(f"episodes {episode - 48:3}-{episode + 1:3}: mean return {np.mean(returns[-50:]):6.1f}", flush=True)
    return returns


@contextmanager
def server(*arguments: str) -> Iterator[str]:
    """Run a command of `trio-cogment` that serves something, for the time of a block; give its endpoint."""
    command = [sys.executable, "-m", "trio_cogment", *arguments, "--host=127.0.0.1", "--log_level=warning"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        for line in process.stdout:
            if found := re.search(r" listening on \S+:(\d+)\b", line):
                yield f"grpc://127.0.0.1:{found[1]}"
                return
        raise RuntimeError(f"trio-cogment {' '.join(arguments)}: it did not start")
    finally:
        process.terminate()
        process.communicate()


def train(seed: int, episodes: int = EPISODES, *, grpc: bool = False) -> list[float]:
    """Learn, in this process or over gRPC; return the return of each episode."""
    if not grpc:
        with tc.make("CartPole-v1") as env:
            return learn(env, seed, episodes)
    with (
        server("services", "orchestrator", "--lifecycle_port=0", "--actor_port=0") as orchestrator,
        server("rl", "serve", "CartPole-v1", "--port=0") as environment,
        tc.make(environment, orchestrator=orchestrator) as env,
    ):
        return learn(env, seed, episodes)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--episodes", type=int, default=EPISODES)
    parser.add_argument("--grpc", action="store_true", help="orchestrator and environment in processes of their own")
    options = parser.parse_args()
    train(options.seed, options.episodes, grpc=options.grpc)


if __name__ == "__main__":
    main()
