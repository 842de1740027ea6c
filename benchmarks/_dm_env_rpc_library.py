"""The programs of `dm_env_rpc.py` that run on the published library, in its own environment: a server and a client.

With `server` it serves catch on the library's own server, and prints its port. With `client PORT` it joins a world,
prints a line, and makes as many steps as each line that it reads says.
"""

import sys
from concurrent import futures

import grpc
import numpy as np
from dm_env_rpc.v1 import connection, dm_env_rpc_pb2_grpc, spec_manager, tensor_utils
from dm_env_rpc.v1 import dm_env_rpc_pb2 as pb

ROWS, COLUMNS = 10, 5
WORLD = "catch"
ACTIONS = {1: pb.TensorSpec(name="paddle", dtype=pb.INT8)}
OBSERVATIONS = {
    1: pb.TensorSpec(name="board", dtype=pb.FLOAT, shape=[ROWS, COLUMNS]),
    2: pb.TensorSpec(name="reward", dtype=pb.FLOAT),
}


class Game:
    """One sequence."""

    def __init__(self, random):
        self.column = random.randint(COLUMNS)
        self.row, self.paddle = 0, COLUMNS // 2

    def move(self, by):
        self.paddle = int(np.clip(self.paddle + by, 0, COLUMNS - 1))
        self.row += 1

    @property
    def over(self):
        return self.row == ROWS - 1

    def seen(self):
        board = np.zeros((ROWS, COLUMNS), np.float32)
        board[self.row, self.column] = board[ROWS - 1, self.paddle] = 1
        reward = (1 if self.paddle == self.column else -1) if self.over else 0
        return {"board": board, "reward": np.float32(reward)}


class Catch(dm_env_rpc_pb2_grpc.EnvironmentServicer):
    """The service, in the form of the library's example."""

    def Process(self, requests, _):
        actions, observations = (spec_manager.SpecManager(specs) for specs in (ACTIONS, OBSERVATIONS))
        random, game = np.random.RandomState(1), None
        for request in requests:
            kind = request.WhichOneof("payload")
            response = pb.EnvironmentResponse()
            if kind == "create_world":
                response.create_world.world_name = WORLD
            elif kind in ("join_world", "reset"):
                specs = pb.ActionObservationSpecs(actions=ACTIONS, observations=OBSERVATIONS)
                getattr(response, kind).specs.CopyFrom(specs)
                game = None
            elif kind == "step":
                if game is None:
                    game = Game(random)
                else:
                    game.move(actions.unpack(request.step.actions).get("paddle", 0))
                packed = observations.pack(game.seen())
                response.step.state = pb.TERMINATED if game.over else pb.RUNNING
                for uid in request.step.requested_observations:
                    response.step.observations[uid].CopyFrom(packed[uid])
                if game.over:
                    game = None
            else:
                getattr(response, kind).SetInParent()
            yield response


def serve():
    server = grpc.server(futures.ThreadPoolExecutor(max_workers=4))
    dm_env_rpc_pb2_grpc.add_EnvironmentServicer_to_server(Catch(), server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    print(port, flush=True)
    server.wait_for_termination()


def play(port):
    with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
        opened = connection.Connection(channel)
        name = opened.send(pb.CreateWorldRequest()).world_name
        specs = opened.send(pb.JoinWorldRequest(world_name=name)).specs
        [action] = [uid for uid, spec in specs.actions.items() if spec.name == "paddle"]
        wanted = [uid for uid, spec in specs.observations.items() if spec.name in ("board", "reward")]
        requests = [
            pb.StepRequest(actions={action: tensor_utils.pack_tensor(np.int8(by))}, requested_observations=wanted)
            for by in (-1, 0, 1)
        ]
        print("ready", flush=True)
        ends = 0
        for line in sys.stdin:
            for number in range(int(line)):
                reply = opened.send(requests[number % 3])
                assert len(reply.observations) == len(wanted) == 2
                ends += reply.state == pb.TERMINATED
            print(ends, flush=True)


if __name__ == "__main__":
    if sys.argv[1] == "server":
        serve()
    else:
        play(sys.argv[2])
