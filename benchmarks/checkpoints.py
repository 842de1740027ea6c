"""Checkpoints and branches: the cost of a tick that saves nothing, of one that does, and of coming to a tick again.

`python benchmarks/checkpoints.py` plays CartPole, made so that it ends after 500 steps and no earlier. Everything is
measured by turns in one process, by the time of the processor; a ratio is the median of the rounds' own.

* `off`: what the two questions of a tick cost that are asked although no checkpoint is wanted (`wants_checkpoint`, and
  the field of the observation set), as a part of a view's step. Bar: 1 %.
* `on`: a recorded step with a state of 1 KiB every ten ticks, compared to one without. Bar: 5 % more.
* `replayed`: all that it takes to take up a trial at tick 400 by playing it again, compared to 400 steps of the bare
  environment. Bar: 1.5. It is the sum of `again`, what `reset` takes longer for a branch at tick 400 than for one at
  tick 0: the steps are made again, and compared; of `start`, `reset` of the branch at tick 0, which starts a trial as
  any other does; and of `read`, what the past takes to be read, once for all episodes of a branch.
* `loaded`: `reset` of a branch at tick 400 that has a checkpoint, in milliseconds of the wall. Bar: 5.
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

TICK = 400
BARS = {"off": "<= 0.01", "on": "<= 1.05", "replayed": "<= 1.5", "loaded": "<= 5 ms"}


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
    return gymnasium.make("Endless-v0", disable_env_checker=True)


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
    found: dict[str, list[float]] = {name: [] for name in ("off", "on", "replayed", "again", "start", "read", "loaded")}
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
        without, with_them = step_seconds(plain, 450), step_seconds(saving, 450)
        found["on"].append(with_them / without)
        bare_seconds = min(timed(lambda: play_bare(bare)) for _ in range(3))
        start, whole = branch_seconds(plain, plain_id, 0), branch_seconds(plain, plain_id, TICK)
        read = min(timed(lambda: plain._match.platform.read_past(plain_id, TICK)) for _ in range(3))
        found["replayed"].append((read + whole) / bare_seconds)
        found["again"].append((whole - start) / bare_seconds)
        found["start"].append(start / bare_seconds)
        found["read"].append(read / bare_seconds)
        found["loaded"].append(1000 * branch_seconds(saving, saving_id, TICK, time.perf_counter))
    for env in (plain, saving, view, bare):
        env.close()
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--rounds", type=int, default=9)
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
