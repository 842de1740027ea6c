"""An agent of dm_env_rpc in trials of Cogment: it sees a world with tensors, and knows nothing of trials.

`python agent.py grpc://localhost:9010` connects to any server of dm_env_rpc whose actions and observations are those of
CartPole; without an address the program serves one itself: an environment of Gymnasium behind a gateway.
"""

import sys
from functools import partial

import trio

import trio_cogment.rl as tc
from trio_cogment import Participants, actor_params, open_platform, trial_params
from trio_cogment.gateways.dm_env_rpc import DmEnvRpcGateway, Profile, open_connection
from trio_cogment.rpc import open_listeners, serve

SEQUENCES = 3


async def play(server: str) -> None:
    """Balance the pole: push towards the side to which it falls."""
    async with open_connection(server) as connection:
        world = await connection.create_world({"seed": 7})
        specs = await connection.join_world(world)
        print("actions:", *specs.actions.specs)
        print("observations:", *specs.observations.specs)
        for _ in range(SEQUENCES):
            step = await connection.step()
            steps = 0
            while not step.last:
                _, _, angle, speed = step.observations["observation"]
                step = await connection.step({"action": int(angle + speed > 0)})
                steps += 1
            print(f"up for {steps} steps")
        await connection.leave_world()
        await connection.destroy_world(world)


async def main() -> None:
    if len(sys.argv) > 1:
        await play(sys.argv[1])
        return
    participants = Participants(tc.RL_SPEC)
    participants.register_environment(tc.environment("CartPole-v1"), "cartpole")
    params = trial_params(
        [actor_params("player_0", "player", endpoint="cogment://client")], environment="cartpole", max_steps=200
    )
    gateway = DmEnvRpcGateway(Profile.of(params, step_timeout_seconds=30))
    async with open_platform(participants, extensions=[gateway]) as platform, trio.open_nursery() as nursery:
        serving = await nursery.start(partial(serve, platform.services, await open_listeners("127.0.0.1")))
        await play(f"grpc://127.0.0.1:{serving.port}")
        nursery.cancel_scope.cancel()


if __name__ == "__main__":
    trio.run(main)
