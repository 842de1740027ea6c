"""Catch on the published library's own server: `catch_server.py FOLDER`, which tells its port in the file `catch.port`.

A ball falls down a board of ten rows and ten columns, one row with each step; a paddle in the last row moves by one to
the left or right, or stays. Each connection has a world of its own, and each sequence the next seed, from 1 on: Reset
begins a sequence, too.
"""

import sys
from concurrent import futures
from pathlib import Path

import grpc
import numpy as np
from dm_env_rpc.v1 import dm_env_rpc_pb2 as pb
from dm_env_rpc.v1 import dm_env_rpc_pb2_grpc, spec_manager
from google.rpc import status_pb2

SIZE = 10
WORLD = "catch"
ACTIONS = {1: pb.TensorSpec(name="paddle", dtype=pb.INT8)}
OBSERVATIONS = {
    1: pb.TensorSpec(name="board", dtype=pb.FLOAT, shape=[SIZE, SIZE]),
    2: pb.TensorSpec(name="reward", dtype=pb.FLOAT),
}


class Game:
    def __init__(self, seed):
        self.column = np.random.RandomState(seed).randint(SIZE)
        self.row, self.paddle = 0, SIZE // 2

    def move(self, by):
        self.paddle = int(np.clip(self.paddle + by, 0, SIZE - 1))
        self.row += 1

    @property
    def over(self):
        return self.row == SIZE - 1

    def seen(self):
        board = np.zeros((SIZE, SIZE), np.float32)
        board[self.row, self.column] = board[SIZE - 1, self.paddle] = 1
        reward = (1 if self.paddle == self.column else -1) if self.over else 0
        return {"board": board, "reward": np.float32(reward)}


class Connection:
    def __init__(self):
        self.seed, self.game, self.fresh, self.joined = 0, None, True, False
        self.actions = spec_manager.SpecManager(ACTIONS)
        self.observations = spec_manager.SpecManager(OBSERVATIONS)

    def answer(self, request):
        kind = request.WhichOneof("payload")
        response = pb.EnvironmentResponse()
        try:
            getattr(response, kind).CopyFrom(getattr(self, kind)(getattr(request, kind)))
        except Exception as error:  # noqa: BLE001  whatever it is, the client is told
            # Without a code, as examples of the library have it.
            response.error.CopyFrom(status_pb2.Status(message=str(error)))
        return response

    def begin(self):
        self.seed += 1
        self.game, self.fresh = Game(self.seed), True

    def specs(self):
        return pb.ActionObservationSpecs(actions=ACTIONS, observations=OBSERVATIONS)

    def create_world(self, _):
        if self.game is not None:
            raise RuntimeError("there is one world")
        self.begin()
        return pb.CreateWorldResponse(world_name=WORLD)

    def join_world(self, request):
        if self.game is None or request.world_name != WORLD:
            raise RuntimeError(f"there is no world {request.world_name!r}")
        self.joined = True
        return pb.JoinWorldResponse(specs=self.specs())

    def step(self, request):
        if not self.joined:
            raise RuntimeError("no world is joined")
        if not self.fresh:
            self.game.move(self.actions.unpack(request.actions).get("paddle", 0))
        self.fresh = False
        packed = self.observations.pack(self.game.seen())
        over = self.game.over
        found = pb.StepResponse(
            state=pb.TERMINATED if over else pb.RUNNING,
            observations={uid: packed[uid] for uid in request.requested_observations},
        )
        if over:
            self.begin()
        return found

    def reset(self, _):
        self.begin()
        return pb.ResetResponse(specs=self.specs())

    def leave_world(self, _):
        self.joined = False
        return pb.LeaveWorldResponse()

    def destroy_world(self, _):
        if self.joined or self.game is None:
            raise RuntimeError("the world is joined, or there is none")
        self.game = None
        return pb.DestroyWorldResponse()


class Servicer(dm_env_rpc_pb2_grpc.EnvironmentServicer):
    def Process(self, requests, _):
        connection = Connection()
        for request in requests:
            yield connection.answer(request)


def main(folder):
    server = grpc.server(futures.ThreadPoolExecutor(max_workers=8))
    dm_env_rpc_pb2_grpc.add_EnvironmentServicer_to_server(Servicer(), server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    file = folder / "catch.port"
    file.with_suffix(".new").write_text(str(port))
    file.with_suffix(".new").rename(file)
    server.wait_for_termination()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
