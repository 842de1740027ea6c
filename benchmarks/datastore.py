"""The trial datastore beside bare SQLite, in the same run: samples of 1 KiB with two actors, on the disk of `--folder`.

* `ingest_ratio`: samples per second from an orchestrator's objects to durable rows (the straight path of one process,
  four trials at a time), as a ratio to `sqlite3.executemany` of the very rows that come of it: 500 a transaction,
  synchronous=FULL, the same unique index. All payloads of one kind have the same length.
* `ingest_varying_ratio`: the same with payloads whose lengths vary from tick to tick, by half of their mean to either
  side, each on its own.
* `grpc_ingest_per_s`: samples per second, confirmed, from another process by `DatalogSP.RunTrialDatalog`.
* `read_ratio`: samples per second read back in process (`Datastore.reading`, no call), as a ratio to a bare select with
  a protobuf parse of each row.
* `client_read_ratio`: the same by `DatastoreClient.samples`, whose every sample is a message of a call in process.
* `follow_p99_ms`: how long after a sample was written a follower has it, while a trial writes at half the measured
  speed; the 99th percentile.

Garbage is collected as in a server's process, which does not look through what was there at its start.

Rounds alternate who goes first; each figure is the median over them, a ratio that of the rounds' own ratios. Beside
each ratio by time is the one by the processor time of all threads, as `..._cpu_ratio`: it says more on a machine that
has other work to do, and less of what goes on at the same time.
"""

from __future__ import annotations

import argparse
import multiprocessing
import random
import sqlite3
import statistics
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import NamedTuple

import trio
from _report import number, print_json, print_table

from trio_cogment.api import datalog_pb2
from trio_cogment.api.common_pb2 import TrialParams, TrialState
from trio_cogment.api.datalog_pb2 import DatalogSample, RunTrialDatalogInput
from trio_cogment.api.trial_datastore_pb2 import RetrieveSamplesRequest, StoredTrialSample
from trio_cogment.cli.services.garbage import settle
from trio_cogment.rpc import Channel, InProcessChannel, RpcConfig, methods_of, open_listeners, serve
from trio_cogment.rpc.inprocess import UNLIMITED_BYTES
from trio_cogment.sdk import DatastoreClient, actor_params, trial_params
from trio_cogment.servers.datastore import Datastore, datastore_services, open_store
from trio_cogment.servers.datastore._conversion import TrialConverter

RUN = methods_of(datalog_pb2.DESCRIPTOR.services_by_name["DatalogSP"])["RunTrialDatalog"]
#: As within a platform.
INSIDE = RpcConfig(max_receive_message_bytes=UNLIMITED_BYTES)
KEYS = (
    *("ingest_ratio", "ingest_varying_ratio", "grpc_ingest_per_s", "read_ratio", "follow_p99_ms", "client_read_ratio"),
    *("ingest_cpu_ratio", "ingest_varying_cpu_ratio", "read_cpu_ratio", "client_read_cpu_ratio"),
)
Row = tuple[int, int, int, int, bytes]
TRIALS = 4
BATCH = 500
OBSERVATION_BYTES = 448
ACTION_BYTES = 64

SCHEMA = """
CREATE TABLE samples (
    position INTEGER PRIMARY KEY, trial INTEGER NOT NULL, tick INTEGER NOT NULL, timestamp INTEGER NOT NULL,
    waiting INTEGER NOT NULL, data BLOB NOT NULL
);
CREATE UNIQUE INDEX samples_tick ON samples (trial, tick);
"""


def params() -> TrialParams:
    return trial_params([actor_params(name, "player") for name in ("ann", "bob")])


def samples(count: int, *, varying: bool = False) -> list[DatalogSample]:
    """Return a trial's samples; their payloads differ, in their lengths too if these are varying."""
    drawn = random.Random(1)

    def payload(content: bytes, size: int) -> bytes:
        words = size // len(content)
        return content * (drawn.randint(words // 2, words + words // 2) if varying else words)

    made = []
    for tick in range(count):
        sample = DatalogSample()
        sample.info.tick_id = tick
        sample.info.timestamp = tick + 1
        sample.info.state = TrialState.ENDED if tick == count - 1 else TrialState.RUNNING
        for actor in range(2):
            content = (tick * 2 + actor).to_bytes(8, "little")
            sample.observations.observations.append(payload(content, OBSERVATION_BYTES))
            sample.observations.actors_map.append(actor)
            sample.actions.add(tick_id=tick, content=payload(content, ACTION_BYTES))
        reward = sample.rewards.add(receiver_name="ann", tick_id=tick, value=1.0)
        reward.sources.add(sender_name="env", value=1.0, confidence=1.0)
        made.append(sample)
    return made


def rows(number_of_trial: int, made: list[DatalogSample]) -> list[Row]:
    converter = TrialConverter(f"trial-{number_of_trial}", params())
    writes = [converter.write(sample) for sample in made]
    return [(number_of_trial, write.tick_id, write.timestamp, 0, write.data) for write in writes]


class Speed(NamedTuple):
    """Samples per second, and per second of processor time of all threads."""

    per_second: float
    per_cpu_second: float


class Watch:
    def __init__(self) -> None:
        self._started, self._cpu_started = time.perf_counter(), time.process_time()

    def speed(self, count: int) -> Speed:
        seconds, cpu_seconds = time.perf_counter() - self._started, time.process_time() - self._cpu_started
        return Speed(count / seconds, count / cpu_seconds)


# Bare SQLite


def bare_ingest(path: Path, all_rows: list[Row]) -> Speed:
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("PRAGMA journal_mode=WAL")
    connection.execute("PRAGMA synchronous=FULL")
    connection.executescript(SCHEMA)
    watch = Watch()
    for start in range(0, len(all_rows), BATCH):
        connection.execute("BEGIN")
        connection.executemany(
            "INSERT INTO samples (trial, tick, timestamp, waiting, data) VALUES (?, ?, ?, ?, ?)",
            all_rows[start : start + BATCH],
        )
        connection.execute("COMMIT")
    speed = watch.speed(len(all_rows))
    connection.close()
    return speed


def bare_read(path: Path) -> Speed:
    connection = sqlite3.connect(path)
    watch = Watch()
    count = 0
    for trial in range(TRIALS):
        for (data,) in connection.execute("SELECT data FROM samples WHERE trial = ? ORDER BY position", (trial,)):
            StoredTrialSample.FromString(data)
            count += 1
    speed = watch.speed(count)
    connection.close()
    return speed


# Ours


async def our_ingest(path: Path, trials: list[list[DatalogSample]]) -> Speed:
    async with open_store(f"sqlite:{path}") as store, Datastore(store) as datastore:
        sink = datastore.sink()

        async def write(trial_id: str, made: list[DatalogSample]) -> None:
            async with sink.open(trial_id, "user", params()) as stream:
                for sample in made:
                    await stream.write(sample)
                await stream.complete()

        watch = Watch()
        async with trio.open_nursery() as nursery:
            for index, made in enumerate(trials):
                nursery.start_soon(write, f"trial-{index}", made)
        return watch.speed(sum(map(len, trials)))


async def our_read(path: Path) -> Speed:
    async with open_store(f"sqlite:{path}") as store, Datastore(store) as datastore:
        watch = Watch()
        count = 0
        for trial in range(TRIALS):
            async with datastore.reading(RetrieveSamplesRequest(trial_ids=[f"trial-{trial}"])) as pages:
                async for page in pages:
                    count += len(page)
        return watch.speed(count)


async def client_read(path: Path) -> Speed:
    async with (
        open_store(f"sqlite:{path}") as store,
        Datastore(store) as datastore,
        InProcessChannel(datastore_services(datastore), config=INSIDE) as channel,
    ):
        watch = Watch()
        count = 0
        for trial in range(TRIALS):
            async for _sample in DatastoreClient(channel).samples(f"trial-{trial}", follow=True):
                count += 1
        return watch.speed(count)


async def follow(path: Path, made: list[DatalogSample], per_second: float) -> float:
    """Return the 99th percentile of the delays, in milliseconds."""
    written: list[float] = []
    delays: list[float] = []
    async with (
        open_store(f"sqlite:{path}") as store,
        Datastore(store) as datastore,
        InProcessChannel(datastore_services(datastore), config=INSIDE) as channel,
        datastore.sink().open("trial", "user", params()) as stream,
        trio.open_nursery() as nursery,
    ):

        async def read() -> None:
            async for sample in DatastoreClient(channel).samples("trial", follow=True):
                delays.append(time.perf_counter() - written[sample.tick_id])

        nursery.start_soon(read)
        started = time.perf_counter()
        for tick, sample in enumerate(made):
            ahead = started + tick / per_second - time.perf_counter()
            if ahead > 0:
                await trio.sleep(ahead)
            written.append(time.perf_counter())
            await stream.write(sample)
        await stream.complete()
    return statistics.quantiles(delays, n=100)[98] * 1000


def send_all(port: int, count: int) -> None:
    """Be another process: the samples of some trials, each confirmed."""

    async def send(channel: Channel, trial_id: str, made: list[DatalogSample]) -> None:
        async with channel.call(RUN, metadata={"trial-id": trial_id, "user-id": "user"}) as call:

            async def read() -> None:
                for _ in range(len(made) + 1):
                    assert await call.receive() is not None

            async with trio.open_nursery() as nursery:
                nursery.start_soon(read)
                await call.send(RunTrialDatalogInput(trial_params=params()))
                for sample in made:
                    await call.send(RunTrialDatalogInput(sample=sample))
                await call.done_sending()

    async def run() -> None:
        made = samples(count)
        async with Channel("127.0.0.1", port) as channel, trio.open_nursery() as nursery:
            await channel.connection()
            for index in range(TRIALS):
                nursery.start_soon(send, channel, f"grpc-{index}", made)

    trio.run(run)


async def grpc_ingest(path: Path, count: int) -> float:
    spawn = multiprocessing.get_context("spawn")
    async with open_store(f"sqlite:{path}") as store, Datastore(store) as datastore, trio.open_nursery() as nursery:
        listeners = await open_listeners(["127.0.0.1"], 0)
        serving = await nursery.start(serve, datastore_services(datastore), listeners)
        # Timed from the first sample that is there to the last, so that starting the process is not part of it.
        process = spawn.Process(target=send_all, args=(serving.port, count))
        process.start()
        async with InProcessChannel(datastore_services(datastore), config=INSIDE) as channel:
            client = DatastoreClient(channel)
            while not any(trial.samples_count for trial in await client.trials()):  # noqa: ASYNC110  another process
                await trio.sleep(0.01)
            before = sum(trial.samples_count for trial in await client.trials())
            started = time.perf_counter()
            await trio.to_thread.run_sync(process.join)
            seconds = time.perf_counter() - started
            after = sum(trial.samples_count for trial in await client.trials())
        assert process.exitcode == 0
        assert after == TRIALS * count
        nursery.cancel_scope.cancel()
        return (after - before) / seconds


def rows_of_trials(made: list[DatalogSample]) -> list[Row]:
    """Return the rows of all trials in the order in which they come: a transaction has samples of each."""
    each = [rows(number_of_trial, made) for number_of_trial in range(TRIALS)]
    return [row for together in zip(*each, strict=True) for row in together]


def benchmark(rounds: int, count: int, folder: Path | None) -> dict[str, float | None]:
    one = samples(count)
    trials = [one] * TRIALS
    all_rows = rows_of_trials(one)
    varying = samples(count, varying=True)
    varying_rows = rows_of_trials(varying)
    figures: dict[str, list[float]] = {}

    def note(name: str, value: float) -> None:
        figures.setdefault(name, []).append(value)

    settle()
    for number_of_round in range(rounds):
        with tempfile.TemporaryDirectory(dir=folder) as name:
            bare, ours = Path(name) / "bare.db", Path(name) / "ours.db"
            contests: list[dict[str, Callable[[], Speed]]] = [
                {
                    "bare": partial(bare_ingest, bare, all_rows),
                    "ingest": partial(trio.run, our_ingest, ours, trials),
                },
                {
                    "bare": partial(bare_ingest, Path(name) / "bare_varying.db", varying_rows),
                    "ingest_varying": partial(trio.run, our_ingest, Path(name) / "ours_varying.db", [varying] * TRIALS),
                },
                {
                    "bare": partial(bare_read, bare),
                    "read": partial(trio.run, our_read, ours),
                    "client_read": partial(trio.run, client_read, ours),
                },
            ]
            for contest in contests:
                order = list(contest)[::-1] if number_of_round % 2 else list(contest)
                speeds = {name: contest[name]() for name in order}
                base = speeds.pop("bare")
                for what, speed in speeds.items():
                    note(f"{what}_base", base.per_second)
                    note(f"{what}_per_s", speed.per_second)
                    note(f"{what}_ratio", speed.per_second / base.per_second)
                    note(f"{what}_cpu_ratio", speed.per_cpu_second / base.per_cpu_second)
            per_second = figures["ingest_per_s"][-1]
            note("follow_p99_ms", trio.run(follow, Path(name) / "follow.db", one, per_second / 2))
            note("grpc_ingest_per_s", trio.run(grpc_ingest, Path(name) / "grpc.db", count))
    found = {name: statistics.median(values) for name, values in figures.items()}
    print(f"{TRIALS} trials of {count} samples of about 1 KiB; medians of {rounds} rounds")
    table = [
        [name, *(number(found[f"{what}_{part}"]) for part in ("base", "per_s", "ratio", "cpu_ratio"))]
        for what, name in (
            ("ingest", "ingest"),
            ("ingest_varying", "ingest, varying lengths"),
            ("read", "read"),
            ("client_read", "read by a client's call"),
        )
    ]
    print_table(["samples/s", "bare", "ours", "ratio", "CPU ratio"], table)
    print(f"over gRPC: {number(found['grpc_ingest_per_s'])} samples/s")
    print(f"a follower at half load: p99 {number(found['follow_p99_ms'])} ms")
    return {name: found[name] for name in KEYS}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print one flat JSON object on the last line")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--samples", type=int, default=5000, help="of each of the four trials, in each round")
    parser.add_argument(
        "--folder", type=Path, help="on the disk that is to be measured (default: the temporary folder)"
    )
    args = parser.parse_args()
    values = benchmark(args.rounds, args.samples, args.folder)
    if args.json:
        print_json(values)


if __name__ == "__main__":
    main()
