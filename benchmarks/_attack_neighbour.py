"""The honest neighbour of `attack.py`: a trial that ticks 80 times a second, and transfers of models.

It has a process of its own and answers lines on its standard input with lines:

* `start <server's port>`: start the trial, and answer when it ticks;
* `window <from> <to>`: how the trial ticked between two times (`time.monotonic`, which all processes share), as JSON;
* `transfer <seconds>`: upload a version of a model and download it again; `yes` if both succeed in time;
* `door <attack> <server's port> <seconds> <link of the lobby>`: what a newcomer wants (see `_attacks_doors.HONEST`).
"""

from __future__ import annotations

import asyncio
import bisect
import itertools
import json
import sys
import time
from typing import Any

import grpc
import grpc.aio
from _attacks_doors import HONEST
from _wire_peers import ACTOR, ENVIRONMENT, LIFECYCLE, Peers, add_stream, standard_input

from trio_cogment.api import common_pb2, environment_pb2, model_registry_pb2, orchestrator_pb2

TICKS_PER_S = 80
MODEL = "neighbour"
MODEL_BYTES = 256 * 1024
REGISTRY = "/cogmentAPI.ModelRegistrySP/"


class Neighbour:
    """Serves the environment and the actor of its trial."""

    def __init__(self) -> None:
        self.ticks: list[float] = []
        self.ticking = asyncio.Event()
        self.port = 0
        self.channel: grpc.aio.Channel | None = None

    async def environment(self, _: Any, context: Any) -> None:
        output = environment_pb2.EnvRunTrialOutput
        observations = environment_pb2.ObservationSet(tick_id=-1, timestamp=1, observations=[bytes(64)], actors_map=[0])
        normal = common_pb2.NORMAL
        observation_set = output(state=normal, observation_set=observations).SerializeToString()
        await context.read()
        await context.write(output(state=normal, init_output=environment_pb2.EnvInitialOutput()).SerializeToString())
        await context.write(observation_set)
        due = time.monotonic()
        while (message := await context.read()) is not grpc.aio.EOF and message.state != common_pb2.END:
            if message.WhichOneof("data") == "action_set":
                now = time.monotonic()
                self.ticks.append(now)
                self.ticking.set()
                # A late tick is not made up for by a shorter wait: what was lost stays lost.
                due = max(due + 1 / TICKS_PER_S, now)
                await asyncio.sleep(due - now)
                await context.write(observation_set)
            elif message.state == common_pb2.HEARTBEAT:
                await context.write(output(state=common_pb2.HEARTBEAT).SerializeToString())

    async def start(self, port: int) -> str:
        if self.channel is not None:
            await self.channel.close()
        self.channel = grpc.aio.insecure_channel(f"127.0.0.1:{port}")
        endpoint = f"grpc://127.0.0.1:{self.port}"
        params = common_pb2.TrialParams(
            environment=common_pb2.EnvironmentParams(name="env", endpoint=endpoint),
            actors=[common_pb2.ActorParams(name="actor", actor_class="player", endpoint=endpoint)],
        )
        start = self.channel.unary_unary(
            LIFECYCLE + "StartTrial",
            orchestrator_pb2.TrialStartRequest.SerializeToString,
            orchestrator_pb2.TrialStartReply.FromString,
        )
        self.ticks.clear()
        self.ticking.clear()
        await start(orchestrator_pb2.TrialStartRequest(user_id="neighbour", params=params), timeout=20)
        async with asyncio.timeout(20):
            await self.ticking.wait()
        create = self.channel.unary_unary(
            REGISTRY + "CreateOrUpdateModel",
            model_registry_pb2.CreateOrUpdateModelRequest.SerializeToString,
            model_registry_pb2.CreateOrUpdateModelReply.FromString,
        )
        info = model_registry_pb2.ModelInfo(model_id=MODEL)
        try:
            await create(model_registry_pb2.CreateOrUpdateModelRequest(model_info=info), timeout=20)
        except grpc.aio.AioRpcError as error:
            if error.code() is not grpc.StatusCode.UNIMPLEMENTED:  # a server without a registry
                raise
        return "ticking"

    def window(self, since: float, until: float) -> str:
        first, last = bisect.bisect_left(self.ticks, since), bisect.bisect_right(self.ticks, until)
        # A gap that reaches into the window counts from its beginning, and one that has no end yet up to the window's.
        before = self.ticks[first - 1] if first else since
        times = [before, *self.ticks[first:last], until]
        gap = max(late - early for early, late in itertools.pairwise(times))
        return json.dumps({"ticks_per_s": (last - first) / (until - since), "gap_ms": 1000 * gap})

    async def transfer(self, seconds: float) -> str:
        """Say `yes`, or what was in the way."""
        assert self.channel is not None
        chunk = model_registry_pb2.CreateVersionRequestChunk
        info = model_registry_pb2.ModelVersionInfo(model_id=MODEL, archived=True, data_size=MODEL_BYTES)
        upload = self.channel.stream_unary(
            REGISTRY + "CreateVersion", chunk.SerializeToString, model_registry_pb2.CreateVersionReply.FromString
        )
        download = self.channel.unary_stream(
            REGISTRY + "RetrieveVersionData",
            model_registry_pb2.RetrieveVersionDataRequest.SerializeToString,
            model_registry_pb2.RetrieveVersionDataReplyChunk.FromString,
        )
        chunks = [chunk(header=chunk.Header(version_info=info)), chunk(body=chunk.Body(data_chunk=bytes(MODEL_BYTES)))]
        try:
            stored = await upload(iter(chunks), timeout=seconds)
            number = stored.version_info.version_number
            request = model_registry_pb2.RetrieveVersionDataRequest(model_id=MODEL, version_number=number)
            got = 0
            async for part in download(request, timeout=seconds):
                got += len(part.data_chunk)
        except grpc.aio.AioRpcError as error:
            return f"{error.code().name}: {error.details()}"
        return "yes" if got == MODEL_BYTES else f"{got} bytes"


async def door(name: str, port: int, seconds: float, link: str) -> str:
    """Say `yes`, or what was in the way."""
    try:
        async with asyncio.timeout(seconds):
            return "yes" if await HONEST[name](port, link) else "refused"
    except (OSError, EOFError, TimeoutError, grpc.aio.AioRpcError) as error:
        return f"{type(error).__name__}: {error}"


async def serve() -> None:
    neighbour = Neighbour()
    server = grpc.aio.server()
    add_stream(server, ENVIRONMENT, neighbour.environment, environment_pb2.EnvRunTrialInput)
    add_stream(server, ACTOR, Peers().actor, common_pb2.ActorRunTrialInput)
    neighbour.port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    print("ready", flush=True)
    commands = await standard_input()
    while command := (await commands.readline()).decode().split():
        if command[0] == "start":
            answer = await neighbour.start(int(command[1]))
        elif command[0] == "transfer":
            answer = await neighbour.transfer(float(command[1]))
        elif command[0] == "door":
            answer = await door(command[1], int(command[2]), float(command[3]), command[4])
        else:
            answer = neighbour.window(float(command[1]), float(command[2]))
        print(answer.replace("\n", " "), flush=True)
    await server.stop(0)


if __name__ == "__main__":
    sys.exit(asyncio.run(serve()))
