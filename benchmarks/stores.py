"""The PostgreSQL store beside bare COPY and beside the SQLite store, in the same run; it starts a server of its own.

Debian's `postgresql`, and the extra `postgresql`, have to be installed; the server's disk is that of `--folder`.

* `ingest_200_ratio`, `ingest_4096_ratio`: samples per second of `TrialStore.apply`, of about so many bytes each, as a
  ratio to COPY of the very samples as rows: 500 a transaction, of four trials, with fsync, a primary key and a unique
  index. The bytes are random, so nothing is won by compressing them.
* `..._over_sqlite`: the same as a ratio to the SQLite store.
* `follow_p99_ms`: how long after a process has begun to write a sample a follower in another process has it; the 99th
  percentile. One trial has a sample every 5 ms, each a batch of its own.

The server has written before, so that it uses the files of its log again, as it does when it runs for longer: a new one
is first filled with zeros. Garbage is collected as in a server's process, which does not look through what was there at
its start.

Rounds alternate who goes first; each figure is the median over them, a ratio that of the rounds' own ratios.
"""

from __future__ import annotations

import argparse
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import psycopg
import trio
from _report import number, print_json, print_table

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from tests.stores.postgresql_server import postgresql_server

from trio_cogment.api.common_pb2 import TrialParams, TrialState
from trio_cogment.api.datalog_pb2 import DatalogSample
from trio_cogment.api.trial_datastore_pb2 import RetrieveSamplesRequest, StoredTrialSample
from trio_cogment.cli.services.garbage import settle
from trio_cogment.sdk import actor_params, trial_params
from trio_cogment.servers.datastore import Datastore, open_store
from trio_cogment.servers.datastore._chunk_layouts import joined
from trio_cogment.servers.datastore._conversion import TrialConverter
from trio_cogment.servers.datastore.storage import SampleWrite, TrialWrite, WriteKind

TRIALS = 4
BATCH = 500
SIZES = (200, 4096)
FOLLOWED = 1000
PARAMS = trial_params([actor_params("ann", "player")])
#: What a sample has beside its observation.
_OVERHEAD_BYTES = 30
FOLLOW_SECONDS = 0.005

#: Files of 16 MiB of the server's log, which it uses again after a checkpoint.
LOG_FILES = 16

SCHEMA = """
CREATE TABLE samples (
    position bigint PRIMARY KEY, trial bigint NOT NULL, tick bigint NOT NULL, timestamp bigint NOT NULL,
    waiting boolean NOT NULL, data bytea NOT NULL
);
CREATE UNIQUE INDEX samples_tick ON samples (trial, tick);
"""


def batches(count: int, size: int) -> list[list[SampleWrite]]:
    """Return samples of trials in turns, in batches, as a datastore hands them to its store: in parts."""
    drawn = random.Random(1)
    converters = [TrialConverter(f"{trial}", PARAMS) for trial in range(TRIALS)]
    found: list[SampleWrite] = []
    for tick in range(count // TRIALS):
        for converter in converters:
            sample = DatalogSample()
            sample.info.tick_id, sample.info.timestamp = tick, 1_700_000_000_000_000_000 + 10_000_000 * tick
            sample.info.state = TrialState.RUNNING
            sample.observations.observations.append(drawn.randbytes(size - _OVERHEAD_BYTES))
            sample.observations.actors_map.append(0)
            write = converter.write_at_once(sample)
            assert write is not None
            found.append(write)
    return [found[start : start + BATCH] for start in range(0, len(found), BATCH)]


def rows_of(made: list[list[SampleWrite]]) -> list[list[SampleWrite]]:
    """Return the same put together: what a row has."""
    return [[write._replace(data=joined(write.data)) for write in batch] for batch in made]


def copy(address: str, made: list[list[SampleWrite]]) -> float:
    """Return samples per second of COPY."""
    with psycopg.connect(address, autocommit=True) as connection:
        connection.execute(SCHEMA)
        statement = "COPY samples (position, trial, tick, timestamp, waiting, data) FROM STDIN (FORMAT BINARY)"
        position = 0
        started = time.perf_counter()
        for batch in made:
            connection.execute("BEGIN")
            with connection.cursor() as cursor, cursor.copy(statement) as rows:
                rows.set_types(["int8", "int8", "int8", "int8", "bool", "bytea"])
                for write in batch:
                    position += 1
                    rows.write_row((position, int(write.trial_id), write.tick_id, write.timestamp, False, write.data))
            connection.execute("COMMIT")
        return position / (time.perf_counter() - started)


async def ours(address: str, made: list[list[SampleWrite]]) -> float:
    """Return samples per second of a store."""
    async with open_store(address) as store:
        await store.apply([TrialWrite(f"{trial}", "", TrialParams(), True) for trial in range(TRIALS)])
        started = time.perf_counter()
        for batch in made:
            await store.apply(batch)
        return sum(map(len, made)) / (time.perf_counter() - started)


async def write_followed(address: str) -> None:
    """Write a trial; each sample says when."""
    async with open_store(address) as store:
        await store.apply([TrialWrite("followed", "", TrialParams(), True)])
        for tick in range(FOLLOWED):
            state = TrialState.ENDED if tick == FOLLOWED - 1 else TrialState.RUNNING
            data = StoredTrialSample(trial_id="followed", tick_id=tick, timestamp=time.time_ns()).SerializeToString()
            await store.apply([SampleWrite("followed", tick, tick, state, data, WriteKind.LOGGED)])
            await trio.sleep(FOLLOW_SECONDS)


async def follow(address: str) -> float:
    """Return the 99th percentile of the delays, in milliseconds."""
    async with open_store(address) as store, Datastore(store) as datastore:
        process = await trio.to_thread.run_sync(subprocess.Popen, [sys.executable, __file__, "--write", address])
        async with store.watch() as watch:
            while await store.trial("followed") is None:
                await watch.changed()
        delays: list[float] = []
        async with datastore.reading(RetrieveSamplesRequest(trial_ids=["followed"])) as pages:
            async for page in pages:
                now = time.time_ns()
                delays += [(now - sample.timestamp) / 1e6 for sample in page]
        await trio.to_thread.run_sync(process.wait)
        assert len(delays) == FOLLOWED
        return statistics.quantiles(delays, n=100)[98]


def benchmark(rounds: int, count: int, folder: Path | None) -> dict[str, float | None]:
    figures: dict[str, list[float]] = {}
    tempfile.tempdir = None if folder is None else str(folder)
    with postgresql_server(fsync=True) as server:
        for _ in range(LOG_FILES):
            server.query("postgres", "SELECT pg_logical_emit_message(true, '', '')")
            server.query("postgres", "SELECT pg_switch_wal()")
        for number_of_round in range(rounds):
            for size in SIZES:
                made = batches(max(BATCH, count * SIZES[0] // size), size)
                rows = rows_of(made)
                settle()
                server.query("postgres", "CHECKPOINT")
                with tempfile.TemporaryDirectory() as name:
                    contest: dict[str, Callable[[], float]] = {
                        "copy": partial(copy, server.database(), rows),
                        "ingest": partial(trio.run, ours, server.database(), made),
                        "sqlite": partial(trio.run, ours, f"sqlite:{name}/t.db", made),
                    }
                    order = list(contest)[::-1] if number_of_round % 2 else list(contest)
                    speeds = {what: contest[what]() for what in order}
                for what, speed in speeds.items():
                    figures.setdefault(f"{what}_{size}_per_s", []).append(speed)
                figures.setdefault(f"ingest_{size}_ratio", []).append(speeds["ingest"] / speeds["copy"])
                figures.setdefault(f"ingest_{size}_over_sqlite", []).append(speeds["ingest"] / speeds["sqlite"])
            figures.setdefault("follow_p99_ms", []).append(trio.run(follow, server.database()))
    found: dict[str, float | None] = {name: statistics.median(values) for name, values in figures.items()}
    print(f"{TRIALS} trials, {BATCH} samples a transaction; medians of {rounds} rounds, load {os.getloadavg()[0]:.1f}")
    print_table(["figure", "median"], [[name, number(value)] for name, value in found.items()])
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--samples", type=int, default=40_000, help="of 200 bytes; of larger ones as many bytes")
    parser.add_argument("--folder", type=Path, help="where the files are; the system's temporary folder otherwise")
    parser.add_argument("--json", action="store_true", help="print the figures as one line of JSON, too")
    parser.add_argument("--write", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.write:
        trio.run(write_followed, arguments.write)
        return
    found = benchmark(arguments.rounds, arguments.samples, arguments.folder)
    if arguments.json:
        print_json(found)


if __name__ == "__main__":
    main()
