"""Plays with one connection per agent, side by side: `play_together.py PORT OPTIONS FILE`, which gets all replies.

OPTIONS is a JSON object: `create`, the settings of the world; `join`, those of each agent; `actions`, for each agent
the names and numbers that it gives in every step; `observations`, the names of what is requested; `sequences`, how many
ends each agent sees before it leaves.
"""

import json
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import grpc
from dm_env_rpc.v1 import connection, spec_manager, tensor_utils
from dm_env_rpc.v1 import dm_env_rpc_pb2 as pb


def settings(values):
    return {name: tensor_utils.pack_tensor(value) for name, value in values.items()}


def play(opened, specs, wanted, given, sequences):
    actions, observations = spec_manager.SpecManager(specs.actions), spec_manager.SpecManager(specs.observations)
    request = pb.StepRequest(
        actions=actions.pack(given), requested_observations=[observations.name_to_uid(name) for name in wanted]
    )
    found, ends = [], 0
    while ends < sequences:
        reply = opened.send(request)
        seen = {name: value.tolist() for name, value in observations.unpack(reply.observations).items()}
        found.append([pb.EnvironmentStateType.Name(reply.state), seen])
        ends += reply.state != pb.RUNNING
    return found


def main(port, options, file):
    with grpc.insecure_channel(f"127.0.0.1:{port}") as channel, ThreadPoolExecutor() as threads:
        agents = [connection.Connection(channel) for _ in options["join"]]
        world = agents[0].send(pb.CreateWorldRequest(settings=settings(options["create"]))).world_name
        joined = [
            threads.submit(agent.send, pb.JoinWorldRequest(world_name=world, settings=settings(given)))
            for agent, given in zip(agents, options["join"], strict=True)
        ]
        specs = [each.result().specs for each in joined]
        played = [
            threads.submit(play, agent, own, options["observations"], given, options["sequences"])
            for agent, own, given in zip(agents, specs, options["actions"], strict=True)
        ]
        found = [each.result() for each in played]
        for agent in agents:
            agent.send(pb.LeaveWorldRequest())
        agents[0].send(pb.DestroyWorldRequest(world_name=world))
        for agent in agents:
            agent.close()
    file.with_suffix(".new").write_text(json.dumps(found))
    file.with_suffix(".new").rename(file)


if __name__ == "__main__":
    main(sys.argv[1], json.loads(sys.argv[2]), Path(sys.argv[3]))
