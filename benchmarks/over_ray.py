"""Trials over Ray beside trials in one process, and a bare episode in a Ray task; RLlib's PPO on a recorded view.

`python benchmarks/over_ray.py` (with the extras `ray` and `gym`; for `--ppo` also `ray[rllib]` and PyTorch) starts a
cluster on this machine, on loopback, whose workers have the priority of this process, and plays CartPole with random
actions. By turns, round after round:

* `one_process`: `run_trials` in this process;
* `one_worker`, `two_workers`: the same on workers of the cluster;
* `task`: an episode of Gymnasium alone for each task of Ray.

What a trial costs is measured in the middle of each run, from a third of its results to nine tenths: the processor time
of this process (`driver`) and of all workers, and the wall time. What a worker costs once is not in it: it starts anew
for each run, imports, opens its platform, and Ray's own threads in it settle down. That is `start_cpu_s`, of one worker
until its first result, and has to be spread over as many trials as it plays: `cpu_with_start` does it over those of a
run. A ratio is the median of the rounds' own. Of `task` the processes are called by what they do at the moment, so that
their processor time is not known.

`--ppo` lets PPO of RLlib sample with no env runner, from a view that records all steps in a file, beside the bare
environment: `sampling` is the ratio of their wall times, beside the milliseconds of a step of each. Then it learns on
the view until it holds the pole for 150 steps; `steps` says after how many.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from _report import number, print_json, print_table

os.environ.update(RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER="0", RAY_worker_niceness="0", RAY_AUTH_MODE="disabled")

KINDS = ("one_process", "one_worker", "two_workers", "task")
PARALLEL = 16
#: At most this, or at least.
AT_MOST, AT_LEAST = {"cpu": 1.25, "driver": 1.5, "sampling": 1.5}, {"scaling": 1.7, "return": 150}
SAMPLED_STEPS = 500
_TICKS = os.sysconf("SC_CLK_TCK")
#: Processes of Ray with such names that work for nobody yet, or serve a whole node.
_OTHERS = (b"ray::IDLE", b"ray::DashboardAgent", b"ray::RuntimeEnvAgent")


@dataclass
class Spent:
    """What was spent until now, in seconds."""

    driver: float
    workers: float
    wall: float

    @classmethod
    def now(cls) -> Spent:
        return cls(time.process_time(), sum(map(_spent_by, _workers())), time.perf_counter())

    def since(self, before: Spent, trials: int) -> Spent:
        """Return what a trial has cost, in milliseconds."""
        return Spent(
            *(1e3 * (getattr(self, name) - getattr(before, name)) / trials for name in ("driver", "workers", "wall"))
        )

    @property
    def cpu(self) -> float:
        return self.driver + self.workers


def _workers() -> list[int]:
    """Return the ids of this cluster's processes that work: they call themselves by what they do."""
    parents, working = dict[int, int](), []
    for path in Path("/proc").glob("[0-9]*"):
        try:
            name = (path / "cmdline").read_bytes()
            parents[int(path.name)] = int(_fields(int(path.name))[1])
        except OSError:
            continue
        if name.startswith(b"ray::") and not name.startswith(_OTHERS):
            working.append(int(path.name))
    return [pid for pid in working if parents.get(parents[pid]) == os.getpid()]


def _fields(pid: int) -> list[str]:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()


def _spent_by(pid: int) -> float:
    try:
        fields = _fields(pid)
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / _TICKS


def middle(count: int) -> tuple[int, int]:
    """Return with which of the results the middle of a run begins and ends."""
    return count // 3, count - count // 10


def trials(kind: str, count: int) -> tuple[Spent, float]:
    """Run trials; return what one costs in the middle of the run, and what the workers have cost until the first."""
    import trio

    import trio_cogment.rl as tc
    from trio_cogment.ray import workers

    on = {"one_process": None, "one_worker": workers(1), "two_workers": workers(2)}[kind]
    parallel = {"one_process": PARALLEL // 2, "one_worker": PARALLEL // 2, "two_workers": PARALLEL}[kind]

    first, last = middle(count)

    async def run() -> tuple[Spent, float]:
        seats = {"player_0": tc.random(seed=1)}
        async with tc.open_run(
            count, on=on, environment="CartPole-v1", seats=seats, seeds=0, parallel=parallel
        ) as running:
            await running.result(0)
            started = Spent.now().workers
            await running.result(first)
            before = Spent.now()
            await running.result(last)
            spent = Spent.now().since(before, last - first)
            results = await running.wait()
        if results.failures:
            raise SystemExit(f"{kind}: {results.failures[0].error}")
        return spent, started

    return trio.run(run)


def tasks(count: int) -> Spent:
    """Run bare episodes as tasks of Ray, as many at a time as trials."""
    import ray

    made: dict[str, Any] = {}

    @ray.remote
    def episode(seed: int) -> float:
        import gymnasium

        # Each process that Ray has for tasks makes one, as a worker does.
        env = made.get("env") or made.setdefault("env", gymnasium.make("CartPole-v1"))
        env.reset(seed=seed)
        env.action_space.seed(seed)
        total, ended = 0.0, False
        while not ended:
            _, reward, terminated, truncated, _ = env.step(env.action_space.sample())
            total, ended = total + float(reward), terminated or truncated
        return total

    room, done, left = threading.Semaphore(PARALLEL), threading.Event(), [count]

    def over(_future: Any) -> None:
        room.release()
        left[0] -= 1
        if not left[0]:
            done.set()

    before = after = Spent.now()
    first, last = middle(count)
    for seed in range(count):
        room.acquire()
        if seed == first:
            before = Spent.now()
        if seed == last:
            after = Spent.now()
        episode.remote(seed).future().add_done_callback(over)
    done.wait()
    return after.since(before, last - first)


def sampling(folder: str, rounds: int = 9) -> dict[str, float]:
    """Return the wall time of sampling from a recorded view, with no env runner, beside that of the bare environment.

    As a ratio, and of a step of each, in milliseconds.
    """
    view, bare = _ppo(f"sqlite:{folder}/sampled.db"), _ppo(None)
    times: dict[Any, list[float]] = {view: [], bare: []}
    try:
        for round_ in range(rounds):
            for algorithm in (view, bare) if round_ % 2 else (bare, view):
                began = time.perf_counter()
                algorithm.env_runner_group.local_env_runner.sample(num_timesteps=SAMPLED_STEPS)
                times[algorithm].append(time.perf_counter() - began)
        # The first round makes the environments.
        pairs = list(zip(times[view], times[bare], strict=True))[1:]
        ours, theirs = (1e3 * statistics.median(each) / SAMPLED_STEPS for each in zip(*pairs, strict=True))
        ratio = statistics.median(one / other for one, other in pairs)
        return {"sampling": ratio, "view_ms_a_step": ours, "bare_ms_a_step": theirs}
    finally:
        view.stop()
        bare.stop()


def learnt(folder: str, seconds: float) -> dict[str, float]:
    """Return the mean return that PPO reaches on a recorded view, and after how many steps."""
    algorithm = _ppo(f"sqlite:{folder}/learnt.db")
    best, steps, end = 0.0, 0, time.monotonic() + seconds
    try:
        while best < AT_LEAST["return"] and time.monotonic() < end:
            said = algorithm.train()["env_runners"]
            steps += int(said["num_env_steps_sampled"])
            best = max(best, float(said["episode_return_mean"]))
    finally:
        algorithm.stop()
    return {"return": best, "steps": steps}


def _ppo(store: str | None) -> Any:
    from ray.rllib.algorithms.ppo import PPOConfig
    from ray.rllib.core.rl_module.default_model_config import DefaultModelConfig
    from ray.tune.registry import register_env

    import trio_cogment.rl as tc

    name = f"trials in {store}"
    register_env(name, lambda _context: tc.make("CartPole-v1", store=store))
    config = (
        PPOConfig()
        .environment("CartPole-v1" if store is None else name)
        .env_runners(num_env_runners=0)
        .training(train_batch_size=2000, minibatch_size=250, num_epochs=8, lr=1e-3, vf_loss_coeff=0.01)
        .rl_module(model_config=DefaultModelConfig(fcnet_hiddens=[32], vf_share_layers=True))
        .debugging(seed=1)
    )
    return config.build_algo()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, default=1000, help="of each run")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--ppo", action="store_true", help="RLlib's PPO, too")
    parser.add_argument("--ppo-seconds", type=float, default=300, help="how long it may learn")
    arguments = parser.parse_args()
    import ray

    ray.init(address="local", num_cpus=2, include_dashboard=False, log_to_driver=False, logging_level="ERROR")
    rows: dict[str, list[Spent]] = {kind: [] for kind in KINDS}
    starts: list[float] = []
    for round_ in range(arguments.rounds):
        for kind in KINDS if round_ % 2 == 0 else reversed(KINDS):
            if kind == "task":
                rows[kind].append(tasks(arguments.trials))
                continue
            spent, started = trials(kind, arguments.trials)
            rows[kind].append(spent)
            if kind == "one_worker":
                starts.append(started)
    print_table(
        ["ms a trial", "driver CPU", "workers' CPU", "wall"],
        [
            [
                kind,
                *(
                    "" if (kind, name) == ("task", "workers") else number(statistics.median(each))
                    for name in ("driver", "workers", "wall")
                    for each in [[getattr(spent, name) for spent in rows[kind]]]
                ),
            ]
            for kind in KINDS
        ],
    )

    def ratio(of: Any) -> float:
        return statistics.median(of(*(rows[kind][round_] for kind in KINDS)) for round_ in range(arguments.rounds))

    found = {
        "cpu": ratio(lambda process, one, _two, _task: one.cpu / process.cpu),
        "driver": ratio(lambda _process, one, _two, task: one.driver / task.driver),
        "scaling": ratio(lambda _process, one, two, _task: one.wall / two.wall),
        "start_cpu_s": statistics.median(starts),
        "cpu_with_start": statistics.median(
            (one.cpu + 1e3 * start / arguments.trials) / process.cpu
            for process, one, start in zip(rows["one_process"], rows["one_worker"], starts, strict=True)
        ),
    }
    if arguments.ppo:
        with tempfile.TemporaryDirectory() as folder:
            found |= sampling(folder) | learnt(folder, arguments.ppo_seconds)
    ray.shutdown()
    print_table(
        ["figure", "found", "bar", "holds"],
        [[name, number(value), *_bar(name, value)] for name, value in found.items()],
    )
    print_json(dict(found))


def _bar(name: str, value: float) -> tuple[str, str]:
    if name in AT_MOST:
        return f"<= {AT_MOST[name]:g}", "yes" if value <= AT_MOST[name] else "no"
    if name in AT_LEAST:
        return f">= {AT_LEAST[name]:g}", "yes" if value >= AT_LEAST[name] else "no"
    return "", ""


if __name__ == "__main__":
    sys.exit(main())
