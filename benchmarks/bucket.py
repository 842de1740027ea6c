"""A bucket beside the library alone, and the search for a trial beside the question to its owner.

`TRIO_COGMENT_S3_SERVER_PYTHON=.nox/s3-server/bin/python python benchmarks/bucket.py` starts a server of S3 (moto), and

* uploads 256 MiB in chunks of 256 KiB by turns: `upload`, a blob of the model registry's store with all its promises;
  `put`, `obstore.put` of the same chunks, which promises nothing of a name;
* has three orchestrators on sockets of this process, with trials of the last one: `info`, `GetTrialInfo` at that one;
  `stored`, `find_trial` where a datastore knows the trial; `asked`, where all three have to be asked.

Figures are medians of the rounds; a ratio is the median of the rounds' own.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path

import trio

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from tests.sdk.test_finding import begin, three
from tests.stores import s3

from trio_cogment import connect
from trio_cogment.servers.model_registry import ObjectBlobs

CHUNK = bytes(range(256)) * 1024
MEBIBYTES = 256
CALLS = 200


def upload(store: ObjectBlobs) -> None:
    one = store.upload()
    for _ in range(MEBIBYTES * 4):
        one.write(CHUNK)
    one.finish()
    one.commit("walker", "weights")
    store.delete("walker", ["weights"])


def put(store: ObjectBlobs) -> None:
    library = store.objects._library
    library.put(store.objects._store, "bare", (CHUNK for _ in range(MEBIBYTES * 4)))
    library.delete(store.objects._store, ["bare"])


def timed(function: Callable[[], object]) -> float:
    began = time.perf_counter()
    function()
    return time.perf_counter() - began


def uploads(rounds: int) -> None:
    with tempfile.TemporaryDirectory() as folder, s3.s3_server(Path(folder)) as port:
        os.environ.update(s3.environment(f"http://127.0.0.1:{port}"))
        store = ObjectBlobs(f"s3://{s3.BUCKET}/benchmark")
        store.open()
        pairs = []
        for number in range(rounds):
            order = [upload, put] if number % 2 else [put, upload]
            took = {function: timed(lambda function=function: function(store)) for function in order}  # type: ignore[misc]  # bound now
            pairs.append((took[upload], took[put]))
        store.close()
    ours, bare = (statistics.median(column) for column in zip(*pairs, strict=True))
    ratio = statistics.median(put_ / upload_ for upload_, put_ in pairs)
    print(
        f"{MEBIBYTES} MiB  upload {MEBIBYTES / ours:6.1f} MiB/s  put {MEBIBYTES / bare:6.1f} MiB/s  ratio {ratio:.2f}"
    )


async def median_of(call: Callable[[], Awaitable[object]]) -> float:
    times = []
    for _ in range(CALLS):
        began = time.perf_counter()
        await call()
        times.append(time.perf_counter() - began)
    return statistics.median(times)


async def searches(rounds: int) -> None:
    for name, datastore in (("stored", True), ("asked", False)):
        async with AsyncExitStack() as stack:
            found = await stack.enter_async_context(three(datastore=datastore))
            client = await stack.enter_async_context(connect(directory=found.directory, variables={}))
            trial_id = await begin(found.platforms[2], stored=datastore)
            owner = await client.controller(found.endpoints[2])
            await client.find_trial(trial_id)
            pairs = []
            for _ in range(rounds):
                info = await median_of(lambda: owner.trial_infos([trial_id]))  # noqa: B023  called at once
                find = await median_of(lambda: client.find_trial(trial_id))  # noqa: B023  called at once
                pairs.append((info, find))
        info, find = (statistics.median(column) * 1e3 for column in zip(*pairs, strict=True))
        ratio = statistics.median(after / before for before, after in pairs)
        print(f"{name:7}  info {info:.2f} ms  find_trial {find:.2f} ms  ratio {ratio:.1f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    rounds = parser.parse_args().rounds
    trio.run(searches, rounds)
    uploads(rounds)


if __name__ == "__main__":
    main()
