"""Uploads to and downloads from a model registry, beside a bare hashed copy of a file over the same kind of channel.

`python benchmarks/registry.py` runs both servers in one process of their own, and in alternated rounds one client sends
the same bytes in the same chunks to each of them and takes them back:

* ours: a `ModelRegistry` over a directory, archived versions;
* bare: handlers that hash what comes, write it to a file, sync that and answer; and read a file, hash and send it. They
  do so in their own task, so nothing else is served meanwhile; the registry uses threads.

The ratios are the medians over the rounds of our throughput divided by that of the bare copy. Files are in the system's
folder for temporary ones unless `--folder` says else, and read again at once: what is read comes from memory.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import statistics
import subprocess
import sys
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import Any

import trio
from _report import number, print_json, print_table

from trio_cogment.api import model_registry_pb2 as pb
from trio_cogment.rpc import Channel, ServerCall, bind, methods_of, open_listeners, serve
from trio_cogment.servers.model_registry import ModelRegistry, model_registry_services

MIB = 2**20
CHUNK_BYTES = 2 * MIB
SERVICE = pb.DESCRIPTOR.services_by_name["ModelRegistrySP"]
METHODS = methods_of(SERVICE)


class Bare:
    """No more than what has to be done with the bytes."""

    def __init__(self, path: Path) -> None:
        self._path = path

    async def CreateVersion(self, call: ServerCall) -> pb.CreateVersionReply:
        digest = hashlib.sha256()
        descriptor = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        try:
            await call.receive()
            async for chunk in call:
                digest.update(chunk.body.data_chunk)
                os.write(descriptor, chunk.body.data_chunk)
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        return pb.CreateVersionReply(version_info=pb.ModelVersionInfo(data_hash=digest.hexdigest()))

    async def RetrieveVersionData(self, _request: pb.RetrieveVersionDataRequest, call: ServerCall) -> None:
        digest = hashlib.sha256()
        descriptor = os.open(self._path, os.O_RDONLY)
        try:
            while data := os.read(descriptor, CHUNK_BYTES):
                digest.update(data)
                await call.send(pb.RetrieveVersionDataReplyChunk(data_chunk=data))
        finally:
            os.close(descriptor)


async def serve_both(folder: Path) -> None:
    registry = ModelRegistry(folder / "archive")
    async with registry, trio.open_nursery() as nursery:
        ports = []
        for service in (*model_registry_services(registry), bind(SERVICE, Bare(folder / "bare"))):
            serving = await nursery.start(partial(serve, [service], await open_listeners("127.0.0.1")))
            ports.append(serving.port)
        print(*ports, flush=True)


async def upload(channel: Channel, block: bytes, chunks: int) -> float:
    info = pb.ModelVersionInfo(model_id="m", archived=True, data_size=len(block) * chunks)
    chunk = pb.CreateVersionRequestChunk(body=pb.CreateVersionRequestChunk.Body(data_chunk=block))
    began = time.perf_counter()
    async with channel.call(METHODS["CreateVersion"]) as call:
        header = pb.CreateVersionRequestChunk.Header(version_info=info)
        await call.send(pb.CreateVersionRequestChunk(header=header))
        for _ in range(chunks):
            await call.send(chunk)
        await call.done_sending()
        assert (await call.receive()).version_info.data_hash
    return len(block) * chunks / (time.perf_counter() - began)


async def download(channel: Channel, size: int) -> float:
    received = 0
    began = time.perf_counter()
    async with channel.call(METHODS["RetrieveVersionData"]) as call:
        await call.send(pb.RetrieveVersionDataRequest(model_id="m", version_number=-1))
        await call.done_sending()
        async for chunk in call:
            received += len(chunk.data_chunk)
    assert received == size
    return size / (time.perf_counter() - began)


async def measure(ports: list[int], mib: int, rounds: int) -> dict[str, list[tuple[float, float]]]:
    block = os.urandom(CHUNK_BYTES)
    chunks = max(1, mib * MIB // CHUNK_BYTES)
    found: dict[str, list[tuple[float, float]]] = {"up": [], "down": []}
    async with Channel("127.0.0.1", ports[0]) as ours, Channel("127.0.0.1", ports[1]) as bare:
        model = pb.ModelInfo(model_id="m")
        for turn in range(rounds + 1):
            await ours.unary(METHODS["CreateOrUpdateModel"], pb.CreateOrUpdateModelRequest(model_info=model))
            order = (ours, bare) if turn % 2 else (bare, ours)
            up = {channel: await upload(channel, block, chunks) for channel in order}
            down = {channel: await download(channel, len(block) * chunks) for channel in order}
            await ours.unary(METHODS["DeleteModel"], pb.DeleteModelRequest(model_id="m"))
            if turn:  # the first one warms up
                found["up"].append((up[ours], up[bare]))
                found["down"].append((down[ours], down[bare]))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print one flat JSON object on the last line")
    parser.add_argument("--mib", type=int, default=256, help="size of a version")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--folder", type=Path, help="where the files are")
    parser.add_argument("--serve", type=Path, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.serve:
        trio.run(serve_both, args.serve)
        return
    with tempfile.TemporaryDirectory(dir=args.folder) as folder:
        command = [sys.executable, __file__, f"--serve={folder}"]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
            try:
                assert server.stdout is not None
                ports = [int(port) for port in server.stdout.readline().split()]
                found = trio.run(measure, ports, args.mib, args.rounds)
            finally:
                server.kill()
    report(found, args.mib, args.json)


def report(found: dict[str, list[tuple[float, float]]], mib: int, as_json: bool) -> None:
    values: dict[str, Any] = {}
    rows = []
    for name, pairs in found.items():
        ratio = statistics.median(ours / bare for ours, bare in pairs)
        ours, bare = (statistics.median(pair[index] for pair in pairs) / MIB for index in (0, 1))
        rows.append([name, number(ours), number(bare), number(ratio)])
        values |= {f"{name}_ratio": ratio, f"{name}_mib_per_second": ours, f"{name}_bare_mib_per_second": bare}
    print(f"versions of {mib} MiB in chunks of {CHUNK_BYTES // MIB} MiB, one at a time")
    print_table(["direction", "ours MiB/s", "bare MiB/s", "ratio"], rows)
    if as_json:
        print_json(values)


if __name__ == "__main__":
    main()
