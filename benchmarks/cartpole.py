"""Steps of CartPole as trials, beside Gymnasium's own ways to run it and beside the published SDK.

`python benchmarks/cartpole.py` runs, in alternated rounds:

* `AsyncVectorEnv(8)`: what the field uses when environments are to run apart; all its processes count;
* the environment itself, as `gymnasium.make` gives it (`bare`);
* a view of a trial, `trio_cogment.rl.make("CartPole-v1")`, and the same recorded in `memory:`;
* an embedded trial whose environment and policy are functions that handle their events where they arrive, with a reward
  in each tick, and the same recorded: what a view can come down to;
* 8 trials of the embedded platform with ordinary sessions, and as many in a vector environment of ours;
* the view's steps per second, and those of the same trial of the published SDK over sockets: its environment and its
  actor in processes of that SDK, the orchestrator served by `trio-cogment services orchestrator`. The SDK's Python is
  named by TRIO_COGMENT_PUBLISHED_SDK_PYTHON; without it there is no such figure.

The policy keeps the pole up for some hundred steps: steps are compared, and starts have figures of their own. Every
ratio is the median of the rounds' own ratios. Times are processor time, of all processes, except for steps/s.

`reset_ticks` is the time of the `reset` between episodes over the time of a step of the same run, and `trial_ticks` the
processor time of a whole embedded trial of one tick over that of a tick.
"""

from __future__ import annotations

import argparse
import os
import resource
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import _cartpole_trials
import gymnasium
from _cartpole_peers import SdkTrial
from _report import number, print_json, print_table

from trio_cogment import rl

ENVIRONMENT = "CartPole-v1"
ASYNC_ENVIRONMENTS = 8
VIEWS = 8
WARM_STEPS = 64
SDK_VARIABLE = "TRIO_COGMENT_PUBLISHED_SDK_PYTHON"

#: What is measured, and the bar.
BARS = {
    "trial_over_async8_cpu": "<= 1.0",
    "recorded_over_async8_cpu": "<= 1.0",
    "embedded_over_async8_cpu": "",
    "embedded_recorded_over_async8_cpu": "",
    "reset_ticks": "<= 5",
    "trial_ticks": "",
    "pump_over_embedded": "<= 1.15",
    "cartpole_vs_sdk": ">= 8",
}


def cpu_seconds() -> float:
    """Processor time of this process, and of the children that have ended."""
    own, children = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return own.ru_utime + own.ru_stime + children.ru_utime + children.ru_stime


def async_step(steps: int) -> float:
    """Processor seconds of one environment's step in an `AsyncVectorEnv`, start and end left out."""

    def run(batches: int) -> float:
        before = cpu_seconds()
        envs = gymnasium.vector.AsyncVectorEnv([make_bare] * ASYNC_ENVIRONMENTS)
        try:
            values, _ = envs.reset(seed=1)
            for _ in range(batches):
                values, *_ = envs.step(balanced(values))
        finally:
            envs.close()  # its processes have ended then, so that their time is known
        return cpu_seconds() - before

    batches = max(1, steps // ASYNC_ENVIRONMENTS)
    short = run(WARM_STEPS)
    return (run(WARM_STEPS + batches) - short) / (batches * ASYNC_ENVIRONMENTS)


def make_bare() -> gymnasium.Env[Any, Any]:
    return gymnasium.make(ENVIRONMENT)


def balanced(values: Any) -> Any:
    """Return the actions for a batch of observations: push to where the pole leans and turns."""
    return (3 * values[:, 2] + values[:, 3] > 0).astype(int)


def play(env: gymnasium.Env[Any, Any], steps: int) -> None:
    """Step an environment as any training loop does."""
    values, _ = env.reset()
    for _ in range(steps):
        values, _, terminated, truncated, _ = env.step(int(3 * values[2] + values[3] > 0))
        if terminated or truncated:
            values, _ = env.reset()


class Views:
    """One view, one that records, and one of several trials."""

    def __init__(self, stack: ExitStack) -> None:
        self.bare = make_bare()
        self.plain = rl.make(ENVIRONMENT)
        self.recorded = rl.make(ENVIRONMENT, store="memory:")
        self.several = rl.make_vec(ENVIRONMENT, VIEWS)
        for env in (self.bare, self.plain, self.recorded, self.several):
            stack.callback(env.close)
        for env in (self.bare, self.plain, self.recorded):
            play(env, WARM_STEPS)

    def step(self, env: gymnasium.Env[Any, Any], steps: int) -> float:
        """Processor seconds of a step."""
        before = cpu_seconds()
        play(env, steps)
        return (cpu_seconds() - before) / steps

    def step_of_several(self, steps: int) -> float:
        """Processor seconds of a step of one of several trials."""
        envs = self.several
        values, _ = envs.reset(seed=1)
        for _ in range(WARM_STEPS):  # meanwhile their successors start
            values, *_ = envs.step(balanced(values))
        before = cpu_seconds()
        for _ in range(steps // VIEWS):
            values, *_ = envs.step(balanced(values))
        return (cpu_seconds() - before) / (steps // VIEWS * VIEWS)

    def reset_in_steps(self, steps: int) -> float:
        """The time of a `reset` between episodes, in steps."""
        env, clock = self.plain, time.process_time
        env.reset()
        in_resets = in_steps = 0.0
        resets = 0
        for step in range(steps):
            before = clock()
            _, _, terminated, truncated, _ = env.step(step & 1)
            after = clock()
            in_steps += after - before
            if terminated or truncated:
                env.reset()
                in_resets += clock() - after
                resets += 1
        return (in_resets / resets) / (in_steps / steps)

    def steps_per_s(self, steps: int) -> float:
        before = time.perf_counter()
        play(self.plain, steps)
        return steps / (time.perf_counter() - before)


def measurements(stack: ExitStack, steps: int) -> Iterator[tuple[str, Callable[[], float]]]:
    """Yield what a round measures."""
    views = Views(stack)
    trials = _cartpole_trials
    yield "async", lambda: async_step(steps)
    yield "bare", lambda: views.step(views.bare, steps)
    yield "view", lambda: views.step(views.plain, steps)
    yield "recorded view", lambda: views.step(views.recorded, steps)
    yield "embedded", lambda: trials.inline_step(steps)
    yield "recorded embedded", lambda: trials.inline_step(steps, store="memory:")
    yield "several", lambda: trials.ordinary_step(steps, trials=VIEWS)
    yield "several views", lambda: views.step_of_several(steps)
    yield "tick", lambda: trials.ordinary_step(steps, trials=1)
    yield "short trial", lambda: trials.short_trial(max(20, steps // 40))
    yield "reset", lambda: views.reset_in_steps(steps)
    yield "view steps/s", lambda: views.steps_per_s(steps)
    sdk_python = os.environ.get(SDK_VARIABLE, "")
    if sdk_python:
        sdk = SdkTrial(stack, sdk_python)
        yield "SDK steps/s", sdk.steps_per_s


def benchmark(rounds: int, steps: int) -> dict[str, float | None]:
    found: dict[str, list[float]] = {}
    with ExitStack() as stack:
        things = list(measurements(stack, steps))
        for number_of_round in range(rounds):
            # Whoever goes first has no lasting advantage.
            for name, measure in things[:: -1 if number_of_round % 2 else 1]:
                found.setdefault(name, []).append(measure())

    def ratio(one: str, other: str) -> float | None:
        if one not in found or other not in found:
            return None
        return statistics.median(a / b for a, b in zip(found[one], found[other], strict=True))

    values: dict[str, float | None] = {
        "trial_over_async8_cpu": ratio("view", "async"),
        "recorded_over_async8_cpu": ratio("recorded view", "async"),
        "embedded_over_async8_cpu": ratio("embedded", "async"),
        "embedded_recorded_over_async8_cpu": ratio("recorded embedded", "async"),
        "reset_ticks": statistics.median(found["reset"]),
        "trial_ticks": ratio("short trial", "tick"),
        "pump_over_embedded": ratio("several views", "several"),
        "cartpole_vs_sdk": ratio("view steps/s", "SDK steps/s"),
    }
    print(f"medians of {rounds} alternated rounds of about {steps} steps; processor time of a step, in \N{MICRO SIGN}s")
    micros = {name: 1e6 * statistics.median(each) for name, each in found.items() if not name.endswith(("/s", "reset"))}
    print_table(["what", "time"], [[name, number(value)] for name, value in micros.items()])
    print_table(["ratio", "value", "bar"], [[name, number(value), BARS[name]] for name, value in values.items()])
    return values


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print one flat JSON object on the last line")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--steps", type=int, default=2000, help="of each thing in each round")
    args = parser.parse_args()
    values = benchmark(args.rounds, args.steps)
    if args.json:
        print_json(values)


if __name__ == "__main__":
    main()
