"""The trainer beside bare SQLite, in the same run: steps of about 300 bytes, on the disk of `--folder`.

* `ingest_ratio`: steps per second from objects of this process to durable rows (the way of the steps of trials), as a
  ratio to `sqlite3.executemany` of the very rows that come of it: 500 a transaction,
  synchronous=FULL, the same index.
* `rpc_ingest_ratio`: the same from four workers that call `PublishRunSteps`, in process; their sending is in it.
* `line_ingest_ratio`: the same from lines of JSON as workers print them; parsing them is in it.
* `..._cpu_ratio`: the same by the processor time of all threads.
* `control_overhead`: processor time per step with a control stream and enforced credits, over that without.
* `watchers_overhead`: processor time per step with 100 watchers that see nothing, over that without.

Rounds alternate who goes first; each figure is the median over them of the rounds' own ratios.
"""

from __future__ import annotations

import argparse
import json
import sqlite3
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import trio
import trio.testing
from _report import number, print_json, print_table

from trio_cogment.api.trainer import trainer_pb2
from trio_cogment.api.trainer.trainer_pb2 import (
    ControlEvent,
    RegisterWorkerRequest,
    RunStatus,
    RunStep,
    WatchRunsRequest,
)
from trio_cogment.rpc import CallOpener, InProcessChannel, methods_of
from trio_cogment.trainer import TrainerClient, open_trainer, trainer_services
from trio_cogment.trainer.dispatch.jsonl import Origin
from trio_cogment.trainer.dispatch.workers import Listener

METHODS = methods_of(trainer_pb2.DESCRIPTOR.services_by_name["TrainerService"])
WORKERS = 4
BATCH = 500
#: This many lines are read from a pipe at a time.
LINES = 150
WATCHERS = 100
CONFIG = {
    "run_name": "benchmark",
    "entry_point": "external",
    "arguments": [],
    "environment": {},
    "resources": {"cpus": 1, "memory_mb": 256, "gpus": {"requested": 0}},
    "artifacts": {"output_prefix": "out"},
}


class Cost(NamedTuple):
    """What something took."""

    seconds: float
    cpu_seconds: float


@contextmanager
def measured(found: list[Cost]) -> Iterator[None]:
    began, cpu = time.perf_counter(), time.process_time()
    yield
    found.append(Cost(time.perf_counter() - began, time.process_time() - cpu))


def step(worker: str, index: int) -> RunStep:
    return RunStep(
        run_id="r",
        worker_id=worker,
        agent_id="player_0",
        episode_index=index // 200,
        step_index=index % 200,
        action_json='{"discrete":1}',
        observation_json='{"box":{"values":[0.0273956,-0.00611216,0.03585979,0.0197368]},"mask":[1,1,0,1]}' * 2,
        reward=1.0,
        policy_label="ppo",
        backend="CartPole-v1",
        payload_version=1,
    )


def line(message: RunStep) -> bytes:
    """Return a step as a worker prints it."""
    return json.dumps(
        {
            "type": "step",
            "episode": message.episode_index,
            "step": message.step_index,
            "agent_id": message.agent_id,
            "action_json": message.action_json,
            "observation_json": message.observation_json,
            "reward": message.reward,
            "terminated": False,
            "truncated": False,
            "policy_label": message.policy_label,
            "backend": message.backend,
            "payload_version": message.payload_version,
        }
    ).encode()


class Worker:
    """Publishes steps; with credits it waits for them."""

    def __init__(self, channel: CallOpener, name: str, steps: int, *, controlled: bool) -> None:
        self._channel = channel
        self._name = name
        self._steps = [step(name, index) for index in range(steps)]
        self._controlled = controlled
        self._credits = 0
        self._more = trio.lowlevel.ParkingLot()

    async def run(self) -> None:
        request = RegisterWorkerRequest(run_id="r", worker_id=self._name, proto_version="MOSAIC/1.0")
        token = (await self._channel.unary(METHODS["RegisterWorker"], request)).session_token
        async with trio.open_nursery() as nursery:
            if self._controlled:
                nursery.start_soon(self._listen, token)
            async with self._channel.call(METHODS["PublishRunSteps"], metadata={"session-token": token}) as call:
                for message in self._steps:
                    while self._controlled and not self._credits:
                        await self._more.park()
                    self._credits -= 1
                    await call.send(message)
                await call.done_sending()
                assert (await call.receive()).accepted == len(self._steps)
            nursery.cancel_scope.cancel()

    async def _listen(self, token: str) -> None:
        async with self._channel.call(METHODS["ControlStream"], metadata={"session-token": token}) as call:
            event: ControlEvent
            async for event in call:
                self._credits += event.grant_steps
                self._more.unpark_all()


async def _ingest(path: Path, steps: int, found: list[Cost], *, controlled: bool, watchers: int) -> None:
    async with (
        open_trainer(f"sqlite:{path}") as trainer,
        InProcessChannel(trainer_services(trainer)) as channel,
        trio.open_nursery() as watching,
    ):
        await TrainerClient(channel).submit(json.dumps(CONFIG), run_id="r")
        for _ in range(watchers):
            watching.start_soon(_watch, channel)
        workers = [
            Worker(channel, f"w{number_}", steps // WORKERS, controlled=controlled) for number_ in range(WORKERS)
        ]
        await trio.testing.wait_all_tasks_blocked(0.05)
        with measured(found):
            async with trio.open_nursery() as nursery:
                for worker in workers:
                    nursery.start_soon(worker.run)
        watching.cancel_scope.cancel()


async def _ingest_straight(path: Path, steps: int, found: list[Cost]) -> None:
    messages = [[step(f"w{worker}", index) for index in range(steps // WORKERS)] for worker in range(WORKERS)]
    async with open_trainer(f"sqlite:{path}") as trainer:
        await trainer.submit("r", json.dumps(CONFIG))
        for worker in range(WORKERS):
            await trainer.reports.attach("r", f"w{worker}", "benchmark")

        async def publish(given: list[RunStep]) -> None:
            for message in given:
                await trainer.reports.publish("r", message)

        with measured(found):
            async with trio.open_nursery() as nursery:
                for given in messages:
                    nursery.start_soon(publish, given)
            await trainer.board.commits.drain()


async def _ingest_lines(path: Path, steps: int, found: list[Cost]) -> None:
    messages = [[step(f"w{worker}", index) for index in range(steps // WORKERS)] for worker in range(WORKERS)]
    outputs = [[line(message) for message in given] for given in messages]
    async with open_trainer(f"sqlite:{path}") as trainer:
        await trainer.submit("r", json.dumps(CONFIG))

        async def take(number_: int, lines: list[bytes]) -> None:
            listener = Listener(Origin("r", f"w{number_}"), trainer.reports)
            for start in range(0, len(lines), LINES):
                await listener.take(lines[start : start + LINES])
            assert not listener.lost + listener.skipped

        with measured(found):
            async with trio.open_nursery() as nursery:
                for number_, lines in enumerate(outputs):
                    nursery.start_soon(take, number_, lines)
            await trainer.board.commits.drain()


async def _watch(channel: CallOpener) -> None:
    async with channel.call(METHODS["WatchRuns"]) as call:
        # Nothing of this run is in this state.
        await call.send(WatchRunsRequest(status_filter=[RunStatus.RUN_STATUS_FAULT]))
        await call.done_sending()
        assert await call.receive() is None


def ingest(folder: Path, name: str, steps: int, *, controlled: bool = False, watchers: int = 0) -> Cost:
    found: list[Cost] = []

    async def main() -> None:
        await _ingest(folder / f"{name}.db", steps, found, controlled=controlled, watchers=watchers)

    trio.run(main)
    return found[0]


def ingest_straight(folder: Path, name: str, steps: int) -> Cost:
    found: list[Cost] = []

    async def main() -> None:
        await _ingest_straight(folder / f"{name}.db", steps, found)

    trio.run(main)
    return found[0]


def ingest_lines(folder: Path, name: str, steps: int) -> Cost:
    found: list[Cost] = []

    async def main() -> None:
        await _ingest_lines(folder / f"{name}.db", steps, found)

    trio.run(main)
    return found[0]


def bare(folder: Path, name: str, rows: list[tuple[int, int, bytes]]) -> Cost:
    """Insert the same rows without anything around."""
    connection = sqlite3.connect(folder / f"{name}.db", isolation_level=None)
    connection.execute("PRAGMA journal_mode=WAL")
    connection.execute("PRAGMA synchronous=FULL")
    connection.execute(
        "CREATE TABLE steps (run INTEGER NOT NULL, seq INTEGER NOT NULL, data BLOB NOT NULL, PRIMARY KEY (run, seq)) "
        "WITHOUT ROWID"
    )
    found: list[Cost] = []
    with measured(found):
        for start in range(0, len(rows), BATCH):
            connection.execute("BEGIN IMMEDIATE")
            connection.executemany("INSERT INTO steps VALUES (?, ?, ?)", rows[start : start + BATCH])
            connection.execute("COMMIT")
    connection.close()
    return found[0]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print one flat JSON object on the last line")
    parser.add_argument("--steps", type=int, default=40_000, help="of each measurement")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--folder", type=Path, default=None, help="whose disk is measured")
    options = parser.parse_args()
    values = run(options.folder, options.steps, options.rounds)
    print_table(["figure", "median"], [[name, number(value)] for name, value in values.items()])
    if options.json:
        print_json(dict(values))


def run(folder: Path | None, steps: int, rounds: int) -> dict[str, float]:
    rows = []
    for seq in range(1, steps + 1):
        message = step(f"w{seq % WORKERS}", seq)
        message.seq_id = seq
        rows.append((1, seq, message.SerializeToString()))
    costs: dict[str, list[Cost]] = {"straight": [], "lines": [], "plain": [], "bare": [], "credits": [], "watchers": []}
    with tempfile.TemporaryDirectory(dir=folder) as name:
        place = Path(name)
        ingest(place, "warm", min(steps, 2000), controlled=True)
        for round_ in range(rounds):
            measurements: dict[str, Callable[[str], Cost]] = {
                "straight": lambda file: ingest_straight(place, file, steps),
                "lines": lambda file: ingest_lines(place, file, steps),
                "plain": lambda file: ingest(place, file, steps),
                "bare": lambda file: bare(place, file, rows),
                "credits": lambda file: ingest(place, file, steps, controlled=True),
                "watchers": lambda file: ingest(place, file, steps, watchers=WATCHERS),
            }
            order = list(measurements)
            for kind in order if round_ % 2 else reversed(order):
                costs[kind].append(measurements[kind](f"{kind}-{round_}"))

    def ratio(of: str, to: str, field: int) -> float:
        return statistics.median(a[field] / b[field] for a, b in zip(costs[of], costs[to], strict=True))

    return {
        "ingest_ratio": ratio("bare", "straight", 0),
        "ingest_cpu_ratio": ratio("bare", "straight", 1),
        "ingest_per_s": steps / statistics.median(cost.seconds for cost in costs["straight"]),
        "rpc_ingest_ratio": ratio("bare", "plain", 0),
        "rpc_ingest_cpu_ratio": ratio("bare", "plain", 1),
        "rpc_ingest_per_s": steps / statistics.median(cost.seconds for cost in costs["plain"]),
        "line_ingest_ratio": ratio("bare", "lines", 0),
        "line_ingest_cpu_ratio": ratio("bare", "lines", 1),
        "control_overhead": ratio("credits", "plain", 1),
        "watchers_overhead": ratio("watchers", "plain", 1),
    }


if __name__ == "__main__":
    main()
