"""Steps pipelined by the published library's AsyncConnection: `pipelined.py PORT STEPS FILE`.

The file gets the replies, and how many requests waited for theirs at the same time. The action `paddle` is -1, 0 and 1
by turns.
"""

import asyncio
import json
import sys
from pathlib import Path

import numpy as np
from dm_env_rpc.v1 import async_connection, spec_manager
from dm_env_rpc.v1 import dm_env_rpc_pb2 as pb


class InTurn:
    """A stream whose writes, and whose reads, wait for each other: gRPC refuses a write during a write."""

    def __init__(self, stream):
        self._stream, self._writing, self._reading = stream, asyncio.Lock(), asyncio.Lock()
        self.waiting = self.most_waiting = 0

    async def write(self, request):
        async with self._writing:
            await self._stream.write(request)
            self.waiting += 1
            self.most_waiting = max(self.waiting, self.most_waiting)

    async def read(self):
        async with self._reading:
            response = await self._stream.read()
            self.waiting -= 1
            return response


async def main(port, steps, file):
    connection = await async_connection.create_secure_async_channel_and_connect(f"localhost:{port}")
    stream = connection._stream = InTurn(connection._stream)
    world = (await connection.send(pb.CreateWorldRequest())).world_name
    specs = (await connection.send(pb.JoinWorldRequest(world_name=world))).specs
    actions, observations = spec_manager.SpecManager(specs.actions), spec_manager.SpecManager(specs.observations)
    requested = [observations.name_to_uid(name) for name in ("board", "reward")]

    def request(number):
        packed = actions.pack({"paddle": np.int8(number % 3 - 1)})
        return pb.StepRequest(actions=packed, requested_observations=requested)

    replies = await asyncio.gather(*(connection.send(request(number)) for number in range(steps)))
    found = []
    for reply in replies:
        seen = observations.unpack(reply.observations)
        state = pb.EnvironmentStateType.Name(reply.state)
        found.append({"state": state, "board": seen["board"].tolist(), "reward": float(seen["reward"])})
    await connection.send(pb.LeaveWorldRequest())
    await connection.send(pb.DestroyWorldRequest(world_name=world))
    await connection.close()
    file.with_suffix(".new").write_text(json.dumps({"replies": found, "most waiting": stream.most_waiting}))
    file.with_suffix(".new").rename(file)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], int(sys.argv[2]), Path(sys.argv[3])))
