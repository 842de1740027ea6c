"""Checkpoints and branches: the cost of a tick that saves nothing, of one that does, and of coming to a tick again.

`python benchmarks/checkpoints.py` plays CartPole, made so that it ends after 500 steps and no earlier. Everything is
measured by turns in one process, by the time of the processor; a ratio is the median of the rounds' own.

* `off`: what the two questions of a tick cost that are asked although no checkpoint is wanted (`wants_checkpoint`, and
  the field of the observation set), as a part of a view's step. Bar: 1 %.
* `on`: a recorded step with a state of 1 KiB every ten ticks, compared to one without. Bar: 5 % more. `state` is the
  part of it that is the environment's own `get_state`.
* `again`, `read`: what it takes to come to tick 400 by playing again, compared to 400 steps of the bare environment,
  with the wrappers of `gymnasium.make`: its steps are made and compared, and the past is read, once for all episodes
  of a branch. `taken_up` is the sum of both: what taking up costs beyond the start of any trial. Bar: 1.5.
* `start`: what the start of any stored trial takes, and the end of the one before, likewise compared: `reset` of a
  branch at tick 0. `whole`: all of it, from `tc.branch` to the end of its first `reset`; the view is made, too.
* `loaded`: `reset` of a branch at tick 400 that has a checkpoint, in milliseconds of the wall. Bar: 5.

The first two and the last take the smallest of several; `start` and `whole` are means: a store works behind a trial.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
from _report import number, print_json, print_table
from gymnasium.envs.classic_control.cartpole import CartPoleEnv

import trio_cogment.rl as tc
from trio_cogment.base.config import OrchestratorConfig, PlatformConfig
from trio_cogment.environments.episode import Episode
from trio_cogment.rl.views.gymnasium import find_environment

TICK = 400
NO_ARGUMENTS: dict[str, Any] = {"implementation": "", "render_mode": None, "arguments": {}}
BARS = {"off": "<= 0.01", "on": "<= 1.05", "taken_up": "<= 1.5", "loaded": "<= 5 ms"}
ROWS = ("off", "on", "state", "again", "read", "taken_up", "start", "whole", "loaded")


class Endless(CartPoleEnv):
    """CartPole that does not fall, so that it has as many ticks as one likes; its state has a kibibyte."""

    ballast = bytes(1024)

    def step(self, action: Any) -> Any:
        observation, reward, _, truncated, info = super().step(action)
        self.steps_beyond_terminated = None
        return observation, reward, False, truncated, info

    def get_state(self) -> Any:
        return {"state": np.array(self.state, np.float64), "ballast": self.ballast}

    def set_state(self, state: Any) -> None:
        self.state = tuple(state["state"])
        self.steps_beyond_terminated = None


def made() -> Any:
    """Return the environment as `gymnasium.make` does."""
    if "Endless-v0" not in gymnasium.registry:
        gymnasium.register("Endless-v0", entry_point=Endless, max_episode_steps=500)
    return gymnasium.make("Endless-v0")


def options(store: str, ticks: int) -> tc.PlatformOptions:
    config = PlatformConfig(orchestrator=OrchestratorConfig(checkpoint_ticks=ticks))
    return tc.PlatformOptions(store=store, config=config)


def timed(function: Callable[[], object], clock: Callable[[], float] = time.process_time) -> float:
    began = clock()
    function()
    return clock() - began


def play(env: Any, steps: int) -> None:
    env.reset(seed=1)
    for step in range(steps):
        env.step(step % 2)


def step_seconds(env: Any, steps: int) -> float:
    env.reset(seed=1)
    return timed(lambda: [env.step(step % 2) for step in range(steps)]) / steps


def play_bare(env: Any) -> None:
    env.reset(seed=1)
    for step in range(TICK):
        env.step(step % 2)


def branch_seconds(env: Any, trial_id: str, tick: int, clock: Callable[[], float] = time.process_time) -> float:
    view = tc.branch(env, trial_id, tick=tick, environment=made)
    try:
        view.reset()  # the first one makes what all of them need
        return min(timed(view.reset, clock) for _ in range(3))
    finally:
        view.close()


def mean_seconds(function: Callable[[], object], times: int) -> float:
    return timed(lambda: [function() for _ in range(times)]) / times


def start_seconds(env: Any, trial_id: str) -> float:
    view = tc.branch(env, trial_id, tick=0, environment=made)
    try:
        view.reset()
        return mean_seconds(view.reset, 5)
    finally:
        view.close()


def whole_seconds(env: Any, trial_id: str) -> float:
    views: list[Any] = []

    def take_up() -> None:
        views.append(tc.branch(env, trial_id, tick=TICK, environment=made))
        views[-1].reset()

    try:
        return mean_seconds(take_up, 3)
    finally:
        for view in views:
            view.close()


def replay_seconds(env: Any, trial_id: str) -> float:
    """Return what is played again, without a trial around it."""
    _, past = env._match.platform.read_past(trial_id, TICK)
    episode = Episode(find_environment(made, seats=None, agents=(), **NO_ARGUMENTS), env._match.agents)
    return min(timed(lambda: episode.take_up(past, 1)) for _ in range(3))


class Session:
    """What a session looks at in each tick."""

    _asks = False
    _checkpoint = None

    @property
    def wants_checkpoint(self) -> bool:
        return self._asks


def questions_seconds() -> float:
    session, asked = Session(), 100_000

    def ask() -> None:
        for _ in range(asked):
            if session.wants_checkpoint or session._checkpoint is not None:
                raise AssertionError

    def nothing() -> None:
        for _ in range(asked):
            pass

    return max(0.0, timed(ask) - timed(nothing)) / asked


def measure(rounds: int, folder: Path) -> dict[str, list[float]]:
    found: dict[str, list[float]] = {name: [] for name in ROWS}
    plain = tc.make(made, options=options(f"sqlite:{folder / 'plain.db'}", 0))
    saving = tc.make(made, options=options(f"sqlite:{folder / 'saving.db'}", 10))
    view = tc.make(made)
    bare = made()
    play(plain, 450)
    plain_id = plain.trial_id
    play(saving, 450)
    saving_id = saving.trial_id
    for _ in range(rounds):
        found["off"].append(questions_seconds() / step_seconds(view, 450))
        for _ in range(3):
            without, with_them = step_seconds(plain, 450), step_seconds(saving, 450)
            found["on"].append(with_them / without)
        bare_seconds = min(timed(lambda: play_bare(bare)) for _ in range(3))
        game = saving._match.environment.env.unwrapped
        found["state"].append(mean_seconds(game.get_state, 1000) / 10 / without)
        again = replay_seconds(plain, plain_id)
        read = min(timed(lambda: plain._match.platform.read_past(plain_id, TICK)) for _ in range(3))
        found["again"].append(again / bare_seconds)
        found["read"].append(read / bare_seconds)
        found["taken_up"].append((again + read) / bare_seconds)
        found["start"].append(start_seconds(plain, plain_id) / bare_seconds)
        found["whole"].append(whole_seconds(plain, plain_id) / bare_seconds)
        found["loaded"].append(1000 * branch_seconds(saving, saving_id, TICK, time.perf_counter))
    for env in (plain, saving, view, bare):
        env.close()
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--rounds", type=int, default=25)
    parser.add_argument("--json", action="store_true", help="print JSON")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        found = measure(arguments.rounds, Path(folder))
    medians = {name: statistics.median(values) for name, values in found.items()}
    if arguments.json:
        print_json(medians)
        return
    rows = [[name, number(value), BARS.get(name, "")] for name, value in medians.items()]
    print_table(["what", "measured", "bar"], rows)


if __name__ == "__main__":
    main()
