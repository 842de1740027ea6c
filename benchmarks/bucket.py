"""A bucket beside the library alone, and the search for a trial beside the question to its owner.

`TRIO_COGMENT_S3_SERVER_PYTHON=.nox/s3-server/bin/python python benchmarks/bucket.py` starts a server of S3 (moto), and

* uploads 256 MiB in chunks of 256 KiB by turns: `upload`, a blob of the model registry's store with all its promises;
  `put`, `obstore.put` of the same chunks, which promises nothing of a name;
* has three orchestrators in processes of their own, and a trial at the last one: `info`, `GetTrialInfo` at that one;
  `asked`, `find_trial`, for which all three have to be asked; and once more with `stored`, where a datastore knows the
  trial, all of it in this process.

Figures are medians of the rounds; a ratio is the median of the rounds' own.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path

import trio

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from tests.cli.process import listening
from tests.sdk.test_finding import begin, players, three
from tests.stores import s3

from trio_cogment import connect, open_platform
from trio_cogment.base.config import DirectoryServerConfig
from trio_cogment.base.endpoints import parse_server_endpoint
from trio_cogment.base.services import ServiceKind
from trio_cogment.rpc import InProcessChannel
from trio_cogment.sdk import Client
from trio_cogment.servers.directory import DirectoryServer, directory_services
from trio_cogment.servers.discovery import DirectoryClient
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


async def compared(name: str, client: Client, owner: str, trial_id: str, rounds: int) -> None:
    controller = await client.controller(owner)
    assert (await client.find_trial(trial_id)).endpoint == owner
    pairs = []
    for _ in range(rounds):
        info = await median_of(lambda: controller.trial_infos([trial_id]))
        find = await median_of(lambda: client.find_trial(trial_id))
        pairs.append((info, find))
    info, find = (statistics.median(column) * 1e3 for column in zip(*pairs, strict=True))
    ratio = statistics.median(after / before for before, after in pairs)
    print(f"{name:7}  info {info:.2f} ms  find_trial {find:.2f} ms  ratio {ratio:.1f}")


async def stored(rounds: int) -> None:
    async with three(datastore=True) as found, connect(directory=found.directory, variables={}) as client:
        trial_id = await begin(found.platforms[2], stored=True)
        await compared("stored", client, found.endpoints[2], trial_id, rounds)


async def asked(rounds: int) -> None:
    async with AsyncExitStack() as stack:
        server = await stack.enter_async_context(DirectoryServer(config=DirectoryServerConfig(startup_lag_seconds=0)))
        channel = await stack.enter_async_context(InProcessChannel(directory_services(server)))
        directory = DirectoryClient(channel)
        for number in range(3):
            command = [sys.executable, __file__, "--orchestrate"]
            process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)  # noqa: ASYNC220  nothing else runs yet
            stack.callback(process.communicate)
            assert process.stdout is not None
            endpoint, trial_id = process.stdout.readline().split()
            await directory.register(
                ServiceKind.LIFECYCLE, parse_server_endpoint(endpoint), properties={"n": str(number)}
            )
        client = await stack.enter_async_context(connect(directory=directory, variables={}))
        await compared("asked", client, endpoint, trial_id, rounds)


async def orchestrate() -> None:
    async with open_platform(players()) as platform, listening(*platform.services) as endpoint:
        print(endpoint, await begin(platform, stored=False), flush=True)
        await trio.to_thread.run_sync(sys.stdin.read)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--no-upload", action="store_true", help="the search alone")
    parser.add_argument("--orchestrate", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    rounds = arguments.rounds
    if arguments.orchestrate:
        trio.run(orchestrate)
        return
    trio.run(asked, rounds)
    trio.run(stored, rounds)
    if arguments.no_upload:
        return
    uploads(rounds)


if __name__ == "__main__":
    main()
