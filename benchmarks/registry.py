"""Uploads to and downloads from a model registry, beside others that hash and copy the same bytes.

`python benchmarks/registry.py` runs each server in a process of its own, and in alternated rounds one client sends the
same bytes in the same chunks to each of them and takes them back:

* ours: a `ModelRegistry` over a directory, archived versions;
* bare: handlers on the same transport that hash what comes, write it to a file, sync that and answer; and read a file,
  hash and send it. They do so in their own task, so nothing else is served meanwhile; the registry uses threads;
* grpc.aio: the same handlers on grpc.aio;
* sockets: the same with a length before each chunk, on a blocking socket, as a copy by scp would be.

The ratios are the medians over the rounds of our throughput divided by that of the bare copy and of the sockets, and of
our bytes per second of the server's processor time divided by those of grpc.aio. Files are in the system's folder for
temporary ones unless `--folder` says else, and read again at once: what is read comes from memory. Linux only: the
processor time comes from /proc.
"""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import os
import socket
import statistics
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable
from functools import partial
from pathlib import Path
from typing import Any

import trio
from _children import Child, cpu_ns
from _report import number, print_json, print_table

from trio_cogment.api import model_registry_pb2 as pb
from trio_cogment.rpc import Channel, RpcConfig, ServerCall, bind, methods_of, open_listeners, serve
from trio_cogment.servers.model_registry import ModelRegistry, model_registry_services

MIB = 2**20
CHUNK_BYTES = 2 * MIB
SERVICE = pb.DESCRIPTOR.services_by_name["ModelRegistrySP"]
METHODS = methods_of(SERVICE)
#: Before each chunk on a bare socket, and for a download.
LENGTH_BYTES = 4
ASK_FOR_ALL = (2**32 - 1).to_bytes(LENGTH_BYTES, "big")


class Writing:
    """A hash over what comes, and a file."""

    def __init__(self, path: Path) -> None:
        self._descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        self._digest = hashlib.sha256()

    def take(self, chunk: bytes) -> None:
        self._digest.update(chunk)
        os.write(self._descriptor, chunk)

    def finish(self) -> str:
        os.fsync(self._descriptor)
        os.close(self._descriptor)
        return self._digest.hexdigest()


class Reading:
    """The chunks of a file, hashed."""

    def __init__(self, path: Path) -> None:
        self._descriptor = os.open(path, os.O_RDONLY)
        self._digest = hashlib.sha256()

    def next(self) -> bytes:
        data = os.read(self._descriptor, CHUNK_BYTES)
        self._digest.update(data)
        if not data:
            os.close(self._descriptor)
        return data


class Bare:
    """No more than what has to be done with the bytes."""

    def __init__(self, path: Path) -> None:
        self._path = path

    async def CreateVersion(self, call: ServerCall) -> pb.CreateVersionReply:
        writing = Writing(self._path)
        await call.receive()
        async for chunk in call:
            writing.take(chunk.body.data_chunk)
        return pb.CreateVersionReply(version_info=pb.ModelVersionInfo(data_hash=writing.finish()))

    async def RetrieveVersionData(self, _request: pb.RetrieveVersionDataRequest, call: ServerCall) -> None:
        reading = Reading(self._path)
        while data := reading.next():
            await call.send(pb.RetrieveVersionDataReplyChunk(data_chunk=data))


async def serve_registry(folder: Path) -> None:
    registry = ModelRegistry(folder / "archive")
    async with registry, trio.open_nursery() as nursery:
        services = model_registry_services(registry)
        serving = await nursery.start(partial(serve, services, await open_listeners("127.0.0.1")))
        print(serving.port, flush=True)


async def serve_bare(folder: Path) -> None:
    async with trio.open_nursery() as nursery:
        services = [bind(SERVICE, Bare(folder / "bare"))]
        serving = await nursery.start(partial(serve, services, await open_listeners("127.0.0.1")))
        print(serving.port, flush=True)


def serve_grpc_aio(folder: Path) -> None:
    import grpc.aio

    path = folder / "grpc"

    async def create(requests: AsyncIterator[Any], _: Any) -> pb.CreateVersionReply:
        writing = Writing(path)
        first = True
        async for chunk in requests:
            if not first:
                writing.take(chunk.body.data_chunk)
            first = False
        return pb.CreateVersionReply(version_info=pb.ModelVersionInfo(data_hash=writing.finish()))

    async def retrieve(_request: Any, _: Any) -> AsyncIterator[Any]:
        reading = Reading(path)
        while data := reading.next():
            yield pb.RetrieveVersionDataReplyChunk(data_chunk=data)

    async def run() -> None:
        server = grpc.aio.server(options=[("grpc.max_receive_message_length", 2 * CHUNK_BYTES)])
        handlers = {
            "CreateVersion": grpc.stream_unary_rpc_method_handler(
                create,
                request_deserializer=pb.CreateVersionRequestChunk.FromString,
                response_serializer=pb.CreateVersionReply.SerializeToString,
            ),
            "RetrieveVersionData": grpc.unary_stream_rpc_method_handler(
                retrieve,
                request_deserializer=pb.RetrieveVersionDataRequest.FromString,
                response_serializer=pb.RetrieveVersionDataReplyChunk.SerializeToString,
            ),
        }
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE.full_name, handlers),))
        port = server.add_insecure_port("127.0.0.1:0")
        await server.start()
        print(port, flush=True)
        await server.wait_for_termination()

    asyncio.run(run())


def received(connection: socket.socket, size: int) -> bytes:
    """Return so many bytes; fewer at the end of the connection."""
    data = bytearray(size)
    view, have = memoryview(data), 0
    while have < size and (more := connection.recv_into(view[have:])):
        have += more
    return bytes(view[:have])


def serve_sockets(folder: Path) -> None:
    path = folder / "sockets"
    with socket.create_server(("127.0.0.1", 0)) as listener:
        print(listener.getsockname()[1], flush=True)
        while True:
            connection, _ = listener.accept()
            with connection:
                length = received(connection, LENGTH_BYTES)
                if length == ASK_FOR_ALL:
                    reading = Reading(path)
                    while data := reading.next():
                        connection.sendall(len(data).to_bytes(LENGTH_BYTES, "big"))
                        connection.sendall(data)
                    continue
                writing = Writing(path)
                while size := int.from_bytes(length, "big"):
                    writing.take(received(connection, size))
                    length = received(connection, LENGTH_BYTES)
                connection.sendall(writing.finish().encode())


SERVERS: dict[str, Callable[[Path], None]] = {
    "ours": partial(trio.run, serve_registry),
    "bare": partial(trio.run, serve_bare),
    "grpc.aio": serve_grpc_aio,
    "sockets": serve_sockets,
}


class Side:
    """A server, and how much it has done with how much.

    Attributes:
        found: by direction, MiB per second and MiB per second of processor time, of each round.
    """

    def __init__(self, name: str, folder: Path) -> None:
        self.name = name
        self.child = Child([sys.executable, __file__, f"--serve={name}", f"--folder={folder}"])
        self.port = int(self.child.read())
        self.found: dict[str, list[tuple[float, float]]] = {"up": [], "down": []}

    def cpu_seconds(self) -> float:
        return sum(cpu_ns(self.child.pid).values()) / 1e9

    async def transfer(self, way: str, block: bytes, chunks: int, *, counts: bool) -> None:
        before = self.cpu_seconds()
        size = len(block) * chunks
        if self.name == "sockets":
            seconds = await trio.to_thread.run_sync(SOCKET_WAYS[way], self.port, block, chunks)
        else:
            config = RpcConfig(max_receive_message_bytes=2 * CHUNK_BYTES)
            async with Channel("127.0.0.1", self.port, config=config) as channel:
                if self.name == "ours" and way == "up":
                    model = pb.ModelInfo(model_id="m")
                    await channel.unary(METHODS["CreateOrUpdateModel"], pb.CreateOrUpdateModelRequest(model_info=model))
                seconds = await (upload(channel, block, chunks) if way == "up" else download(channel, size))
                if self.name == "ours" and way == "down":
                    await channel.unary(METHODS["DeleteModel"], pb.DeleteModelRequest(model_id="m"))
        if counts:
            self.found[way].append((size / MIB / seconds, size / MIB / (self.cpu_seconds() - before)))


def send_by_socket(port: int, block: bytes, chunks: int) -> float:
    began = time.perf_counter()
    with socket.create_connection(("127.0.0.1", port)) as connection:
        for _ in range(chunks):
            connection.sendall(len(block).to_bytes(LENGTH_BYTES, "big"))
            connection.sendall(block)
        connection.sendall(bytes(LENGTH_BYTES))
        assert len(received(connection, 64)) == 64
    return time.perf_counter() - began


def get_by_socket(port: int, block: bytes, chunks: int) -> float:
    began = time.perf_counter()
    have = 0
    with socket.create_connection(("127.0.0.1", port)) as connection:
        connection.sendall(ASK_FOR_ALL)
        while length := received(connection, LENGTH_BYTES):
            have += len(received(connection, int.from_bytes(length, "big")))
    assert have == len(block) * chunks
    return time.perf_counter() - began


SOCKET_WAYS: dict[str, Callable[[int, bytes, int], float]] = {"up": send_by_socket, "down": get_by_socket}


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
    return time.perf_counter() - began


async def download(channel: Channel, size: int) -> float:
    received = 0
    began = time.perf_counter()
    async with channel.call(METHODS["RetrieveVersionData"]) as call:
        await call.send(pb.RetrieveVersionDataRequest(model_id="m", version_number=-1))
        await call.done_sending()
        async for chunk in call:
            received += len(chunk.data_chunk)
    assert received == size
    return time.perf_counter() - began


async def measure(sides: list[Side], mib: int, rounds: int) -> None:
    block = os.urandom(CHUNK_BYTES)
    chunks = max(1, mib * MIB // CHUNK_BYTES)
    for turn in range(rounds + 1):
        for way in ("up", "down"):
            for side in sides[:: -1 if turn % 2 else 1]:
                await side.transfer(way, block, chunks, counts=turn > 0)  # the first one warms up


def report(sides: list[Side], mib: int, as_json: bool) -> None:
    ours, *others = sides
    values: dict[str, Any] = {}
    rows = []
    for way, pairs in ours.found.items():
        for index, what in enumerate(("MiB/s", "MiB/s of processor time")):
            medians = [statistics.median(pair[index] for pair in side.found[way]) for side in sides]
            ratios = [
                statistics.median(
                    mine[index] / theirs[index] for mine, theirs in zip(pairs, other.found[way], strict=True)
                )
                for other in others
            ]
            rows.append([way, what, *map(number, medians), *map(number, ratios)])
            key = way if index == 0 else f"{way}_cpu"
            values[f"{key}_mib_per_second"] = medians[0]
            for other, median, ratio in zip(others, medians[1:], ratios, strict=True):
                name = other.name.replace(".", "_")
                values |= {f"{key}_over_{name}": ratio, f"{key}_{name}_mib_per_second": median}
    print(f"versions of {mib} MiB in chunks of {CHUNK_BYTES // MIB} MiB, one at a time")
    names = [side.name for side in sides]
    print_table(["direction", "", *names, *(f"ours/{name}" for name in names[1:])], rows)
    if as_json:
        print_json(values)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print one flat JSON object on the last line")
    parser.add_argument("--mib", type=int, default=256, help="size of a version")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--folder", type=Path, help="where the files are")
    parser.add_argument("--serve", choices=list(SERVERS), help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.serve:
        SERVERS[args.serve](args.folder)
        return
    with tempfile.TemporaryDirectory(dir=args.folder) as folder:
        sides: list[Side] = []
        try:
            for name in SERVERS:
                sides.append(Side(name, Path(folder)))
            trio.run(measure, sides, args.mib, args.rounds)
        finally:
            for side in sides:
                side.child.stop()
    report(sides, args.mib, args.json)


if __name__ == "__main__":
    main()
